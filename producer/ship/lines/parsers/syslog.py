"""The parser ``syslog``: RFC 5424, RFC 3164, and what rsyslog writes to files today (RFC 3164 with an ISO 8601 time).

``<34>`` in front, if there, gives ``priority``, ``facility`` and ``severity`` (RFC 5424 section 6.2.1). The time stays
the text that it is: RFC 3164 has neither year nor zone.
"""

from __future__ import annotations

import re

_PRIORITY = re.compile(r"<(?P<priority>\d{1,3})>")
_HIGHEST_PRIORITY = 191

_ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"

# Possessive quantifiers (++) keep the match linear in the length of the line.
_RFC5424 = re.compile(
    rf"(?P<version>[1-9]\d?) (?P<time>{_ISO}|-) (?P<host>\S++) (?P<program>\S++) (?P<pid>\S++) (?P<msgid>\S++) "
    r'(?P<structured_data>-|(?:\[[^\s\]="]++(?: [^\s\]="]++="(?:[^"\\]|\\.)*+")*+\])++)'
    r"(?: \ufeff?(?P<message>.*+))?",
    re.DOTALL,
)
_RFC3164 = re.compile(
    rf"(?P<time>[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d|{_ISO}) (?P<host>\S++) "
    r"(?:(?P<program>[^\s:\[\]]++)(?:\[(?P<pid>[^\]]*+)\])?: ?)?(?P<message>.*+)",
    re.DOTALL,
)


def parse_syslog(line: str) -> dict[str, str] | None:
    """Take apart ``time``, ``host``, ``program``, ``pid``, ``message``; or RFC 5424's."""
    priority = _PRIORITY.match(line)
    fields = _priority_fields(priority)
    if fields is None:
        return None
    rest = line[priority.end() :] if priority else line
    # Only RFC 5424 has a version, and only after a priority.
    match = (_RFC5424.fullmatch(rest) if priority else None) or _RFC3164.fullmatch(rest)
    if match is None:
        return None
    return fields | {name: value for name, value in match.groupdict().items() if value is not None and value != "-"}


def _priority_fields(match: re.Match[str] | None) -> dict[str, str] | None:
    if match is None:
        return {}
    priority = int(match["priority"])
    if priority > _HIGHEST_PRIORITY:
        return None
    return {"priority": str(priority), "facility": str(priority // 8), "severity": str(priority % 8)}

r"""The lines of syslog, taken apart: RFC 5424, RFC 3164, and RFC 3164 with an ISO 8601 time, as in rsyslog's files.

    <priority>version time host program pid msgid structured_data[ message]
    [<priority>]time host [program[[pid]]: ]message

The priority, 0 to 191, is ``facility`` × 8 + ``severity``. Structured data stay the text that they are, and so does the
time: that of RFC 3164 has neither year nor zone. A field that is not there, or ``-``, is null. White space is ASCII's.

Example: the line ``<34>Oct 11 22:14:15 box su[7]: failed`` is ``priority`` ``34``, ``facility`` ``4``, ``severity``
``2``, ``time`` ``Oct 11 22:14:15``, ``host`` ``box``, ``program`` ``su``, ``pid`` ``7`` and ``message`` ``failed``.

``_syslog.pyx`` takes a block of lines apart; without it, lines are parsed one by one. It finds no ``facility`` and no
``severity``, which follow from the priority (:func:`facility_and_severity`).
"""

from __future__ import annotations

import re

#: The fields that compiled code finds, in their order.
FIELDS = ("priority", "version", "time", "host", "program", "pid", "msgid", "structured_data", "message")

_PRIORITY = re.compile(r"<(?P<priority>\d{1,3})>", re.ASCII)
_HIGHEST_PRIORITY = 191

_ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"

# Possessive quantifiers (++) keep the match linear in the length of the line.
_RFC5424 = re.compile(
    rf"(?P<version>[1-9]\d?) (?P<time>{_ISO}|-) (?P<host>\S++) (?P<program>\S++) (?P<pid>\S++) (?P<msgid>\S++) "
    r'(?P<structured_data>-|(?:\[[^\s\]="]++(?: [^\s\]="]++="(?:[^"\\]|\\.)*+")*+\])++)'
    r"(?: \ufeff?(?P<message>.*+))?",
    re.DOTALL | re.ASCII,
)
_RFC3164 = re.compile(
    rf"(?P<time>[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d|{_ISO}) (?P<host>\S++) "
    r"(?:(?P<program>[^\s:\[\]]++)(?:\[(?P<pid>[^\]]*+)\])?: ?)?(?P<message>.*+)",
    re.DOTALL | re.ASCII,
)


def parse_syslog(line: str) -> dict[str, str] | None:
    """The fields of one line; None if it is of another format."""
    priority = _PRIORITY.match(line)
    fields: dict[str, str] = {}
    if priority:
        number = int(priority["priority"])
        if number > _HIGHEST_PRIORITY:
            return None
        fields["priority"] = str(number)
        fields["facility"], fields["severity"] = facility_and_severity(str(number))
    rest = line[priority.end() :] if priority else line
    # Only RFC 5424 has a version, and only after a priority.
    match = (_RFC5424.fullmatch(rest) if priority else None) or _RFC3164.fullmatch(rest)
    if match is None:
        return None
    return fields | {name: value for name, value in match.groupdict().items() if value is not None and value != "-"}


def facility_and_severity(priority: str) -> tuple[str, str]:
    """What a priority stands for (RFC 5424, section 6.2.1)."""
    facility, severity = divmod(int(priority), 8)
    return str(facility), str(severity)

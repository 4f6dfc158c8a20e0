r"""Parses syslog: RFC 5424, RFC 3164, and variants of RFC 3164 that devices send.

    <priority>version time host program pid msgid structured_data[ message]
    [<priority>][ ][time[:] [host ]][program[[pid]]: ]message

The sources of the agent read a message up to its host (:mod:`.syslog_headers`), and the parser ``syslog`` reads all of
it.

The priority, 0 to 191, is ``facility`` × 8 + ``severity``. A line without a priority needs a time. A time is one of

    Oct 11 22:14:15    with one space or two before the day; a year may come first, or before or after the time of day
    2024-10-11T22:14:15    after a priority also with a space between date and time of day

with up to nine digits after the second, and ``Z``, ``UTC``, ``GMT`` or an offset such as ``+02:00`` at its end.
:mod:`.times` converts it; here structured data and the time stay text. A word after the time is a host, unless it ends
with a colon or has a character that hosts do not have, as a tag does (``app:``, ``app[12]:``). A field that is missing,
or ``-``, is null. White space is ASCII only.

Example: the line ``<34>Oct 11 22:14:15 box su[7]: failed`` is ``priority`` ``34``, ``facility`` ``4``, ``severity``
``2``, ``time`` ``Oct 11 22:14:15``, ``host`` ``box``, ``program`` ``su``, ``pid`` ``7`` and ``message`` ``failed``.

``_syslog.pyx`` parses blocks of lines; without it, lines are parsed one by one. It omits ``facility`` and ``severity``,
which follow from the priority (:func:`facility_and_severity`).
"""

from __future__ import annotations

import re

#: The fields that native code finds, in order.
FIELDS = ("priority", "version", "time", "host", "program", "pid", "msgid", "structured_data", "message")
#: The fields of a message's header, and the text after the host.
HEADER_FIELDS = (*FIELDS[:4], "rest")

_HIGHEST_PRIORITY = 191

# Possessive quantifiers (++) keep the match linear in the length of the line.
_CLOCK = r"\d\d?:\d\d:\d\d(?:[.,]\d{1,9})?"
# A colon after the time is not part of it.
_BEHIND = r":?(?: |\Z)"
_ZONE = rf"(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)(?={_BEHIND}))?"
_DAY = r"[A-Z][a-z]{2} {1,2}\d\d?"
# Logs of applications also begin with a date, a space and a time; without a priority they are not syslog.
_ISO = rf"\d{{4}}-\d\d-\d\d(?:T|(?(1) |T))\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?{_ZONE}"
_CLASSIC = rf"(?:\d{{4}} {_DAY} {_CLOCK}{_ZONE}|{_DAY} (?:\d{{4}} )?{_CLOCK}{_ZONE}(?: 20\d\d(?={_BEHIND}))?)"
_HOST = r"""[^\s\[\](){}"'<>=,;|]++(?<!:)"""
_PRIORITY = r"<(\d{1,3}+)>(?:([1-9]\d?) (?=\d{4}-|- ))?"
# Group 2, the version, distinguishes RFC 5424 from RFC 3164.
_REST = (
    rf"(?:(?(1)(?(2)| ?))((?(2)(?:{_ISO}|-)|(?:{_CLASSIC}|{_ISO}))){_BEHIND}"
    rf"(?:((?(2)\S++|{_HOST}))(?: |\Z))?)?(.*+)"
)
_MESSAGE = re.compile(_PRIORITY + _REST, re.DOTALL | re.ASCII)
_LINE = re.compile(f"(?:{_PRIORITY})?{_REST}", re.DOTALL | re.ASCII)

_RFC5424 = re.compile(
    r"(?P<program>\S++) (?P<pid>\S++) (?P<msgid>\S++) "
    r'(?P<structured_data>-|(?>(?:\[[^\s\]="]++(?> [^\s\]="]++="(?:[^"\\]|\\.)*+")*\])+))'
    r"(?: \ufeff?(?P<message>.*+))?",
    re.DOTALL | re.ASCII,
)
_RFC3164 = re.compile(
    r"(?:(?P<program>[^\s:\[\]]++)(?:\[(?P<pid>[^\]]*+)\])?: ?)?(?P<message>.*+)", re.DOTALL | re.ASCII
)

#: Matches the header of a message, with the groups priority, version, time, host, and rest; None without a priority.
match_header = _MESSAGE.match


def is_priority(digits: str) -> bool:
    """Return True if the priority is valid."""
    return int(digits) <= _HIGHEST_PRIORITY


def parse_syslog(line: str) -> dict[str, str] | None:
    """Return the fields of one line; None if it has another format."""
    header = _LINE.match(line)
    assert header is not None  # noqa: S101  # all parts of the pattern are optional
    priority, version, time, host, rest = header.groups()
    fields: dict[str, str] = {}
    if priority:
        if not is_priority(priority):
            return None
        fields["priority"] = str(int(priority))
        fields["facility"], fields["severity"] = facility_and_severity(priority)
    elif time is None:
        return None
    match = (_RFC5424.fullmatch(rest) if version else None) or _RFC3164.fullmatch(rest)
    assert match is not None  # noqa: S101  # all parts of the pattern are optional
    found = {"version": version, "time": time, "host": host, **match.groupdict()}
    return fields | {name: value for name, value in found.items() if value is not None and value != "-"}


def facility_and_severity(priority: str) -> tuple[str, str]:
    """Split a priority into facility and severity (RFC 5424, section 6.2.1)."""
    facility, severity = divmod(int(priority), 8)
    return str(facility), str(severity)

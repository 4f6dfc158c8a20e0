"""The parser ``apache``: access logs and error logs.

Access logs in the common and the combined format, with or without a virtual host in front, and error logs as 2.2 and
2.4 write them.

Source: Apache HTTP Server documentation, "Log Files" and mod_log_config; nginx writes the combined format too.
"""

from __future__ import annotations

import re

# Possessive quantifiers (++) keep the match linear in the length of the line: nobody's log line may cost seconds.
_QUOTED = r'"(?P<{name}>(?:[^"\\]|\\.)*+)"'

_ACCESS = re.compile(
    r"(?:(?P<vhost>[^\s:\"]++:\d++) )?"
    r"(?P<remote_addr>\S++) (?P<ident>\S++) (?P<remote_user>\S++) \[(?P<time>[^\]]++)\] "
    + _QUOTED.format(name="request")
    + r" (?P<status>\d{3}|-) (?P<bytes>\d++|-)"
    + r"(?: "
    + _QUOTED.format(name="referer")
    + r" "
    + _QUOTED.format(name="user_agent")
    + r")?(?: (?P<extra>.++))?",
    re.DOTALL,
)
_REQUEST = re.compile(r"(?P<method>[A-Z_]++) (?P<uri>\S++)(?: (?P<protocol>HTTP/[\d.]++))?")

_ERROR = re.compile(
    r"\[(?P<time>[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d(?:\.\d++)? \d{4})\] "
    r"\[(?:(?P<module>[\w-]*+):)?(?P<level>\w++)\] "
    r"(?:\[pid (?P<pid>\d++)(?::tid (?P<tid>\d++))?\] )?"
    r"(?:\[(?:client|remote) (?P<client>[^\]]++)\] )?"
    r"(?P<message>.*+)",
    re.DOTALL,
)


def parse_apache(line: str) -> dict[str, str] | None:
    """The fields of an access or an error log line; None for anything else."""
    return parse_error_log(line) if line.startswith("[") else parse_access_log(line)


def parse_access_log(line: str) -> dict[str, str] | None:
    """Take apart ``remote_addr``, ``time``, ``request`` (``method``, ``uri``), ``status``, ``user_agent`` …"""
    match = _ACCESS.fullmatch(line)
    if match is None:
        return None
    request = _REQUEST.fullmatch(match["request"])
    found = match.groupdict() | (request.groupdict() if request else {})
    return {name: value for name, value in found.items() if value is not None and value != "-"}


def parse_error_log(line: str) -> dict[str, str] | None:
    """Take apart ``time``, ``level``, ``module``, ``pid``, ``tid``, ``client``, ``message``."""
    match = _ERROR.fullmatch(line)
    return {name: value for name, value in match.groupdict().items() if value} if match else None

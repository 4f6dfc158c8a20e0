"""The parser ``apache``: access logs and error logs.

It parses access logs (:mod:`producer.wire.access_log`), and error logs of Apache 2.2, Apache 2.4 and nginx
(:mod:`.nginx`).

Source: Apache HTTP Server documentation, "Log Files".
"""

from __future__ import annotations

import re

from ....wire.access_log import parse_access_line
from .nginx import may_be_error, parse_nginx_error

# Possessive quantifiers (++) keep the match linear in the length of the line.
_ERROR = re.compile(
    r"\[(?P<time>[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d(?:\.\d++)? \d{4})\] "
    r"\[(?:(?P<module>[\w-]*+):)?(?P<level>\w++)\] "
    r"(?:\[pid (?P<pid>\d++)(?::tid (?P<tid>\d++))?\] )?"
    r"(?:\[(?:client|remote) (?P<client>[^\]]++)\] )?"
    r"(?P<message>.*+)",
    re.DOTALL,
)


def parse_apache(line: str) -> dict[str, str] | None:
    """Return the fields of a line of an access or error log; None for any other line."""
    if line.startswith("["):
        return parse_error_log(line)
    return parse_access_line(line) or (parse_nginx_error(line) if may_be_error(line) else None)


def parse_error_log(line: str) -> dict[str, str] | None:
    """Return the fields of a line of an error log: ``time``, ``level``, ``module``, ``pid``, ``tid``, ``client``,
    ``message``.
    """
    match = _ERROR.fullmatch(line)
    return {name: value for name, value in match.groupdict().items() if value} if match else None

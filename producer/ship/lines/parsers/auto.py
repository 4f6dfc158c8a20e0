"""The parser ``auto``: detects the format of each line.

Files mix formats: an application prints a stack trace between JSON lines, and syslog carries anything. So the format is
detected line by line. The first character selects the parsers to try; the first that matches is used::

    {     json
    [     apache (error log)
    <     syslog
    else  apache (access log), then nginx (error log, if its date has a slash), then syslog, then logfmt
          (if all words are name=value, and there are two or more)
"""

from __future__ import annotations

from collections.abc import Callable

from ....wire.access_log import parse_access_line
from ....wire.json_object import parse_json
from ....wire.logfmt import is_surely_logfmt, parse_logfmt
from ....wire.syslog import parse_syslog
from .apache import parse_error_log
from .nginx import may_be_error, parse_nginx_error

_BY_FIRST_CHARACTER: dict[str, Callable[[str], dict[str, str] | None]] = {
    "{": parse_json,
    "[": parse_error_log,
    "<": parse_syslog,
}


def parse_auto(line: str) -> dict[str, str] | None:
    """Return the fields from the first parser that recognises the line; None if none does."""
    only = _BY_FIRST_CHARACTER.get(line[:1])
    if only is not None:
        return only(line)
    # An access log contains a quote; this check is faster than the pattern.
    return (parse_access_line(line) if '"' in line else None) or parse_dated(line) or parse_pairs(line)


def parse_dated(line: str) -> dict[str, str] | None:
    """Return the fields of a line of nginx's error log, or of syslog."""
    return (parse_nginx_error(line) if may_be_error(line) else None) or parse_syslog(line)


def parse_pairs(line: str) -> dict[str, str] | None:
    """Return the fields of a line that is certainly logfmt."""
    return parse_logfmt(line) if is_surely_logfmt(line) else None

"""Parsers: one log line to named fields.

A parser is a function from the text of a line (without its end) to its fields, or to None when the line is not of its
format. It never raises for a line, whatever is in it: a line that one record cannot be made of would fail its task for
ever. Fields are text; a field whose value is missing in the line (``-`` in an access log) is left out.
"""

from __future__ import annotations

from collections.abc import Callable

from ....wire.logfmt import parse_logfmt
from ....wire.syslog import parse_syslog
from ...errors import InputError
from .apache import parse_apache
from .auto import parse_auto
from .delimited import Values, delimited_parser
from .json_object import parse_json
from .regex import compiled_pattern, regex_parser

__all__ = ["PARSER_NAMES", "Parser", "Values", "compiled_pattern", "make_parser"]

#: From a line's text to its fields; None if it is not of the parser's format.
Parser = Callable[[str], dict[str, str] | None]

#: The names that :func:`make_parser` knows.
PARSER_NAMES = ("auto", "text", "json", "regex", "apache", "syslog", "logfmt", "delimited")

_PARSERS: dict[str, Parser] = {
    "auto": parse_auto,
    "text": lambda _line: {},
    "json": parse_json,
    "apache": parse_apache,
    "syslog": parse_syslog,
    "logfmt": parse_logfmt,
}


def make_parser(name: str, pattern: str | None = None, values: Values | None = None) -> Parser:
    """The parser of that name.

    :param name: one of :data:`PARSER_NAMES`.
    :param pattern: a regular expression with named groups: required by ``regex``, refused by the others.
    :param values: how ``delimited`` divides lines.
    :raises InputError: an unknown name, a pattern that is missing, not wanted, does not compile, or names no group.
    """
    if name == "regex" and pattern is None:
        raise InputError("--parser regex needs --pattern REGEX, with named groups such as (?P<message>.*)")
    if name != "regex" and pattern is not None:
        raise InputError(f"--pattern belongs to --parser regex, and the parser is {name}")
    if pattern is not None:
        return regex_parser(pattern)
    if name == "delimited":
        return delimited_parser(values or Values())
    try:
        return _PARSERS[name]
    except KeyError:
        raise InputError(f"unknown parser {name!r}: use one of {', '.join(PARSER_NAMES)}") from None

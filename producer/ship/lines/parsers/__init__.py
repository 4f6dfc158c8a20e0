"""Parse one log line to named fields.

A parser is a function from the text of a line (without its end) to its fields, or None if the line has another format.
It never raises, whatever the line contains: an error would fail the task at each attempt. Fields are text. A field
without a value (``-`` in an access log) is left out.
"""

from __future__ import annotations

from collections.abc import Callable

from ....wire.delimited import fields_parser
from ....wire.json_object import parse_json
from ....wire.logfmt import parse_logfmt
from ....wire.syslog import parse_syslog
from ...errors import InputError
from .apache import parse_apache
from .auto import parse_auto
from .delimited import Values
from .regex import compiled_pattern, regex_parser

__all__ = ["PARSER_NAMES", "Parser", "Values", "compiled_pattern", "make_parser"]

#: A function from a line's text to its fields; None if the line has another format.
Parser = Callable[[str], dict[str, str] | None]

#: The names of the parsers of :func:`make_parser`.
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
    """Return the parser with the given name.

    :param name: one of :data:`PARSER_NAMES`.
    :param pattern: a regular expression with named groups; required by ``regex``, refused by the others.
    :param values: the columns and the delimiter of ``delimited``.
    :raises InputError: the name is unknown, or the pattern is missing, unexpected, invalid, or without a named group.
    """
    if name == "regex" and pattern is None:
        raise InputError("--parser regex needs --pattern REGEX, with named groups such as (?P<message>.*)")
    if name != "regex" and pattern is not None:
        raise InputError(f"--pattern is an option of --parser regex, but the parser is {name}")
    if pattern is not None:
        return regex_parser(pattern)
    if name == "delimited":
        values = values or Values()
        return fields_parser(values.delimiter, values.names)
    try:
        return _PARSERS[name]
    except KeyError:
        raise InputError(f"unknown parser {name!r}: use one of {', '.join(PARSER_NAMES)}") from None

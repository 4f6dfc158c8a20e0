"""The parser ``regex``: the named groups of the user's pattern become fields."""

from __future__ import annotations

import re
from collections.abc import Callable

from ....wire.patterns import Pattern
from ...errors import InputError


def compiled_pattern(pattern: str) -> Pattern[str]:
    """Compile the user's pattern.

    :param pattern: a Python regular expression with a named group, such as ``(?P<level>\\w+) (?P<message>.*)``.
    :raises InputError: it does not compile, or has no named group.
    """
    try:
        expression = Pattern(pattern, re.DOTALL, option="--pattern", outcome="the line is sent as text, without fields")
    except ValueError as error:
        raise InputError(f"--pattern {error}") from error
    if not expression.groupindex:
        raise InputError(f"--pattern {pattern!r} has no named group: add one for each field, such as (?P<message>.*)")
    return expression


def regex_parser(pattern: str) -> Callable[[str], dict[str, str] | None]:
    """Return a parser of lines that ``pattern`` matches as a whole.

    A group without a match is left out.

    :raises InputError: the pattern does not compile, or has no named group.
    """
    expression = compiled_pattern(pattern)

    def parse(line: str) -> dict[str, str] | None:
        match = expression.fullmatch(line)
        return {name: value for name, value in match.groupdict().items() if value is not None} if match else None

    return parse

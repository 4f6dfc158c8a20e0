"""The parser ``regex``: the user's own pattern; its named groups become fields."""

from __future__ import annotations

import re
from collections.abc import Callable

from ....wire.patterns import Pattern
from ...errors import InputError


def compiled_pattern(pattern: str) -> Pattern[str]:
    """The user's expression.

    :param pattern: a Python regular expression with at least one named group, such as ``(?P<level>\\w+)
        (?P<message>.*)``.
    :raises InputError: it does not compile or has no named group.
    """
    try:
        expression = Pattern(pattern, re.DOTALL, option="--pattern", outcome="the line goes as text, without fields")
    except ValueError as error:
        raise InputError(f"--pattern {error}") from error
    if not expression.groupindex:
        raise InputError(
            f"--pattern {pattern!r} has no named group, such as (?P<message>.*): nothing would become a field"
        )
    return expression


def regex_parser(pattern: str) -> Callable[[str], dict[str, str] | None]:
    """A parser for lines that ``pattern`` matches from their first to their last character.

    A group that took no part in the match is left out.

    :raises InputError: as :func:`compiled_pattern`.
    """
    expression = compiled_pattern(pattern)

    def parse(line: str) -> dict[str, str] | None:
        match = expression.fullmatch(line)
        return {name: value for name, value in match.groupdict().items() if value is not None} if match else None

    return parse

"""The parser ``regex``: the user's own pattern; its named groups become fields."""

from __future__ import annotations

import re
from collections.abc import Callable

from ...errors import InputError


def compiled_pattern(pattern: str) -> re.Pattern[str]:
    """The user's expression.

    :param pattern: a Python regular expression with at least one named group, such as ``(?P<level>\\w+)
        (?P<message>.*)``.
    :raises InputError: it does not compile or has no named group.
    """
    try:
        expression = re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise InputError(f"--pattern {pattern!r} is not a regular expression: {error}") from error
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
        return _present(match) if match else None

    return parse


def _present(match: re.Match[str]) -> dict[str, str]:
    return {name: value for name, value in match.groupdict().items() if value is not None}

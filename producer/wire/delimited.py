r"""Lines of values between delimiters, taken apart: CSV as RFC 4180 has it, TSV, and the like.

* The delimiter is one ASCII character. A line has a number of values that is known beforehand; any other is none.
* A value that begins with ``"`` ends with the ``"`` before the next delimiter or the end of the line; in it ``""`` is a
  ``"``, and a delimiter is itself. In a value that begins otherwise, ``"`` is an ordinary character.
* A value without a character is null; ``""`` is an empty one. Spaces are part of values.

Example: of the line ``a,"b,""c",`` the values are ``a``, ``b,"c`` and null.

``_delimited.pyx`` takes a block of lines apart; without it, lines are parsed one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence


def values_parser(delimiter: str, count: int | None) -> Callable[[str], list[str | None] | None]:
    """A function from a line to its values; to None if it has more or fewer, or a quote that does not end.

    :param delimiter: one ASCII character, neither ``"`` nor a line end.
    :param count: how many values there are; None for any number.
    """
    mark = re.escape(delimiter)
    # Possessive quantifiers keep the match linear in the length of the line.
    value = re.compile(rf'(?:"((?:[^"]|"")*+)"|((?!")[^{mark}]*+))(?:{mark}|(\Z))', re.DOTALL)

    def parse(line: str) -> list[str | None] | None:
        values: list[str | None] = []
        at = 0
        while count is None or len(values) < count:
            found = value.match(line, at)
            if found is None:
                return None
            values.append(found[2] or None if found[1] is None else found[1].replace('""', '"'))
            at = found.end()
            if found[3] is not None:
                return values if count in (None, len(values)) else None
        return None

    return parse


def fields_parser(delimiter: str, names: Sequence[str]) -> Callable[[str], dict[str, str] | None]:
    """A parser of lines.

    :param delimiter: as of :func:`values_parser`.
    :param names: of the values, in their order, all different.
    """
    parse = values_parser(delimiter, len(names))

    def fields(line: str) -> dict[str, str] | None:
        values = parse(line)
        if values is None:
            return None
        return {name: value for name, value in zip(names, values, strict=True) if value is not None}

    return fields

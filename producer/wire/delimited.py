r"""Parses lines of delimited values: CSV as in RFC 4180, TSV, and the like.

* The delimiter is one ASCII character. The number of values is given, and a line with another number is invalid.
* A value that begins with ``"`` ends with the ``"`` before the next delimiter or the end of the line. In it, ``""`` is
  a ``"``, and a delimiter is an ordinary character. In any other value, ``"`` is an ordinary character.
* An empty value is null; ``""`` is an empty text. Spaces are part of values.

Example: the values of the line ``a,"b,""c",`` are ``a``, ``b,"c`` and null.

``_delimited.pyx`` parses blocks of lines; without it, lines are parsed one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence


def values_parser(delimiter: str, count: int | None) -> Callable[[str], list[str | None] | None]:
    """Return a function from a line to its values; None for another number of values, or an unclosed quote.

    :param delimiter: one ASCII character, neither ``"`` nor a line end.
    :param count: the number of values; None for any number.
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
    """Return a function from a line to its fields; None for an invalid line.

    :param delimiter: one ASCII character, neither ``"`` nor a line end.
    :param names: the unique names of the values, in order.
    """
    parse = values_parser(delimiter, len(names))

    def fields(line: str) -> dict[str, str] | None:
        values = parse(line)
        if values is None:
            return None
        return {name: value for name, value in zip(names, values, strict=True) if value is not None}

    return fields

r"""Parses lines that contain keys with values, with separators that the user chooses.

* A pair is a key, the value separator, and a value. A pair ends at the next pair separator, or at the end of the line.
  The separator ``" "`` is any white space; with any other one, white space around keys and values is left out.
* A value that begins with ``"`` or ``'`` ends at the next such quote without a backslash before it, if the pair ends
  there; a backslash before the quote or another backslash is left out. Any other value is used unchanged.
* Text without the value separator is skipped, so that ``login failed user=jo`` has a field. Of a repeated key, the last
  value is used. A line without a pair has another format.

Example: with ``;`` and ``:`` the line ``a: 1; b: "x;y"; done`` is ``a`` ``1`` and ``b`` ``x;y``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_ESCAPE = re.compile(r"\\([\"'\\])")


def key_value_parser(pairs: str, values: str) -> Callable[[str], dict[str, str] | None]:
    """Return a function from a line to its fields; None for a line without a pair.

    :param pairs: the separator between pairs.
    :param values: the separator between a key and its value, different from ``pairs``.
    """
    pair = _pair(pairs, values)

    def parse(line: str) -> dict[str, str] | None:
        pairs = [each for each in pair.finditer(line) if each["paired"] and each["key"].strip()]
        return {each["key"].rstrip(): _value(each) for each in pairs} or None

    return parse


def _pair(pairs: str, values: str) -> re.Pattern[str]:
    spaces = not pairs.strip()
    end = r"(?:\s|\Z)" if spaces else rf"(?:{re.escape(pairs)}|\Z)"
    after, middle = ("", re.escape(values)) if spaces else (r"\s*+", rf"{re.escape(values)}\s*+")
    # Possessive quantifiers and atomic groups keep the match linear in the length of the line.
    return re.compile(
        rf"\s*+(?P<key>(?>.*?(?={end}|{re.escape(values)})))"
        rf"(?P<paired>{middle}(?:(?:\"(?P<double>(?:[^\"\\]|\\.)*+)\"|'(?P<single>(?:[^'\\]|\\.)*+)')(?={after}{end})"
        rf"|(?P<bare>(?>.*?(?={end})))))?{after}{end}",
        re.DOTALL | re.ASCII,
    )


def _value(pair: re.Match[str]) -> str:
    if (bare := pair["bare"]) is not None:
        return str(bare).rstrip()
    quoted = str(pair["single"] if pair["double"] is None else pair["double"])
    return _ESCAPE.sub(r"\1", quoted) if "\\" in quoted else quoted

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
        found: dict[str, str] = {}
        for each in pair.finditer(line):
            key, paired, double, single, bare = each.groups()
            if paired and (name := key.rstrip()):
                found[name] = _unescaped(single if double is None else double) if bare is None else bare.rstrip()
        return found or None

    return parse


def _pair(pairs: str, values: str) -> re.Pattern[str]:
    spaces = not pairs.strip()
    between, equals = r"\s" if spaces else re.escape(pairs), re.escape(values)
    end, key, bare = rf"(?:{between}|\Z)", _until(between, equals), _until(between)
    after, middle = ("", equals) if spaces else (r"\s*+", rf"{equals}\s*+")
    # Possessive quantifiers and atomic groups keep the match linear in the length of the line.
    return re.compile(
        rf"\s*+(?P<key>{key})"
        rf"(?P<paired>{middle}(?:(?:\"(?P<double>(?:[^\"\\]|\\.)*+)\"|'(?P<single>(?:[^'\\]|\\.)*+)')(?={after}{end})"
        rf"|(?P<bare>{bare})))?{after}{end}",
        re.DOTALL | re.ASCII,
    )


def _until(*ends: str) -> str:
    """Return a pattern of the text before one of the ends; that of single characters is several times faster."""
    if all(re.fullmatch(r"\\?.", end, re.DOTALL) for end in ends):
        return f"[^{''.join(ends)}]*+"
    return rf"(?>.*?(?={'|'.join(ends)}|\Z))"


def _unescaped(quoted: str) -> str:
    return _ESCAPE.sub(r"\1", quoted) if "\\" in quoted else quoted

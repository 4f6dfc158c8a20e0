r"""Parse a properties file as Java does: ``key = value``, ``key: value`` or ``key value``.

A line that ends with a backslash continues on the next one. ``#`` and ``!`` begin a comment. ``\t``, ``\n``, ``\u20ac``
and so on are escapes; before other characters a backslash is dropped. The last value of a key counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_KEY = re.compile(r"((?:[^\\=:\s]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class Properties:
    """The keys and values of a file.

    :ivar values: the values by key.
    :ivar lines: the line where each key begins, from 1 on.
    :ivar repeated: repeated keys, and the line of the value that does not count.
    """

    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    repeated: dict[str, int] = field(default_factory=dict)


def parse_properties(text: str) -> Properties:
    """Parse a text. Blanks around values are dropped, as in Flume."""
    properties = Properties()
    for number, line in _logical_lines(text):
        match = _KEY.match(line)
        assert match is not None  # noqa: S101  # it also matches the empty text
        key = _plain(match[1]).strip()
        if key in properties.values:
            properties.repeated[key] = properties.lines[key]
        properties.values[key] = _plain(line[match.end() :]).strip()
        properties.lines[key] = number
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    begun, parts = 0, list[str]()
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = natural.lstrip(" \t\f")
        if not parts:
            if not line or line[0] in "#!":
                continue
            begun = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield begun, "".join([*parts, line])
        parts = []
    if parts:
        yield begun, "".join(parts)


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda match: _character(match[1]), text)


def _character(escape: str) -> str:
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _NAMED.get(escape, escape)

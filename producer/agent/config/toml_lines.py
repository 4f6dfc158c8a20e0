"""Find the line of each table and key in a TOML text, for messages. ``tomllib`` does not report them."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_PART = re.compile(r"""[ \t]*(?:([A-Za-z0-9_-]+)|("(?:[^"\\\n]|\\.)*"|'[^'\n]*'))[ \t]*(\.?)""")
#: A key of 64 parts or more, which callers refuse: no configuration has one, and reading thousands of parts takes
#: minutes.
DEEP_KEY = re.compile(r"""^[ \t]*\[{0,2}(?:[ \t]*(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.){64}""", re.MULTILINE)
_TOKEN = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""(?!")|\'\'\'.*?\'\'\'(?!\')|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|#[^\n]*|[\[{\]}]|\n|[^"'#\[\]{}\n]+''',
    re.DOTALL,
)


def lines_of(text: str) -> dict[Path, int]:
    """Return the line of each table and key, from 1 on. In a path, an array is followed by the index of its table.

    :param text: a text that ``tomllib`` can read.
    """
    scan = _Scan(text)
    while scan.statement():
        pass
    return scan.found


class _Scan:
    """A scanner that reads one statement at a time."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._line, self._counted = 1, 0
        self._table: Path = ()
        self._sizes: defaultdict[Path, int] = defaultdict(int)
        self.found: dict[Path, int] = {}

    def statement(self) -> bool:
        """Read one table header, or one key with its value. Return False at the end of the text."""
        blank = _BLANK.match(self._text, self._at)
        self._at = blank.end() if blank else self._at
        if self._at >= len(self._text):
            return False
        line = self._line_here()
        if self._text.startswith("[", self._at):
            self._header(line)
        else:
            path = self._table
            for part in self._key():
                path = (*path, part)
                self.found.setdefault(path, line)
            self._skip_value()
        return True

    def _header(self, line: int) -> None:
        of_array = self._text.startswith("[[", self._at)
        self._at += 1 + of_array
        path: Path = ()
        parts = self._key()
        for part in parts[:-1]:
            path = (*path, part)
            if path in self._sizes:
                path = (*path, self._sizes[path] - 1)
        path = (*path, parts[-1])
        if of_array:
            self._sizes[path] += 1
            self.found.setdefault(path, line)
            path = (*path, self._sizes[path] - 1)
        self._table = path
        self.found[path] = line
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _key(self) -> list[str]:
        parts: list[str] = []
        while match := _PART.match(self._text, self._at):
            self._at = match.end()
            parts.append(match[1] or tomllib.loads(f"k = {match[2]}")["k"])
            if not match[3]:
                break
        return parts

    def _skip_value(self) -> None:
        self._at = self._text.index("=", self._at) + 1
        depth = 0
        while match := _TOKEN.match(self._text, self._at):
            self._at = match.end()
            found = match[0]
            depth += (found in ("[", "{")) - (found in ("]", "}"))
            if found == "\n" and not depth:
                return

    def _line_here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

"""Where logs of several lines begin: with a line that matches their start pattern."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from .captures import first_bytes, steps_of
from .encodings import last_line_end, line_end_of, to_utf8
from .patterns import Pattern

#: How many bytes of a line its start pattern sees.
SEEN_BYTES = 4096


class StartPattern:
    """The expression that the first lines of logs match; it is matched on bytes.

    :ivar first_bytes: a byte for each that a start line may begin with: 1, and 0 for others.
    :raises ValueError: it does not compile, or matches every line; says which.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = Pattern(pattern.encode(), option="multiline start", outcome="the line begins no log")
        if self._pattern.match(b""):
            raise ValueError(f"{pattern!r} matches an empty line, so that every line would be a log")
        self._steps = steps_of(self._pattern, (), anchored=True)
        self.first_bytes = first_bytes(self._pattern)

    def match(self, line: bytes) -> bool:
        """Return True if it is a start line."""
        return bool(line) and self.first_bytes[line[0]] == 1 and self._pattern.match(line) is not None

    def match_all(self, lines: Sequence[bytes]) -> list[bool]:
        """Return what :meth:`match` does, of each line."""
        if self._steps is None:
            return [found is not None for found in self._pattern.match_all(lines)]
        ends = array("Q", accumulate(map(len, lines))).tobytes()
        known = self._steps.capture(len(lines), ends, b"".join(lines)).found
        return [bool(found) or self.match(line) for found, line in zip(known, lines, strict=True)]


@dataclass(frozen=True, slots=True)
class Logs:
    """How logs of several lines are told apart.

    :ivar start: a log begins with a line that matches it.
    :ivar max_bytes: of a log; more of them are taken without waiting for its end.
    """

    start: StartPattern
    max_bytes: int


def last_start(data: bytes, pattern: StartPattern, *, at_line: bool) -> int:
    """Where the last start line in ``data`` begins; 0 if there is none behind its first byte.

    A line at the end that has no line end may still change, and counts if enough of it is there.

    :param at_line: a line begins with the first byte.
    """
    first = 0 if at_line else data.find(b"\n") + 1 or len(data)
    line_end = len(data)
    while line_end > first:
        line = data.rfind(b"\n", first, line_end) + 1 or first
        text = data[line : min(line_end, line + SEEN_BYTES)]
        ended = line_end < len(data) or len(text) == SEEN_BYTES
        if ended and line and pattern.match(text.removesuffix(b"\r") if line_end - line == len(text) else text):
            return line
        line_end = line - 1
    return 0


def last_start_in(data: bytes, pattern: StartPattern, encoding: str, *, first: bool) -> int:
    """Where the last start line in ``data`` of another encoding begins; 0 as of :func:`last_start`.

    :param encoding: with its byte order.
    :param first: the data begin the file, and may have a mark.
    """
    line_end = line_end_of(encoding)
    text = to_utf8(data[: last_line_end(data, 0, line_end)], encoding, first=first)
    at = 0
    for _ in range(text.count(b"\n", 0, last_start(text, pattern, at_line=True))):
        at = _past(data, at, line_end)
        if at < 0:  # UTF-7 can say a line end otherwise
            return 0
    return at


def _past(data: bytes, at: int, line_end: bytes) -> int:
    """The byte after the next line end, which begins where a character does; -1 if there is none."""
    found = data.find(line_end, at)
    while found % len(line_end) and found >= 0:
        found = data.find(line_end, found + 1)
    return found + len(line_end) if found >= 0 else -1

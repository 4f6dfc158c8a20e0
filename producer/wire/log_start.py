"""Finds the start lines of multi-line logs: lines that match a pattern."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from .captures import first_bytes, steps_of
from .encodings import last_line_end, line_end_of, to_utf8
from .patterns import Pattern

#: Maximum bytes of a line that its start pattern sees.
SEEN_BYTES = 4096


class StartPattern:
    """The pattern of start lines, which matches bytes.

    :ivar first_bytes: a mask of 256 bytes: 1 for bytes that a start line may begin with.
    :raises ValueError: the pattern does not compile, or matches every line; the message has the pattern.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = Pattern(pattern.encode(), option="multiline start", outcome="the line begins no log")
        if self._pattern.match(b""):
            raise ValueError(f"{pattern!r} matches an empty line, so that every line would be a log")
        self._steps = steps_of(self._pattern, (), anchored=True)
        self.first_bytes = first_bytes(self._pattern)

    def match(self, line: bytes) -> bool:
        """Return True if the line is a start line."""
        return bool(line) and self.first_bytes[line[0]] == 1 and self._pattern.match(line) is not None

    def match_all(self, lines: Sequence[bytes]) -> list[bool]:
        """Return a list of the results of :meth:`match` for each line."""
        if self._steps is None:
            return [found is not None for found in self._pattern.match_all(lines)]
        ends = array("Q", accumulate(map(len, lines))).tobytes()
        known = self._steps.capture(len(lines), ends, b"".join(lines)).found
        return [bool(found) or self.match(line) for found, line in zip(known, lines, strict=True)]


@dataclass(frozen=True, slots=True)
class Logs:
    """The settings of multi-line logs.

    :ivar start: the pattern of the first line of a log.
    :ivar max_bytes: maximum size of a log before its first bytes are shipped without waiting for its end.
    """

    start: StartPattern
    max_bytes: int


def last_start(data: bytes, pattern: StartPattern, *, at_line: bool) -> int:
    """Return the offset of the last start line in ``data``; 0 if there is none after its first byte.

    A last line without a line end may still change; it is a start line only if it is long enough to decide.

    :param at_line: True if a line begins with the first byte.
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
    """Return the offset of the last start line in ``data`` of another encoding; 0 if there is none after its first
    byte.

    :param encoding: the encoding with its byte order.
    :param first: True if the data begins the file, and may have a mark.
    """
    line_end = line_end_of(encoding)
    text = to_utf8(data[: last_line_end(data, 0, line_end)], encoding, first=first).data
    at = 0
    for _ in range(text.count(b"\n", 0, last_start(text, pattern, at_line=True))):
        at = _after_line_end(data, at, line_end)
        if at < 0:  # UTF-7 has more than one form of a line end.
            return 0
    return at


def _after_line_end(data: bytes, at: int, line_end: bytes) -> int:
    """Return the offset after the next line end, aligned to characters; -1 if there is none."""
    found = data.find(line_end, at)
    while found % len(line_end) and found >= 0:
        found = data.find(line_end, found + 1)
    return found + len(line_end) if found >= 0 else -1

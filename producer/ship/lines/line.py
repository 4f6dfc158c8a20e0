r"""Bytes to lines, by the rules that a person expects of a log file.

* A line ends at ``\n`` or ``\r\n``; neither is part of it. A lone ``\r`` is an ordinary byte.
* A last line without an end is a line; the empty rest after a final ``\n`` is not.
* An empty line is a line.
* A line longer than ``max_line_bytes`` comes in pieces, cut between two UTF-8 characters, so that memory stays bounded
  and no byte is lost. The pieces carry the offset of their line and count from 1; a whole line is piece 0.

A range of a file yields the lines that **begin** in it: so adjacent ranges share each line out exactly once, wherever
they are cut. Where a range is known to begin a line, though no line end lies before it, the caller says so.
"""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator
from typing import NamedTuple

#: How much is read from a file at a time, bytes.
READ_BYTES = 1 << 20

# A UTF-8 character has at most three continuation bytes, which look like 10xxxxxx.
_CONTINUATIONS = 3


class Line(NamedTuple):
    """A line, or a piece of a long one.

    :ivar offset: where its line begins in the (decompressed) file, bytes.
    :ivar part: 0 for a whole line; 1, 2, … for the pieces of a long one.
    :ivar data: its bytes, without the line end.
    """

    offset: int
    part: int
    data: bytes


def lines_of(
    file: io.BufferedIOBase,
    start: int,
    end: int | None,
    *,
    limit: int | None,
    max_line_bytes: int,
    begins_line: bool = False,
) -> Iterator[Line]:
    """The lines that begin at ``start`` or later and before ``end``.

    :param file: a binary file; it must be able to seek unless ``start`` is 0.
    :param start: first byte of the range.
    :param end: the byte after the range; None for the end of the file.
    :param limit: bytes from here on count as not there (what was appended after the plan was made); None for no limit.
    :param max_line_bytes: longer lines come in pieces of at most this many bytes.
    :param begins_line: a line begins at ``start`` whatever the byte before is: it was handed out as a line's last.
    """
    position = file.seek(start) if begins_line and start else _seek_to_line(file, start, limit)
    if position is not None:
        yield from _Splitter(file, position, limit, max_line_bytes).lines(end)


def _seek_to_line(file: io.BufferedIOBase, start: int, limit: int | None) -> int | None:
    """Where the first line at or after ``start`` begins; None if there is none."""
    if start == 0:
        return 0
    # The byte before decides whether `start` itself begins a line.
    position = start - 1
    file.seek(position)
    while chunk := _read(file, position, limit):
        found = chunk.find(b"\n")
        if found >= 0:
            file.seek(position + found + 1)
            return position + found + 1
        position += len(chunk)
    return None


def _read(file: io.BufferedIOBase, position: int, limit: int | None) -> bytes:
    wanted = READ_BYTES if limit is None else min(READ_BYTES, limit - position)
    # read1: of a damaged compressed file, what comes before the damage is still handed out.
    return file.read1(wanted) if wanted > 0 else b""


class _Splitter:
    """Cuts a file into lines, holding at most one chunk and the unfinished line or piece before it."""

    def __init__(self, file: io.BufferedIOBase, position: int, limit: int | None, max_line_bytes: int) -> None:
        self._file = file
        self._position = position  # of the next byte to read
        self._limit = limit
        self._max = max_line_bytes
        self._line_start = position
        self._parts = 0  # pieces given of the line that is being read

    def lines(self, end: int | None) -> Iterator[Line]:
        """Yield until a line begins at ``end`` or after it, or the file is over."""
        rest = b""
        while self._is_before(end) and (chunk := _read(self._file, self._position, self._limit)):
            scanned = self._position - len(rest)
            self._position += len(chunk)
            *complete, rest = (rest + chunk).split(b"\n")
            for data in complete:
                yield from self._finish(data.removesuffix(b"\r"))
                scanned += len(data) + 1
                self._line_start = scanned
                if not self._is_before(end):
                    return
            # One byte more than the maximum may still be a line end's "\r".
            rest = yield from self._cut(rest, self._max + 1)
        if rest or self._parts:
            yield from self._finish(rest)

    def _is_before(self, end: int | None) -> bool:
        return end is None or self._line_start < end

    def _finish(self, data: bytes) -> Iterator[Line]:
        """The line is complete: yield it, or the pieces of it that remain."""
        data = yield from self._cut(data, self._max)
        yield Line(self._line_start, self._parts + 1 if self._parts else 0, data)
        self._parts = 0

    def _cut(self, data: bytes, allowed: int) -> Generator[Line, None, bytes]:
        """Yield pieces until at most ``allowed`` bytes remain, and return those."""
        while len(data) > allowed:
            size = _character_boundary(data, self._max)
            self._parts += 1
            yield Line(self._line_start, self._parts, data[:size])
            data = data[size:]
        return data


def _character_boundary(data: bytes, size: int) -> int:
    """The largest cut up to ``size`` that divides no UTF-8 character; ``size`` itself where the bytes are not UTF-8."""
    for cut in range(size, max(size - _CONTINUATIONS, 1) - 1, -1):
        if data[cut] & 0b1100_0000 != 0b1000_0000:
            return cut
    return size

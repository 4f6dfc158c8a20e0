r"""Splits bytes into blocks of whole lines.

* A line ends at ``\n`` or ``\r\n``; neither is part of it. A lone ``\r`` is an ordinary byte.
* A last line without an end is a line; the empty rest after a final ``\n`` is not.
* An empty line is a line.
* A byte order mark at the beginning of a file is not part of its first line.
* Four NULs or more at the beginning of a line are a hole (:mod:`producer.wire.encodings`), and are skipped.
* A line longer than ``max_line_bytes`` is split into pieces, between two UTF-8 characters, so that memory is bounded
  and no byte is lost. The pieces have the offset of their line, and are numbered from 1.

A range of a file yields the lines that **begin** in it, so adjacent ranges yield each line exactly once. If a range
begins a line without a line end before it, the caller must say so.
"""

from __future__ import annotations

import io
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ...wire.encodings import HOLE, MARK, is_valid_utf8
from ...wire.measure_lines import LineFigures
from ...wire.speed import measure_lines

_NULS = re.compile(rb"\0*+")

#: Bytes read from a file at a time; a block is about as large.
READ_BYTES = 1 << 20

# A UTF-8 character has at most three continuation bytes, which look like 10xxxxxx.
_CONTINUATIONS = 3


class Line(NamedTuple):
    """A line, or a piece of a long one.

    :ivar offset: the offset of its line in the (decompressed) file, bytes.
    :ivar part: 0 for a whole line; 1, 2, … for the pieces of a long one.
    :ivar data: its bytes, without the line end.
    """

    offset: int
    part: int
    data: bytes

    @property
    def text_bytes(self) -> int:
        """Number of bytes without the line end."""
        return len(self.data)

    def without_first(self, size: int) -> Line | None:
        """Return the line without its first ``size`` bytes."""
        return Line(self.offset + size, self.part, self.data[size:])


@dataclass(frozen=True)
class Block:
    """Consecutive whole lines, none of which exceeds the limit.

    :ivar offset: the offset of the first line in the (decompressed) file, bytes.
    :ivar data: the bytes of the lines with their ends; the last line of a file may have none.
    """

    offset: int
    data: bytes

    @cached_property
    def _figures(self) -> LineFigures:
        return measure_lines(self.data)

    @property
    def count(self) -> int:
        """The number of lines."""
        return self._figures.ends + (not self.data.endswith(b"\n"))

    @property
    def text_bytes(self) -> int:
        """Number of bytes without the line ends."""
        return len(self.data) - self._figures.ends - self._figures.long_ends

    @cached_property
    def is_text(self) -> bool:
        """True if the bytes are UTF-8."""
        return self._figures.ascii or is_valid_utf8(self.data)

    def has_longer(self, size: int) -> bool:
        r"""Return True if a line has more than ``size`` bytes, without its ``\n``."""
        data, begin = self.data, 0
        while len(data) - begin > size:
            # No line before the last line end within reach is longer.
            end = data.rfind(b"\n", begin, begin + size + 1)
            if end < 0:
                return True
            begin = end + 1
        return False

    def lines(self) -> Iterator[Line]:
        """Yield each line."""
        offset = self.offset
        *ended, last = self.data.split(b"\n")
        for data in ended:
            yield Line(offset, 0, data.removesuffix(b"\r"))
            offset += len(data) + 1
        if last:
            yield Line(offset, 0, last)

    def without_first(self, size: int) -> Block | None:
        """Return the block without its first ``size`` bytes; None if nothing remains."""
        return Block(self.offset + size, self.data[size:]) if size < len(self.data) else None

    def after_first(self) -> Block | None:
        """Return all lines but the first one; None if there are none."""
        end = self.data.find(b"\n") + 1
        return Block(self.offset + end, self.data[end:]) if 0 < end < len(self.data) else None

    def cut_at(self, offset: int) -> tuple[Block | None, Block | None]:
        """Divide at the first line that begins at or after an offset of the file; None for a part without lines."""
        if offset <= self.offset:
            return None, self
        cut = self.data.find(b"\n", offset - self.offset - 1) + 1
        if cut in {0, len(self.data)}:
            return self, None
        return Block(self.offset, self.data[:cut]), Block(self.offset + cut, self.data[cut:])

    def joined(self, others: Sequence[Block]) -> Block:
        """Return one block of this one and those that follow it."""
        return Block(self.offset, b"".join([self.data, *(each.data for each in others)]))

    def halves(self) -> tuple[Block, Block] | None:
        """Divide the block between two lines near its middle; None if it has one line."""
        middle = len(self.data) // 2
        cut = self.data.find(b"\n", middle) + 1
        if cut in {0, len(self.data)}:
            cut = self.data.rfind(b"\n", 0, middle) + 1
        if cut == 0:
            return None
        return Block(self.offset, self.data[:cut]), Block(self.offset + cut, self.data[cut:])


def blocks_of(
    file: io.BufferedIOBase,
    start: int,
    end: int | None,
    *,
    limit: int | None,
    max_line_bytes: int,
    begins_line: bool = False,
) -> Iterator[Block | Line]:
    """Yield the lines that begin in a range: whole lines in blocks, long ones in pieces.

    :param file: a binary file; it must be seekable unless ``start`` is 0.
    :param start: the first byte of the range.
    :param end: the byte after the range; None for the end of the file.
    :param limit: the offset at which the file ends for this job, as bytes may be appended after the plan; None for no
        limit.
    :param max_line_bytes: maximum size of a line or piece, bytes.
    :param begins_line: True if a line begins at ``start`` even if the byte before is not a line end.
    """
    position = file.seek(start) if begins_line and start else seek_to_line(file, start, limit)
    if position is not None:
        yield from _Splitter(file, position, limit, max_line_bytes).blocks(end)


def seek_to_line(file: io.BufferedIOBase, start: int, limit: int | None) -> int | None:
    """Seek to the first line that begins at or after ``start``. Return its offset; None if there is none."""
    if start == 0:
        return 0
    # The byte before `start` decides if a line begins there.
    position = start - 1
    file.seek(position)
    while chunk := read_some(file, position, limit):
        found = chunk.find(b"\n")
        if found >= 0:
            file.seek(position + found + 1)
            return position + found + 1
        position += len(chunk)
    return None


def read_some(file: io.BufferedIOBase, position: int, limit: int | None) -> bytes:
    """Return the next bytes of a file; nothing at its end.

    :param position: the offset of the next byte.
    :param limit: the offset at which the file ends for this job; None for no limit.
    """
    wanted = READ_BYTES if limit is None else min(READ_BYTES, limit - position)
    # Unlike read, read1 returns the bytes before the damage of a compressed file.
    return file.read1(wanted) if wanted > 0 else b""


def without_mark(read: Iterable[Block | Line]) -> Iterator[Block | Line]:
    """Remove a byte order mark at the beginning of a file.

    :param read: the lines of a range.
    """
    marked = False
    for number, lines in enumerate(read):
        kept: Block | Line | None = lines
        if number == 0 and lines.offset == 0 and lines.data.startswith(MARK):
            marked, kept = True, lines.without_first(len(MARK))
        elif marked and isinstance(lines, Line) and lines.offset == 0:  # A piece of the first line.
            kept = lines._replace(offset=len(MARK))
        if kept is not None:
            yield kept


def skip_hole(file: io.BufferedIOBase, position: int, limit: int | None) -> tuple[int, bytes]:
    """Skip a hole. Return the offset of the line after it, and the bytes read from there on."""
    chunk = rest = read_some(file, position, limit)
    if chunk.startswith(HOLE):
        while chunk and not (rest := chunk.lstrip(b"\0")):
            position += len(chunk)
            chunk = rest = read_some(file, position, limit)
    return position + len(chunk) - len(rest), rest


def _runs_between_holes(data: bytes, *, in_hole: bool) -> Iterator[tuple[int, int]]:
    """Yield the bounds of each run of lines without a hole between them.

    :param in_hole: True if the data begins in a hole.
    """
    # A search for one byte is a hundred times as fast as for several.
    if not in_hole and (b"\0" not in data or HOLE not in data):
        yield 0, len(data)
        return
    at = 0
    while at < len(data):
        nuls = _NULS.match(data, at)
        if nuls is not None and (in_hole or nuls.end() - at >= len(HOLE)):
            at = nuls.end()
        hole, in_hole = data.find(b"\n" + HOLE, at), False
        end = hole + 1 if hole >= 0 else len(data)
        if at < end:
            yield at, end
        at = end


class _Splitter:
    """Splits a file into blocks; it holds at most one chunk and the unfinished line or piece before it.

    A line after a hole belongs to the range where the hole begins, so to exactly one range.
    """

    def __init__(self, file: io.BufferedIOBase, position: int, limit: int | None, max_line_bytes: int) -> None:
        self._file = file
        self._position = position  # The offset of the next byte to read.
        self._limit = limit
        self._max = max_line_bytes
        self._line_start = position
        self._skipped = 0  # NULs before the current line.
        self._parts = 0  # Pieces yielded of the current line.

    def blocks(self, end: int | None) -> Iterator[Block | Line]:
        """Yield until a line begins at or after ``end``, or the file ends."""
        rest = b""  # The bytes after the last line end.
        while self._is_before(end) and (chunk := read_some(self._file, self._position, self._limit)):
            self._position += len(chunk)
            if self._parts:
                rest, chunk = b"", (yield from self._end_long_line(rest + chunk))
            whole = self._whole(chunk, end)
            if whole:
                # Joining copies the bytes once; adding the rest and slicing would copy twice.
                yield from self._lines(b"".join((rest, memoryview(chunk)[:whole])))
                rest = b""
            # One byte more than the maximum may be the "\r" of a line end.
            rest = self._without_hole(rest + chunk[whole:])
            if self._is_before(end):
                rest = yield from self._cut(rest, self._max + 1)
        if self._is_before(end) and (rest or self._parts):
            yield from self._finish(rest)

    def _without_hole(self, data: bytes) -> bytes:
        """Return the unfinished line without the hole before it."""
        if self._parts or not (self._skipped or data.startswith(HOLE)):
            return data
        rest = data.lstrip(b"\0")
        self._skipped += len(data) - len(rest)
        return rest

    @property
    def _text_start(self) -> int:
        return self._line_start + self._skipped

    def _is_before(self, end: int | None) -> bool:
        return end is None or self._line_start < end

    def _end_long_line(self, data: bytes) -> Generator[Block | Line, None, bytes]:
        """Yield the pieces in ``data`` of the long line. Return the bytes after it, or its unfinished piece."""
        found = data.find(b"\n")
        if found < 0:
            return data
        yield from self._finish(data[:found].removesuffix(b"\r"))
        data = data[found + 1 :]
        self._line_start, self._skipped = self._position - len(data), 0
        return data

    def _whole(self, chunk: bytes, end: int | None) -> int:
        """Return the end in ``chunk`` of the whole lines that begin before ``end``."""
        if self._parts or not self._is_before(end):
            return 0
        if end is not None:
            found = chunk.find(b"\n", max(0, end - 1 - (self._position - len(chunk))))
            if found >= 0:
                return found + 1
        return chunk.rfind(b"\n") + 1

    def _lines(self, data: bytes) -> Iterator[Block | Line]:
        """Yield whole lines as blocks, and long ones in pieces."""
        base, in_hole = self._text_start, self._skipped > 0
        self._skipped = 0
        for start, end in _runs_between_holes(data, in_hole=in_hole):
            self._line_start = base + start
            yield from self._blocks(data[start:end] if end - start < len(data) else data)
        self._line_start = base + len(data)

    def _blocks(self, data: bytes) -> Iterator[Block | Line]:
        """Yield lines without holes."""
        base, begun, at = self._line_start, 0, 0
        # If all lines together are within the limit, each of them is.
        while len(data) > self._max and at < len(data):
            line_end = data.index(b"\n", at)
            text = data[at:line_end].removesuffix(b"\r") if line_end - at > self._max else b""
            if len(text) > self._max:
                if begun < at:
                    yield Block(base + begun, data[begun:at])
                self._line_start = base + at
                yield from self._finish(text)
                begun = line_end + 1
            at = line_end + 1
        if begun < len(data):
            yield Block(base + begun, data[begun:])

    def _finish(self, data: bytes) -> Iterator[Block | Line]:
        """Yield a complete line, or its remaining pieces."""
        data = yield from self._cut(data, self._max)
        if self._parts:
            yield Line(self._text_start, self._parts + 1, data)
        else:
            yield Block(self._text_start, data)
        self._parts = 0

    def _cut(self, data: bytes, allowed: int) -> Generator[Line, None, bytes]:
        """Yield pieces until at most ``allowed`` bytes remain, and return these."""
        while len(data) > allowed:
            size = character_boundary(data, self._max)
            self._parts += 1
            yield Line(self._text_start, self._parts, data[:size])
            data = data[size:]
        return data


def character_boundary(data: bytes, size: int) -> int:
    """Return the largest cut up to ``size`` that divides no UTF-8 character; ``size`` if the bytes are not UTF-8."""
    for cut in range(size, max(size - _CONTINUATIONS, 1) - 1, -1):
        if data[cut] & 0b1100_0000 != 0b1000_0000:
            return cut
    return size

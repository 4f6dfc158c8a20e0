r"""Bytes to blocks of whole lines, by the rules that a person expects of a log file.

* A line ends at ``\n`` or ``\r\n``; neither is part of it. A lone ``\r`` is an ordinary byte.
* A last line without an end is a line; the empty rest after a final ``\n`` is not.
* An empty line is a line.
* A byte order mark at the beginning of a file is no part of its first line.
* Four NULs or more at the beginning of a line are a hole (:mod:`producer.wire.encodings`), and are skipped.
* A line longer than ``max_line_bytes`` comes in pieces, cut between two UTF-8 characters, so that memory stays bounded
  and no byte is lost. The pieces carry the offset of their line and count from 1.

A range of a file yields the lines that **begin** in it: so adjacent ranges share each line out exactly once, wherever
they are cut. Where a range is known to begin a line, though no line end lies before it, the caller says so.
"""

from __future__ import annotations

import io
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ...wire.encodings import HOLE, MARK
from ...wire.measure_lines import LineFigures
from ...wire.speed import measure_lines

_NULS = re.compile(rb"\0*+")

#: How much is read from a file at a time, bytes; about as much is a block.
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

    @property
    def text_bytes(self) -> int:
        """Its bytes without the line end."""
        return len(self.data)

    def without_first(self, size: int) -> Line | None:
        """All but the first bytes."""
        return Line(self.offset + size, self.part, self.data[size:])


@dataclass(frozen=True)
class Block:
    """Whole lines, one behind the other; none is longer than the limit.

    :ivar offset: where the first one begins in the (decompressed) file, bytes.
    :ivar data: their bytes with their ends; the last line of a file may have none.
    """

    offset: int
    data: bytes

    @cached_property
    def _figures(self) -> LineFigures:
        return measure_lines(self.data)

    @property
    def count(self) -> int:
        """How many they are."""
        return self._figures.ends + (not self.data.endswith(b"\n"))

    @property
    def text_bytes(self) -> int:
        """Their bytes without the line ends."""
        return len(self.data) - self._figures.ends - self._figures.long_ends

    @cached_property
    def is_text(self) -> bool:
        """Whether they are UTF-8."""
        if self._figures.ascii:
            return True
        try:
            self.data.decode()
        except UnicodeDecodeError:
            return False
        return True

    def has_longer(self, size: int) -> bool:
        r"""Whether one of them has more bytes than so many, without its ``\n``."""
        data, begin = self.data, 0
        while len(data) - begin > size:
            # None of those before the last end within reach is longer.
            end = data.rfind(b"\n", begin, begin + size + 1)
            if end < 0:
                return True
            begin = end + 1
        return False

    def lines(self) -> Iterator[Line]:
        """Each line of it."""
        offset = self.offset
        *ended, last = self.data.split(b"\n")
        for data in ended:
            yield Line(offset, 0, data.removesuffix(b"\r"))
            offset += len(data) + 1
        if last:
            yield Line(offset, 0, last)

    def without_first(self, size: int) -> Block | None:
        """All but the first bytes; None if there is nothing else."""
        return Block(self.offset + size, self.data[size:]) if size < len(self.data) else None

    def after_first(self) -> Block | None:
        """All lines but the first one; None if there is but one."""
        end = self.data.find(b"\n") + 1
        return Block(self.offset + end, self.data[end:]) if 0 < end < len(self.data) else None

    def cut_at(self, offset: int) -> tuple[Block | None, Block | None]:
        """Cut in two where the first line begins at an offset of the file or behind it; None for no lines."""
        if offset <= self.offset:
            return None, self
        cut = self.data.find(b"\n", offset - self.offset - 1) + 1
        if cut in {0, len(self.data)}:
            return self, None
        return Block(self.offset, self.data[:cut]), Block(self.offset + cut, self.data[cut:])

    def joined(self, others: Sequence[Block]) -> Block:
        """One block with those that come behind it."""
        return Block(self.offset, b"".join([self.data, *(each.data for each in others)]))

    def halves(self) -> tuple[Block, Block] | None:
        """Cut in two between lines; None if there is but one."""
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
    """The lines that begin at ``start`` or later and before ``end``: in blocks, and long ones in pieces.

    :param file: a binary file; it must be able to seek unless ``start`` is 0.
    :param start: first byte of the range.
    :param end: the byte after the range; None for the end of the file.
    :param limit: bytes from here on count as not there (what was appended after the plan was made); None for no limit.
    :param max_line_bytes: longer lines come in pieces of at most this many bytes.
    :param begins_line: a line begins at ``start`` whatever the byte before is: it was handed out as a line's last.
    """
    position = file.seek(start) if begins_line and start else seek_to_line(file, start, limit)
    if position is not None:
        yield from _Splitter(file, position, limit, max_line_bytes).blocks(end)


def seek_to_line(file: io.BufferedIOBase, start: int, limit: int | None) -> int | None:
    """Where the first line at or after ``start`` begins; None if there is none."""
    if start == 0:
        return 0
    # The byte before decides whether `start` itself begins a line.
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
    """What comes next in a file; nothing at its end.

    :param position: of the next byte.
    :param limit: bytes from here on count as not there; None for no limit.
    """
    wanted = READ_BYTES if limit is None else min(READ_BYTES, limit - position)
    # read1: of a damaged compressed file, what comes before the damage is still handed out.
    return file.read1(wanted) if wanted > 0 else b""


def without_mark(read: Iterable[Block | Line]) -> Iterator[Block | Line]:
    """Leave out a byte order mark, with which a file may begin.

    :param read: the lines of a range.
    """
    marked = False
    for number, lines in enumerate(read):
        kept: Block | Line | None = lines
        if number == 0 and lines.offset == 0 and lines.data.startswith(MARK):
            marked, kept = True, lines.without_first(len(MARK))
        elif marked and isinstance(lines, Line) and lines.offset == 0:  # a piece of the first line
            kept = lines._replace(offset=len(MARK))
        if kept is not None:
            yield kept


def skip_hole(file: io.BufferedIOBase, position: int, limit: int | None) -> tuple[int, bytes]:
    """Where a line begins behind a hole, if one is there, and what was read from there on."""
    chunk = rest = read_some(file, position, limit)
    if chunk.startswith(HOLE):
        while chunk and not (rest := chunk.lstrip(b"\0")):
            position += len(chunk)
            chunk = rest = read_some(file, position, limit)
    return position + len(chunk) - len(rest), rest


def _between_holes(data: bytes, *, in_hole: bool) -> Iterator[tuple[int, int]]:
    """Where lines that have no hole between them begin, and end.

    :param in_hole: the data begin in a hole.
    """
    # One byte is found a hundred times as fast as several.
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
    """Cuts a file into blocks, holding at most one chunk and the unfinished line or piece before it.

    A line begins for its range where the hole before it does: so a line behind a hole belongs to one range.
    """

    def __init__(self, file: io.BufferedIOBase, position: int, limit: int | None, max_line_bytes: int) -> None:
        self._file = file
        self._position = position  # of the next byte to read
        self._limit = limit
        self._max = max_line_bytes
        self._line_start = position
        self._skipped = 0  # NULs before the line that is being read
        self._parts = 0  # pieces given of the line that is being read

    def blocks(self, end: int | None) -> Iterator[Block | Line]:
        """Yield until a line begins at ``end`` or after it, or the file is over."""
        rest = b""  # without a line end
        while self._is_before(end) and (chunk := read_some(self._file, self._position, self._limit)):
            self._position += len(chunk)
            if self._parts:
                rest, chunk = b"", (yield from self._end_long_line(rest + chunk))
            whole = self._whole(chunk, end)
            if whole:
                # One copy, not one to add the rest and one to cut.
                yield from self._lines(b"".join((rest, memoryview(chunk)[:whole])))
                rest = b""
            # One byte more than the maximum may still be a line end's "\r".
            rest = self._behind_hole(rest + chunk[whole:])
            if self._is_before(end):
                rest = yield from self._cut(rest, self._max + 1)
        if self._is_before(end) and (rest or self._parts):
            yield from self._finish(rest)

    def _behind_hole(self, data: bytes) -> bytes:
        """What is left of a line without an end."""
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
        """Yield the pieces that the long line has in ``data``; what is behind them, or the piece that is unfinished."""
        found = data.find(b"\n")
        if found < 0:
            return data
        yield from self._finish(data[:found].removesuffix(b"\r"))
        data = data[found + 1 :]
        self._line_start, self._skipped = self._position - len(data), 0
        return data

    def _whole(self, chunk: bytes, end: int | None) -> int:
        """Up to where the lines of what was read last, and what it completes, are whole and begin before ``end``."""
        if self._parts or not self._is_before(end):
            return 0
        if end is not None:
            found = chunk.find(b"\n", max(0, end - 1 - (self._position - len(chunk))))
            if found >= 0:
                return found + 1
        return chunk.rfind(b"\n") + 1

    def _lines(self, data: bytes) -> Iterator[Block | Line]:
        """Whole lines as blocks; the long ones among them in pieces."""
        base, in_hole = self._text_start, self._skipped > 0
        self._skipped = 0
        for start, end in _between_holes(data, in_hole=in_hole):
            self._line_start = base + start
            yield from self._blocks(data[start:end] if end - start < len(data) else data)
        self._line_start = base + len(data)

    def _blocks(self, data: bytes) -> Iterator[Block | Line]:
        """Lines without holes."""
        base, begun, at = self._line_start, 0, 0
        # No line is longer than all of them.
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
        """The line is complete: yield it, or the pieces of it that remain."""
        data = yield from self._cut(data, self._max)
        if self._parts:
            yield Line(self._text_start, self._parts + 1, data)
        else:
            yield Block(self._text_start, data)
        self._parts = 0

    def _cut(self, data: bytes, allowed: int) -> Generator[Line, None, bytes]:
        """Yield pieces until at most ``allowed`` bytes remain, and return those."""
        while len(data) > allowed:
            size = character_boundary(data, self._max)
            self._parts += 1
            yield Line(self._text_start, self._parts, data[:size])
            data = data[size:]
        return data


def character_boundary(data: bytes, size: int) -> int:
    """The largest cut up to ``size`` that divides no UTF-8 character; ``size`` itself where the bytes are not UTF-8."""
    for cut in range(size, max(size - _CONTINUATIONS, 1) - 1, -1):
        if data[cut] & 0b1100_0000 != 0b1000_0000:
            return cut
    return size

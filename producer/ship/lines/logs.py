r"""Splits bytes into blocks of multi-line logs, such as logs with a stack trace.

* A log begins at each line that matches the start pattern, and ends before the next such line. The pattern is matched
  from the first byte of a line, and sees at most its first 4096 bytes, without the line end.
* The lines before the first start line of a file are a log, too.
* The line end of its last line is not part of a log; those within it are.
* A log longer than the limit is split into pieces, as a long line is. They have its offset, and are numbered from 1.

A range of a file yields the logs that **begin** in it, so a range is read beyond its end, up to the next start line.
Adjacent ranges yield each log exactly once.

Example, with the pattern ``\d``::

    1 failed          the first log
        at line 7
    2 ready           the second one
"""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...wire.log_start import SEEN_BYTES, StartPattern
from .line import Block, Line, character_boundary, read_some, seek_to_line, skip_hole

#: Offsets in bytes.
Places: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

# Bytes of the longest line end.
_END_BYTES = 2
_LINE_FEED, _CARRIAGE_RETURN = 10, 13


@dataclass(frozen=True, eq=False)
class LogBlock(Block):
    """Consecutive whole logs, none of which exceeds the limit.

    :ivar starts: the start of each log in the data.
    :ivar ends: the end of each log in the data, without its last line end.
    """

    starts: Places
    ends: Places

    @property
    def count(self) -> int:
        return len(self.starts)

    @property
    def text_bytes(self) -> int:
        """Number of bytes without the line end after each log."""
        return int((self.ends - self.starts).sum())

    def has_longer(self, size: int) -> bool:
        """Return True if a log has more than ``size`` bytes, without the line end after it."""
        return len(self.data) > size and bool((self.ends - self.starts).max() > size)

    def lines(self) -> Iterator[Line]:
        """Yield each log."""
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            yield Line(self.offset + start, 0, self.data[start:end])

    def without_first(self, size: int) -> Block | None:
        """Return the block without its first ``size`` bytes, which belong to the first log; None if nothing remains."""
        if size == len(self.data):
            return None
        starts, ends = np.maximum(self.starts - size, 0), self.ends - size
        return LogBlock(self.offset + size, self.data[size:], starts, ends)

    def part(self, first: int, last: int) -> LogBlock:
        """Return the logs ``first`` to ``last - 1``."""
        begin = int(self.starts[first])
        end = int(self.starts[last]) if last < len(self.starts) else len(self.data)
        starts, ends = self.starts[first:last] - begin, self.ends[first:last] - begin
        return LogBlock(self.offset + begin, self.data[begin:end], starts, ends)

    def cut_at(self, offset: int) -> tuple[Block | None, Block | None]:
        """Divide at the first log that begins at or after an offset of the file; None for a part without logs."""
        place = int(np.searchsorted(self.starts, offset - self.offset))
        if place in {0, self.count}:
            return (self, None) if place else (None, self)
        return self.part(0, place), self.part(place, self.count)

    def joined(self, others: Sequence[Block]) -> Block:
        blocks = [self, *(each for each in others if isinstance(each, LogBlock))]
        moves = [each.offset - self.offset for each in blocks]
        return LogBlock(
            self.offset,
            b"".join([each.data for each in blocks]),
            np.concatenate([each.starts + move for each, move in zip(blocks, moves, strict=True)]),
            np.concatenate([each.ends + move for each, move in zip(blocks, moves, strict=True)]),
        )

    def halves(self) -> tuple[Block, Block] | None:
        """Divide the block in half between two logs; None if it has one log."""
        middle = self.count // 2
        return (self.part(0, middle), self.part(middle, self.count)) if middle else None


def logs_of(
    file: io.BufferedIOBase,
    start: int,
    end: int | None,
    *,
    limit: int | None,
    max_log_bytes: int,
    pattern: StartPattern,
    begins_log: bool = False,
) -> Iterator[LogBlock | Line]:
    """Yield the logs that begin in a range: whole logs in blocks, long ones in pieces.

    :param file: a binary file; it must be seekable unless ``start`` is 0.
    :param start: the first byte of the range.
    :param end: the byte after the range; None for the end of the file.
    :param limit: the offset at which the file ends for this job; None for no limit.
    :param max_log_bytes: maximum size of a log or piece, bytes.
    :param pattern: the pattern of start lines.
    :param begins_log: True if a log begins at ``start``, whatever line is there.
    """
    position = file.seek(start) if begins_log and start else seek_to_line(file, start, limit)
    if position is not None:
        begin, chunk = skip_hole(file, position, limit)
        # A log after a hole belongs to the range where the hole begins.
        if end is not None and position < end:
            end = max(end, begin + 1)
        splitter = LogSplitter(begin, max_log_bytes, pattern, end, in_log=begins_log or start == 0)
        while chunk:
            yield from splitter.add(chunk)
            if splitter.ended:
                break
            chunk = read_some(file, splitter.read_to, limit)
        yield from splitter.finish()


class LogSplitter:
    """Splits chunks into logs; it holds at most one chunk and the unfinished log or piece before it.

    :param position: the offset of the first byte, at which a line begins.
    :param end: the offset at or after which the first log ends the range.
    :param in_log: True if a log begins with the first byte; False to skip the lines before the first start line.
    :ivar ended: True if no more bytes are needed.
    """

    def __init__(
        self, position: int, max_log_bytes: int, pattern: StartPattern, end: int | None = None, *, in_log: bool
    ) -> None:
        self.ended = False
        self._max = max_log_bytes
        self._pattern = pattern
        self._first_bytes = np.frombuffer(pattern.first_bytes, np.bool_)
        self._end = end
        self._data = b""  # Bytes from the start of the unfinished log or piece.
        self._base = position  # The offset of the data in the file.
        self._line = 0  # The start in the data of the first line that is not yet matched.
        self._known = False  # True if the start of the current line is matched, but its end is not read yet.
        self._in_log = in_log
        self._fresh = in_log  # True if the first line begins a log even if it does not match.
        self._log_start = position
        self._parts = 0

    @property
    def read_to(self) -> int:
        """The offset in the file of the next chunk."""
        return self._base + len(self._data)

    @property
    def pending(self) -> bool:
        """True if a log is unfinished."""
        return self._in_log and bool(self._data or self._parts)

    def add(self, chunk: bytes) -> Iterator[LogBlock | Line]:
        """Add a chunk, and yield the complete logs."""
        self._data += chunk
        yield from self._logs(self._starts(final=False))
        if not self._in_log:
            self._drop(self._line if not self._known else len(self._data))
            self.ended = self._end is not None and self._base >= self._end
        elif not self.ended:
            # The unfinished line may begin the next log.
            sure = self._data if self._known else self._data[: self._line]
            rest = yield from self._cut(sure, self._max + _END_BYTES)
            self._drop(len(sure) - len(rest))

    def finish(self) -> Iterator[LogBlock | Line]:
        """Yield the remaining log at the end."""
        if not self.ended:
            starts = self._starts(final=True)
            yield from self._logs(np.append(starts, len(self._data)) if self._data or self._parts else starts)
        self._drop(len(self._data))
        self._in_log = self._fresh = True
        self._log_start, self._line, self._known = self._base, 0, False

    def _starts(self, *, final: bool) -> Places:
        """Return the starts in the data of new start lines."""
        data, begin = self._data, self._line
        codes = np.frombuffer(data, np.uint8)
        feeds = np.flatnonzero(codes[begin:] == _LINE_FEED) + begin
        firsts, ends = np.append(begin, feeds + 1), np.append(feeds, len(data))
        # The last line has no line end yet, and may be empty.
        rest = len(data) - int(firsts[-1])
        known = (final and rest > 0) or rest >= SEEN_BYTES or (self._known and not len(feeds))
        self._line = len(data) if known else int(firsts[-1])
        count = len(feeds) + known
        matched = self._matched(firsts[:count], ends[:count])
        if count and (self._known or self._fresh):
            matched[0] = False
        self._fresh, self._known = self._fresh and not count, known
        found: Places = firsts[:count][matched]
        return found

    def _matched(self, firsts: Places, ends: Places) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return a mask of the start lines. The pattern is tried only on lines with a possible first byte."""
        codes = np.frombuffer(self._data, np.uint8)
        matched = self._first_bytes[codes[np.minimum(firsts, len(codes) - 1)]] if len(codes) else np.zeros(0, np.bool_)
        asked = np.flatnonzero(matched)
        firsts, ends = firsts[asked], ends[asked]
        ends = ends - ((ends < len(codes)) & (ends > firsts) & (codes[ends - 1] == _CARRIAGE_RETURN))
        places = zip(firsts.tolist(), np.minimum(ends, firsts + SEEN_BYTES).tolist(), strict=True)
        matched[asked] = self._pattern.match_all([self._data[first:end] for first, end in places])
        return matched

    def _logs(self, starts: Places) -> Iterator[LogBlock | Line]:
        """Yield the logs before the last of these starts, which begins the next log."""
        if self._end is not None:
            behind = np.flatnonzero(starts >= self._end - self._base)
            self.ended = len(behind) > 0
            starts = starts[: behind[0] + 1] if self.ended else starts
        if not len(starts):
            return
        edges = np.concatenate([[0], starts]) if self._in_log else starts
        block = _block(self._base, self._data, edges)
        self._in_log, begin = not self.ended, int(edges[-1])
        yield from self._whole_and_long(block)
        self._log_start = self._base + begin
        self._drop(begin)

    def _whole_and_long(self, block: LogBlock) -> Iterator[LogBlock | Line]:
        """Yield logs as blocks, and long ones in pieces."""
        long = block.ends - block.starts > self._max
        if self._parts:
            long[0] = True
        done = 0
        for place in np.flatnonzero(long).tolist():
            if done < place:
                yield block.part(done, place)
            start, end = int(block.starts[place]), int(block.ends[place])
            if not self._parts:
                self._log_start = block.offset + start
            yield from self._pieces(block.data[start:end])
            done = place + 1
        if done < block.count:
            yield block.part(done, block.count) if done else block

    def _pieces(self, text: bytes) -> Iterator[Line]:
        """Yield the remaining pieces of a complete log."""
        text = yield from self._cut(text, self._max)
        yield Line(self._log_start, self._parts + 1, text)
        self._parts = 0

    def _cut(self, data: bytes, allowed: int) -> Generator[Line, None, bytes]:
        """Yield pieces until at most ``allowed`` bytes remain, and return these."""
        while len(data) > allowed:
            size = character_boundary(data, self._max)
            self._parts += 1
            yield Line(self._log_start, self._parts, data[:size])
            data = data[size:]
        return data

    def _drop(self, size: int) -> None:
        self._data = self._data[size:]
        self._base += size
        self._line = max(self._line - size, 0)


def _block(base: int, data: bytes, edges: Places) -> LogBlock:
    """Return the logs between edges.

    :param base: the offset of the data in the file.
    """
    first, last = int(edges[0]), int(edges[-1])
    codes = np.frombuffer(data, np.uint8)
    starts, ends = edges[:-1], edges[1:].copy()
    if len(codes):
        # An empty log is only a line end, or nothing at the end of a long one.
        ends -= (codes[ends - 1] == _LINE_FEED) & (ends > starts)
        ends -= (codes[ends - 1] == _CARRIAGE_RETURN) & (ends > starts) & (ends < edges[1:])
    return LogBlock(base + first, data[first:last], starts - first, ends - first)

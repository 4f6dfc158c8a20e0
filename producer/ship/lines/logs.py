r"""Bytes to blocks of logs that have several lines each, such as one with a stack trace.

* A log begins at each line that matches the start pattern, and goes to the next such line. The pattern is matched from
  the first byte of a line on, and sees at most the first 4096 bytes of it, without the line end.
* What stands before the first such line of a file is a log, too.
* The line end of its last line is no part of a log; those within it are.
* A log longer than the limit comes in pieces, as a long line does: they carry its offset and count from 1.

A range of a file yields the logs that **begin** in it, so a range is read beyond its end, up to the next start line:
adjacent ranges share each log out exactly once, wherever they are cut.

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

#: Places in bytes.
Places: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

# A line end.
_END_BYTES = 2
_LINE_FEED, _CARRIAGE_RETURN = 10, 13


@dataclass(frozen=True, eq=False)
class LogBlock(Block):
    """Whole logs, one behind the other; none is longer than the limit.

    :ivar starts: where each of them begins in the data.
    :ivar ends: where each of them ends without its line end.
    """

    starts: Places
    ends: Places

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.starts)

    @property
    def text_bytes(self) -> int:
        """Their bytes without the line ends behind them."""
        return int((self.ends - self.starts).sum())

    def has_longer(self, size: int) -> bool:
        """Whether one of them has more bytes than so many, without the line end behind it."""
        return len(self.data) > size and bool((self.ends - self.starts).max() > size)

    def lines(self) -> Iterator[Line]:
        """Each log of it."""
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            yield Line(self.offset + start, 0, self.data[start:end])

    def without_first(self, size: int) -> Block | None:
        """All but the first bytes, which are of the first log; None if there is nothing else."""
        if size == len(self.data):
            return None
        starts, ends = np.maximum(self.starts - size, 0), self.ends - size
        return LogBlock(self.offset + size, self.data[size:], starts, ends)

    def part(self, first: int, last: int) -> LogBlock:
        """Some of the logs: from the place of one to the place behind another."""
        begin = int(self.starts[first])
        end = int(self.starts[last]) if last < len(self.starts) else len(self.data)
        starts, ends = self.starts[first:last] - begin, self.ends[first:last] - begin
        return LogBlock(self.offset + begin, self.data[begin:end], starts, ends)

    def cut_at(self, offset: int) -> tuple[Block | None, Block | None]:
        """Cut in two where the first log begins at an offset of the file or behind it; None for no logs."""
        place = int(np.searchsorted(self.starts, offset - self.offset))
        if place in {0, self.count}:
            return (self, None) if place else (None, self)
        return self.part(0, place), self.part(place, self.count)

    def joined(self, others: Sequence[Block]) -> Block:
        """One block with those that come behind it."""
        blocks = [self, *(each for each in others if isinstance(each, LogBlock))]
        moves = [each.offset - self.offset for each in blocks]
        return LogBlock(
            self.offset,
            b"".join([each.data for each in blocks]),
            np.concatenate([each.starts + move for each, move in zip(blocks, moves, strict=True)]),
            np.concatenate([each.ends + move for each, move in zip(blocks, moves, strict=True)]),
        )

    def halves(self) -> tuple[Block, Block] | None:
        """Cut in two between logs; None if there is but one."""
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
    """The logs that begin at ``start`` or later and before ``end``: in blocks, and long ones in pieces.

    :param file: a binary file; it must be able to seek unless ``start`` is 0.
    :param start: first byte of the range.
    :param end: the byte after the range; None for the end of the file.
    :param limit: bytes from here on count as not there; None for no limit.
    :param max_log_bytes: longer logs come in pieces of at most this many bytes.
    :param pattern: of start lines.
    :param begins_log: a log begins at ``start``, whatever is there.
    """
    position = file.seek(start) if begins_log and start else seek_to_line(file, start, limit)
    if position is not None:
        begin, chunk = skip_hole(file, position, limit)
        # The log behind a hole begins for its range where the hole does.
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
    """Cuts what is read into logs, holding at most one chunk and the unfinished log, or piece of one, before it.

    :param position: of the first byte that is read, with which a line begins.
    :param end: the first log that begins here or behind it ends everything.
    :param in_log: a log begins with the first byte; else all before the first start line is left out.
    :ivar ended: nothing more needs to be read.
    """

    def __init__(
        self, position: int, max_log_bytes: int, pattern: StartPattern, end: int | None = None, *, in_log: bool
    ) -> None:
        self.ended = False
        self._max = max_log_bytes
        self._pattern = pattern
        self._first_bytes = np.frombuffer(pattern.first_bytes, np.bool_)
        self._end = end
        self._data = b""  # from the log or piece on that is not complete
        self._base = position  # of the data
        self._line = 0  # in the data: the first line of which it is not known whether it is a start line
        self._known = False  # its start was seen, but not its end
        self._in_log = in_log
        self._fresh = in_log  # the first line begins a log whatever it is
        self._log_start = position
        self._parts = 0

    @property
    def read_to(self) -> int:
        """Where in the file what is added next comes from."""
        return self._base + len(self._data)

    @property
    def pending(self) -> bool:
        """Whether a log is not complete."""
        return self._in_log and bool(self._data or self._parts)

    def add(self, chunk: bytes) -> Iterator[LogBlock | Line]:
        """Yield what is complete."""
        self._data += chunk
        yield from self._logs(self._starts(final=False))
        if not self._in_log:
            self._drop(self._line if not self._known else len(self._data))
            self.ended = self._end is not None and self._base >= self._end
        elif not self.ended:
            # The line that is being read may begin the next log.
            sure = self._data if self._known else self._data[: self._line]
            rest = yield from self._cut(sure, self._max + _END_BYTES)
            self._drop(len(sure) - len(rest))

    def finish(self) -> Iterator[LogBlock | Line]:
        """Yield what is left at the end."""
        if not self.ended:
            starts = self._starts(final=True)
            yield from self._logs(np.append(starts, len(self._data)) if self._data or self._parts else starts)
        self._drop(len(self._data))
        self._in_log = self._fresh = True
        self._log_start, self._line, self._known = self._base, 0, False

    def _starts(self, *, final: bool) -> Places:
        """Where in the data lines begin that are start lines, and were not looked at before."""
        data, begin = self._data, self._line
        codes = np.frombuffer(data, np.uint8)
        feeds = np.flatnonzero(codes[begin:] == _LINE_FEED) + begin
        firsts, ends = np.append(begin, feeds + 1), np.append(feeds, len(data))
        # The last one has no line end yet, and may be none at all.
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
        """Which lines are start lines, of those between these places; of all those the pattern is asked for that begin
        as what it matches.
        """
        codes = np.frombuffer(self._data, np.uint8)
        matched = self._first_bytes[codes[np.minimum(firsts, len(codes) - 1)]] if len(codes) else np.zeros(0, np.bool_)
        asked = np.flatnonzero(matched)
        firsts, ends = firsts[asked], ends[asked]
        ends = ends - ((ends < len(codes)) & (ends > firsts) & (codes[ends - 1] == _CARRIAGE_RETURN))
        places = zip(firsts.tolist(), np.minimum(ends, firsts + SEEN_BYTES).tolist(), strict=True)
        matched[asked] = self._pattern.match_all([self._data[first:end] for first, end in places])
        return matched

    def _logs(self, starts: Places) -> Iterator[LogBlock | Line]:
        """The logs before the last of these starts, which begins the next one."""
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
        """Logs as blocks, and the long ones among them in pieces."""
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
        """The log is complete: the pieces of it that remain."""
        text = yield from self._cut(text, self._max)
        yield Line(self._log_start, self._parts + 1, text)
        self._parts = 0

    def _cut(self, data: bytes, allowed: int) -> Generator[Line, None, bytes]:
        """Yield pieces until at most ``allowed`` bytes remain, and return those."""
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
    """The logs between edges.

    :param base: where the data begin in the file.
    """
    first, last = int(edges[0]), int(edges[-1])
    codes = np.frombuffer(data, np.uint8)
    starts, ends = edges[:-1], edges[1:].copy()
    if len(codes):
        # An empty log is but a line end, or nothing at the end of a long one.
        ends -= (codes[ends - 1] == _LINE_FEED) & (ends > starts)
        ends -= (codes[ends - 1] == _CARRIAGE_RETURN) & (ends > starts) & (ends < edges[1:])
    return LogBlock(base + first, data[first:last], starts - first, ends - first)

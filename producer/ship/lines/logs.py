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
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property

from ..errors import InputError
from .line import Block, Line, character_boundary, read_some, seek_to_line

#: How many bytes of a line its start pattern sees.
SEEN_BYTES = 4096
# A line end.
_END_BYTES = 2


@dataclass(frozen=True, slots=True)
class Logs:
    """How logs of several lines are told apart.

    :ivar start: a log begins with a line that matches it.
    :ivar max_bytes: of a log; more of them are shipped without waiting for its end.
    """

    start: re.Pattern[bytes]
    max_bytes: int


def logs_that_start(start: str | None, max_bytes: int) -> Logs | None:
    """Logs whose first lines match an expression; None without one, where each line is a log.

    :raises InputError: as :func:`start_pattern`.
    """
    return None if start is None else Logs(start_pattern(start), max_bytes)


def start_pattern(pattern: str) -> re.Pattern[bytes]:
    """The expression that a start line matches; it is matched on bytes.

    :raises InputError: it does not compile, or matches every line.
    """
    try:
        expression = re.compile(pattern.encode())
    except (re.error, UnicodeEncodeError) as error:
        raise InputError(f"--multiline-start {pattern!r} is not a regular expression: {error}") from error
    if expression.match(b""):
        raise InputError(f"--multiline-start {pattern!r} matches an empty line, so that every line would be a log")
    return expression


@dataclass(frozen=True)
class LogBlock(Block):
    """Whole logs, one behind the other; none is longer than the limit.

    :ivar spans: where each of them begins in the data, and where it ends without its line end.
    """

    spans: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.spans)

    @cached_property
    def text_bytes(self) -> int:
        """Their bytes without the line ends behind them."""
        return sum(end - start for start, end in self.spans)

    @property
    def longest(self) -> int:
        """The bytes of the longest one, at least."""
        return max(end - start for start, end in self.spans)

    def lines(self) -> Iterator[Line]:
        """Each log of it."""
        for start, end in self.spans:
            yield Line(self.offset + start, 0, self.data[start:end])

    def cut(self, place: int) -> tuple[LogBlock, LogBlock]:
        """Cut in two.

        :param place: of the first log of the second half, from 1.
        """
        at = self.spans[place][0]
        moved = tuple((start - at, end - at) for start, end in self.spans[place:])
        return (
            LogBlock(self.offset, self.data[:at], self.spans[:place]),
            LogBlock(self.offset + at, self.data[at:], moved),
        )

    def halves(self) -> tuple[Block, Block] | None:
        """Cut in two between logs; None if there is but one."""
        return self.cut(len(self.spans) // 2) if len(self.spans) > 1 else None


def logs_of(
    file: io.BufferedIOBase,
    start: int,
    end: int | None,
    *,
    limit: int | None,
    max_log_bytes: int,
    pattern: re.Pattern[bytes],
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
        splitter = LogSplitter(position, max_log_bytes, pattern, end, in_log=begins_log or start == 0)
        while not splitter.ended and (chunk := read_some(file, splitter.read_to, limit)):
            yield from splitter.add(chunk)
        yield from splitter.finish()


def last_start(data: bytes, pattern: re.Pattern[bytes], *, at_line: bool) -> int:
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


class LogSplitter:
    """Cuts what is read into logs, holding at most one chunk and the unfinished log, or piece of one, before it.

    :param position: of the first byte that is read, with which a line begins.
    :param end: the first log that begins here or behind it ends everything.
    :param in_log: a log begins with the first byte; else all before the first start line is left out.
    :ivar ended: nothing more needs to be read.
    """

    def __init__(
        self, position: int, max_log_bytes: int, pattern: re.Pattern[bytes], end: int | None = None, *, in_log: bool
    ) -> None:
        self.ended = False
        self._max = max_log_bytes
        self._match = pattern.match
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
            yield from self._logs([*starts, len(self._data)] if self._data or self._parts else starts)
        self._drop(len(self._data))
        self._in_log = self._fresh = True
        self._log_start, self._line, self._known = self._base, 0, False

    def _starts(self, *, final: bool) -> list[int]:
        """Where in the data lines begin that are start lines, and were not looked at before."""
        data, match, line, found = self._data, self._match, self._line, []
        while line < len(data):
            line_end = data.find(b"\n", line)
            if not self._known:
                seen = len(data) if line_end < 0 else line_end
                if line_end < 0 and not final and seen - line < SEEN_BYTES:
                    break
                if line_end > line and data[line_end - 1] == 13:
                    seen -= 1
                if match(data[line : min(seen, line + SEEN_BYTES)]) and not self._fresh:
                    found.append(line)
                self._fresh = False
            self._known = line_end < 0
            if line_end < 0:
                break
            line = line_end + 1
        self._line = line
        return found

    def _logs(self, starts: list[int]) -> Iterator[LogBlock | Line]:
        """The logs before the last of these starts, which begins the next one."""
        begin = 0
        spans: list[tuple[int, int]] = []
        data, first = self._data, 0
        for start in starts:
            if self._in_log:
                text_end = _text_end(data, begin, start)
                if self._parts or text_end - begin > self._max:
                    yield from self._block(first, begin, spans)
                    spans = []
                    yield from self._pieces(data[begin:text_end])
                    first = start
                else:
                    spans.append((begin - first, text_end - first))
            else:
                first = start
            self._in_log, self._log_start, begin = True, self._base + start, start
            if self._end is not None and self._log_start >= self._end:
                self.ended, self._in_log = True, False
                break
        yield from self._block(first, begin, spans)
        self._drop(begin)

    def _block(self, first: int, end: int, spans: list[tuple[int, int]]) -> Iterator[LogBlock]:
        if spans:
            yield LogBlock(self._base + first, self._data[first:end], tuple(spans))

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


def _text_end(data: bytes, start: int, end: int) -> int:
    """Where a log ends without its line end."""
    if end > start and data[end - 1] == 10:
        end -= 1
        if end > start and data[end - 1] == 13:
            end -= 1
    return end

"""FileReader: one file on its way, from the first byte that no channel has to the last one that is written."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from ....wire.log_start import Logs, last_start
from .identity import HEAD_BYTES, TAIL_BYTES, FileName, Key, Note, holds, open_quickly

#: Most bytes of one batch, but for a line that is longer.
BLOCK_BYTES = 1 << 20
#: Bytes at the end of a possible copy.
_COMPARED = 4096
#: A file that was renamed or deleted: nobody goes on with its last line after so many seconds.
_ROTATED_SETTLE = 1.0


class ContentChangedError(Exception):
    """The file does not hold any more what was read of it."""


class Block(NamedTuple):
    """Whole lines of a file.

    :ivar data: they.
    :ivar start: their first byte in the file.
    """

    data: bytes
    start: int

    @property
    def end(self) -> int:
        """The byte after the last one."""
        return self.start + len(self.data)


class Rules(NamedTuple):
    """When what is at the end of a file is complete.

    :ivar logs: how events of several lines begin; None if each line is one.
    :ivar max_line: bytes; a longer one comes in parts.
    :ivar settle: seconds without a write that end a last line.
    :ivar log_settle: that end an event of several lines.
    """

    logs: Logs | None
    max_line: int
    settle: float
    log_settle: float


class FileReader:
    """See the module.

    :param path: where the file is.
    :param group: to which it belongs.
    :param now: monotonic seconds.
    :ivar path: where it was found first.
    :ivar place: where it was found last.
    :ivar headers: that all its events have.
    :ivar name: under which its position is kept; None as long as nothing was taken.
    :ivar position: up to there it was put.
    :ivar stops: where batches have to end, since a channel has it up to there.
    :ivar size: as it was when it was looked at last.
    :ivar changed: when it was seen to be written last, monotonic seconds.
    :ivar located: whether the last scan found it.
    :ivar trouble: what kept it from being read last time; None if nothing did.
    """

    def __init__(self, path: str, group: str, key: Key, rules: Rules, now: float) -> None:
        self.path = self.place = path
        self.group, self.key = group, key
        self.headers: dict[str, str] = {}
        self.name: FileName | None = None
        self.position, self.size, self._earlier = 0, 0, 0
        self.stops: list[int] = []
        self.changed = now
        self.located = True
        self.trouble: str | None = None
        self._rules = rules
        self._tail = b""
        self._written: int | None = None
        self._tried: tuple[int, bool, bool] | None = None
        self._descriptor: int | None = None

    @property
    def directory(self) -> str:
        """In which it was found last."""
        return self.place.rpartition("/")[0] or "/"

    @property
    def file_name(self) -> str:
        """Its name there."""
        return self.place.rpartition("/")[2]

    @property
    def unread(self) -> int:
        """Bytes that are known to be there and were not put."""
        return max(0, self.size - self.position)

    @property
    def cut_off(self) -> int:
        """Bytes that were there before the last change, and were not put."""
        return max(0, self._earlier - self.position)

    def open(self) -> int:
        """Its descriptor.

        :raises OSError: it is not where it was, or must not be read.
        """
        if self._descriptor is None:
            descriptor = open_quickly(self.place)
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) != self.key:
                os.close(descriptor)
                raise FileNotFoundError(errno.ENOENT, "another file has its place", self.place)
            self._descriptor = descriptor
        return self._descriptor

    def close(self) -> None:
        """Give the descriptor back; it can be opened again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def go_on(self, name: FileName, ends: Sequence[int]) -> None:
        """Go on with what was read under a name.

        :param ends: up to where the channels have it, sorted.
        :raises OSError: it cannot be read.
        """
        self.name, self.position, self.stops = name, ends[0], [end for end in ends[1:] if end > ends[0]]
        size = min(TAIL_BYTES, self.position)
        self._tail = os.pread(self.open(), size, self.position - size)

    def holds(self, name: FileName, note: Note | None, end: int) -> bool:
        """See :func:`~.identity.holds`."""
        return holds(self.open(), name, note, end)

    def begins_like(self, descriptor: int, size: int) -> bool:
        """Whether another file of ``size`` bytes is what this one begins with; also if this one was just cut.

        :raises OSError: one of them cannot be read.
        """
        name, own = self.name, self.open()
        if name is None or (size >= name.head_size and _checksum(descriptor, name.head_size) != name.head):
            return False
        if not self._is_same():
            return True
        last = max(0, size - _COMPARED)
        parts = ((0, min(size, HEAD_BYTES)), (last, size - last))
        return all(os.pread(descriptor, length, at) == os.pread(own, length, at) for at, length in parts)

    def look(self, now: float) -> bool:
        """Look at its size and time; whether there may be something to read.

        :raises OSError: it cannot be looked at.
        :raises ContentChangedError: it was cut or replaced.
        """
        if self._descriptor is not None:
            status = os.fstat(self._descriptor)
        else:
            status = os.stat(self.place)  # noqa: PTH116
            if (status.st_dev, status.st_ino) != self.key:
                raise FileNotFoundError(errno.ENOENT, "another file has its place", self.place)
        size = status.st_size
        if size != self.size or status.st_mtime_ns != self._written:
            first = self._written is None
            self._earlier, self.size, self._written, self.changed = self.size, size, status.st_mtime_ns, now
            if size < self.position or (size == self.position and not first and not self._is_same()):
                raise ContentChangedError
        return size > self.position and self._tried != (size, *self._rested(now))

    def read(self, now: float) -> Block | None:
        """The next lines; None if none is complete.

        :raises OSError: it cannot be read.
        :raises ContentChangedError: it was cut or replaced.
        """
        descriptor, known, rested = self.open(), len(self._tail), self._rested(now)
        stop = self.stops[0] - self.position if self.stops else None
        want = BLOCK_BYTES if stop is None else min(stop, BLOCK_BYTES)
        while True:
            data = os.pread(descriptor, known + want, self.position - known)
            if not data.startswith(self._tail):
                raise ContentChangedError
            whole = len(data) < known + want  # the file has no more
            cut = self._cut(data, known, rested if whole else (False, False))
            if cut == known and want == stop:
                cut = len(data)
            if cut == known and not whole and want >= self._rules.max_line:
                cut = data.rfind(b"\n", known) + 1 or len(data)
            if cut > known:
                return Block(data[known:cut], self.position)
            if whole:
                self._tried = (self.position + len(data) - known, *rested)
                return None
            want = min(2 * want, self._rules.max_line, stop or self._rules.max_line)

    def take(self, block: Block) -> None:
        """It was put."""
        self.position = block.end
        self.size = max(self.size, block.end)
        data = block.data if len(block.data) >= TAIL_BYTES else self._tail + block.data
        self._tail = data[-TAIL_BYTES:]
        while self.stops and self.stops[0] <= self.position:
            del self.stops[0]

    def name_for(self, end: int, generation: int) -> FileName:
        """A name made of the bytes up to ``end``.

        :raises OSError: they cannot be read.
        """
        size = min(HEAD_BYTES, end)
        device, inode = self.key
        return FileName(inode, device, generation, size, _checksum(self.open(), size))

    def note(self) -> Note:
        """What is known of it."""
        return self._note(self.position, self._tail)

    def note_after(self, block: Block) -> Note:
        """What will be known of it when a block, its first one, is put."""
        return self._note(block.end, block.data[-TAIL_BYTES:])

    def _note(self, end: int, tail: bytes) -> Note:
        device, inode = self.key
        return Note(*(self.path, self.place, self.group, device, inode, self.size, end, len(tail), zlib.crc32(tail)))

    def _is_same(self) -> bool:
        size = len(self._tail)
        return os.pread(self.open(), size, self.position - size) == self._tail

    def _rested(self, now: float) -> tuple[bool, bool]:
        """Whether its last line, and its last event of several lines, can be taken to be complete."""
        rest, rules = now - self.changed, self._rules
        if self.place != self.path or not self.located:
            return rest >= min(_ROTATED_SETTLE, rules.settle), rest >= min(_ROTATED_SETTLE, rules.log_settle)
        return rest >= rules.settle, rest >= rules.log_settle

    def _cut(self, data: bytes, known: int, rested: tuple[bool, bool]) -> int:
        """Where what can be taken ends; ``known`` if nothing can."""
        logs = self._rules.logs
        if logs is not None and not rested[1]:
            return known + last_start(data[known:], logs.start, at_line=True)
        cut = data.rfind(b"\n", known) + 1
        return cut or (len(data) if rested[0] else known)


def _checksum(descriptor: int, size: int) -> int:
    return zlib.crc32(os.pread(descriptor, size, 0))

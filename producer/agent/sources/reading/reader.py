"""FileReader: reads one file, from the first byte that some channel lacks to its end.

The file is long because growth, rotation, truncation, holes and multi-line events move the same offsets.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Sequence

from ....runtime.file_identity import TAIL_BYTES, Key, Mark, head_of, holds_marks, marks_of
from ....wire.encodings import HOLE, hole_end, in_order, line_end_of
from .cutting import BLOCK_BYTES, Block, Cutter, Rules
from .identity import HEAD_BYTES, FileName, Note, held_part, holds, open_quickly

#: Last bytes of a possible copy that are compared.
_COMPARED = 4096
#: Seconds after which the last line of a renamed or deleted file is taken without a line end.
_ROTATED_SETTLE = 1.0


class ContentChangedError(Exception):
    """Raised when a file no longer holds the bytes that were read of it."""


class FileReader:
    """Reader of one file.

    :param path: the file's path.
    :param group: the file's group.
    :param now: monotonic seconds.
    :ivar path: the path where it was found first.
    :ivar place: the path where it was found last.
    :ivar headers: the headers of all its events.
    :ivar name: the name of its position; None as long as nothing was read.
    :ivar short: True for a copy that ends before the last byte read under its name.
    :ivar position: the byte up to which it was put.
    :ivar stops: positions of other channels, where batches have to end.
    :ivar size: the size at the last poll.
    :ivar changed: the time of the last observed write, monotonic seconds.
    :ivar located: True if the last scan found it.
    :ivar trouble: the error of the last read; None if it succeeded.
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
        self.short = False
        self._tail = b""  # the bytes before the position
        self._head = b""  # the first bytes, as long as the position is 0
        self._marks: Sequence[Mark] = ()
        self._written: int | None = None
        self._tried: tuple[int, bool, bool] | None = None
        self._descriptor: int | None = None
        self._encoding: str | None = None
        self._made_cutter: Cutter | None = None
        #: Observed sizes beyond the position, each with its time: the oldest and the newest.
        self._behind: tuple[tuple[int, float], ...] = ()

    @property
    def directory(self) -> str:
        """The directory where it was found last."""
        return self.place.rpartition("/")[0] or "/"

    @property
    def file_name(self) -> str:
        """The file name where it was found last."""
        return self.place.rpartition("/")[2]

    @property
    def unread(self) -> int:
        """Known bytes that were not put."""
        return max(0, self.size - self.position, self._behind[-1][0] - self.position if self._behind else 0)

    @property
    def is_read(self) -> bool:
        """True if all bytes known at the last poll were put, and the file still exists."""
        return self.name is not None and self.located and self.size == self.position and self.trouble is None

    @property
    def behind_since(self) -> float | None:
        """The time at which the oldest unread byte was observed, monotonic seconds; None if all is read."""
        behind = self._behind
        return behind[0][1] if behind else None

    @property
    def cut_off(self) -> int:
        """Bytes that were truncated before they were put."""
        return max(0, self._earlier - self.position)

    @property
    def is_open(self) -> bool:
        """True if the file is open."""
        return self._descriptor is not None

    def open(self) -> int:
        """Open the file, unless it is open; return its descriptor.

        :raises OSError: the file was moved or cannot be opened.
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
        """Close the file; it can be opened again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def resume(self, name: FileName, note: Note | None, ends: Sequence[int]) -> bool:
        """Continue a name if the file holds the bytes read under it; else return False.

        :param ends: each channel's position in the file, sorted.
        :raises OSError: the file cannot be read.
        """
        descriptor, key = self.open(), None if note is None else (note.device, note.inode)
        part = None if note is None or (key == self.key and not note.short) else held_part(descriptor, name, note)
        position = ends[0] if part is None else min(part, ends[0])
        known = min(TAIL_BYTES, position)
        tail = os.pread(descriptor, known, position - known)
        head = b"" if position else os.pread(descriptor, name.head_size, 0)
        # Check after reading: a truncated file never matches again, so a match proves that head and tail are valid.
        if holds(descriptor, name, note, ends[-1]):
            part = None
        elif part is None:
            return False
        self.name, self.position, self.short = name, position, part is not None
        self.stops = [end for end in ends[1:] if end > position and (part is None or end <= part)]
        self._tail, self._head = tail, head
        self._marks = () if note is None else [m for m in note.marks if m.end <= (position if part is None else part)]
        return True

    def begins_like(self, descriptor: int, size: int) -> bool:
        """Return True if another file of ``size`` bytes equals this one's beginning, or this one was just truncated.

        :raises OSError: one of the files cannot be read.
        """
        name = self.name
        if name is not None and size >= name.head_size and head_of(descriptor, name.head_size) != name.head:
            return False
        return not self.is_same() or begins_alike(descriptor, self.open(), size)

    def is_same(self) -> bool:
        """Return True if the file still has the bytes that were read. Only the head, the tail and the marks are
        compared.

        :raises OSError: the file cannot be read.
        """
        known = self._tail + self._head
        same = os.pread(self.open(), len(known), self.position - len(self._tail)) == known
        return same and holds_marks(self.open(), self._marks) and self._has_head()

    def _has_head(self) -> bool:
        return self.name is None or not self.position or head_of(self.open(), self.name.head_size) == self.name.head

    def look(self, now: float) -> bool:
        """Poll the size and modification time; return True if there may be something to read.

        :raises OSError: the file has no status.
        :raises ContentChangedError: the file was truncated or replaced.
        """
        if self._descriptor is not None:
            status = os.fstat(self._descriptor)
        else:
            status = os.stat(self.place)
            if (status.st_dev, status.st_ino) != self.key:
                raise FileNotFoundError(errno.ENOENT, "another file has its place", self.place)
        size = status.st_size
        if size != self.size or status.st_mtime_ns != self._written:
            first = self._written is None
            self._earlier, self.size, self._written, self.changed = self.size, size, status.st_mtime_ns, now
            if size < self.position or not (first or self.is_same()):
                raise ContentChangedError
        self._record_size(size, now)
        return size > self.position and self._tried != (size, *self._rested(now))

    def read(self, now: float) -> Block | None:
        """Return the next lines; None if none is complete.

        :raises OSError: the file cannot be read.
        :raises ContentChangedError: the file was truncated or replaced.
        """
        descriptor, known, rested, cutter = self.open(), len(self._tail), self._rested(now), self._cutter
        start, stop = self.position, self.stops[0] - self.position if self.stops else None
        want = BLOCK_BYTES if stop is None else min(stop, BLOCK_BYTES)
        while True:
            data = os.pread(descriptor, known + want, start - known)
            if start == self.position and not (
                data.startswith(self._tail) and data.startswith(self._head[:want], known)
            ):
                raise ContentChangedError
            if start == self.position and data.startswith(HOLE, known) and self._skips_holes:
                end = hole_end(descriptor, start)
                if end is None:
                    return self._nothing_behind(len(data) - known, rested, now)
                if stop is not None:
                    stop = max(1, stop - (end - start))
                    want = min(stop, BLOCK_BYTES)
                start, known = end, 0
                continue
            whole = len(data) < known + want  # read to the end of the file
            self._record_size(start + len(data) - known, now)
            cut = cutter.cut(data, known, rested if whole else (False, False), first=self.position == 0)
            if cut == known and want == stop:
                cut = len(data)
            if cut == known and not whole and want >= self._rules.max_line:
                cut = cutter.forced_cut(data, known)
            if cut > known:
                cut = cutter.few_lines(data, known, cut, first=self.position == 0)
                return Block(
                    data[known : _before_hole(data, known, cut, self._rules.delimiter.encode())],
                    self.position,
                    start - self.position,
                )
            if whole:
                self._tried = (start + len(data) - known, *rested)
                return None
            want = min(2 * want, self._rules.max_line, stop or self._rules.max_line)

    def _nothing_behind(self, size: int, rested: tuple[bool, bool], now: float) -> Block | None:
        """Handle NUL bytes up to the end. They are space that was allocated for bytes to be written later."""
        end = max(self.size, self.position + size)
        self._record_size(end, now)
        self._tried = (end, *rested)
        return Block(b"", self.position, end - self.position) if self._rules.final else None

    @property
    def encoding(self) -> str:
        """The encoding of the file, with its byte order.

        :raises OSError: the file cannot be read.
        """
        if self._encoding is None:
            self._encoding = in_order(self._rules.encoding, os.pread(self.open(), len(HOLE), 0))
        return self._encoding

    @property
    def _has_bytes(self) -> bool:
        """True if a line end is one byte."""
        return len(line_end_of(in_order(self._rules.encoding, b""))) == 1

    @property
    def _skips_holes(self) -> bool:
        return self._has_bytes and self._rules.delimiter != "\0"

    @property
    def line_end(self) -> bytes:
        """The bytes that end a line.

        :raises OSError: the file cannot be read.
        """
        return self._cutter.line_end

    @property
    def _cutter(self) -> Cutter:
        if self._made_cutter is None:
            self._made_cutter = Cutter(self._rules, self.encoding)
        return self._made_cutter

    def _record_size(self, size: int, now: float) -> None:
        """Record a lower bound of the size of the file, to compute the lag."""
        if size > self.position and (not self._behind or size > self._behind[-1][0]):
            newest = self._behind[1][1] if len(self._behind) > 1 else now
            self._behind = (*self._behind[:1], (size, newest))

    def take(self, block: Block) -> None:
        """Move the position past a block that was put."""
        self.position = block.end
        self.size = max(self.size, block.end)
        raw = block.raw
        before = self._tail + b"\0" * min(block.end - block.start - len(raw), TAIL_BYTES)
        data = raw if len(raw) >= TAIL_BYTES else before + raw
        if not self.short:  # a short copy keeps the marks of the whole file
            self._marks = marks_of(before[-TAIL_BYTES:], raw, block.end, self._marks)
        self._tail, self._head = data[-TAIL_BYTES:], b""
        self._behind = tuple(each for each in self._behind if each[0] > self.position)
        while self.stops and self.stops[0] <= self.position:
            del self.stops[0]

    def name_by(self, first: bytes, generation: int) -> FileName:
        """Name the reader by its first bytes.

        :param first: the bytes at the start of the file, which are about to be put under the name.
        """
        device, inode = self.key
        self._head = first[:HEAD_BYTES]
        self.name = FileName(inode, device, generation, len(self._head), zlib.crc32(self._head))
        return self.name

    def note(self) -> Note:
        """Return the file's state as a note."""
        end, tail = (self.position, self._tail) if self.position else (len(self._head), self._head[-TAIL_BYTES:])
        seen = len(tail), zlib.crc32(tail)
        known = *self.key, self.size, end, *seen
        return Note(self.path, self.place, self.group, *known, marks=self._marks, short=self.short)

    def _rested(self, now: float) -> tuple[bool, bool]:
        """Return two booleans: the last line, and the last multi-line event, is old enough to be complete."""
        rest, rules = now - self.changed, self._rules
        if self.place != self.path or not self.located:
            return rest >= min(_ROTATED_SETTLE, rules.settle), rest >= min(_ROTATED_SETTLE, rules.log_settle)
        return rest >= rules.settle, rest >= rules.log_settle


def _before_hole(data: bytes, known: int, cut: int, line_end: bytes) -> int:
    """Return the end of the lines before a hole; ``cut`` if there is no hole."""
    hole = data.find(line_end + HOLE, known, cut) if b"\0" in data and line_end != b"\0" else -1
    return hole + 1 if hole >= 0 else cut


def begins_alike(one: int, other: int, size: int) -> bool:
    """Return True if the first ``size`` bytes of two files are alike; only their beginning and end are compared.

    :raises OSError: one of the files cannot be read.
    """
    last = max(0, size - _COMPARED)
    parts = ((0, min(size, HEAD_BYTES)), (last, size - last))
    return all(os.pread(one, length, at) == os.pread(other, length, at) for at, length in parts)

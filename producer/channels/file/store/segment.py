"""Segments: one file of the log, written at its end and read anywhere."""

from __future__ import annotations

import contextlib
import enum
import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

from .disk import Disk
from .encryption import SegmentCipher
from .format import (
    CRC_FROM,
    FRAME_SIZE,
    MARKER,
    Kind,
    SegmentHeader,
    checksum,
    decode_frame,
    put_at,
)
from .pointers import MOST_OFFSET, Entry

_KINDS = frozenset(Kind)
#: Suffix of a segment that is being created.
BEGUN = ".new"
#: Bytes searched at a time for zeros at the end of a segment.
_BLOCK_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Segment:
    """An existing segment.

    :ivar path: its file.
    :ivar header: its header.
    :ivar cipher: decrypts its payloads; None if they are plain.
    """

    path: str
    header: SegmentHeader
    cipher: SegmentCipher | None

    @property
    def number(self) -> int:
        return self.header.number


class SegmentState(enum.Enum):
    """State of a segment that this process created."""

    BEGUN = "begun"
    ACTIVE = "active"
    FULL = "full"
    DONE = "done"
    ABANDONED = "abandoned"


#: A module global: in Python 3.11 access through the enum class costs a call.
ACTIVE = SegmentState.ACTIVE

#: Permitted next states of each state.
TRANSITIONS: dict[SegmentState, frozenset[SegmentState]] = {
    SegmentState.BEGUN: frozenset({SegmentState.ACTIVE, SegmentState.ABANDONED}),
    SegmentState.ACTIVE: frozenset({SegmentState.FULL, SegmentState.DONE, SegmentState.ABANDONED}),
    SegmentState.FULL: frozenset({SegmentState.DONE, SegmentState.ABANDONED}),
    SegmentState.DONE: frozenset(),
    SegmentState.ABANDONED: frozenset(),
}
_ENDS = frozenset({SegmentState.DONE, SegmentState.ABANDONED})


class SegmentWriter:
    """Writer of one segment, for one thread at a time, except :meth:`sync`::

        BEGUN ──► ACTIVE ──► FULL ──► DONE
          │         └────►─────┴─►──┘         complete: nothing more is written to it
          └────────►┴─────────►┴──► ABANDONED  abandoned: a sync failed, or may have, and its unsynced
                                              end will never be on the disk

    While BEGUN it has a temporary name, which readers ignore.

    :ivar size: the bytes of its content.
    :ivar room: the end of the preallocated zeros, if larger than ``size``.
    :ivar synced: the bytes known to be on the disk.
    :ivar named: True if it may have its final name, also after a crash.
    :ivar failed: True after a failed sync: nothing may be appended.
    :ivar spoiled: True if void bytes were written at its end. They must not be overwritten: a crash could leave a mix
        of old and new sectors, which would pass for damage.
    :ivar broken: True if these bytes could not be cut off, and are still there.
    """

    def __init__(self, disk: Disk, segment: Segment) -> None:
        self._disk = disk
        self.segment = segment
        self.state = SegmentState.BEGUN
        self.size = self.synced = self.room = 0
        self.failed = self.spoiled = self.broken = self.named = False
        self._begun_as = segment.path + BEGUN
        if disk.exists(segment.path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), segment.path)
        if disk.exists(self._begun_as):  # left by a crash
            disk.unlink(self._begun_as)
        self.file = disk.create(self._begun_as)

    def append(self, data: bytes) -> bool:
        """Write all of ``data``, or nothing: a partial write is cut off again.

        While BEGUN, a partial write is continued. Later it is not, because a crash could leave a sector from between
        the two writes.

        :returns: False after a partial write: the segment is :attr:`spoiled`.
        :raises OSError: the write failed. The segment ends where it ended before, unless :attr:`broken`.
        """
        if self.spoiled:
            return False
        start, left = self.size, memoryview(data)
        try:
            while left:
                end = start + len(data) - len(left)
                left = left[self._disk.append(self.file, bytes(left) if len(left) < len(data) else data, end) :]
                if left and self.state is not SegmentState.BEGUN:
                    self.cut(start)
                    return False
        except BaseException:
            with contextlib.suppress(OSError):
                self.cut(start)
            raise
        self.size = start + len(data)
        return True

    def cut(self, size: int) -> None:
        """Cut the segment off at ``size``, the end of a record.

        :raises OSError: that failed: the segment is :attr:`broken`.
        """
        try:
            longer = self._holds_more(size)
            self.spoiled = self.spoiled or (longer and self.state is not SegmentState.BEGUN)
            self._disk.truncate(self.file, size)
        except OSError:
            self.spoiled = self.broken = True
            raise
        self.size, self.synced, self.room = size, min(self.synced, size), 0

    def _holds_more(self, size: int) -> bool:
        """True if anything but preallocated zeros follows ``size``."""
        longer = self._disk.size(self.file) - size
        return longer > 0 and (not self.room or any(self._disk.read(self.file, longer, size)))

    def preallocate(self, end: int) -> None:
        """Preallocate zeros up to ``end``.

        :raises OSError: fewer or none were written; nothing else is changed.
        """
        start = max(self.size, self.room)
        if start < end:
            self.room = end  # set first: after a failure there may be zeros, too
            self._disk.preallocate(self.file, start, end)

    def trim(self) -> None:
        """Release the preallocated space: nothing more is written here."""
        if self.room > self.size and not self.ended:
            with contextlib.suppress(OSError):  # every reader ignores the zeros
                self._disk.truncate(self.file, self.size)
        self.room = 0

    def sync(self) -> None:
        """Wait until all earlier writes are on the disk; the caller updates :attr:`synced`."""
        self._disk.sync(self.file)

    def activate(self) -> None:
        """Sync it, and rename it to its final name.

        :raises OSError: it may or may not have that name after a crash.
        """
        size = self.size
        self.sync()
        self.named = True
        self._disk.rename(self._begun_as, self.segment.path)
        self._disk.sync_directory(os.path.dirname(self.segment.path))
        self.synced = size
        self.move(SegmentState.ACTIVE)

    @property
    def ended(self) -> bool:
        """True if its file is closed."""
        return self.state in _ENDS

    def move(self, state: SegmentState) -> None:
        """Change the state.

        :raises RuntimeError: the table does not allow it, which is a bug.
        """
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"{self.segment.path} is {self.state.value} and cannot become {state.value}")
        self.state = state
        if state in _ENDS:
            self._disk.close(self.file)

    def forget(self) -> None:
        """Cut off the unsynced end. Otherwise a later process would read it from the page cache, and take it for
        stored.
        """
        if self.synced < self.size or self.broken:
            with contextlib.suppress(OSError):  # the disk has failed already; the rest was never acknowledged
                self._disk.truncate(self.file, self.synced)

    def remove(self) -> None:
        """Delete a segment that could not be created; if that fails, readers ignore its temporary file.

        :raises OSError: it failed.
        """
        for path in (self._begun_as, self.segment.path):
            if self._disk.exists(path):
                self._disk.unlink(path)


class Record(NamedTuple):
    """Place and frame of a valid record, without its payload."""

    kind: int
    offset: int
    length: int
    remaining: int
    sequence: int
    transaction: int


class Damage(NamedTuple):
    """An invalid stretch.

    :ivar start: its offset.
    :ivar end: the offset of the next valid record, or the end of the file.
    :ivar final: True at the end of the file.
    """

    start: int
    end: int
    final: bool


def scan(data: bytes, header: SegmentHeader, start: int | None = None) -> Iterator[Record | Damage]:
    """Yield every record of a segment from ``start`` on, and every invalid stretch; zeros at the end are neither.

    :param data: the whole segment.
    :param header: its header.
    :param start: the start of a record; None for the first one.
    """
    view, end, seed, last = memoryview(data), len(data), header.seed, 0
    offset, content = header.first_record if start is None else start, content_end(data)
    while offset < content:
        record = _check(view, offset, end, seed, last)
        if record is None:
            found = _next_record(data, view, offset + 1, seed, last)
            yield Damage(offset, content if found is None else found, final=found is None)
            if found is None:
                return
            offset = found
            continue
        yield record
        last = record.sequence
        offset += FRAME_SIZE + record.length


def content_end(data: bytes) -> int:
    """Return the offset of the zeros at the end; the last record may extend into them."""
    end = len(data)
    while end:
        start = max(0, end - _BLOCK_BYTES)
        if content := len(data[start:end].rstrip(b"\0")):
            return start + content
        end = start
    return 0


def _check(view: memoryview, offset: int, end: int, seed: int, last: int) -> Record | None:
    """Return the record at ``offset``; None if there is no valid one."""
    if offset + FRAME_SIZE > end:
        return None
    marker, crc, length, kind, remaining, sequence, transaction = decode_frame(view, offset)
    stop = offset + FRAME_SIZE + length
    if marker != MARKER or stop > end or kind not in _KINDS or sequence < last:
        return None
    if checksum(view[offset + CRC_FROM : stop], seed) != crc:
        return None
    return Record(kind, offset, length, remaining, sequence, transaction)


def _next_record(data: bytes, view: memoryview, offset: int, seed: int, last: int) -> int | None:
    while (offset := data.find(MARKER, offset)) >= 0:
        if _check(view, offset, len(data), seed, last) is not None:
            return offset
        offset += 1
    return None


def payload_of(segment: Segment, frame: bytes | memoryview, kind: int, sequence: int) -> bytes | memoryview | None:
    """Return the payload of the expected record in ``frame``; None if it is another one or damaged."""
    record = _check(memoryview(frame), 0, len(frame), segment.header.seed, sequence)
    if record is None or record.kind != kind or record.sequence != sequence:
        return None
    return opened(segment, frame, record)


def puts_in(
    segment: Segment, data: bytes | memoryview, start: int, entries: Sequence[Entry]
) -> list[bytes | memoryview | None]:
    """Return the payloads of Puts; None for those that are not there or damaged.

    :param data: the content of the segment from ``start`` on.
    """
    view, seed, cipher = memoryview(data), segment.header.seed, segment.cipher
    if cipher is None:
        return [
            put_at(data, view, (pointer & MOST_OFFSET) - start, length, sequence, seed)
            for sequence, pointer, length, _ in entries
        ]
    frames = [(entry.sequence, data[entry.offset - start :][: FRAME_SIZE + entry.length]) for entry in entries]
    return [payload_of(segment, frame, Kind.PUT, sequence) for sequence, frame in frames]


@overload
def opened(segment: Segment, data: bytes, record: Record) -> bytes | None: ...


@overload
def opened(segment: Segment, data: bytes | memoryview, record: Record) -> bytes | memoryview | None: ...


def opened(segment: Segment, data: bytes | memoryview, record: Record) -> bytes | memoryview | None:
    """Return the payload of a record of ``data``, decrypted; None if that fails.

    An unencrypted payload of a view is a view.
    """
    start = record.offset + FRAME_SIZE
    payload = data[start : start + record.length]
    if segment.cipher is None:
        return payload
    try:
        return segment.cipher.open(record.kind, record.sequence, record.transaction, bytes(payload))
    except ValueError:
        return None

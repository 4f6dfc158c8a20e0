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
#: Added to the name of a segment that is being begun.
BEGUN = ".new"
#: Zeros at a segment's end are looked for in so many bytes at a time.
_LOOK = 64 << 10


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment that exists.

    :ivar path: its file.
    :ivar header: what it says of itself.
    :ivar cipher: opens its payloads; None if they are plain.
    """

    path: str
    header: SegmentHeader
    cipher: SegmentCipher | None

    @property
    def number(self) -> int:
        """Its number."""
        return self.header.number


class SegmentState(enum.Enum):
    """What may still be done to a segment that was begun."""

    BEGUN = "begun"
    ACTIVE = "active"
    FULL = "full"
    DONE = "done"
    GIVEN_UP = "given up"


#: Asked of its class, Python 3.11 looks it up by a call.
ACTIVE = SegmentState.ACTIVE

#: From each state, where a segment may go next.
TRANSITIONS: dict[SegmentState, frozenset[SegmentState]] = {
    SegmentState.BEGUN: frozenset({SegmentState.ACTIVE, SegmentState.GIVEN_UP}),
    SegmentState.ACTIVE: frozenset({SegmentState.FULL, SegmentState.DONE, SegmentState.GIVEN_UP}),
    SegmentState.FULL: frozenset({SegmentState.DONE, SegmentState.GIVEN_UP}),
    SegmentState.DONE: frozenset(),
    SegmentState.GIVEN_UP: frozenset(),
}
_ENDS = frozenset({SegmentState.DONE, SegmentState.GIVEN_UP})


class SegmentWriter:
    """A segment that is written; one thread at a time, but for :meth:`sync`::

        BEGUN ──► ACTIVE ──► FULL ──► DONE
          │         └────►─────┴─►──┘       nothing is written to it any more
          └────────►┴─────────►┴──► GIVEN_UP  a sync of it failed, or may have: what is not known to be on the disk of
                                              it never will be

    While it is BEGUN it has a name of its own, which means nothing to a reader.

    :ivar size: bytes of what is in it.
    :ivar room: up to where zeros are laid out behind that, if it is more.
    :ivar synced: bytes of it that are known to be on the disk.
    :ivar named: it may have its name, also after a crash.
    :ivar failed: a sync has failed: nothing may be appended.
    :ivar spoiled: something was written at its end that does not count. Nothing may be written in its place: a crash
        could leave sectors of the one among those of the other, which would pass for damage.
    :ivar broken: it could not be cut off, and still stands there.
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
        if disk.exists(self._begun_as):  # a crash has left it
            disk.unlink(self._begun_as)
        self.file = disk.create(self._begun_as)

    def append(self, data: bytes) -> bool:
        """Write all of ``data``, or nothing: what was written of it is cut off again.

        While the segment has no name a write that was cut short is gone on with. Later it is not, as a crash could
        leave a sector as it was between the two.

        :returns: False if only a part could be written at once: the segment is :attr:`spoiled`.
        :raises OSError: it could not be written. The segment ends where it ended before, unless :attr:`broken`.
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
        """Let the segment end at ``size``, where a record ends.

        :raises OSError: it could not be cut: it is :attr:`broken`.
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
        """Whether anything but room stands behind ``size``."""
        longer = self._disk.size(self.file) - size
        return longer > 0 and (not self.room or any(self._disk.read(self.file, longer, size)))

    def lay_out(self, end: int) -> None:
        """Make room up to ``end``, if there is not so much: see :meth:`Disk.lay_out`.

        :raises OSError: there is less of it, or none; nothing else is changed.
        """
        start = max(self.size, self.room)
        if start < end:
            self.room = end  # also if only a part of it can be laid out: that is zeros
            self._disk.lay_out(self.file, start, end)

    def trim(self) -> None:
        """Give up the room: nothing more is written here."""
        if self.room > self.size and not self.ended:
            with contextlib.suppress(OSError):  # it is room to every reader
                self._disk.truncate(self.file, self.size)
        self.room = 0

    def sync(self) -> None:
        """Return when all that was written before is on the disk; the caller notes it in :attr:`synced`."""
        self._disk.sync(self.file)

    def activate(self) -> None:
        """Let it appear under its name, with all that is in it, on the disk.

        :raises OSError: it may, or may not, have that name after a crash.
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
        """Whether its file has been given back."""
        return self.state in _ENDS

    def move(self, state: SegmentState) -> None:
        """Go to another state.

        :raises RuntimeError: the table does not allow it: a bug.
        """
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"{self.segment.path} is {self.state.value} and cannot become {state.value}")
        self.state = state
        if state in _ENDS:
            self._disk.close(self.file)

    def forget(self) -> None:
        """Cut off what is not known to be on the disk, so that no later process takes what is in the cache for it."""
        if self.synced < self.size or self.broken:
            with contextlib.suppress(OSError):  # the disk is bad already; what stays was never acknowledged
                self._disk.truncate(self.file, self.synced)

    def remove(self) -> None:
        """Take the file away of a segment that could not be begun; if that fails too, one is left that means nothing.

        :raises OSError: it failed.
        """
        for path in (self._begun_as, self.segment.path):
            if self._disk.exists(path):
                self._disk.unlink(path)


class Record(NamedTuple):
    """One record that checks out, without its payload: where it stands and what its frame says."""

    kind: int
    offset: int
    length: int
    remaining: int
    sequence: int
    transaction: int


class Damage(NamedTuple):
    """A stretch that does not check out.

    :ivar start: where it begins.
    :ivar end: where the next record does, or the file ends.
    :ivar final: it is the end of the file.
    """

    start: int
    end: int
    final: bool


def scan(data: bytes, header: SegmentHeader, start: int | None = None) -> Iterator[Record | Damage]:
    """Every record of a segment from ``start`` on, and every stretch between them that is none. Zeros at the end are
    room, and neither.

    :param data: the whole segment.
    :param header: the segment's.
    :param start: where a record begins; None is the first one.
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
    """Where the zeros begin that stand at the end; the last record may reach into them."""
    end = len(data)
    while end:
        start = max(0, end - _LOOK)
        if content := len(data[start:end].rstrip(b"\0")):
            return start + content
        end = start
    return 0


def _check(view: memoryview, offset: int, end: int, seed: int, last: int) -> Record | None:
    """The record at ``offset``, if there is one."""
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
    """The payload of the record that ``frame`` should be; None if it is not that record, whole and undamaged."""
    record = _check(memoryview(frame), 0, len(frame), segment.header.seed, sequence)
    if record is None or record.kind != kind or record.sequence != sequence:
        return None
    return opened(segment, frame, record)


def puts_in(
    segment: Segment, data: bytes | memoryview, start: int, entries: Sequence[Entry]
) -> list[bytes | memoryview | None]:
    """The payloads of Puts; None for those that are not there, whole and undamaged.

    :param data: what stands in the segment from ``start`` on.
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
    """The payload of a record of ``data``, of a view a view unless it was encrypted; None if it does not open."""
    start = record.offset + FRAME_SIZE
    payload = data[start : start + record.length]
    if segment.cipher is None:
        return payload
    try:
        return segment.cipher.open(record.kind, record.sequence, record.transaction, bytes(payload))
    except ValueError:
        return None

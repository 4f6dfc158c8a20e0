"""Appender: the one end of the log at which is written.

It has no lock of its own: the log calls it with its write lock held, since there is one end.
"""

from __future__ import annotations

import errno
import logging
import os

from ...errors import ChannelClosedError, ChannelError, ChannelIOError
from .disk import Disk
from .format import FIRST_RECORD, Kind, encode_record, encode_rollback, encode_segment_header
from .run import Run, encode_run
from .segment import SegmentWriter
from .segments import Segments
from .space import Space

_log = logging.getLogger("producer.channel")


class Appender:
    """See the module.

    :param segment_size: bytes after which a new segment is begun.
    :ivar active: where is written; None if a new segment has to be begun.
    :ivar dirty: those before it that are not known to be on the disk.
    :ivar next_sequence: of the next Put.
    :ivar voided: runs that failed although their records may be on the disk; said so in the next segment.
    :ivar rolls: segments that were begun because the one before was full.
    """

    def __init__(self, disk: Disk, name: str, segments: Segments, space: Space, segment_size: int) -> None:
        self._disk, self._name, self._segments, self._space = disk, name, segments, space
        self._segment_size = segment_size
        self.active: SegmentWriter | None = None
        self.dirty: list[SegmentWriter] = []
        self.next_sequence = self.next_transaction = 1
        self.voided: list[Run] = []
        self.rolls = 0
        self._went_past = 0
        self._closed = False
        self._mark: tuple[SegmentWriter, int] | None = None  # where the run that is being written begins

    @property
    def writers(self) -> list[SegmentWriter]:
        """Every segment that may hold something that is not on the disk."""
        return [*self.dirty, *([] if self.active is None else [self.active])]

    @property
    def unsynced_bytes(self) -> int:
        """Bytes written and not known to be on the disk."""
        return sum(writer.size - writer.synced for writer in self.writers)

    def resume(self, next_sequence: int, next_transaction: int) -> None:
        """Go on behind what was found."""
        self.next_sequence, self.next_transaction = next_sequence, next_transaction
        self._went_past = next_transaction - 1

    def is_new_due(self, size: int) -> bool:
        """Whether a run of this size goes to a new segment."""
        writer = self.active
        return writer is None or (writer.size > FIRST_RECORD and writer.size + size > self._segment_size)

    def write(self, run: Run, synced: int) -> None:
        """Write a transaction.

        :param synced: the newest transaction that is known to be on the disk.
        :raises DiskFullError: too little space for puts.
        :raises ChannelIOError: it could not be written.
        """
        size, essential = run.size, not run.puts
        if self._closed:
            raise ChannelClosedError(self._name, "it was closed: nothing more can be put or taken")
        try:
            if not essential:
                self._space.admit(size)
            writer = self._writer_for(size, synced, essential=essential)
            run.transaction, run.first = self.next_transaction, self.next_sequence
            self._mark = writer, writer.size
            self.next_transaction += 1
            self.append_run(writer, run, synced, essential=essential)
        except ChannelError:
            raise
        except OSError as error:
            if _is_full(error) and not essential:
                raise self._space.full(size) from error
            raise io_error(self._name, "a commit failed", error) from error
        self.next_sequence += len(run.puts)

    def append_run(self, writer: SegmentWriter, run: Run, synced: int, *, essential: bool) -> None:
        """Write a run that has its numbers to a segment, and note where it stands."""
        data = encode_run(run, writer.segment, synced)
        start = writer.size
        try:
            self._append(writer, data, essential=essential)
        except OSError:
            if writer.broken:
                self._leave_half(writer, run)
            raise
        run.segment, run.start = writer.segment.number, start
        run.offsets = [start + offset for offset in run.offsets]

    def _append(self, writer: SegmentWriter, data: bytes, *, essential: bool) -> None:
        try:
            writer.append(data)
        except OSError as error:
            if not (essential and _is_full(error) and not writer.broken and self._space.give_up_reserve()):
                raise
            writer.append(data)
        self._space.used(len(data))

    def _writer_for(self, size: int, synced: int, *, essential: bool) -> SegmentWriter:
        """The segment to write to, a new one if need be; what is voided is said in it first."""
        writer = self.active
        if writer is None or self.is_new_due(size):
            writer = self.roll(self.next_sequence, synced, essential=essential)
        self._write_voids(writer)
        return writer

    def void(self, synced: int) -> SegmentWriter | None:
        """Say now what is voided; the segment in which it was said, which is to be synced.

        :raises OSError: it could not be written.
        """
        return self._writer_for(0, synced, essential=True) if self.voided else None

    def _write_voids(self, writer: SegmentWriter) -> None:
        while self.voided:
            run = self.voided[0]
            payload = encode_rollback(run.first, run.last)
            segment = writer.segment
            if segment.cipher is not None:
                payload = segment.cipher.seal(Kind.ROLLBACK, self.next_sequence - 1, run.transaction, payload)
            frame = encode_record(
                segment.header.seed, Kind.ROLLBACK, 0, self.next_sequence - 1, run.transaction, payload
            )
            self._append(writer, frame, essential=True)
            self.voided.pop(0)

    def undo(self, run: Run) -> None:
        """Cut off a run that an interrupt has cut short, or kept from being known; nobody has heard of it."""
        mark, self._mark = self._mark, None
        if not run.transaction or mark is None:
            return
        writer, size = mark
        self.next_sequence = run.first
        try:
            writer.cut(size)
        except OSError:
            self._leave_half(writer, run)

    def _leave_half(self, writer: SegmentWriter, run: Run) -> None:
        """Half a run stands at the end of the segment, and cannot be cut off: it is void, and its numbers are used."""
        self.next_sequence = max(self.next_sequence, run.last + 1)
        self.voided.append(run)
        self._leave(writer)

    def _leave(self, writer: SegmentWriter) -> None:
        """Write nothing more to this segment; what is in it stays, and is synced."""
        if self.active is writer:
            self.active = None
            self.dirty.append(writer)
            self._went_past = self.next_transaction - 1

    def roll(self, first_sequence: int, synced: int, *, essential: bool) -> SegmentWriter:
        """Begin a segment.

        :param essential: not for puts: if need be the reserve is given up for it.
        :raises OSError: it could not be begun; the one before, if any, is still there.
        """
        segment = self._segments.new(first_sequence, max(self._went_past, synced))
        writer = SegmentWriter(self._disk, segment)
        try:
            self._append(writer, encode_segment_header(segment.header), essential=essential)
            # The name has to be on the disk before anything in the file is promised to be, and the header before a
            # checkpoint may say that the log goes on here.
            writer.sync()
            self._disk.sync_directory(os.path.dirname(segment.path))  # noqa: PTH120  # a string for the Disk
        except OSError:
            self._forget_file(writer)
            raise
        if self.active is not None:
            self.dirty.append(self.active)
            self.rolls += 1
        self.active = writer
        self._segments.add(segment)
        return writer

    def _forget_file(self, writer: SegmentWriter) -> None:
        """Remove a segment that could not be begun; if that fails too, an empty file is left, which means nothing."""
        writer.close()
        try:
            self._disk.unlink(writer.segment.path)
        except OSError as error:
            _log.warning("channel %s: %s could not be begun, nor removed: %s", self._name, writer.segment.path, error)

    def settle(self) -> None:
        """Close those that are full and on the disk."""
        for writer in [writer for writer in self.dirty if writer.synced >= writer.size]:
            self.dirty.remove(writer)
            writer.close()

    def give_up(self, *, forget: bool) -> int:
        """Write to none of the segments that are not on the disk any more; returns how many they are.

        :param forget: nobody reads what is not on the disk of them: cut it off.
        """
        writers = self.writers
        for writer in writers:
            if forget:
                writer.forget()
            writer.close()
        self.dirty, self.active = [], None
        self._went_past = self.next_transaction - 1
        return len(writers)

    def discard(self, writer: SegmentWriter, *, forget: bool) -> None:
        """Write no more to this segment, and never sync it; as :meth:`give_up`."""
        if forget:
            writer.forget()
        writer.close()
        self.active = None if self.active is writer else self.active
        self.dirty = [other for other in self.dirty if other is not writer]

    def refuse(self) -> None:
        """Write no more transactions."""
        self._closed = True

    def close(self) -> None:
        """Give all files back."""
        for writer in self.writers:
            writer.close()
        self.dirty, self.active = [], None


def io_error(name: str, what: str, error: BaseException) -> ChannelIOError:
    """What to tell the one whose commit failed."""
    number = getattr(error, "errno", None) or errno.EIO
    message = f"{what}: {error}. Nothing of it is stored; look at the disk, then try again"
    return ChannelIOError(name, message, number)


def _is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)

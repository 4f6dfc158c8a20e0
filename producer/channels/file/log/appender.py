"""Appender: the write end of the log.

It has no lock of its own: the log calls it with its write lock held.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from ....model.errors import ChannelClosedError, ChannelError, ChannelIOError, InvalidArgumentError
from ....runtime.loggers import get_logger
from ..store.disk import Disk
from ..store.format import FIRST_RECORD, HOLDS_ONCE_WRITTEN, encode_segment_header
from ..store.pointers import MOST_OFFSET, pointer_to
from ..store.segment import ACTIVE, SegmentState, SegmentWriter
from ..store.segments import Segments
from ..store.space import Space
from .run import Place, Run, encode_run

_log = get_logger("loghub.channel")

#: Bytes preallocated for small runs. A sync then writes no new file size or extent, which costs a disk as much as the
#: bytes themselves.
ROOM = 1 << 20
#: Largest run for which space is preallocated, bytes: for larger runs the saving is a small part.
_SMALL = 64 << 10


class Appender:
    """The segments being written or not yet synced, and the records that the next segment must begin with.

    :param segment_size: bytes after which a new segment is begun.
    :param waits: True if commits wait for the disk. Space is then preallocated for small runs, and the unsynced end of
        an abandoned segment is cut off. Otherwise that end is still read.
    :param moved: called when runs were rewritten to another place and synced there, with all runs before them.
    :ivar next_sequence: sequence number of the next Put.
    :ivar owed: acknowledged runs in abandoned segments; the next segment begins with them.
    :ivar rolls: segments begun because the previous one was full.
    """

    def __init__(
        self,
        disk: Disk,
        name: str,
        segments: Segments,
        space: Space,
        segment_size: int,
        *,
        waits: bool,
        moved: Callable[[Sequence[tuple[Run, Place]]], None],
    ) -> None:
        self._disk, self._name, self._segments, self._space = disk, name, segments, space
        self._segment_size = segment_size
        self._waits, self._moved = waits, moved
        self._holds = 0 if waits else HOLDS_ONCE_WRITTEN  # flag in each Commit
        self._writers: list[SegmentWriter] = []  # the FULL ones, then the ACTIVE one
        self.next_sequence = self.next_transaction = 1
        self.owed: list[Run] = []
        self.rolls = 0
        self._void_from = 0  # pointer: the next segment voids everything from here on
        self._newest_transaction = 0
        self._closed = False
        # Transaction, segment and start offset of the last write.
        self._mark: tuple[int, SegmentWriter, int] | None = None
        self._piecemeal = False  # True after a partial write: the next segment is created with its first run in it

    @property
    def active(self) -> SegmentWriter | None:
        """Return the segment being written; None if a new one has to be begun."""
        last = self._writers[-1] if self._writers else None
        return last if last is not None and last.state is ACTIVE else None

    @property
    def unsynced(self) -> list[SegmentWriter]:
        """Return every segment with unsynced records that can still be synced."""
        return [writer for writer in self._writers if writer.synced < writer.size]

    @property
    def unsynced_bytes(self) -> int:
        """Return the number of bytes written and not known to be on the disk."""
        return sum(writer.size - writer.synced for writer in self._writers) + sum(run.size for run in self.owed)

    def resume(self, next_sequence: int, next_transaction: int) -> None:
        """Continue after the recovered records."""
        self.next_sequence, self.next_transaction = next_sequence, next_transaction
        self._newest_transaction = next_transaction - 1

    def owe(self, run: Run) -> None:
        """Begin the next segment with a transaction of the channel itself, whose numbers are already set."""
        self.owed.append(run)
        self.next_transaction = run.transaction + 1

    def fits_current(self, size: int) -> bool:
        """True if a run of ``size`` bytes fits into the only open segment, and no write or sync has failed before."""
        writers = self._writers
        if len(writers) != 1 or self.owed:
            return False
        writer = writers[0]
        return not writer.failed and writer.state is ACTIVE and writer.size + size <= self._segment_size

    def is_new_due(self, size: int) -> bool:
        """True if a run of ``size`` bytes needs a new segment."""
        return self._fitting(size) is None

    def _fitting(self, size: int) -> SegmentWriter | None:
        """Return the segment for a run of ``size`` bytes; None if it needs a new one."""
        writer = self._writers[-1] if self._writers else None
        if writer is None or writer.state is not ACTIVE:
            return None
        if writer.size + size <= self._segment_size or writer.size <= writer.segment.header.first_record:
            return writer
        return None

    def write(self, run: Run, synced: int) -> bool:
        """Write a transaction.

        :param synced: the newest transaction known to be on the disk.
        :returns: False if the disk accepted only a part, which is cut off again. The next try begins a segment.
        :raises InvalidArgumentError: the transaction is too large for any segment.
        :raises DiskFullError: too little free space for puts.
        :raises ChannelIOError: the transaction could not be written.
        """
        size, essential = run.size, not run.puts
        if self._closed or FIRST_RECORD + size > MOST_OFFSET:
            self._check(run, size)
        self._mark = run.place = None
        try:
            if not essential:
                self._space.admit(size)
            writer = self._fitting(size)
            if writer is None:
                writer = self.begin(synced, essential=essential, carried=run if self._piecemeal else None)
            if run.place is None:
                self._write_to(writer, run, synced, essential=essential)
        except ChannelError:
            raise
        except OSError as error:
            if is_full(error) and not essential:
                raise self._space.full(size) from error
            raise io_error(self._name, "a commit failed", error) from error
        if run.place is None:
            self._piecemeal = True
            return False
        self.next_sequence += len(run.puts)
        return True

    def _check(self, run: Run, size: int) -> None:
        if self._closed and run.live is None:
            raise ChannelClosedError(self._name, "it was closed: nothing more can be put or taken")
        if FIRST_RECORD + size > MOST_OFFSET:
            raise InvalidArgumentError(
                f"channel {self._name}: a transaction of {size} bytes is too large for a segment, at most "
                f"{MOST_OFFSET - FIRST_RECORD} bytes: put less in one transaction"
            )

    def _write_to(self, writer: SegmentWriter, run: Run, synced: int, *, essential: bool) -> None:
        """Number a run and write it; set its place unless only a part was written."""
        run.transaction, run.first = self.next_transaction, self.next_sequence
        self._mark = run.transaction, writer, writer.size
        self.next_transaction += 1
        data, place = encode_run(run, writer.segment, synced | self._holds, writer.size)
        try:
            if self._append(writer, data, essential=essential):
                run.place = place
                if self._waits and writer.room < writer.size and writer.state is ACTIVE:
                    self._preallocate(writer, len(data))
        finally:
            if writer.spoiled:
                self._retire(writer, run)

    def _preallocate(self, writer: SegmentWriter, size: int) -> None:
        """Preallocate space for more runs of this size, if that pays and the disk has plenty."""
        end = min(writer.size + ROOM, self._segment_size)
        wanted = end - writer.size
        if size > _SMALL or wanted < size:
            return
        try:
            if self._space.has(wanted):
                writer.preallocate(end)
                self._space.used(wanted)
        except OSError:  # only the preallocation failed; the run is written
            writer.trim()

    def _append_owed(self, writer: SegmentWriter, run: Run, synced: int) -> Place:
        """Write a run that is already numbered to a segment that has no name yet."""
        data, place = encode_run(run, writer.segment, synced | self._holds, writer.size)
        self._append(writer, data, essential=True)
        return place

    def _append(self, writer: SegmentWriter, data: bytes, *, essential: bool) -> bool:
        try:
            done = writer.append(data)
        except OSError as error:
            if not (essential and is_full(error) and not writer.broken and self._space.release_reserve()):
                raise
            done = writer.append(data)
        if done:
            self._space.used(len(data))
        return done

    def undo(self, run: Run) -> None:
        """Cut off a run, or a part of it, that was written by a call that raised."""
        if self._mark is None or self._mark[0] != run.transaction:
            return
        _, writer, size = self._mark
        if writer.state is not ACTIVE:
            return  # abandoned: its end is void already
        try:
            writer.cut(size)
            self.next_sequence = run.first
        except OSError:
            writer.size = size
        if writer.spoiled:
            self._retire(writer, run)

    def _retire(self, writer: SegmentWriter, run: Run) -> None:
        """Append nothing more to a segment that ends, or ended, with a void run."""
        if writer.broken:
            self.next_sequence = max(self.next_sequence, run.last + 1)
        if writer.state is ACTIVE:
            self._void(writer, writer.size)
            writer.move(SegmentState.FULL)

    def _void(self, writer: SegmentWriter, size: int) -> None:
        """Void the records after ``size``, and those in all later segments begun so far."""
        place = pointer_to(writer.segment.number, size)
        self._void_from = min(self._void_from or place, place)

    def begin(self, synced: int, *, essential: bool, carried: Run | None = None) -> SegmentWriter:
        """Begin a segment. It appears on the disk together with the owed runs, or not at all.

        :param carried: a run to include in it; None for none.
        :param essential: True for a segment that puts do not cause, for which the disk reserve may be released.
        :raises OSError: it could not be begun; the previous one, if any, remains.
        """
        first = self.owed[0].first if self.owed else self.next_sequence
        segment = self._segments.new(first, max(self._newest_transaction, synced), self._void_from)
        writer = SegmentWriter(self._disk, segment)
        essential = essential or bool(self.owed)
        try:
            self._append(writer, encode_segment_header(segment.header), essential=essential)
            owed = [(run, self._append_owed(writer, run, synced)) for run in self.owed]
            if carried is not None:
                self._write_to(writer, carried, synced, essential=essential)
            writer.activate()
        except BaseException:
            self._abandon(writer)
            raise
        if self.active is not None:
            self.active.trim()
            self.active.move(SegmentState.FULL)
            self.rolls += 1
        self._segments.add(segment)  # before the writer: events of an unregistered segment cannot be read
        self._writers.append(writer)
        self.owed, self._void_from, self._piecemeal = [], 0, False
        if owed:
            self._moved(owed)
        return writer

    def _abandon(self, writer: SegmentWriter) -> None:
        """Remove a segment that could not be begun. Should it appear after a crash, the next one voids it."""
        if self._void_from == 0:
            self._void(writer, 0)
        writer.move(SegmentState.ABANDONED)
        if writer.named:  # registered, so that it is deleted before the next segment, which voids it
            self._segments.add(writer.segment)
        try:
            writer.remove()
        except OSError as error:
            _log.warning(
                "channel %s: segment %s could neither be begun nor removed: %s", self._name, writer.segment.path, error
            )

    def settle(self) -> None:
        """Release the segments that are full and synced."""
        for writer in self._writers:
            if writer.state is SegmentState.FULL and writer.synced >= writer.size:
                writer.move(SegmentState.DONE)
        self._writers = [writer for writer in self._writers if not writer.ended]

    def abandon_unsynced(self) -> None:
        """Abandon all unsynced segments after a failed sync: neither append to them nor sync them again."""
        self.settle()
        writers, self._writers = self._writers, []
        for writer in writers:
            self._void(writer, writer.synced)
            if self._waits:
                writer.forget()
            writer.move(SegmentState.ABANDONED)
        self._newest_transaction = self.next_transaction - 1

    def refuse(self) -> None:
        """Refuse further transactions."""
        self._closed = True

    def trim(self) -> None:
        """Release the preallocated space."""
        for writer in self._writers:
            writer.trim()

    def close(self) -> None:
        """Close all files."""
        self.settle()
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.move(SegmentState.DONE)


def io_error(name: str, what: str, error: BaseException) -> ChannelIOError:
    """Build the error of a commit that could not be written."""
    number = getattr(error, "errno", None) or errno.EIO
    message = f"{what}: {error}. Nothing of it is stored. Check the disk, then try again"
    return ChannelIOError(name, message, number)


def start_error(name: str, error: OSError) -> ChannelIOError:
    """Build the error of an opening whose log cannot be continued."""
    advice = "free some space on its disk" if is_full(error) else "check its disk"
    message = f"a segment cannot be begun: {error}. The channel's events are unchanged: {advice}, then open it again"
    return ChannelIOError(name, message, error.errno or errno.EIO)


def is_full(error: OSError) -> bool:
    """True if the disk or the user's quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)

"""Appender: the one end of the log at which is written.

It has no lock of its own: the log calls it with its write lock held, since there is one end.
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

#: Room is laid out for so many bytes of small runs: a sync of what is written there does not have to write down how
#: long the file is, and where it lies, which costs a disk as much as the bytes themselves.
ROOM = 1 << 20
#: Of a run of more bytes that is a small part.
_SMALL = 64 << 10


class Appender:
    """The segments that are written to, or were and are not on the disk yet, and what the next one begins with.

    :param segment_size: bytes after which a new segment is begun.
    :param waits: commits wait for the disk. Then room is laid out for small runs, and what is not on the disk of a
        segment that is given up is cut off; else it is still read.
    :param moved: called when runs stand in another place, which is on the disk as all before them is.
    :ivar next_sequence: of the next Put.
    :ivar owed: acknowledged runs that stand in segments that were given up: the next one begins with them.
    :ivar rolls: segments that were begun because the one before was full.
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
        self._holds = 0 if waits else HOLDS_ONCE_WRITTEN  # what each Commit says besides
        self._writers: list[SegmentWriter] = []  # those that are FULL, and at last the one that is ACTIVE
        self.next_sequence = self.next_transaction = 1
        self.owed: list[Run] = []
        self.rolls = 0
        self._void_from = 0  # what stands from here on does not count, as the next segment will say
        self._went_past = 0
        self._closed = False
        # Of what was written last: its transaction, and where it begins.
        self._mark: tuple[int, SegmentWriter, int] | None = None
        self._piecemeal = False  # the disk takes only parts: the next segment is begun with its first run in it

    @property
    def active(self) -> SegmentWriter | None:
        """Where is written; None if a new segment has to be begun."""
        last = self._writers[-1] if self._writers else None
        return last if last is not None and last.state is ACTIVE else None

    @property
    def unsynced(self) -> list[SegmentWriter]:
        """Every segment that holds something that is not known to be on the disk, and may still come there."""
        return [writer for writer in self._writers if writer.synced < writer.size]

    @property
    def unsynced_bytes(self) -> int:
        """Bytes written and not known to be on the disk."""
        return sum(writer.size - writer.synced for writer in self._writers) + sum(run.size for run in self.owed)

    def resume(self, next_sequence: int, next_transaction: int) -> None:
        """Go on behind what was found."""
        self.next_sequence, self.next_transaction = next_sequence, next_transaction
        self._went_past = next_transaction - 1

    def owe(self, run: Run) -> None:
        """Let the next segment begin with a transaction of the channel's own, which has its numbers."""
        self.owed.append(run)
        self.next_transaction = run.transaction + 1

    def goes_on(self, size: int) -> bool:
        """Whether a run of this size goes to the one segment that there is, and nothing has failed before it."""
        writers = self._writers
        if len(writers) != 1 or self.owed:
            return False
        writer = writers[0]
        return not writer.failed and writer.state is ACTIVE and writer.size + size <= self._segment_size

    def is_new_due(self, size: int) -> bool:
        """Whether a run of this size goes to a new segment."""
        return self._fitting(size) is None

    def _fitting(self, size: int) -> SegmentWriter | None:
        """Where a run of this size goes; None if to a new segment."""
        writer = self._writers[-1] if self._writers else None
        if writer is None or writer.state is not ACTIVE:
            return None
        if writer.size + size <= self._segment_size or writer.size <= writer.segment.header.first_record:
            return writer
        return None

    def write(self, run: Run, synced: int) -> bool:
        """Write a transaction.

        :param synced: the newest transaction that is known to be on the disk.
        :returns: False if the disk took only a part, which is cut off again: the next try begins a segment.
        :raises InvalidArgumentError: it is too large for any segment.
        :raises DiskFullError: too little space for puts.
        :raises ChannelIOError: it could not be written.
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
                f"channel {self._name}: a transaction of {size} bytes; at most {MOST_OFFSET - FIRST_RECORD} fit into a "
                "segment: put less in one transaction"
            )

    def _write_to(self, writer: SegmentWriter, run: Run, synced: int, *, essential: bool) -> None:
        """Give a run its numbers, and its place unless only a part of it could be written."""
        run.transaction, run.first = self.next_transaction, self.next_sequence
        self._mark = run.transaction, writer, writer.size
        self.next_transaction += 1
        data, place = encode_run(run, writer.segment, synced | self._holds, writer.size)
        try:
            if self._append(writer, data, essential=essential):
                run.place = place
                if self._waits and writer.room < writer.size and writer.state is ACTIVE:
                    self._lay_out(writer, len(data))
        finally:
            if writer.spoiled:
                self._retire(writer, run)

    def _lay_out(self, writer: SegmentWriter, size: int) -> None:
        """Make room for more runs of this size, if that is worth it, and the disk has plenty."""
        end = min(writer.size + ROOM, self._segment_size)
        wanted = end - writer.size
        if size > _SMALL or wanted < size:
            return
        try:
            if self._space.has(wanted):
                writer.lay_out(end)
                self._space.used(wanted)
        except OSError:  # what was to be written is
            writer.trim()

    def _append_owed(self, writer: SegmentWriter, run: Run, synced: int) -> Place:
        """Write a run that has its numbers to a segment that has no name yet."""
        data, place = encode_run(run, writer.segment, synced | self._holds, writer.size)
        self._append(writer, data, essential=True)
        return place

    def _append(self, writer: SegmentWriter, data: bytes, *, essential: bool) -> bool:
        try:
            done = writer.append(data)
        except OSError as error:
            if not (essential and is_full(error) and not writer.broken and self._space.give_up_reserve()):
                raise
            done = writer.append(data)
        if done:
            self._space.used(len(data))
        return done

    def undo(self, run: Run) -> None:
        """Cut off a run that was written, or a part of it, by a call that raised."""
        if self._mark is None or self._mark[0] != run.transaction:
            return
        _, writer, size = self._mark
        if writer.state is not ACTIVE:
            return  # it was given up, with what does not count of it
        try:
            writer.cut(size)
            self.next_sequence = run.first
        except OSError:
            writer.size = size
        if writer.spoiled:
            self._retire(writer, run)

    def _retire(self, writer: SegmentWriter, run: Run) -> None:
        """Nothing goes behind a run, or a part of one, that stands, or stood, at the end and does not count."""
        if writer.broken:
            self.next_sequence = max(self.next_sequence, run.last + 1)
        if writer.state is ACTIVE:
            self._void(writer, writer.size)
            writer.move(SegmentState.FULL)

    def _void(self, writer: SegmentWriter, size: int) -> None:
        """What stands behind ``size`` does not count; nor what stands in later segments that were begun before now."""
        place = pointer_to(writer.segment.number, size)
        self._void_from = min(self._void_from or place, place)

    def begin(self, synced: int, *, essential: bool, carried: Run | None = None) -> SegmentWriter:
        """Begin a segment; it appears, together with the runs that are owed, on the disk, or not at all.

        :param carried: a run that appears with it.
        :param essential: not for puts: if need be the reserve is given up for it.
        :raises OSError: it could not be begun; the one before, if any, is still there.
        """
        first = self.owed[0].first if self.owed else self.next_sequence
        segment = self._segments.new(first, max(self._went_past, synced), self._void_from)
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
        self._segments.add(segment)  # a writer whose segment is not known would make events that cannot be read
        self._writers.append(writer)
        self.owed, self._void_from, self._piecemeal = [], 0, False
        if owed:
            self._moved(owed)
        return writer

    def _abandon(self, writer: SegmentWriter) -> None:
        """A segment could not be begun; should it appear all the same, after a crash, the next one voids it."""
        if self._void_from == 0:
            self._void(writer, 0)
        writer.move(SegmentState.GIVEN_UP)
        if writer.named:  # it is deleted with others, before the next one, which says that it does not count
            self._segments.add(writer.segment)
        try:
            writer.remove()
        except OSError as error:
            _log.warning("channel %s: %s could not be begun, nor removed: %s", self._name, writer.segment.path, error)

    def settle(self) -> None:
        """Let go of those that are full and on the disk."""
        for writer in self._writers:
            if writer.state is SegmentState.FULL and writer.synced >= writer.size:
                writer.move(SegmentState.DONE)
        self._writers = [writer for writer in self._writers if not writer.ended]

    def give_up(self) -> None:
        """A sync has failed, or may have: neither append to what is not on the disk, nor sync it, ever again."""
        self.settle()
        writers, self._writers = self._writers, []
        for writer in writers:
            self._void(writer, writer.synced)
            if self._waits:
                writer.forget()
            writer.move(SegmentState.GIVEN_UP)
        self._went_past = self.next_transaction - 1

    def refuse(self) -> None:
        """Write no more transactions."""
        self._closed = True

    def trim(self) -> None:
        """Give up the room behind what is written."""
        for writer in self._writers:
            writer.trim()

    def close(self) -> None:
        """Give all files back."""
        self.settle()
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.move(SegmentState.DONE)


def io_error(name: str, what: str, error: BaseException) -> ChannelIOError:
    """What to tell the one whose commit failed."""
    number = getattr(error, "errno", None) or errno.EIO
    message = f"{what}: {error}. Nothing of it is stored; look at the disk, then try again"
    return ChannelIOError(name, message, number)


def start_error(name: str, error: OSError) -> ChannelIOError:
    """What to tell the one whose channel does not open, since its log cannot go on."""
    advice = "free some space on its disk" if is_full(error) else "look at its disk"
    message = f"a segment cannot be begun: {error}. What it holds is not touched; {advice}, then open it again"
    return ChannelIOError(name, message, error.errno or errno.EIO)


def is_full(error: OSError) -> bool:
    """True if the disk, or the user's part of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)

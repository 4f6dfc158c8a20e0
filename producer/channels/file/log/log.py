"""Log: transactions go to the end of the newest segment, and to the disk in groups.

``_writing`` orders what is written: whoever holds it may write a run of records, begin a segment, replace one whose
sync failed; it is held during that I/O, because there is one end to write at. ``_state`` guards what is known: which
runs are on the disk, which segments exist, and the channel's queue; no I/O happens under it. It may be taken with
``_writing`` held, never the other way round.

A *run* is what one transaction writes, in one piece. Runs are numbered as they are written. Whoever commits waits until
his run is on the disk; the first to wait syncs for all that were written by then (group commit), and their outcomes are
published in the order of the log.

A sync that fails gives its segments up: the kernel may have dropped what it could not write, and would not say so
twice. What is not known to be on the disk of them is written to a new segment, which
says of the old ones that it does not count there. If that fails too, those who wait for it are told, and what nobody
waits for, since its commit has returned, is *owed*: no other run is written before it.

The file is long because whatever the two locks order and guard stands in one place.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ....model.errors import ChannelIOError
from ....model.owned_lock import OwnedLock
from ....runtime.clock import LOOK_AGAIN, NO_DEADLINE, Clock, Deadline, WaitingRoom
from ....runtime.loggers import get_logger
from ..store.disk import Disk
from ..store.segment import Segment, SegmentWriter
from ..store.segments import Segments
from ..store.space import Space
from .appender import Appender, is_full, start_error
from .run import Mark, Place, Position, Run, decode_runs

_log = get_logger("loghub.channel")

#: With an interval, what is written and not yet synced is kept in memory up to this, bytes; then it is synced early.
MAX_UNSYNCED = 16 << 20


@dataclass(frozen=True, slots=True)
class _Goal:
    """What a sync brings to the disk: everything up to this run, transaction and sequence number.

    :ivar writers: what it syncs, and up to which size.
    """

    run: int
    transaction: int
    sequence: int
    writers: Sequence[tuple[SegmentWriter, int]] = ()


class Log:
    """One channel's transactions, in the order in which they were committed.

    :param waits: commits return when they are on the disk; otherwise once written.
    :param keeps: what is not synced is kept in memory, to be written again should a sync fail; otherwise it is read
        back.
    :param publish: called with each run, in order, once it holds, under ``_state``.
    :param published: called after that, without a lock of the queue: whoever waits for it is to look again.
    :param repoint: called with new pointers of published events, when they had to be written again; under
        ``_state``.
    :param lock: ``_state``, which the channel's queue shares.
    :ivar syncs: calls that wait for the disk.
    :ivar poisoned: segments given up because a sync of them failed.
    """

    def __init__(
        self,
        disk: Disk,
        name: str,
        segments: Segments,
        *,
        segment_size: int,
        waits: bool,
        keeps: bool,
        space: Space,
        clock: Clock,
        lock: OwnedLock,
        publish: Callable[[Run], None],
        published: Callable[[], None],
        repoint: Callable[[dict[int, int]], None],
    ) -> None:
        self._disk, self._name, self._segments = disk, name, segments
        self._waits, self._keeps = waits, keeps
        self._publish, self._published, self._repoint = publish, published, repoint
        self.syncs = self.poisoned = 0
        # Guards: _end, _last_run, _unsynced, behind.
        self._writing = OwnedLock()
        self._end = Appender(disk, name, segments, space, segment_size, waits=waits, moved=self._moved)
        self._last_run = 0
        self._unsynced: deque[Run] = deque()
        self._unsynced_bytes = 0
        #: About how many bytes were written since a sync began.
        self.behind = 0
        # Guards: _pending, _synced_*, _fail*, _leader, and the queue that publish changes.
        self._state = lock
        self._pending: deque[Run] = deque()
        self._synced_run = 0
        self.synced_transaction = 0
        self.synced_sequence = -1
        self._failures = 0
        self._failure: ChannelIOError | None = None  # the last of them
        self._leader: int | None = None  # the thread that syncs now
        self._room = WaitingRoom(clock, LOOK_AGAIN)  # of the threads for which it does
        self._clock = clock

    def resume(self, segments: Iterable[Segment], *, next_sequence: int, next_transaction: int) -> None:
        """Go on behind what was found; nothing is ever appended to a segment of another time."""
        self._segments.resume(segments)
        self._end.resume(next_sequence, next_transaction)
        self.synced_transaction, self.synced_sequence = next_transaction - 1, next_sequence - 1

    @property
    def next_sequence(self) -> int:
        """What the next event will be numbered."""
        return self._end.next_sequence

    @property
    def next_transaction(self) -> int:
        """What the next transaction will be numbered."""
        return self._end.next_transaction

    @property
    def rolls(self) -> int:
        """Segments begun because the one before was full."""
        return self._end.rolls

    def open_first(self, what_lives: Run | None = None) -> None:
        """Begin a segment, so that an unwritable directory is found when the channel is opened.

        On a full disk the first commit of one that exists begins it: what it holds can be read before there is space.

        :param what_lives: the transaction that a segment has to begin with; None for none.
        :raises ChannelIOError: it cannot be written.
        """
        with self._writing:
            if what_lives is not None:
                self._end.owe(what_lives)
            try:
                self._end.begin(self.synced_transaction, essential=True)
            except OSError as error:
                if not is_full(error) or not self._segments.all():  # nothing is there to be read
                    raise start_error(self._name, error) from error
                _log.warning(
                    "channel %s: the disk is full: it can be read, but nothing can be put or acknowledged before some "
                    "space is free: %s",
                    *(self._name, error),
                )

    def commit(self, run: Run) -> None:
        """Bring a transaction into the log, and to the disk if the policy is to wait for that.

        :raises DiskFullError: too little space for puts.
        :raises ChannelIOError: it could not be written, or not be synced; then it did not happen.
        """
        while not self._write_in_order(run):
            self.sync()
        if self._waits:
            self._wait_synced(run.number)
        else:
            self._publish_through(run.number)
            if self._unsynced_bytes > MAX_UNSYNCED:
                self._sync_early()
        if run.error is not None:
            raise run.error

    def _sync_early(self) -> None:
        """Keep no more than a little in memory. If that fails the next commit is told: this one has happened."""
        try:
            self.sync()
        except ChannelIOError as error:
            _log.error("channel %s: %s", self._name, error)

    def _write_in_order(self, run: Run) -> bool:
        """Write a run; False if the segments before have to be synced first."""
        with self._writing:
            if not self._end.goes_on(run.size) and self._must_sync_before(run.size):
                return False
            try:
                return self._write(run)
            except BaseException:
                if not run.number:
                    self._end.undo(run)
                raise

    def _must_sync_before(self, size: int) -> bool:
        """Who does not wait for the disk may lose the end of the log, but nothing in its middle: so no segment is begun
        while an earlier one is not on the disk, and nothing is written before what is owed.
        """
        end = self._end
        unsynced = end.unsynced
        for writer in unsynced:
            if writer.failed:  # the kernel would not say so again
                return True
        return not self._waits and bool(unsynced) and end.is_new_due(size)

    def _write(self, run: Run) -> bool:
        if not self._end.write(run, self.synced_transaction):
            return False
        run.number = self._last_run = self._last_run + 1
        self.behind += run.size
        self._pending.append(run)
        if self._keeps:
            self._unsynced_bytes += run.size
            self._unsynced.append(run)
        return True

    def sync(self, timeout: float | None = None) -> bool:
        """Wait until all that was written before is on the disk, or has failed; False if the time is over.

        :raises ChannelIOError: what was committed before could not be synced.
        """
        with self._writing:
            number = self._last_run
        with self._state:
            failures = self._failures
        done = self._wait_synced(number, Deadline.after(self._clock, timeout), failures)
        with self._state:
            failure = self._failure if self._synced_run < number and self._failures > failures else None
        if failure is not None:
            raise failure
        return done

    def _wait_synced(self, number: int, deadline: Deadline = NO_DEADLINE, failures: int | None = None) -> bool:
        """Return when run ``number`` is on the disk, or has failed; the first to come syncs for all.

        :param failures: return also once there were more failures than so many.
        """
        return self._room.wait_until(lambda: self._is_settled(number, failures), deadline)

    def _is_settled(self, number: int, failures: int | None) -> bool:
        """True if there is nothing to wait for any more. Syncs itself if no other thread does."""
        me = threading.get_ident()
        while True:
            try:
                with self._state:
                    failed = failures is not None and self._failures > failures
                    if self._synced_run >= number or failed:
                        return True
                    if self._leader not in (None, me):
                        return False
                    self._leader = me
                self._sync_for_all()
            finally:
                if self._leader == me:
                    self._leader = None
                    self._room.wake_all()

    def _sync_for_all(self) -> None:
        with self._writing:
            goal = self._goal()
            self.behind = 0
        error = self._bring_to_disk(goal)
        with self._writing:
            if error is None and not self._end.owed:
                self._note_synced(goal)
            elif not self._replace_segments(error):
                return
        self._reached(goal)

    def _goal(self) -> _Goal:
        writers = [(writer, writer.size) for writer in self._end.unsynced]
        return _Goal(self._last_run, self.next_transaction - 1, self.next_sequence - 1, writers)

    def _bring_to_disk(self, goal: _Goal) -> OSError | None:
        """Sync; why it failed. No lock is held: others write meanwhile."""
        for writer, _ in goal.writers:
            if writer.failed:  # the kernel would not say so again
                return OSError(errno.EIO, "a sync failed before")
            try:
                self.syncs += 1
                writer.sync()
            except OSError as error:
                writer.failed = True
                return error
        return None

    def _note_synced(self, goal: _Goal) -> None:
        for writer, size in goal.writers:
            writer.synced = max(writer.synced, size)
        while self._unsynced and self._unsynced[0].number <= goal.run:
            self._unsynced_bytes -= self._unsynced.popleft().size
        self._end.settle()

    def _reached(self, goal: _Goal) -> None:
        """Everything up to there is on the disk."""
        self._publish_through(goal.run)
        with self._state:
            self._synced_run = max(self._synced_run, goal.run)
            self.synced_transaction = max(self.synced_transaction, goal.transaction)
            self.synced_sequence = max(self.synced_sequence, goal.sequence)

    def _publish_through(self, number: int) -> None:
        try:
            with self._state:
                self._publish_pending(number)
        finally:
            self._published()

    def _publish_pending(self, number: int) -> None:
        while self._pending and self._pending[0].number <= number:
            run = self._pending[0]
            if run.error is None:
                self._publish(run)
            self._pending.popleft()

    def _replace_segments(self, error: OSError | None) -> bool:
        """Write what is not known to be on the disk to a new segment; whether that is on the disk now.

        :param error: why the old ones are given up; None if they were before.
        """
        unsynced = self._end.unsynced
        try:
            self._end.owed = list(self._unsynced) if self._keeps else [*self._end.owed, *self._read_back(unsynced)]
        except OSError as unread:
            self._fail(unread)
            return False
        self._end.give_up()
        if error is not None:
            self.poisoned += len(unsynced)
            _log.error(
                "channel %s: the disk could not sync: %s; a new segment is begun, and %d transactions written again",
                self._name,
                error,
                len(self._end.owed),
            )
        try:
            self.syncs += 1
            self._end.begin(self.synced_transaction, essential=True)
        except Exception as second:  # noqa: BLE001  # a key provider's own error: these runs are not on the disk
            self._fail(second)
            return False
        return True

    def _read_back(self, writers: Sequence[SegmentWriter]) -> list[Run]:
        """The runs of these segments that are not known to be on the disk, as they are in the cache.

        :raises OSError: they cannot be read; perhaps the next time.
        """
        runs: list[Run] = []
        for writer in writers:
            data = self._disk.read(writer.file, writer.size, 0)
            try:
                runs += decode_runs(data, writer.segment, writer.synced)
            except ValueError as error:
                _log.error(
                    "channel %s: the cache is damaged: %s; of the events there those are lost that are not taken "
                    "before the channel is closed",
                    self._name,
                    error,
                )
        return runs

    def _moved(self, moved: Sequence[tuple[Run, Place]]) -> None:
        """Runs stand in another place; they are on the disk, and so is all that was written before."""
        goal = _Goal(self._last_run, self.next_transaction - 1, self.next_sequence - 1)
        with self._state:
            pointers: dict[int, int] = {}
            for run, place in moved:
                run.place = place
                pointers.update(run.pointers())
            self._repoint(pointers)
        self._reached(goal)
        self._unsynced.clear()
        self._unsynced_bytes = 0

    def _fail(self, error: BaseException) -> None:
        """What is owed could not be written to a new segment either."""
        failure = self._failure_of(error)
        if self._waits:  # they are told; nobody has seen what they wrote
            for run in self._end.owed:
                run.error = failure
            self._end.owed = []
            self._unsynced.clear()
            self._publish_through(self._last_run)
        with self._state:
            self._failures, self._failure = self._failures + 1, failure
            if self._waits:
                self._synced_run = self._last_run

    def _failure_of(self, error: BaseException) -> ChannelIOError:
        then = (
            "Nothing of it counts; only if the power fails before another commit succeeds, it may be found on the disk "
            "all the same. Look at the disk, then try again"
            if self._waits
            else "It is in the channel, and is tried again with the next commit or sync. Look at the disk"
        )
        number = getattr(error, "errno", None) or errno.EIO
        message = f"what was committed could not be brought to the disk: {error}. {then}"
        return ChannelIOError(self._name, message, number)

    def mark(self) -> Mark:
        """A moment up to which everything is published; for a look at the queue that comes after this call.

        :raises OSError: a segment has to be begun, and cannot be.
        :raises ChannelIOError: what comes before it cannot be synced.
        """
        while (mark := self._mark()) is None:
            self.sync()
        return mark

    def _mark(self) -> Mark | None:
        """None if the segments before have to be synced first."""
        with self._writing:
            if self._must_sync_before(0):
                return None
            active = self._end.active or self._end.begin(self.synced_transaction, essential=True)
            try:  # others may publish it at this moment: an earlier position is as good
                run = self._pending[0]
            except IndexError:
                run = None
            if run is None or run.place is None:
                position = Position(active.segment.number, active.size)
                return Mark(position, self.next_transaction - 1, self.next_sequence)
            return Mark(Position(run.place.segment, run.place.start), run.transaction - 1, run.first)

    @property
    def unsynced_bytes(self) -> int:
        """Bytes written and not known to be on the disk."""
        with self._writing:
            return self._end.unsynced_bytes

    def refuse(self) -> None:
        """Write no more transactions."""
        with self._writing:
            self._end.refuse()

    def trim(self) -> None:
        """Give up the room behind what is written; only for the process that writes."""
        with self._writing:
            self._end.trim()

    def close(self) -> None:
        """Give all files back; the caller has synced, or does not want to."""
        with self._writing:
            self._end.close()
        self._segments.close()

    def close_in_child(self) -> None:
        """As :meth:`close`, in a forked child, where a thread of the parent may hold any lock: they are made anew."""
        self._writing, self._state = OwnedLock(), OwnedLock()
        self._end.close()
        self._segments.close_in_child()

"""Log: append transactions to the newest segment, and sync them in groups.

``_writing`` orders the writes. Its holder may write a run of records, begin a segment, or replace one whose sync
failed. It is held during that I/O, because the log has one end. ``_state`` guards which runs are on the disk, which
segments exist, and the channel's queue. No I/O happens under it. It may be taken with ``_writing`` held, never the
other way round.

A *run* is the records of one transaction, written in one piece. Runs are numbered as they are written. A committing
thread waits until its run is on the disk. The first one to wait syncs for all runs written by then (group commit), and
their outcomes are published in log order.

A failed sync abandons its segments: the kernel may have dropped the pages that it could not write, and reports that
only once. Records not known to be on the disk are written to a new segment, which voids them in the old ones. If that
fails too, threads that still wait get the error. Runs whose commit has already returned are *owed*: no other run is
written before them.

The file is long because everything that the two locks order and guard is in one place.
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

#: With a sync interval, unsynced records are kept in memory up to this many bytes, then synced early.
MAX_UNSYNCED = 16 << 20


@dataclass(frozen=True, slots=True)
class _Goal:
    """The end of the log when a sync began: the newest run, transaction and sequence number that it covers.

    :ivar writers: the segments to sync, each with its size in bytes.
    """

    run: int
    transaction: int
    sequence: int
    writers: Sequence[tuple[SegmentWriter, int]] = ()


class Log:
    """One channel's transactions, in commit order.

    :param waits: True if commits return once synced; otherwise they return once written.
    :param keeps: True to keep unsynced records in memory, for rewriting after a failed sync; otherwise they are read
        back.
    :param publish: called under ``_state`` with each run, in order, once it is durable enough.
    :param published: called afterwards without locks, to wake the threads that wait for events or room.
    :param repoint: called under ``_state`` with new pointers of published events that were rewritten.
    :param lock: ``_state``, shared with the channel's queue.
    :ivar syncs: number of fsync calls.
    :ivar poisoned: segments abandoned because a sync failed.
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
        #: Bytes written since the last sync began, approximately.
        self.behind = 0
        # Guards: _pending, _synced_*, _fail*, _leader, and the queue that publish changes.
        self._state = lock
        self._pending: deque[Run] = deque()
        self._synced_run = 0
        self.synced_transaction = 0
        self.synced_sequence = -1
        self._failures = 0
        self._failure: ChannelIOError | None = None  # the last one
        self._leader: int | None = None  # the thread that is syncing, if any
        self._room = WaitingRoom(clock, LOOK_AGAIN)  # of the threads that wait for it
        self._clock = clock

    def resume(self, segments: Iterable[Segment], *, next_sequence: int, next_transaction: int) -> None:
        """Continue after the recovered records. Segments of an earlier opening are never appended to."""
        self._segments.resume(segments)
        self._end.resume(next_sequence, next_transaction)
        self.synced_transaction, self.synced_sequence = next_transaction - 1, next_sequence - 1

    @property
    def next_sequence(self) -> int:
        """Return the sequence number of the next event."""
        return self._end.next_sequence

    @property
    def next_transaction(self) -> int:
        """Return the id of the next transaction."""
        return self._end.next_transaction

    @property
    def rolls(self) -> int:
        """Return the number of segments begun because the previous one was full."""
        return self._end.rolls

    def open_first(self, live_run: Run | None = None) -> None:
        """Begin a segment, so that an unwritable directory is detected when the channel is opened.

        On a full disk an existing channel still opens for reading; its first commit begins the segment.

        :param live_run: the transaction that the segment must begin with; None for none.
        :raises ChannelIOError: the segment cannot be written.
        """
        with self._writing:
            if live_run is not None:
                self._end.owe(live_run)
            try:
                self._end.begin(self.synced_transaction, essential=True)
            except OSError as error:
                if not is_full(error) or not self._segments.all():  # no events to read
                    raise start_error(self._name, error) from error
                _log.warning(
                    "channel %s: the disk is full: events can be read, but not put or acknowledged, until space is "
                    "freed: %s",
                    *(self._name, error),
                )

    def commit(self, run: Run) -> None:
        """Write a transaction to the log, and wait for the disk if the policy says so.

        :raises DiskFullError: too little free space for puts.
        :raises ChannelIOError: it could not be written or synced; it did not happen.
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
        """Bound the unsynced bytes in memory. A failure is logged only: this commit has already happened."""
        try:
            self.sync()
        except ChannelIOError as error:
            _log.error("channel %s: %s", self._name, error)

    def _write_in_order(self, run: Run) -> bool:
        """Write a run; False if earlier segments must be synced first."""
        with self._writing:
            if not self._end.fits_current(run.size) and self._must_sync_before(run.size):
                return False
            try:
                return self._write(run)
            except BaseException:
                if not run.number:
                    self._end.undo(run)
                raise

    def _must_sync_before(self, size: int) -> bool:
        """True if earlier segments must be synced before ``size`` more bytes are written.

        A crash may lose the end of an unsynced log, but nothing in its middle. So no segment is begun while an earlier
        one is unsynced, and owed runs are written first.
        """
        end = self._end
        unsynced = end.unsynced
        for writer in unsynced:
            if writer.failed:  # the kernel reports a failure only once
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
        """Wait until everything written before is on the disk or has failed.

        :returns: False if the timeout passed first.
        :raises ChannelIOError: earlier commits could not be synced.
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
        """Wait until run ``number`` is on the disk or has failed. The first waiting thread syncs for all.

        :param failures: return also once the log has counted more failures than this; None to ignore them.
        """
        return self._room.wait_until(lambda: self._is_settled(number, failures), deadline)

    def _is_settled(self, number: int, failures: int | None) -> bool:
        """True if there is nothing left to wait for. Syncs itself if no other thread is syncing."""
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
        """Sync; return the error, or None. No lock is held, so other threads can write meanwhile."""
        for writer, _ in goal.writers:
            if writer.failed:  # the kernel reports a failure only once
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
        """Record and publish that everything up to ``goal`` is on the disk."""
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
        """Write all records not known to be on the disk to a new segment.

        :param error: why the old segments are abandoned; None if they already were.
        :returns: True if the new segment is on the disk.
        """
        unsynced = self._end.unsynced
        try:
            self._end.owed = list(self._unsynced) if self._keeps else [*self._end.owed, *self._read_back(unsynced)]
        except OSError as unread:
            self._fail(unread)
            return False
        self._end.abandon_unsynced()
        if error is not None:
            self.poisoned += len(unsynced)
            _log.error(
                "channel %s: a sync failed: %s. %d transactions are written again to a new segment",
                self._name,
                error,
                len(self._end.owed),
            )
        try:
            self.syncs += 1
            self._end.begin(self.synced_transaction, essential=True)
        except Exception as second:  # noqa: BLE001  # also a key provider's own error: these runs are not on the disk
            self._fail(second)
            return False
        return True

    def _read_back(self, writers: Sequence[SegmentWriter]) -> list[Run]:
        """Return the unsynced runs of these segments, read from the page cache.

        :raises OSError: they cannot be read; a later call may succeed.
        """
        runs: list[Run] = []
        for writer in writers:
            data = self._disk.read(writer.file, writer.size, 0)
            try:
                runs += decode_runs(data, writer.segment, writer.synced)
            except ValueError as error:
                _log.error(
                    "channel %s: unsynced records in the page cache are damaged: %s. Their events are lost unless they "
                    "are taken before the channel closes",
                    self._name,
                    error,
                )
        return runs

    def _moved(self, moved: Sequence[tuple[Run, Place]]) -> None:
        """Repoint runs that were rewritten. They are on the disk, with everything written before them."""
        goal = _Goal(self._last_run, self.next_transaction - 1, self.next_sequence - 1)
        with self._state:
            self._publish_pending(goal.run)  # first, since a commit that has just been written may be among the moved
            pointers: dict[int, int] = {}
            for run, place in moved:
                run.place = place
                pointers.update(run.pointers())
            self._repoint(pointers)
        self._reached(goal)
        self._unsynced.clear()
        self._unsynced_bytes = 0

    def _fail(self, error: BaseException) -> None:
        """Record that the owed runs could not be written to a new segment either."""
        failure = self._failure_of(error)
        if self._waits:  # their commits raise; no other thread has seen these events
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
            "It is not committed, but may still appear if the power fails before another commit succeeds. Check the "
            "disk, then try again"
            if self._waits
            else "It stays in the channel, and the next commit or sync writes it again. Check the disk"
        )
        number = getattr(error, "errno", None) or errno.EIO
        message = f"a commit could not be synced to the disk: {error}. {then}"
        return ChannelIOError(self._name, message, number)

    def mark(self) -> Mark:
        """Return a log position up to which everything is published, for a snapshot of the queue taken afterwards.

        :raises OSError: a segment has to be begun, and cannot be.
        :raises ChannelIOError: records before it cannot be synced.
        """
        while (mark := self._mark()) is None:
            self.sync()
        return mark

    def _mark(self) -> Mark | None:
        """Return the mark; None if earlier segments must be synced first."""
        with self._writing:
            if self._must_sync_before(0):
                return None
            active = self._end.active or self._end.begin(self.synced_transaction, essential=True)
            try:  # another thread may publish it now: an earlier position is as good
                run = self._pending[0]
            except IndexError:
                run = None
            if run is None or run.place is None:
                position = Position(active.segment.number, active.size)
                return Mark(position, self.next_transaction - 1, self.next_sequence)
            return Mark(Position(run.place.segment, run.place.start), run.transaction - 1, run.first)

    @property
    def unsynced_bytes(self) -> int:
        """Return the number of bytes written and not known to be on the disk."""
        with self._writing:
            return self._end.unsynced_bytes

    def refuse(self) -> None:
        """Refuse further transactions."""
        with self._writing:
            self._end.refuse()

    def trim(self) -> None:
        """Release the preallocated space; only in the process that writes."""
        with self._writing:
            self._end.trim()

    def close(self) -> None:
        """Close all files without syncing."""
        with self._writing:
            self._end.close()
        self._segments.close()

    def close_in_child(self) -> None:
        """Close all files in a forked child, with new locks: a thread of the parent may hold the old ones."""
        self._writing, self._state = OwnedLock(), OwnedLock()
        self._end.close()
        self._segments.close_in_child()

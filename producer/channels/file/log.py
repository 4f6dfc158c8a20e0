"""Log: transactions go to the end of the newest segment, and to the disk in groups.

``_writing`` orders what is written: whoever holds it may write a run of records, begin a segment, replace one whose
sync failed; it is held during that I/O, because there is one end to write at. ``_state`` guards what is known: which
runs are on the disk, who waits, which segments exist, and the channel's queue; no I/O happens under it. It may be taken
with ``_writing`` held, never the other way round.

A *run* is what one transaction writes, in one piece. Runs are numbered as they are written. Whoever commits waits until
his run is on the disk; the first to wait syncs for all that were written by then (group commit), and their outcomes are
published in the order of the log.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from ...clock import Clock, Deadline
from ...errors import ChannelIOError
from .appender import Appender, io_error
from .disk import Disk
from .event_queue import pointer_to
from .run import Position, Run
from .segment import Segment
from .segments import Segments
from .space import Space

_log = logging.getLogger("producer.channel")

#: With an interval, what is written and not yet synced is kept in memory up to this, bytes; then it is synced early.
MAX_UNSYNCED = 16 << 20


class Log:
    """See the module.

    :param waits: commits return when they are on the disk; otherwise once written.
    :param keeps: what is not synced is kept in memory, to be written again should a sync fail.
    :param publish: called with each run, in order, once it holds, under ``_state``.
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
        lock: threading.Lock,
        publish: Callable[[Run], None],
        repoint: Callable[[dict[int, int]], None],
    ) -> None:
        self._name, self._segments, self._clock = name, segments, clock
        self._waits, self._keeps = waits, keeps
        self._publish, self._repoint = publish, repoint
        self.syncs = self.poisoned = 0
        # Guards: _end, _last_run, _unsynced.
        self._writing = threading.Lock()
        self._end = Appender(disk, name, segments, space, segment_size)
        self._last_run = 0
        self._current: Run | None = None  # what is being written; until _last_run is its number, nobody knows it
        self._unsynced: deque[Run] = deque()
        self._unsynced_bytes = 0
        # Guards: _pending, _synced_*, _syncing, _waiters, and the queue that publish changes.
        self._state = lock
        self._pending: deque[Run] = deque()
        self._synced_run = 0
        self.synced_transaction = 0
        self.synced_sequence = -1
        self._failed: tuple[int, ChannelIOError | None] = (0, None)  # the last run that a sync has failed for, and why
        self._unsafe = False  # something is in the queue that could not be synced, and never will be
        self._syncing = False
        self._waiters: list[SimpleQueue[None]] = []

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

    def open_first(self) -> None:
        """Begin a segment, so that an unwritable directory is found when the channel is opened.

        :raises ChannelIOError: it cannot be written.
        """
        with self._writing:
            try:
                self._end.roll(self._end.next_sequence, self.synced_transaction, essential=True)
            except OSError as error:
                raise io_error(self._name, "a segment cannot be begun", error) from error

    def commit(self, run: Run) -> None:
        """Bring a transaction into the log, and to the disk if the policy is to wait for that.

        :raises DiskFullError: too little space for puts.
        :raises ChannelIOError: it could not be written, or not be synced; then it did not happen.
        """
        while not self._write_in_order(run):
            self.sync()
        early = self._keeps and not self._waits and self._unsynced_bytes > MAX_UNSYNCED
        if self._waits:
            try:
                self._wait_synced(run.number)
            except BaseException:  # an interrupt: the outcome has to be known all the same
                self._wait_synced(run.number)
                raise
        else:
            self._publish_through(run.number)
            if early:
                self.sync()
        if run.error is not None:
            raise run.error

    def _write_in_order(self, run: Run) -> bool:
        """Write a run; False if the segments before have to be synced first.

        Who does not wait for the disk may lose the end of the log, but nothing in its middle: so no segment is begun
        while an earlier one is not on the disk.
        """
        with self._writing:
            self._undo_interrupted()
            if not self._waits and self._end.is_new_due(run.size) and self._end.unsynced_bytes:
                return False
            try:
                self._write(run)
            except BaseException:
                self._undo_interrupted()
                raise
        return True

    def _write(self, run: Run) -> None:
        self._current = run
        self._end.write(run, self.synced_transaction)
        run.number = self._last_run + 1
        self._pending.append(run)
        if self._keeps:
            self._unsynced.append(run)
            self._unsynced_bytes += run.size
        self._last_run = run.number
        self._current = None

    def _undo_interrupted(self) -> None:
        """An interrupt may have come between a write and what is known of it: the write did not happen then."""
        run = self._current
        if run is None:
            return
        if not run.number or run.number > self._last_run:
            if self._pending and self._pending[-1] is run:
                self._pending.pop()
            if self._unsynced and self._unsynced[-1] is run:
                self._unsynced.pop()
                self._unsynced_bytes = sum(other.size for other in self._unsynced)
            self._end.undo(run)
            run.number = 0
        self._current = None

    def sync(self, timeout: float | None = None) -> bool:
        """Wait until all that was written before is on the disk; False if the time is over.

        :raises ChannelIOError: it could not be synced.
        """
        with self._writing:
            number = self._last_run
        with self._state:
            before = self._synced_run
        done = self._wait_synced(number, Deadline.after(self._clock, timeout))
        with self._state:
            failed, error = self._failed
        if error is not None and before < failed and done:
            raise error
        return done

    def _wait_synced(self, number: int, deadline: Deadline | None = None) -> bool:
        """Return when run ``number`` is on the disk, or has failed; the first to come syncs for all."""
        while True:
            wake: SimpleQueue[None] = SimpleQueue()
            leads = False
            try:
                with self._state:
                    if self._synced_run >= number:
                        return True
                    leads = not self._syncing
                    self._syncing = True
                    if not leads:
                        self._waiters.append(wake)
                if leads:
                    self._sync_for_all()
                    continue
            finally:
                if leads:  # also if an interrupt came before anything was synced: another one leads then
                    self._let_others_lead()
            if deadline is None:
                wake.get()
            elif deadline.expired(self._clock):
                return False
            else:
                self._clock.wait_for(wake, deadline)

    def _let_others_lead(self) -> None:
        with self._state:
            self._syncing = False
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.put(None)

    def _sync_for_all(self) -> None:
        with self._writing:
            self._undo_interrupted()
            target = self._last_run
            writers = self._end.writers
            transaction, sequence = self.next_transaction - 1, self.next_sequence - 1
        try:
            for writer in writers:
                if writer.synced < writer.size:
                    self.syncs += 1
                    writer.sync()
        except OSError as error:
            target, transaction, sequence = self._replace_segments(error)
        self._synced(target, transaction, sequence)

    def _synced(self, target: int, transaction: int, sequence: int) -> None:
        with self._writing:
            while self._unsynced and self._unsynced[0].number <= target:
                self._unsynced_bytes -= self._unsynced.popleft().size
            self._end.settle()
        self._publish_through(target)
        with self._state:
            self._synced_run = max(self._synced_run, target)
            if not self._unsafe:
                self.synced_transaction = max(self.synced_transaction, transaction)
                self.synced_sequence = max(self.synced_sequence, sequence)

    def _publish_through(self, number: int) -> None:
        with self._state:
            while self._pending and self._pending[0].number <= number:
                run = self._pending[0]
                if run.error is None:
                    self._publish(run)  # once more, if an interrupt comes here
                self._pending.popleft()

    def _replace_segments(self, error: OSError) -> tuple[int, int, int]:
        """A sync failed: the kernel may have dropped what it could not write, and would not say so twice.

        The segments that were not synced are given up, and what is not known to be on the disk is written again to a
        new one. If that fails as well, those runs have failed, and are voided in the next segment that can be written.
        """
        with self._writing:
            self.poisoned += self._end.give_up(forget=self._waits)
            runs = list(self._unsynced)
            first = runs[0].first if runs else self.next_sequence
            _log.error(
                "channel %s: the disk could not sync: %s; a new segment is begun, and %d transactions written again",
                self._name,
                error,
                len(runs),
            )
            try:
                self._write_again(runs, first)
                if not self._keeps:
                    self._fail(runs, error)
            except BaseException as second:
                # Whatever it is, a key provider's own error or an interrupt: these runs are not on the disk.
                self._fail(runs, second)
                if not isinstance(second, Exception):
                    raise
            return self._last_run, self.next_transaction - 1, self.next_sequence - 1

    def _write_again(self, runs: list[Run], first: int) -> None:
        writer = self._end.roll(first, self.synced_transaction, essential=True)
        try:
            for run in runs:
                self._end.append_run(writer, run, self.synced_transaction, essential=True)
            self.syncs += 1
            writer.sync()
        except BaseException:
            self._end.discard(writer, forget=self._waits)
            raise
        pointers = {
            run.first + place: pointer_to(run.segment, offset)
            for run in runs
            for place, offset in enumerate(run.offsets)
        }
        with self._state:
            self._repoint(pointers)

    def _fail(self, runs: list[Run], error: BaseException) -> None:
        failure = io_error(self._name, "what was committed could not be brought to the disk", error)
        with self._state:
            self._failed = self._last_run, failure
        for run in runs:
            run.error = failure
        if self._waits:
            self._end.voided += runs
            self._say_void()
        else:  # they are in the queue already, and their bytes may still be read
            with self._state:
                self._unsafe = True
            _log.error(
                "channel %s: %d transactions may not survive the machine: they could not be synced",
                self._name,
                len(runs),
            )

    def _say_void(self) -> None:
        """Say at once that runs have failed, lest a next process takes what is left of them for committed."""
        try:
            writer = self._end.void(self.synced_transaction)
            if writer is not None:
                self.syncs += 1
                writer.sync()
        except Exception as error:  # noqa: BLE001  # it is said with the next commit, or checkpoint
            _log.warning("channel %s: what failed cannot be marked as failed yet: %s", self._name, error)

    def position(self) -> Position:
        """A place before which everything is published; for a look at the queue that comes after this call."""
        with self._writing:
            self._undo_interrupted()
            self._end.void(self.synced_transaction)
            active = self._end.active
            if active is None:
                active = self._end.roll(self.next_sequence, self.synced_transaction, essential=True)
            try:  # others may publish it at this moment: an earlier position is as good
                run = self._pending[0]
            except IndexError:
                return Position(active.segment.number, active.size)
            return Position(run.segment, run.start)

    @property
    def unsynced_bytes(self) -> int:
        """Bytes written and not known to be on the disk."""
        with self._writing:
            return self._end.unsynced_bytes

    def refuse(self) -> None:
        """Write no more transactions."""
        with self._writing:
            self._end.refuse()

    def close(self) -> None:
        """Give all files back; the caller has synced, or does not want to."""
        with self._writing:
            self._end.close()
        self._segments.close()

    def close_in_child(self) -> None:
        """As :meth:`close`, in a forked child, where a thread of the parent may hold any lock: they are made anew."""
        self._writing, self._state = threading.Lock(), threading.Lock()
        self._end.close()
        self._segments.close_in_child()

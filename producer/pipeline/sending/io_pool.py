"""IOThreadPool: the threads that send, and the unbounded queue before them (bounded because memory is).

Whose turn it is, and who may not go yet, the queue says (see ``sending.fair_queue`` and ``sending.gates``).
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Hashable

from ...clock import (
    NO_DEADLINE,
    Clock,
    Deadline,
    WaitingRoom,
)
from ...metrics import DestinationStats
from ...records import StreamKey
from ..batching.batch import ProducerBatch
from ..threads import StageThread
from .fair_queue import FairQueue, Report, Turn
from .gates import Verdict

_log = logging.getLogger("producer.io_pool")


class IOThreadPool:
    """The IO threads and their queue.

    :param queue: nobody else's.
    :param destination: says where a stream's batches go; see :meth:`~producer.interfaces.Sink.destination`.
    :param run: makes one attempt, and reports of it.
    :param refuse: takes batches that come after the pool was stopped.
    :param set_alarm: told when :meth:`wake` is to be called, monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        thread_count: int,
        queue: FairQueue,
        *,
        destination: Callable[[StreamKey], Hashable],
        run: Callable[[Turn], Report],
        refuse: Callable[[ProducerBatch], object],
        set_alarm: Callable[[float], object],
        clock: Clock,
    ) -> None:
        self._destination = destination
        self._run = run
        self._refuse = refuse
        self._set_alarm = set_alarm
        self._clock = clock
        self.threads = tuple(StageThread(f"{name}-io-{i}", self._loop) for i in range(thread_count))
        self._idle = WaitingRoom(clock)
        self._lock = threading.Lock()  # guards everything below
        # What the queue does takes many steps, which an interrupt must not come between, and the sink's code is asked
        # for it: senders, which a signal may interrupt, only leave their batches here.
        self._inbox: deque[ProducerBatch] = deque()
        self._queue = queue
        self._running = 0
        self._stopped = False

    def enter(self, batch: ProducerBatch) -> None:
        """Queue ``batch`` for its first attempt, once, however often this is called; never blocks."""
        with self._lock:
            refused = self._stopped and not batch.entered
            if not self._stopped and not batch.entered:
                # No calls in between: an interrupt finds both done, or nothing.
                batch.entered = True
                self._inbox.append(batch)
        if refused:
            self._refuse(batch)
        else:
            self._idle.wake_one()

    def submit(self, batch: ProducerBatch, *, wake: bool = True) -> None:
        """Queue ``batch`` for another attempt; never blocks.

        :param wake: False if :meth:`wake` follows, which wakes a thread only where the batch may go.
        """
        with self._lock:
            stopped = self._stopped
            if not stopped:
                self._inbox.append(batch)
        if stopped:
            self._refuse(batch)
        elif wake:
            self._idle.wake_one()

    def _destination_of(self, key: StreamKey) -> Hashable:
        try:
            return self._destination(key)
        except Exception:  # noqa: BLE001  # whatever a sink of somebody else's raises, the batch is on its way
            _log.exception("the sink could not say where %s/%s is: taken as one with its project", *key[:2])
            return key.project

    @property
    def queued(self) -> int:
        """Batches that wait for a thread."""
        with self._lock:
            return len(self._inbox) + len(self._queue)

    @property
    def running(self) -> int:
        """Attempts under way."""
        return self._running

    def stats(self) -> tuple[DestinationStats, ...]:
        """See :attr:`~producer.metrics.Stats.destinations`."""
        now = self._clock.monotonic()
        with self._lock:
            return self._queue.stats(now)

    def run_next(self) -> bool:
        """Make one attempt on the caller's thread, if any may be made; whether it was. For those without threads."""
        turn = self._take()
        if turn is None:
            return False
        self._attempt(turn)
        return True

    def wake(self) -> None:
        """Let those go that were to wait until now."""
        now = self._clock.monotonic()
        self._let_in(now)
        with self._lock:
            self._queue.wake(now)
            alarm, ready = self._queue.alarm, self._queue.ready
        self._tell(alarm)
        if ready:
            self._idle.wake_one()

    def _tell(self, alarm: float) -> None:
        if alarm < math.inf:
            self._set_alarm(alarm)

    def _loop(self) -> None:
        while (turn := self._next()) is not None:
            self._attempt(turn)
            del turn  # else its batch's futures would live until the next one comes

    def _next(self) -> Turn | None:
        """Wait for a batch that may go; None if none will come any more."""
        taken: list[Turn] = []

        def something_to_do() -> bool:
            stopped = self._stopped  # before the look: what was queued before the stop is seen then
            turn = self._take()
            if turn is not None:
                taken.append(turn)
            return stopped or bool(taken)

        self._idle.wait_until(something_to_do, NO_DEADLINE)
        return taken[0] if taken else None

    def _take(self) -> Turn | None:
        now = self._clock.monotonic()
        self._let_in(now)
        with self._lock:
            turn = self._queue.take(now)
            if turn is not None:
                self._running += 1
            alarm, more = self._queue.alarm, turn is not None and self._queue.ready
        self._tell(alarm)
        if more:  # a gate may have let in several at once
            self._idle.wake_one()
        return turn

    def _let_in(self, now: float) -> None:
        """Bring what was submitted into the queue; the sink is asked without the lock, and nobody loses sight of a
        batch meanwhile.
        """
        while self._inbox:
            try:
                batch = self._inbox[0]
            except IndexError:  # another thread was quicker
                return
            destination = self._destination_of(batch.key)
            with self._lock:
                if self._inbox and self._inbox[0] is batch:
                    self._queue.put(batch, destination, now)
                    self._inbox.popleft()

    def _attempt(self, turn: Turn) -> None:
        report = Report(Verdict.NOT_TRIED)
        try:
            report = self._run(turn)
        finally:
            now = self._clock.monotonic()
            with self._lock:
                self._running -= 1
                self._queue.done(turn, report, now)
                alarm, ready = self._queue.alarm, self._queue.ready
            self._tell(alarm)
            if ready:  # what was passed over for its share may be served now
                self._idle.wake_one()

    def start(self) -> None:
        """Start the threads.

        :raises RuntimeError: no thread can be started.
        """
        for thread in self.threads:
            thread.start()

    def ignore_gates(self) -> None:
        """Keep nothing back any more: what waits, and what comes, goes for the last time."""
        with self._lock:
            self._queue.ignore_gates()
        self._idle.wake_all()

    def stop(self) -> None:
        """Let the threads end after what is queued; refuse what comes later."""
        self.ignore_gates()
        with self._lock:
            self._stopped = True
        self._idle.wake_all()

    def stop_at_once(self) -> None:
        """As :meth:`stop`, and give up what is queued: its owner settles it otherwise."""
        with self._lock:
            self._inbox.clear()
            self._queue.clear()
            self._stopped = True
        self._idle.wake_all()

    def join(self, deadline: Deadline) -> list[str]:
        """Wait for the threads to end; the names of those that did not."""
        return [thread.name for thread in self.threads if not thread.join(self._clock, deadline)]

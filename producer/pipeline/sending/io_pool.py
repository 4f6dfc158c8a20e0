"""IOThreadPool: the threads that send, and the unbounded queue before them (bounded because memory is).

Whose turn it is, and who may not go yet, the queue says (see ``sending.fair_queue`` and ``sending.gates``).
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Hashable, Iterable, Sequence

from ...model.interfaces import Sink
from ...model.metrics import DestinationStats
from ...model.records import StreamKey
from ...runtime.clock import NO_DEADLINE, Clock, Deadline
from ...runtime.loggers import get_logger
from ..batching.batch import ProducerBatch
from ..batching.ready_batches import ReadyBatches
from ..settling.settlement import Settlement
from ..threads import StageThread
from .fair_queue import FairQueue, Report, Turn
from .gates import Verdict
from .retry_queue import RetryQueue
from .send_task import SendTask

_log = get_logger("loghub.io_pool")


class IOThreadPool:
    """The IO threads and their queue.

    :param ready: brings the batches.
    :param queue: nobody else's.
    :param sink: says where a stream's batches go.
    :param task: makes the attempts.
    :param settlement: abandons batches that come after the pool was stopped.
    :param retry_queue: has the mover call :meth:`wake` in time.
    """

    def __init__(
        self,
        name: str,
        thread_count: int,
        ready: ReadyBatches,
        queue: FairQueue,
        *,
        sink: Sink,
        task: SendTask,
        settlement: Settlement,
        retry_queue: RetryQueue,
        clock: Clock,
    ) -> None:
        self._sink = sink
        self._task = task
        self._settlement = settlement
        self._retry_queue = retry_queue
        self._clock = clock
        self.threads = tuple(StageThread(f"{name}-io-{i}", self._loop) for i in range(thread_count))
        # A sender only leaves its batches here: the queue takes many steps, and asks the sink. The thread that has the
        # lock takes from the front.
        self._ready, self._inbox, self._idle = ready, ready.batches, ready.idle
        #: Attempts that are over, and when; likewise.
        self._reports: deque[tuple[Turn, Report, float]] = deque()
        # Guards everything below. A thread that finds it taken does not wait for it: what waited for a lock owns it
        # before it may run, and then each step of each thread would be a switch of threads. It goes to the waiting room
        # instead, and whoever lets go of the lock looks whether there is something to do for those in there.
        self._lock = threading.Lock()
        self._queue = queue
        self._stopped = False

    def submit(self, batch: ProducerBatch, *, wake: bool = True) -> None:
        """Queue ``batch`` for its next attempt; never blocks. After a stop it is refused.

        :param wake: False if :meth:`wake` follows, which wakes a thread only where the batch may go.
        """
        if self._stopped:
            self._settlement.abandon(batch)
            return
        self._inbox.append(batch)
        if wake:
            self._ready.wake()

    def _destination_of(self, key: StreamKey) -> Hashable:
        try:
            return self._sink.destination(key)
        except Exception:  # noqa: BLE001  # whatever a sink of somebody else's raises, the batch is on its way
            _log.exception("the sink could not say where %s/%s is: taken as one with its project", *key[:2])
            return key.project

    def stats(self) -> tuple[DestinationStats, ...]:
        """See :attr:`~producer.model.metrics.Stats.destinations`."""
        try:
            with self._lock:
                return self._queue.stats(self._clock.monotonic())
        finally:
            self._wake_next()

    def run_next(self) -> bool:
        """Make one attempt on the caller's thread, if any may be made; whether it was. For those without threads."""
        turn = self._take(wait=True)
        if turn is None:
            return False
        self._attempt(turn)
        return True

    def wake(self) -> None:
        """Let those go that were to wait until now."""
        asked = self._asked()
        with self._lock:
            now = self._clock.monotonic()
            self._catch_up(asked, now)
            self._queue.wake(now)
            alarm, ready = self._queue.alarm, self._queue.ready
        self._tell(alarm)
        if ready or self._inbox or self._reports:
            self._idle.wake_one()

    def _tell(self, alarm: float) -> None:
        if alarm < math.inf:
            self._retry_queue.set_alarm(alarm)

    def _loop(self) -> None:
        while (turn := self._next()) is not None:
            self._attempt(turn)
            del turn  # else its batch's futures would live until the next one comes

    def _next(self) -> Turn | None:
        """Wait for a batch that may go; None if none will come any more."""
        taken: list[Turn] = []

        def something_to_do() -> bool:
            stopped = self._stopped  # before the look: what was queued before the stop is seen then
            turn = self._take(wait=stopped)
            if turn is not None:
                taken.append(turn)
            return stopped or bool(taken)

        self._idle.wait_until(something_to_do, NO_DEADLINE)
        return taken[0] if taken else None

    def _take(self, *, wait: bool) -> Turn | None:
        """The next turn; None if nothing may go.

        :param wait: for the lock; else None also if somebody else has it, who wakes one of those that wait for turns.
        """
        if not (self._inbox or self._reports or len(self._queue)):
            return None
        asked = self._asked()
        if wait:
            with self._lock:
                turn, alarm = self._next_turn(asked)
        elif self._lock.acquire(blocking=False):
            try:
                turn, alarm = self._next_turn(asked)
            finally:
                self._lock.release()
        else:
            return None
        self._tell(alarm)
        self._wake_next()
        return turn

    def _next_turn(self, asked: Iterable[tuple[ProducerBatch, Hashable]]) -> tuple[Turn | None, float]:
        """Who goes, and the alarm. The caller holds the lock."""
        now = self._clock.monotonic()
        self._catch_up(asked, now)
        return self._queue.take(now), self._queue.alarm

    def _wake_next(self) -> None:
        """Let another thread look, if there is something to do for one; to be called without the lock, by all who had
        it: another thread may have found it taken.
        """
        if self._idle and (self._may_go() or self._inbox or self._reports):  # _may_go has the lock, too
            self._idle.wake_one()

    def _may_go(self) -> bool:
        if not len(self._queue):
            return False
        with self._lock:
            return self._queue.ready

    def _asked(self) -> Sequence[tuple[ProducerBatch, Hashable]]:
        """What was submitted, and where it goes; the sink is asked without the lock."""
        if not self._inbox:
            return ()
        asked: list[tuple[ProducerBatch, Hashable]] = []
        try:
            for place in range(len(self._inbox)):
                batch = self._inbox[place]
                asked.append((batch, self._destination_of(batch.key)))
        except IndexError:  # another thread was quicker
            pass
        return asked

    def _catch_up(self, asked: Iterable[tuple[ProducerBatch, Hashable]], now: float) -> None:
        """Let the queue know what has happened. The caller holds the lock."""
        while self._reports:
            self._queue.done(*self._reports.popleft())
        for batch, destination in asked:
            if not self._inbox or self._inbox[0] is not batch:  # another thread was quicker
                return
            self._queue.put(batch, destination, now)
            self._inbox.popleft()

    def _attempt(self, turn: Turn) -> None:
        report = Report(Verdict.NOT_TRIED)
        try:
            report = self._task.run(turn)
        finally:
            self._reports.append((turn, report, self._clock.monotonic()))

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
            self._stopped = True
            self._inbox.clear()
            self._queue.clear()
        self._idle.wake_all()

    def join(self, deadline: Deadline) -> list[str]:
        """Wait for the threads to end; the names of those that did not."""
        return [thread.name for thread in self.threads if not thread.join(self._clock, deadline)]

"""IOThreadPool: the threads that send, and their queue, which is unbounded since memory is bounded.

:mod:`.fair_queue` chooses the next batch, and :mod:`.gates` hold back batches.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterable, Sequence

from ...model.interfaces import Sink
from ...model.metrics import DestinationStats
from ...model.records import StreamKey
from ...runtime.clock import NO_DEADLINE, Clock, Deadline
from ...runtime.locks import Lock
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

    :param ready: the queue of batches to send.
    :param queue: used by this pool alone.
    :param sink: gives the destination of a stream.
    :param task: makes the attempts.
    :param settlement: abandons batches that arrive after the pool was stopped.
    :param retry_queue: makes the mover call :meth:`wake` in time.
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
        # Senders only append batches here: the fair queue takes many steps, and calls the sink. The thread that holds
        # the lock takes from the front.
        self._ready, self._inbox, self._idle = ready, ready.batches, ready.idle
        #: Finished attempts, with the time when they finished.
        self._reports: deque[tuple[Turn, Report, float]] = deque()
        self._lock = Lock()  # guards everything below
        self._queue = queue
        self._stopped = False

    def submit(self, batch: ProducerBatch, *, wake: bool = True) -> None:
        """Queue ``batch`` for its next attempt without blocking; abandon it after a stop.

        :param wake: False if :meth:`wake` follows, which wakes a thread only if the batch may be sent.
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
        except Exception:  # noqa: BLE001  # a sink may be user code, and the batch is in flight
            _log.exception("the sink's destination() failed for %s/%s; using the project as its destination", *key[:2])
            return key.project

    def stats(self) -> tuple[DestinationStats, ...]:
        """Return the statistics of the destinations."""
        with self._lock:
            return self._queue.stats(self._clock.monotonic())

    def run_next(self) -> bool:
        """Make one attempt on the caller's thread; return False if there was none to make. For pipelines without
        threads.
        """
        turn = self._take()
        if turn is None:
            return False
        self._attempt(turn)
        return True

    def wake(self) -> None:
        """Release the batches whose time has come; called by the mover."""
        submitted = self._take_submitted()
        with self._lock:
            now = self._clock.monotonic()
            self._catch_up(submitted, now)
            self._queue.wake(now)
            alarm, ready = self._queue.alarm, self._queue.ready
        self._end_round(alarm, ready=ready)

    def _end_round(self, alarm: float, *, ready: bool) -> None:
        if alarm < math.inf:
            self._retry_queue.set_alarm(alarm)
        if ready or self._inbox or self._reports:
            self._idle.wake_one()

    def _loop(self) -> None:
        while (turn := self._next()) is not None:
            self._attempt(turn)
            del turn  # else its batch's futures would live until the next batch comes

    def _next(self) -> Turn | None:
        """Wait for a batch that may be sent; None if the pool has stopped."""
        taken: list[Turn] = []

        def something_to_do() -> bool:
            stopped = self._stopped  # read first: batches queued before the stop are then seen
            turn = self._take()
            if turn is not None:
                taken.append(turn)
            return stopped or bool(taken)

        self._idle.wait_until(something_to_do, NO_DEADLINE)
        return taken[0] if taken else None

    def _take(self) -> Turn | None:
        """Take the next batch, and wake another thread if there may be work for it; None if none may be sent."""
        if not (self._inbox or self._reports or len(self._queue)):
            return None
        submitted = self._take_submitted()
        with self._lock:
            now = self._clock.monotonic()
            self._catch_up(submitted, now)
            turn, alarm, ready = self._queue.take(now), self._queue.alarm, self._queue.ready
        self._end_round(alarm, ready=ready)
        return turn

    def _take_submitted(self) -> Sequence[tuple[ProducerBatch, Hashable]]:
        """Return the submitted batches with their destinations. The sink is called without the lock."""
        return [(batch, self._destination_of(batch.key)) for batch in self._inbox.copy()]

    def _catch_up(self, submitted: Iterable[tuple[ProducerBatch, Hashable]], now: float) -> None:
        """Pass finished attempts and submitted batches to the queue. The caller holds the lock."""
        while self._reports:
            self._queue.done(*self._reports.popleft())
        for batch, destination in submitted:
            if not self._inbox or self._inbox[0] is not batch:  # another thread has taken it
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
        """Ignore all gates: waiting and later batches are sent for the last time."""
        with self._lock:
            self._queue.ignore_gates()
        self._idle.wake_all()

    def stop(self) -> None:
        """Let the threads end after the queued batches, and refuse later ones."""
        self.ignore_gates()
        with self._lock:
            self._stopped = True
        self._idle.wake_all()

    def stop_at_once(self) -> None:
        """Let the threads end, refuse later batches, and drop the queued ones, which their owner completes."""
        with self._lock:
            self._stopped = True
            self._inbox.clear()
            self._queue.clear()
        self._idle.wake_all()

    def join(self, deadline: Deadline) -> list[str]:
        """Wait for the threads to end; return the names of those that did not."""
        return [thread.name for thread in self.threads if not thread.join(self._clock, deadline)]

"""Mover: the one thread that watches the time. It seals lingered batches, and enqueues retries that are due."""

from __future__ import annotations

from ...runtime.clock import Clock
from ..batching.accumulator import LogAccumulator
from ..batching.batch import BatchState
from ..owner import Owner
from ..threads import StageThread
from .io_pool import IOThreadPool
from .retry_queue import RetryQueue


class Mover:
    """The batch scheduler, which waits on the retry queue until the next batch has lingered.

    A batch opened during a wait cannot expire before the wait is over, since no wait is longer than ``linger_ms``. So
    senders need not wake the mover. There is one exception. If no batch was opened for two seconds, a wait lasts two
    seconds even if ``linger_ms`` is shorter. The thread that opens the next batch then wakes the mover.

    :param accumulator: holds the batches to seal.
    :param retry_queue: holds the batches to retry.
    :param io_pool: receives the batches that are due; each round also lets it reopen gates whose time has come.
    :param owner: the producer. Each round checks if it was garbage-collected, and then abandons its batches. It also
        logs the statistics.
    :param report_every: the interval of the statistics, seconds.
    """

    def __init__(
        self,
        name: str,
        accumulator: LogAccumulator,
        retry_queue: RetryQueue,
        io_pool: IOThreadPool,
        clock: Clock,
        owner: Owner,
        report_every: float,
    ) -> None:
        self._accumulator = accumulator
        self._retry_queue = retry_queue
        self._io_pool = io_pool
        self._hurried = False
        self._clock = clock
        self._owner, self._report_every = owner, report_every
        self._report_at = clock.monotonic() + report_every
        self._stopping = False
        self.thread = StageThread(f"{name}-mover", self._loop)

    def run_once(self) -> float:
        """Do everything that is due; return the seconds until the next due time."""
        if self._hurried:
            self._hurried = False
            self._accumulator.seal_open()
        wait = self._accumulator.seal_expired(self._clock.monotonic())
        for batch in self._retry_queue.take_due(self._clock.monotonic()):
            if batch.move(BatchState.QUEUED):
                self._io_pool.submit(batch, wake=False)
        self._io_pool.wake()
        return min(wait, self._until_report())

    def _until_report(self) -> float:
        """Log the statistics if that is due; return the seconds until the next time."""
        left = self._report_at - self._clock.monotonic()
        if left > 0:
            return left
        self._owner.report()
        self._report_at += max(self._report_every, self._report_every - left)
        return self._report_every

    def hurry(self) -> None:
        """Seal all open batches, on the mover's thread."""
        self._hurried = True
        self._retry_queue.wake()

    def _loop(self) -> None:
        while not self._stopping:
            wait = self.run_once()
            if self._owner.is_gone():
                self._owner.abandon()
                return
            self._retry_queue.wait(wait)

    def stop(self) -> None:
        """Let the thread end at once."""
        self._stopping = True
        self._retry_queue.wake()

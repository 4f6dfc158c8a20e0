"""The ways out: settling a batch, and the two threads that run users' callbacks.

Settling happens where the outcome is known: the records' memory goes back to the budget, the result is set, whoever
waits in ``result()`` goes on. Callbacks, done-callbacks and awaiting tasks are told by a handler thread, successes by
one and failures by the other, so that slow code in one does not hold up the other. What little a settled record still
occupies until then (its overhead) is accounted until then, so that slow callbacks are felt by senders rather than by
the memory of the machine.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from ..metrics import Counters
from ..results import Attempt, settle_future
from .accumulator import LogAccumulator
from .batch import BATCH_OVERHEAD, RECORD_OVERHEAD, BatchState, ProducerBatch
from .memory import MemoryBudget
from .worker import StageThread

_log = logging.getLogger("producer.handler")


def run_user_code(due: Callable[[], object]) -> None:
    """Call ``due``; an exception in it is logged and stops nothing, ``SystemExit`` and ``CancelledError`` included."""
    try:
        due()
    except BaseException:  # noqa: BLE001  # whatever a user's code raises
        _log.exception("a callback raised; the record is settled all the same")


class BatchHandler:
    """One handler thread and its queue.

    :param release: gives bytes back to the memory budget.
    """

    def __init__(self, name: str, release: Callable[[int], None]) -> None:
        self._release = release
        self._lock = threading.Lock()  # guards _ended, and what is put while it may change
        self._ended = False
        self._queue: queue.SimpleQueue[ProducerBatch | threading.Event | None] = queue.SimpleQueue()
        self.thread = StageThread(name, self._run)

    def put(self, batch: ProducerBatch) -> None:
        """Take over a settled batch, also when the thread has ended: an IO thread may come late to ``close``."""
        with self._lock:
            self._queue.put(batch)
            ended, self._ended = self._ended, False
            if ended:
                self._queue.put(None)
        if ended:
            self._revive()

    def _revive(self) -> None:
        self.thread = StageThread(self.thread.name, self._run)
        try:
            self.thread.start()
        except RuntimeError:  # the interpreter is shutting down
            while self.run_next():
                pass

    def barrier(self) -> threading.Event:
        """An event that is set once everything handed over so far is done."""
        passed = threading.Event()
        with self._lock:
            if self._ended:
                passed.set()
            else:
                self._queue.put(passed)
        return passed

    @property
    def pending(self) -> int:
        """Batches whose callbacks have not run."""
        return self._queue.qsize()

    def stop(self) -> None:
        """Let the thread end after everything handed over so far."""
        self._queue.put(None)

    def run_next(self) -> bool:
        """Handle one batch without waiting; False if there is none. For those who have no threads."""
        try:
            item = self._queue.get_nowait()
        except queue.Empty:
            return False
        self._handle(item)
        return True

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if item is None and self._end():
                return
            self._handle(item)
            del item  # else it would live until the next one comes

    def _end(self) -> bool:
        with self._lock:
            self._ended = self._queue.empty()
            if not self._ended:  # what came after the stop is handled first
                self._queue.put(None)
            return self._ended

    def _handle(self, item: ProducerBatch | threading.Event | None) -> None:
        if isinstance(item, ProducerBatch):
            self._finish(item)
        elif item is not None:
            item.set()

    def _finish(self, batch: ProducerBatch) -> None:
        held, batch.held = batch.held, 0
        self._release(held)
        result = batch.result
        if result is None:
            raise RuntimeError("a batch without a result reached its handler")
        for future in batch.take_sends():
            if future.unheeded:
                continue
            for due in settle_future(future, result):
                run_user_code(due)


class Settlement:
    """Settles each batch once, whoever asks first."""

    def __init__(self, name: str, budget: MemoryBudget, accumulator: LogAccumulator, counters: Counters) -> None:
        self._budget = budget
        self._accumulator = accumulator
        self._counters = counters
        self.success = BatchHandler(f"{name}-success", budget.release)
        self.failure = BatchHandler(f"{name}-failure", budget.release)

    @property
    def handlers(self) -> tuple[BatchHandler, BatchHandler]:
        """Both handlers, in the order in which they are closed."""
        return self.success, self.failure

    def succeed(self, batch: ProducerBatch) -> None:
        """The server acknowledged ``batch``."""
        self._settle(batch, BatchState.SUCCEEDED)

    def fail(self, batch: ProducerBatch) -> None:
        """``batch`` is given up after the attempts that it has noted."""
        self._settle(batch, BatchState.FAILED)

    def abandon(self, batch: ProducerBatch, attempt: Attempt) -> bool:
        """Fail ``batch`` without owning it, for the reason that ``attempt`` gives; False if it was settled before."""
        return self._settle(batch, BatchState.FAILED, attempt)

    def _settle(self, batch: ProducerBatch, to: BatchState, last: Attempt | None = None) -> bool:
        successful = to is BatchState.SUCCEEDED
        if not batch.settle(to, batch.outcome(successful=successful, last=last)):
            return False
        overhead = min(batch.held, BATCH_OVERHEAD + RECORD_OVERHEAD * len(batch.futures))
        released, batch.held = batch.held - overhead, overhead
        batch.drop_bytes()
        self._counters.add("delivered" if successful else "failed", batch.log_count)
        self._budget.release(released)
        (self.success if successful else self.failure).put(batch)
        self._accumulator.forget(batch, delivered=successful)
        return True

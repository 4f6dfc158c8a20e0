"""The ways out: settling a batch, and the two threads that run users' callbacks.

Settling happens where the outcome is known: the records' memory goes back to the budget, the result is set, whoever
waits in ``result()`` goes on. Callbacks, done-callbacks and awaiting tasks are told by a handler thread, successes by
one and failures by the other, so that slow code in one does not hold up the other. What little settled records still
occupy (their overhead) goes back when a handler takes up their batch, right before the callbacks run: so slow
callbacks are felt by senders rather than by the memory of the machine.
"""

from __future__ import annotations

import enum
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Sequence

from ...errors import StreamStoppedError
from ...futures import SendFuture, settle_future
from ...metrics import Counters
from ...records import plain
from ...results import Attempt, Callback, Result
from ..batching.accumulator import LogAccumulator
from ..batching.batch import BATCH_OVERHEAD, BatchState, ProducerBatch
from ..batching.memory import MemoryBudget
from ..batching.open_records import RECORD_OVERHEAD
from ..threads import StageThread
from .outcomes import OutcomeListener

_log = logging.getLogger("producer.handler")


def run_user_code(due: Callable[[], object]) -> None:
    """Call ``due``; an exception in it is logged and stops nothing, ``SystemExit`` and ``CancelledError`` included."""
    try:
        due()
    except BaseException:  # noqa: BLE001  # whatever a user's code raises
        _log_raised()


def call_back(callbacks: Iterable[Callback | None], result: Result) -> None:
    """Call those of a batch, one after the other, with the result that they share; exceptions as in
    :func:`run_user_code`.
    """
    for callback in callbacks:
        if callback is not None:
            try:
                callback(result)
            except BaseException:  # noqa: BLE001  # whatever a user's code raises
                _log_raised()


def _log_raised() -> None:
    _log.exception("a callback raised; the record is settled all the same")


class _Outcome(enum.Enum):
    """What became of a batch; the values are names of counters."""

    DELIVERED = "delivered"
    FAILED = "failed"
    #: Neither: it stays where it is kept.
    LEFT = "left"
    #: Likewise, until its stream goes on.
    PARKED = "parked"


#: What a handler is given: a settled batch, futures that belong to none with their result, or a barrier.
_Item = ProducerBatch | tuple[Sequence[SendFuture], Result] | threading.Event | None


class BatchHandler:
    """One handler thread and its queue.

    :param release: gives bytes back to the memory budget.
    """

    def __init__(self, name: str, release: Callable[[int], None]) -> None:
        self._release = release
        self._lock = threading.Lock()  # guards _ended, and what is put while it may change
        self._ended = False
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self.thread = StageThread(name, self._run)

    def put(self, batch: ProducerBatch) -> None:
        """Take over a settled batch, also when the thread has ended: an IO thread may come late to ``close``."""
        self._put(batch)

    def tell(self, futures: Sequence[SendFuture], result: Result) -> None:
        """As :meth:`put`, of futures whose holders have this result, and that are in no batch."""
        self._put((futures, result))

    def _put(self, item: _Item) -> None:
        with self._lock:
            self._queue.put(item)
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

    def _handle(self, item: _Item) -> None:
        if isinstance(item, ProducerBatch):
            self._finish(item)
        elif isinstance(item, tuple):
            self._tell(*item)
        elif item is not None:
            item.set()

    def _finish(self, batch: ProducerBatch) -> None:
        held, batch.held = batch.held, 0
        self._release(held)
        result = batch.result
        if result is None:
            raise RuntimeError("a batch without a result reached its handler")
        watched, callbacks = batch.take_told()
        told = 0
        for position in sorted(watched):  # of each send what others added to its future, then its own
            call_back(callbacks[told:position], result)
            self._tell((watched[position],), result)
            told = position
        call_back(callbacks[told:], result)

    @staticmethod
    def _tell(futures: Sequence[SendFuture], result: Result) -> None:
        for future in futures:
            for due in settle_future(future, result):
                run_user_code(due)


def attempt_of(error: StreamStoppedError) -> Attempt:
    """What stands at the end of the attempts of a record that waited behind one that failed for good."""
    at = error.first.attempts[-1].timestamp_ms if error.first.attempts else 0
    return Attempt(success=False, error_code="StreamStopped", error_message=str(error), timestamp_ms=at)


class Settlement:
    """Settles each batch once, whoever asks first.

    :param go: takes a batch that was waiting for another one of its stream.
    :param listener: hears of every outcome.
    """

    def __init__(
        self,
        name: str,
        budget: MemoryBudget,
        accumulator: LogAccumulator,
        counters: Counters,
        *,
        go: Callable[[ProducerBatch], None],
        listener: OutcomeListener,
    ) -> None:
        self._budget = budget
        self._go = go
        self._listener = listener
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
        self._settle(batch, _Outcome.DELIVERED)

    def fail(self, batch: ProducerBatch, attempt: Attempt | None = None, *, keep: bool = False) -> None:
        """``batch`` is given up after the attempts that it has noted, and for the reason that ``attempt`` gives.

        An ordered stream stops: what waits behind it is failed too, or parked.

        :param keep: whether the batch itself, of an ordered stream, is rather parked, if its records are kept.
        """
        if not batch.key.order:
            self._settle(batch, _Outcome.FAILED, attempt)
            return
        error = StreamStoppedError(plain(batch.key), batch.outcome(successful=False, last=attempt))
        # Before anybody hears of the failure, so that whoever does finds the stream stopped.
        behind = self._accumulator.stop(batch, error)
        self._settle(batch, _Outcome.PARKED if keep and self._listener.keeps else _Outcome.FAILED, attempt)
        for waiting in behind:
            self._settle(waiting, self._fate_behind(waiting, batch), attempt_of(error))

    def _fate_behind(self, waiting: ProducerBatch, failed: ProducerBatch) -> _Outcome:
        # The rest of a list that was cut fails with the part of it that did.
        return _Outcome.FAILED if not self._listener.keeps or waiting.shares_send(failed) else _Outcome.PARKED

    def abandon(self, batch: ProducerBatch, attempt: Attempt) -> bool:
        """End ``batch`` without owning it, for the reason that ``attempt`` gives; False if it was settled before."""
        return self._settle(batch, _Outcome.LEFT if self._listener.keeps else _Outcome.FAILED, attempt)

    def _settle(self, batch: ProducerBatch, outcome: _Outcome, last: Attempt | None = None) -> bool:
        successful = outcome is _Outcome.DELIVERED
        to = BatchState.SUCCEEDED if successful else BatchState.FAILED
        result = batch.outcome(successful=successful, last=last)
        if not batch.settle(to, result):
            return False
        overhead = min(batch.held, BATCH_OVERHEAD + RECORD_OVERHEAD * batch.sends)
        released, batch.held = batch.held - overhead, overhead
        self._counters.add(outcome.value, batch.log_count)
        self._announce(batch, outcome, result, released)
        batch.drop_bytes()
        (self.success if successful else self.failure).put(batch)
        delivered = None if outcome in (_Outcome.LEFT, _Outcome.PARKED) else successful
        successor = self._accumulator.forget(batch, delivered=delivered)
        if successor is not None:
            self._go(successor)
        return True

    def _announce(self, batch: ProducerBatch, outcome: _Outcome, result: Result, memory: int) -> None:
        """Tell the listener; the memory of the records goes back now, or when it needs them no longer."""
        release = _Refund(self._budget.release, memory)
        try:
            if outcome is _Outcome.FAILED:
                self._listener.failed(batch, result, release)
                return
            if outcome is _Outcome.DELIVERED:
                self._listener.delivered(batch)
            elif outcome is _Outcome.PARKED:
                self._listener.parked(batch)
        except Exception:  # noqa: BLE001  # whatever goes wrong there, the batch is settled
            _log.exception("a bug: the outcome of a batch of %d logs was not noted", batch.log_count)
        release()


class _Refund:
    """Gives memory back to the budget, once, however often it is called."""

    __slots__ = ("_memory", "_release")

    def __init__(self, release: Callable[[int], None], memory: int) -> None:
        self._release, self._memory = release, memory

    def __call__(self) -> None:
        memory, self._memory = self._memory, 0
        self._release(memory)

"""BatchHandler: the two threads that run users' callbacks.

One handler thread runs callbacks, done-callbacks and awaiting tasks of delivered records, the other those of failed
records, so that slow code for one does not delay the other. Completed records still hold a little memory (their
overhead). It is returned when a handler takes their batch, right before the callbacks run. So slow callbacks slow down
senders, rather than fill the machine's memory.

A handler that has emptied its queue pauses for a moment, and then handles together all batches that were completed
meanwhile. Many small batches would otherwise wake a thread each, which costs more than all other work for them. Futures
that are awaited do not wait for the pause.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from ...model.futures import SendFuture, settle_future
from ...model.owned_lock import OwnedLock
from ...model.results import Callback, Result
from ...runtime.clock import Latch
from ...runtime.internal_threads import in_callback
from ...runtime.loggers import get_logger
from ..batching.batch import ProducerBatch
from ..batching.memory import MemoryBudget
from ..threads import StageThread

_log = get_logger("loghub.handler")

#: How long a handler with an empty queue lets completed batches gather, seconds.
GATHER_SECONDS = 0.002


def run_user_code(due: Callable[[], object]) -> None:
    """Call ``due``; log any exception it raises, also ``SystemExit`` and ``CancelledError``."""
    try:
        due()
    except BaseException:  # noqa: BLE001  # raised by user code
        _log_raised()


def call_back(callbacks: Iterable[Callback | None], result: Result) -> None:
    """Call the callbacks of a batch one after the other with their common result; log any exception they raise."""
    for callback in callbacks:
        if callback is not None:
            try:
                callback(result)
            except BaseException:  # noqa: BLE001  # raised by user code
                _log_raised()


def _log_raised() -> None:
    _log.exception("a callback raised; the outcome of the record is unchanged")


#: An item for a handler: a completed batch, or a call. None only wakes it.
_Item = ProducerBatch | Callable[[], object] | None


class BatchHandler:
    """One handler thread and its queue.

    :param budget: gets the remaining memory of completed batches.
    """

    def __init__(self, name: str, budget: MemoryBudget) -> None:
        self._budget = budget
        self._lock = OwnedLock()  # guards the flags, and the queue while they may change
        self._stopped = self._ended = False
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        # Guards nothing: a thread that cannot wait for the gathering releases it.
        self._hurry = threading.Lock()  # noqa: TID251  # not taken by ``with``
        self._hurry.acquire()
        self.thread = StageThread(name, self._run)

    def put(self, batch: ProducerBatch) -> None:
        """Enqueue a completed batch; also after the thread has ended, since an IO thread may be late for ``close``."""
        self._put(batch)
        if batch.is_watched:
            self._end_gathering()

    def put_futures(self, futures: Sequence[SendFuture], result: Result) -> None:
        """Enqueue futures that are in no batch, and whose holders have this result."""
        self._put(partial(self._notify, futures, result))
        self._end_gathering()

    def put_call(self, call: Callable[[], object]) -> None:
        """Enqueue a call of user code, which must not raise."""
        self._put(call)

    def _put(self, item: _Item) -> None:
        with self._lock:
            self._queue.put(item)
            ended, self._ended = self._ended, False
        if ended:
            self._revive()

    def _revive(self) -> None:
        self.thread = StageThread(self.thread.name, self._run)
        try:
            self.thread.start()
        except RuntimeError:  # the interpreter is shutting down
            while self.run_next():
                pass

    def barrier(self) -> Latch:
        """Return a latch that is set once everything enqueued before is handled."""
        passed = Latch()
        with self._lock:
            if self._ended:
                passed.set()
            else:
                self._queue.put(passed.set)
        self._end_gathering()
        return passed

    @property
    def pending(self) -> int:
        """The number of batches whose callbacks have not run."""
        return self._queue.qsize()

    def stop(self) -> None:
        """Let the thread end once its queue is empty."""
        self._stopped = True
        self._queue.put(None)
        self._end_gathering()

    def run_next(self) -> bool:
        """Handle one batch without waiting; return False if there is none. For pipelines without threads."""
        try:
            item = self._queue.get_nowait()
        except queue.Empty:
            return False
        self._handle(item)
        return True

    def _run(self) -> None:
        while not self._ends():
            item = self._queue.get()
            self._handle(item)
            del item  # else it would live until the next item comes
            if self._queue.empty() and not self._stopped:
                self._hurry.acquire(timeout=GATHER_SECONDS)

    def _end_gathering(self) -> None:
        with suppress(RuntimeError):  # already released
            self._hurry.release()

    def _ends(self) -> bool:
        with self._lock:
            self._ended = self._stopped and self._queue.empty()
            return self._ended

    def _handle(self, item: _Item) -> None:
        if isinstance(item, ProducerBatch):
            self._finish(item)
        elif item is not None:
            with in_callback():
                item()

    def _finish(self, batch: ProducerBatch) -> None:
        held, batch.held = batch.held, 0
        self._budget.release(held)
        result = batch.result
        if result is None:
            raise RuntimeError("a batch without a result reached its handler")
        watched, callbacks = batch.take_listeners()
        done = 0
        with in_callback():
            for position in sorted(watched):  # for each send, the callbacks added to its future, then its own
                call_back(callbacks[done:position], result)
                self._notify((watched[position],), result)
                done = position
            call_back(callbacks[done:], result)

    @staticmethod
    def _notify(futures: Sequence[SendFuture], result: Result) -> None:
        for future in futures:
            for due in settle_future(future, result):
                run_user_code(due)

"""BatchHandler: the two threads that run users' callbacks.

Callbacks, done-callbacks and awaiting tasks are told by a handler thread, successes by one and failures by the other,
so that slow code in one does not hold up the other. What little settled records still occupy (their overhead) goes
back when a handler takes up their batch, right before the callbacks run: so slow callbacks are felt by senders rather
than by the memory of the machine.

A handler that has told of all there was does not look again for a moment: what is settled meanwhile is told of
together. Of many small batches each would otherwise wake a thread, which costs more than all else done for them here.
Futures that somebody awaits do not wait for that.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

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

#: How long a handler lets gather what comes behind what it has told of, seconds.
GATHER_SECONDS = 0.002


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


#: What a handler is given: a settled batch, futures that belong to none with their result, or a barrier.
_Item = ProducerBatch | tuple[Sequence[SendFuture], Result] | Latch | None


class BatchHandler:
    """One handler thread and its queue.

    :param budget: gets what settled batches still hold.
    """

    def __init__(self, name: str, budget: MemoryBudget) -> None:
        self._budget = budget
        self._lock = OwnedLock()  # guards _ended, and what is put while it may change
        self._ended = False
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._hurry = threading.Lock()  # guards nothing: whoever cannot wait until enough has gathered releases it
        self._hurry.acquire()
        self.thread = StageThread(name, self._run)

    def put(self, batch: ProducerBatch) -> None:
        """Take over a settled batch, also when the thread has ended: an IO thread may come late to ``close``."""
        self._put(batch)
        if batch.is_watched:
            self._end_gathering()

    def tell(self, futures: Sequence[SendFuture], result: Result) -> None:
        """As :meth:`put`, of futures whose holders have this result, and that are in no batch."""
        self._put((futures, result))
        self._end_gathering()

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

    def barrier(self) -> Latch:
        """What is set once everything handed over so far is done."""
        passed = Latch()
        with self._lock:
            if self._ended:
                passed.set()
            else:
                self._queue.put(passed)
        self._end_gathering()
        return passed

    @property
    def pending(self) -> int:
        """Batches whose callbacks have not run."""
        return self._queue.qsize()

    def stop(self) -> None:
        """Let the thread end after everything handed over so far."""
        self._queue.put(None)
        self._end_gathering()

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
            if self._queue.empty():
                self._hurry.acquire(timeout=GATHER_SECONDS)

    def _end_gathering(self) -> None:
        with suppress(RuntimeError):  # somebody else did so before
            self._hurry.release()

    def _end(self) -> bool:
        """Whether the thread ends: what came after the stop is handled first; not so another stop, of a ``close`` that
        was interrupted.
        """
        with self._lock:
            items = self._left()
            for item in (*items, None) if items else ():
                self._queue.put(item)
            self._ended = not items
            return self._ended

    def _left(self) -> list[_Item]:
        items: list[_Item] = []
        while not self._queue.empty():
            item = self._queue.get_nowait()
            if item is not None:
                items.append(item)
        return items

    def _handle(self, item: _Item) -> None:
        if isinstance(item, ProducerBatch):
            self._finish(item)
        elif isinstance(item, tuple):
            with in_callback():
                self._tell(*item)
        elif item is not None:
            item.set()

    def _finish(self, batch: ProducerBatch) -> None:
        held, batch.held = batch.held, 0
        self._budget.release(held)
        result = batch.result
        if result is None:
            raise RuntimeError("a batch without a result reached its handler")
        watched, callbacks = batch.take_listeners()
        told = 0
        with in_callback():
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

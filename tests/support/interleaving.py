"""Run threads in turns at known points, so that the test decides the interleaving.

Only one of the threads runs at any time. It may yield at *points*: where it releases a lock of
:func:`locks_that_take_turns`, and where the test calls :func:`point`, such as before each call of a simulated disk.
The numbers of a run name the points where it yields. A thread also yields where it must wait for a lock or a signal.
The same numbers replay the same run.
"""

import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from producer.model.owned_lock import OwnedLock
from producer.runtime import locks
from producer.runtime.clock import Deadline, Signal
from producer.testing import ManualClock
from tests.support.waiting import PATIENCE

#: The name of the threads of a run.
NAME = "interleaved"
_Gate = threading.Lock  # real locks, even while locks that take turns are made


class _Worker:
    """A thread that takes turns; ``ready`` is true if it can run, None if it waits for nothing."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.gate = _Gate()
        self.gate.acquire()
        self.ready: Callable[[], bool] | None = None
        self.ended = False
        self.value: Any = None
        self.error: BaseException | None = None

    @property
    def runnable(self) -> bool:
        return not self.ended and (self.ready is None or self.ready())


class Interleaving:
    """One run of several concurrent calls.

    :param switches: numbers of the points, counted from 1 over all threads, where another thread continues.
    :ivar points: number of points reached.
    """

    def __init__(self, switches: Collection[int] = ()) -> None:
        self._switches = frozenset(switches)
        self._workers: list[_Worker] = []
        self._running: _Worker | None = None
        self._all_ended = _Gate()
        self._stuck = False
        self.points = 0

    def run(self, *calls: Callable[[], Any]) -> list[_Worker]:
        """Make each call on its own thread, starting the first one first; return the workers."""
        global _current  # noqa: PLW0603  # one at a time
        self._workers = [_Worker(call) for call in calls]
        self._all_ended.acquire()
        threads = [
            threading.Thread(target=self._work, args=(worker,), name=NAME, daemon=True) for worker in self._workers
        ]
        for thread in threads:
            thread.start()
        _current = self
        try:
            self._go_on(self._workers[0])
            assert self._all_ended.acquire(timeout=PATIENCE), "a thread waits for something that is no part of the test"
        finally:
            _current = None
        for thread in threads:
            thread.join()
        assert not self._stuck, "each thread waits for another one"
        return self._workers

    def _work(self, worker: _Worker) -> None:
        worker.gate.acquire()
        try:
            worker.value = worker.call()
        except BaseException as error:  # noqa: BLE001  # reported to the caller of run()
            worker.error = error
        worker.ended = True
        following = self._next()
        if following is None:
            self._all_ended.release()
        else:
            self._go_on(following)

    def _next(self) -> _Worker | None:
        """Return the next worker that can run; in a deadlock the next one, whose wait then fails."""
        place = 0 if self._running is None else self._workers.index(self._running)
        line = self._workers[place + 1 :] + self._workers[: place + 1]
        waiting = [worker for worker in line if not worker.ended]
        runnable = [worker for worker in waiting if worker.runnable]
        self._stuck = self._stuck or bool(waiting and not runnable)
        return (runnable or waiting or [None])[0]

    def _go_on(self, worker: _Worker) -> None:
        self._running = worker
        worker.gate.release()

    def _give_way(self) -> None:
        worker, following = self._running, self._next()
        if worker is None or following is None or following is worker:
            return
        self._go_on(following)
        worker.gate.acquire()

    def point(self) -> None:
        """Count a point of the running thread, and yield there if the run says so."""
        self.points += 1
        if self.points in self._switches:
            self._give_way()

    def wait(self, ready: Callable[[], bool]) -> None:
        """Suspend the running thread until ``ready()`` is true."""
        worker = self._running
        assert worker is not None
        worker.ready = ready
        while not ready() and not self._stuck:
            self._give_way()
        worker.ready = None
        assert not self._stuck, "each thread waits for another one"


_current: Interleaving | None = None


def point(*_: object) -> None:
    """Yield to another thread, if threads take turns here."""
    if _current is not None:
        _current.point()


class TurnLock:
    """A lock whose release is a point; a thread that waits for it yields."""

    def __init__(self) -> None:
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._held:
            if not blocking:
                return False
            assert _current is not None, "the only thread waits for a lock that it holds itself"
            _current.wait(lambda: not self._held)
        self._held = True
        return True

    def release(self) -> None:
        assert self._held
        self._held = False
        point()

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


@contextmanager
def locks_that_take_turns() -> Iterator[None]:
    """Make every lock that is created inside the block a :class:`TurnLock`."""
    real = locks.Lock
    # Not the module of the locks: what is first imported inside the block would keep its name.
    importers = [each for each in [*sys.modules.values()] if each is not locks and vars(each).get("Lock") is real]
    assert importers
    _set_lock(importers, TurnLock)
    OwnedLock.__new__ = lambda _class: TurnLock()  # type: ignore[assignment,method-assign,misc]
    try:
        yield
    finally:
        _set_lock(importers, real)
        del OwnedLock.__new__


def _set_lock(modules: Collection[Any], lock: object) -> None:
    for module in modules:
        module.Lock = lock


class TurnClock(ManualClock):
    def wait_for(self, signal: Signal, deadline: Deadline) -> None:
        if _current is None:
            super().wait_for(signal, deadline)
            return
        _current.wait(lambda: signal.is_set() or deadline.expired(self))
        signal.wait(0)


def outcomes(workers: Sequence[_Worker]) -> list[Any]:
    """Return the values of the workers; raise the first error."""
    for worker in workers:
        if worker.error is not None:
            raise worker.error
    return [worker.value for worker in workers]

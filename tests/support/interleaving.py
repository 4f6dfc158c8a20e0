"""Threads that take turns at known points, so that a test, and not chance, decides who goes on where.

Only one of them runs at any time. It may give way at *points*: where it releases a lock of
:func:`locks_that_take_turns`, and wherever the test calls :func:`point`, such as before each call of a simulated disk.
Which of these points are used is told by their numbers. And it gives way where it has to wait, for a lock or a signal.
The same numbers give the same history again.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from producer.model.owned_lock import OwnedLock
from producer.runtime.clock import Deadline, Signal
from producer.testing import ManualClock
from tests.support.waiting import PATIENCE

#: The name of its threads.
NAME = "interleaved"
_Gate = threading.Lock  # real ones, also where locks that take turns are made


class _Worker:
    """A thread that takes turns; ``ready`` says whether it can go on, None if it waits for nothing."""

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
    """One run of some calls side by side.

    :param switches: numbers of the points, counted from 1 over all threads, at which another thread goes on.
    :ivar points: how many points there were.
    """

    def __init__(self, switches: Collection[int] = ()) -> None:
        self._switches = frozenset(switches)
        self._workers: list[_Worker] = []
        self._running: _Worker | None = None
        self._all_ended = _Gate()
        self._stuck = False
        self.points = 0

    def run(self, *calls: Callable[[], Any]) -> list[_Worker]:
        """Make the calls, each on a thread of its own, the first one first; their values and errors."""
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
        except BaseException as error:  # noqa: BLE001  # told to whoever asks for the outcome
            worker.error = error
        worker.ended = True
        following = self._next()
        if following is None:
            self._all_ended.release()
        else:
            self._go_on(following)

    def _next(self) -> _Worker | None:
        """Who goes on: the next in line that can; if nobody can, one that is told so."""
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
        """The running thread has reached a point."""
        self.points += 1
        if self.points in self._switches:
            self._give_way()

    def wait(self, ready: Callable[[], bool]) -> None:
        """The running thread goes on once ``ready()`` is true."""
        worker = self._running
        assert worker is not None
        worker.ready = ready
        while not ready() and not self._stuck:
            self._give_way()
        worker.ready = None
        assert not self._stuck, "each thread waits for another one"


_current: Interleaving | None = None


def point(*_: object) -> None:
    """Here another thread may go on, if threads take turns now."""
    if _current is not None:
        _current.point()


class TurnLock:
    """A lock whose release is a point; whoever waits for it gives way."""

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
    """Whatever makes a lock meanwhile, makes a :class:`TurnLock`."""
    real = threading.Lock
    threading.Lock = TurnLock  # type: ignore[misc,assignment]
    OwnedLock.__new__ = lambda _class: TurnLock()  # type: ignore[assignment,method-assign,misc]
    try:
        yield
    finally:
        threading.Lock = real  # type: ignore[misc]
        del OwnedLock.__new__


class TurnClock(ManualClock):
    def wait_for(self, signal: Signal, deadline: Deadline) -> None:
        """See :class:`~producer.runtime.clock.Clock`."""
        if _current is None:
            super().wait_for(signal, deadline)
            return
        _current.wait(lambda: signal.is_set() or deadline.expired(self))
        signal.wait(0)


def outcomes(workers: Sequence[_Worker]) -> list[Any]:
    """The values of what succeeded; the first error is raised."""
    for worker in workers:
        if worker.error is not None:
            raise worker.error
    return [worker.value for worker in workers]

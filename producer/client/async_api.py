"""Calls that wait without blocking an event loop: sends one after the other, in the order of asking, and all else each
on a thread of its own. None is a thread of the loop's own pool: that has few, which all of a program's ``to_thread``
share, and ``asyncio.run`` waits at its end for what the cancelled have begun.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from ..model.errors import ProducerError
from ..model.futures import SendFuture

T = TypeVar("T")
Job = tuple[Callable[[], SendFuture], "Future[SendFuture]"]


async def on_a_thread(call: Callable[[], T], name: str) -> T:
    """What ``call`` returns, or raises, on a daemon thread, which goes on when whoever awaits it is cancelled.

    :param name: of the thread.
    :raises ProducerError: no thread could be started.
    """
    from asyncio import wrap_future  # most programs have no loop, and asyncio is large

    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from here on nobody can cancel it
    try:
        threading.Thread(target=_answer, args=(call, future), name=name, daemon=True).start()
    except RuntimeError as error:
        raise _no_thread(error) from error
    return await wrap_future(future)


def _answer(call: Callable[[], T], future: Future[T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001  # told to whoever awaits it
        future.set_exception(error)


def _no_thread(error: RuntimeError) -> ProducerError:
    return ProducerError(f"no thread could be started to wait on: {error}")


class WaitingThreads:
    """Threads that make calls which may wait. They are daemons, start when there is a call, and end when there is none.

    :param name: their name.
    :param most: how many.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._lock = threading.Lock()  # guards the rest
        self._jobs: deque[Job] = deque()
        self._running = 0

    def submit(self, call: Callable[[], SendFuture]) -> Future[SendFuture]:
        """Make a call soon, unless its future is cancelled before; it fails with a ``ProducerError`` where there is no
        thread for it.
        """
        future: Future[SendFuture] = Future()
        with self._lock:
            self._jobs.append((call, future))
            start = self._running < self._most
            self._running += start
        if start:
            try:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            except RuntimeError as error:  # the process may have no more, or is exiting
                self._strand(error)
        return future

    def _strand(self, error: RuntimeError) -> None:
        """A thread did not start: what no other one will do fails."""
        with self._lock:
            self._running -= 1
            stranded = [] if self._running else list(self._jobs)
            if stranded:
                self._jobs.clear()
        for _, future in stranded:
            if future.set_running_or_notify_cancel():
                future.set_exception(_no_thread(error))

    def _next(self) -> Job | None:
        with self._lock:
            if self._jobs:
                return self._jobs.popleft()
            self._running -= 1
            return None

    def _work(self) -> None:
        while (job := self._next()) is not None:
            call, future = job
            if future.set_running_or_notify_cancel():
                _answer(call, future)
            del call, future, job

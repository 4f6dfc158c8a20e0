"""Calls that wait without blocking an event loop.

Sends run one after the other, in the order of the calls. Every other call gets a thread of its own. The loop's thread
pool is not used: it has few threads, all ``to_thread`` calls of a program share them, and ``asyncio.run`` waits at its
end for calls whose tasks were cancelled.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from ..model.errors import ProducerError
from ..model.futures import SendFuture
from ..runtime.daemon_threads import fulfil, on_daemon_thread
from ..runtime.locks import Lock

T = TypeVar("T")
Job = tuple[Callable[[], SendFuture], "Future[SendFuture]"]


async def on_a_thread(call: Callable[[], T], name: str) -> T:
    """Run ``call`` on a daemon thread, and return its result or raise its error.

    The thread continues if the awaiting task is cancelled.

    :param name: the name of the thread.
    :raises ProducerError: no thread could be started.
    """
    from asyncio import wrap_future  # most programs have no loop, and asyncio is large

    try:
        future = on_daemon_thread(call, name)
    except RuntimeError as error:
        raise _no_thread(error) from error
    return await wrap_future(future)


def _no_thread(error: RuntimeError) -> ProducerError:
    return ProducerError(f"no thread could be started to wait on: {error}")


class WaitingThreads:
    """Daemon threads for calls that may block. They start when there is a call, and end when there is none.

    :param name: the name of each thread.
    :param most: the largest number of threads.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._lock = Lock()  # guards the rest
        self._jobs: deque[Job] = deque()
        self._running = 0

    def submit(self, call: Callable[[], SendFuture]) -> Future[SendFuture]:
        """Queue a call, and return its future.

        The call is skipped if the future is cancelled before. The future fails with a ``ProducerError`` if no thread
        can be started.
        """
        future: Future[SendFuture] = Future()
        with self._lock:
            self._jobs.append((call, future))
            start = self._running < self._most
            self._running += start
        if start:
            try:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            except RuntimeError as error:  # the process is at its limit of threads, or is exiting
                self._strand(error)
        return future

    def _strand(self, error: RuntimeError) -> None:
        """Fail the queued calls if no thread is left to make them."""
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
                fulfil(future, call)
            del call, future, job

"""StageThread: a named daemon thread whose loop no job can kill, not even by ``sys.exit()``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from ..runtime.clock import Clock, Deadline
from ..runtime.compiled import compiled
from ..runtime.forks import Stage, call_in_child
from ..runtime.internal_threads import at_work
from ..runtime.loggers import get_logger

_log = get_logger("loghub.worker")

# Between an unexpected error and the next turn: one that came back at once would fill the log and a core, seconds.
_PAUSE = 0.1


# How long a thread that finds a lock taken leaves the interpreter to its owner, seconds.
_STAND_BACK = 50e-6


# Of the threads below that run.
_idents: set[int] = set()
call_in_child(_idents.clear, Stage.LOCKS)


class Acquirable(Protocol):
    """A lock of whichever kind."""

    def acquire(self, blocking: bool = True) -> bool:
        """See :class:`threading.Lock`."""

    def release(self) -> None:
        """Likewise."""


_compiled = compiled(f"{__package__}._threads")


def stand_back(lock: Acquirable) -> None:
    """Before a lock is taken that is held for microseconds only, and by many: wait until it is free.

    Who waits for a lock in the ordinary way owns it before the interpreter lets it run, so that everybody who comes
    meanwhile waits as well, and so on for good: each use of the lock is then a switch of threads. Who stands back until
    it is free takes it while it runs. Without what is compiled only the threads below do so.
    """
    if _compiled is not None:
        _compiled.wait_until_free(lock, _STAND_BACK)
        return
    if threading.get_ident() not in _idents:
        return
    while not lock.acquire(blocking=False):
        time.sleep(_STAND_BACK)
    lock.release()


class StageThread:
    """A thread that runs ``loop`` until it returns; an exception that escapes it is logged, and the loop goes on.

    It is a daemon: the interpreter's exit waits for records (see ``client``), not for threads.
    """

    def __init__(self, name: str, loop: Callable[[], None]) -> None:
        self.name = name
        self._loop = loop
        self._thread: threading.Thread | None = None  # set by itself
        self._claim = threading.Lock()  # of the thread that runs the loop
        self._begun = threading.Lock()
        self._begun.acquire()

    def start(self) -> None:
        """Start the thread; a second call changes nothing.

        :raises RuntimeError: the interpreter is shutting down, or the system has no more threads.
        """
        if not self.started:
            threading.Thread(target=self._run, name=self.name, daemon=True).start()
            self._begun.acquire()

    def _run(self) -> None:
        if not self._claim.acquire(blocking=False):  # a start that was interrupted had started one, too
            return
        self._thread = threading.current_thread()
        self._begun.release()
        _idents.add(threading.get_ident())
        with at_work():
            while not self._ended():
                pass
        _idents.discard(threading.get_ident())

    def _ended(self) -> bool:
        try:
            self._loop()
        except BaseException:  # noqa: BLE001  # a bug in one job, or its sys.exit(), must not end those after it
            _log.exception("%s: an unexpected error; the thread goes on", self.name)
            time.sleep(_PAUSE)
            return False
        return True

    @property
    def started(self) -> bool:
        """Whether its thread has begun."""
        return self._thread is not None

    @property
    def current(self) -> bool:
        """Whether the caller runs on this thread."""
        return self._thread is threading.current_thread()

    def join(self, clock: Clock, deadline: Deadline) -> bool:
        """Wait until the thread has ended; whether it has. Its own thread does not wait for itself."""
        thread = self._thread
        if thread is None:
            return True
        if self.current:
            _log.warning("%s: close was called on this very thread, which ends after its work", self.name)
            return True
        left = deadline.remaining(clock)
        thread.join(None if left is None else min(left, threading.TIMEOUT_MAX))
        return not thread.is_alive()

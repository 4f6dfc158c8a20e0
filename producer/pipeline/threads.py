"""StageThread: a named daemon thread whose loop survives any error of a job, even ``sys.exit()``."""

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

# The pause after an unexpected error, seconds: a repeated error would otherwise fill the log and use a whole core.
_PAUSE = 0.1


# How long a thread that finds a lock taken leaves the interpreter to the lock's owner, seconds.
_BACK_OFF_SECONDS = 50e-6


# The idents of running stage threads.
_idents: set[int] = set()
call_in_child(_idents.clear, Stage.LOCKS)


class Acquirable(Protocol):
    """A lock of any kind."""

    def acquire(self, blocking: bool = True) -> bool: ...

    def release(self) -> None: ...


_compiled = compiled(f"{__package__}._threads")


def wait_until_free(lock: Acquirable) -> None:
    """Wait until a contended lock, held only for microseconds, is free; called before it is taken.

    A thread that waits for a lock in the usual way owns it before the interpreter lets it run. Threads that come
    meanwhile wait as well, and so on: each use of the lock then becomes a thread switch. A thread that waits until the
    lock is free takes it while it runs. Without the native implementation only stage threads do this.
    """
    if _compiled is not None:
        _compiled.wait_until_free(lock, _BACK_OFF_SECONDS)
        return
    if threading.get_ident() not in _idents:
        return
    while not lock.acquire(blocking=False):
        time.sleep(_BACK_OFF_SECONDS)
    lock.release()


class StageThread:
    """A thread that runs ``loop`` until it returns; it logs an exception that escapes the loop, and runs it again.

    It is a daemon: the exit of the interpreter waits for records (see ``client``), not for threads.
    """

    def __init__(self, name: str, loop: Callable[[], None]) -> None:
        self.name = name
        self._loop = loop
        self._thread: threading.Thread | None = None  # set by the thread itself
        self._claim = threading.Lock()  # noqa: TID251  # held by the thread that runs the loop, until it ends
        self._begun = threading.Lock()  # noqa: TID251  # released by another thread
        self._begun.acquire()

    def start(self) -> None:
        """Start the thread; a second call changes nothing.

        :raises RuntimeError: the interpreter is shutting down, or the system has no more threads.
        """
        if not self.started:
            try:
                threading.Thread(target=self._run, name=self.name, daemon=True).start()
            except RuntimeError as error:
                # CPython 3.13 raises this after the thread has started, if a signal handler raised in Thread.start.
                if str(error) != "release unlocked lock":
                    raise
            self._begun.acquire()

    def _run(self) -> None:
        if not self._claim.acquire(blocking=False):  # an interrupted start had started a thread, too
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
        except BaseException:  # noqa: BLE001  # a bug in one job, or its sys.exit(), must not end the later ones
            _log.exception("%s: an unexpected error; the thread continues", self.name)
            time.sleep(_PAUSE)
            return False
        return True

    @property
    def started(self) -> bool:
        """True if its thread has begun."""
        return self._thread is not None

    @property
    def current(self) -> bool:
        """True if the caller runs on this thread."""
        return self._thread is threading.current_thread()

    def join(self, clock: Clock, deadline: Deadline) -> bool:
        """Wait until the thread has ended; return True if it has. A thread does not wait for itself."""
        thread = self._thread
        if thread is None:
            return True
        if self.current:
            _log.warning("%s: close was called on this thread, which ends after its current work", self.name)
            return True
        left = deadline.remaining(clock)
        thread.join(None if left is None else min(left, threading.TIMEOUT_MAX))
        return not thread.is_alive()

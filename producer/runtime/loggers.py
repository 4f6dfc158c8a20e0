"""Loggers: loggers whose handlers cannot disturb the delivery of records.

They are the loggers of ``logging``, by name. But ``logging`` passes a handler's exception to the thread that logs, and
threads log in the middle of a delivery.

It also makes them wait for the handler's lock. A handler that flushes the producer on an error holds its own lock
meanwhile. A thread that should deliver would wait for that lock, and the handler for the thread, forever. So a
producer's thread waits briefly, and leaves the record to another thread.
"""

from __future__ import annotations

import _thread
import functools
import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from .forks import Stage, call_in_child
from .internal_threads import at_work, is_at_work
from .locks import Lock

_Handle = Callable[[logging.LogRecord], None]

#: Seconds that a producer's thread waits for the locks of handlers.
_PATIENCE = 1.0
#: Maximum number of records that wait for handlers; beyond that the oldest are dropped.
_MOST = 1000


def get_logger(name: str) -> logging.Logger:
    """Return the logger of ``logging`` with this name, guarded against its handlers' exceptions.

    These are printed to the standard error, as ``logging.raiseExceptions`` says: logging them would raise again.
    """
    logger = logging.getLogger(name)  # noqa: TID251  # the one permitted place
    if "handle" not in vars(logger):  # the application may have created it, of its own class
        vars(logger)["handle"] = functools.partial(_guarded, logger, logger.handle)
    return logger


def _guarded(logger: logging.Logger, handle: _Handle, record: logging.LogRecord) -> None:
    if not is_at_work(threading.get_ident()):
        _handled(handle, record)
    elif _late.busy or not _handled_in_time(logger, handle, record):
        _late.put(handle, record)


def _handled(handle: _Handle, record: logging.LogRecord) -> None:
    try:
        handle(record)
    except Exception:  # noqa: BLE001  # whatever a user's handler raises
        show()


def _handled_in_time(logger: logging.Logger, handle: _Handle, record: logging.LogRecord) -> bool:
    """Log a record while holding the locks of all its handlers; False if they were not available in time."""
    end = time.monotonic() + _PATIENCE
    with ExitStack() as held:
        is_held = all(_hold(held, handler, end) for handler in _handlers_of(logger))
        if is_held:
            _handled(handle, record)
    return is_held


def _hold(held: ExitStack, handler: logging.Handler, end: float) -> bool:
    """Take a handler's lock; False if it is not available until ``end``, monotonic seconds."""
    lock = handler.lock
    if lock is None:
        return True
    if not lock.acquire(timeout=max(0.0, end - time.monotonic())):
        return False
    held.callback(lock.release)
    return True


def _handlers_of(logger: logging.Logger) -> Iterator[logging.Handler]:
    each: logging.Logger | None = logger
    while each is not None:
        yield from each.handlers
        each = each.parent if each.propagate else None


class _Late:
    """Records that a separate thread logs in order, waiting for the handlers without a limit."""

    def __init__(self) -> None:
        self._lock = Lock()  # guards the fields below
        self._records: deque[tuple[_Handle, logging.LogRecord]] = deque(maxlen=_MOST)
        self.busy = False

    def put(self, handle: _Handle, record: logging.LogRecord) -> None:
        """Queue a record until its handlers are free."""
        with self._lock:
            self._records.append((handle, record))
            start, self.busy = not self.busy, True
        if start:
            try:
                _thread.start_new_thread(self._run, ())
            except RuntimeError:  # the interpreter is exiting
                self._run()

    def _run(self) -> None:
        with at_work():
            while True:
                with self._lock:
                    if not self._records:
                        self.busy = False
                        return
                    handle, record = self._records.popleft()
                _handled(handle, record)


_late = _Late()


def _after_fork_in_child() -> None:
    """Drop the records and the thread, which are the parent's."""
    global _late  # noqa: PLW0603  # a fork is process-wide
    _late = _Late()


call_in_child(_after_fork_in_child, Stage.LOCKS)


def show() -> None:
    """Print the current exception to the standard error."""
    if logging.raiseExceptions:
        traceback.print_exc()

"""The loggers of the package: what a handler of the application's does changes nothing for records and events.

They are the application's own loggers, by name. But ``logging`` lets what a handler raises come out of the call that
logged, and the threads that deliver log in the middle of their work.

It also lets them wait for the handler's lock. A handler that flushes, as one does for an error, has its own lock
meanwhile: the thread that could deliver would wait for it, and the handler for the thread, for ever. So a thread of the
producer's waits for a moment, and leaves what it cannot log to another one.
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

_Handle = Callable[[logging.LogRecord], None]

#: How long a thread of a producer's waits for the locks of handlers, seconds.
_PATIENCE = 1.0
#: So many records wait for a handler; of more the oldest are not logged.
_MOST = 1000


def get_logger(name: str) -> logging.Logger:
    """The logger of ``logging``. What raises in it is shown on the standard error, as the handlers of ``logging`` do
    themselves (``logging.raiseExceptions``): it is not logged, since that would raise again.
    """
    logger = logging.getLogger(name)  # noqa: TID251  # the one place
    if "handle" not in vars(logger):  # the application may have made it before, and of a class of its own
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
    """Log it, with the locks of all handlers that it comes to; whether they were to be had."""
    end = time.monotonic() + _PATIENCE
    with ExitStack() as held:
        is_held = all(_hold(held, handler, end) for handler in _handlers_of(logger))
        if is_held:
            _handled(handle, record)
    return is_held


def _hold(held: ExitStack, handler: logging.Handler, end: float) -> bool:
    """Take a handler's lock; return False if it was not to be had until ``end``, monotonic seconds."""
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
    """Records that a thread of its own logs, in order: it waits for the handlers as long as it takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the next ones
        self._records: deque[tuple[_Handle, logging.LogRecord]] = deque(maxlen=_MOST)
        self.busy = False

    def put(self, handle: _Handle, record: logging.LogRecord) -> None:
        """Log it when its handlers are free."""
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
    """The thread is the parent's, as are the records."""
    global _late  # noqa: PLW0603  # a fork is process-wide
    _late = _Late()


call_in_child(_after_fork_in_child, Stage.LOCKS)


def show() -> None:
    """Write the exception that is being handled to the standard error."""
    if logging.raiseExceptions:
        traceback.print_exc()

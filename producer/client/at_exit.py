"""What happens to producers when the process exits or forks.

At exit every producer still open drains for at most its ``drain_timeout_ms`` and says how much it could not deliver.
After a fork the child's producers start empty, with threads, locks and connections of their own; the parent's records
stay the parent's.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from ..model.errors import CloseTimeoutError
from ..runtime.forks import Stage, call_in_child
from ..runtime.loggers import get_logger
from ..text.plural import counted

if TYPE_CHECKING:
    from ..pipeline.shutdown import Shutdown

_log = get_logger("producer.lifecycle")

#: How much longer than its time a drain takes for the callbacks of the records that it had to fail, at most, seconds.
CALLBACK_SECONDS = 1.0

_lock = threading.Lock()  # guards what follows
_draining: dict[Shutdown, tuple[str, float]] = {}
_hooked = False
_exited = False


def drain_at_exit(shutdown: Shutdown, name: str, timeout: float) -> bool:
    """Close ``shutdown`` when the interpreter exits, unless that happens before.

    :param timeout: seconds.
    :returns: False if the exit has drained the producers already: nobody will close this one.
    """
    with _lock:
        if _exited:
            return False
        _draining[shutdown] = name, timeout
    _hook_multiprocessing()
    _hook_celery()
    return True


def exited() -> bool:
    """Whether the exit of the interpreter has drained the producers."""
    return _exited


def drained(shutdown: Shutdown) -> None:
    """``shutdown`` was closed."""
    with _lock:
        _draining.pop(shutdown, None)


def _hook_multiprocessing() -> None:
    """A child of ``multiprocessing`` ends by ``os._exit``, before which only its own finalizers run."""
    global _hooked  # noqa: PLW0603  # a process has one exit
    process = sys.modules.get("multiprocessing.process")
    if _hooked or process is None or process.parent_process() is None:
        return
    _hooked = True
    from multiprocessing.util import Finalize  # only where it is in use

    Finalize(None, drain_all, exitpriority=100)


def _hook_celery() -> None:
    """A child of Celery's pool ``prefork`` ends by ``os._exit``, too, and says so by a signal of Celery's alone."""
    signals = sys.modules.get("celery.signals")
    if signals is not None:
        signals.worker_process_shutdown.connect(_worker_ends, weak=False, dispatch_uid=__name__)


def _worker_ends(**_: Any) -> None:
    drain_all()


def drain_all() -> None:
    """Close every open producer within its own time, all at the same time; an interrupt cuts the waiting short. Nobody
    will close one that is made later.
    """
    global _exited  # noqa: PLW0603  # a process has one exit
    while True:
        drain_open()
        with _lock:
            _exited = not _draining
        if _exited:
            return


def say_pending(event: str) -> None:
    """Log how many records each open producer has not delivered, before the process may end without a drain."""
    with _lock:
        producers = list(_draining.items())
    for shutdown, (name, _) in producers:
        records = shutdown.pending_records
        if records:
            words = counted(records, "record was not delivered", "records were not delivered")
            _log.error("%s: %s when %s", name, words, event)


def drain_open() -> None:
    """Close every open producer, as :func:`drain_all`, and let the process go on."""
    started = time.monotonic()
    hurried = False
    with _lock:
        producers = list(_draining.items())
    before = {shutdown: _Before(shutdown) for shutdown, _ in producers}
    try:
        for shutdown, _ in producers:
            shutdown.begin()
    except KeyboardInterrupt:
        hurried = True
    for shutdown, (name, timeout) in producers:
        left = 0.0 if hurried else max(0.0, started + timeout - time.monotonic())
        hurried |= _close_or_give_up(shutdown, name, left)
        drained(shutdown)
        before[shutdown].say_lost(name, timeout, "the process ended", hurried=hurried)


def _close_or_give_up(shutdown: Shutdown, name: str, timeout: float) -> bool:
    """Close one; whether the user interrupted it, and it was given up."""
    try:
        _close(shutdown, name, timeout)
    except KeyboardInterrupt:
        _log.error("%s: interrupted while records were in flight: they are lost", name)
        _close(shutdown, name, 0.0)
        return True
    except Exception:  # noqa: BLE001  # what fails here shall not keep the others from being drained
        _log.exception("%s: could not be closed", name)
    return False


def _close(shutdown: Shutdown, name: str, timeout: float) -> None:
    try:
        shutdown.close(timeout)
    except CloseTimeoutError as error:
        if not shutdown.wait_for_callbacks(CALLBACK_SECONDS):
            _log.error("%s: callbacks have not run, or not ended; threads: %s", name, ", ".join(error.stuck))


def drain(shutdown: Shutdown, name: str, timeout: float) -> None:
    """Close one producer; what could not be delivered is said aloud.

    :param timeout: seconds.
    """
    before = _Before(shutdown)
    _close(shutdown, name, timeout)
    drained(shutdown)
    before.say_lost(name, timeout, "the last reference to it went")


class _Before:
    """What was so when a drain began, for what is said at its end."""

    def __init__(self, shutdown: Shutdown) -> None:
        self._shutdown = shutdown
        self._failed, self._closing, self._began = shutdown.failed_records, shutdown.begun, time.monotonic()

    def say_lost(self, name: str, timeout: float, event: str, *, hurried: bool = False) -> None:
        """Say how many records are lost, and why; nothing if none are."""
        records = self._shutdown.failed_records - self._failed
        if not records:
            return
        _log.error(
            "%s: %s lost: %s when %s. %s had %.1f s of the %.1f s of drain_timeout_ms%s",
            name,
            counted(records, "record could not be delivered and is", "records could not be delivered and are"),
            "close() had been called, and was interrupted," if self._closing else "close() had not been called",
            event,
            "It" if records == 1 else "They",
            time.monotonic() - self._began,
            timeout,
            ": an interrupt cut it short" if hurried else "",
        )


def _after_fork_in_child() -> None:
    global _lock, _hooked, _exited  # noqa: PLW0603  # a fork is process-wide
    _lock = threading.Lock()
    _hooked = _exited = False
    _draining.clear()


atexit.register(drain_all)
call_in_child(_after_fork_in_child, Stage.LOCKS)

"""What happens to producers when the process exits, is told to end by a signal, or forks.

At exit every producer still open drains for at most its ``drain_timeout_ms`` and says how much it could not deliver.
So it does at SIGTERM and SIGINT, if they are handled, before they do what they did before: see
:mod:`~producer.runtime.signals`. After a fork the child's producers start empty, with threads, locks and connections of
their own; the parent's records stay the parent's.
"""

from __future__ import annotations

import atexit
import math
import signal
import sys
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..model.errors import CloseTimeoutError, InvalidArgumentError
from ..runtime.forks import Stage, call_in_child
from ..runtime.loggers import get_logger
from ..runtime.signals import STOP_SIGNALS, StopSignals, runs_handlers
from ..text.plural import counted
from ..text.printable import described

if TYPE_CHECKING:
    from ..pipeline.shutdown import Shutdown

_log = get_logger("loghub.lifecycle")

#: How much longer than its time a drain takes for the callbacks of the records that it had to fail, at most, seconds.
CALLBACK_SECONDS = 1.0

_lock = threading.Lock()  # guards what follows
_draining: dict[Shutdown, tuple[str, float]] = {}
_hooked = False
_exited = False
#: While a signal drains: so long a refused send of the main thread waits at most, monotonic seconds.
_drained_by = math.inf


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


def drain_open() -> None:
    """Close every open producer, as :func:`drain_all`, and let the process go on."""
    started = time.monotonic()
    hurried = False
    with _lock:
        producers = list(_draining.items())
    before = {shutdown: _Before(shutdown) for shutdown, _ in producers}
    try:
        for shutdown, _ in producers:
            shutdown.closer.begin()
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


def install_signal_handlers(signals: Iterable[int] = STOP_SIGNALS) -> None:
    """Let these signals drain all producers of the process before they do what they did before.

    What was accepted gets ``drain_timeout_ms``. Meanwhile the program goes on, but ``send`` is refused; on the main
    thread it waits for what the signal does. Then the handler that was there is called, or the signal ends the process.
    A second signal does not wait. Call it on the main thread, before a framework installs handlers of its own; in each
    worker of a ``multiprocessing.Pool``, whose end sends SIGTERM:
    ``Pool(initializer=producer.install_signal_handlers)``. Doing it again changes nothing; an ignored signal stays so.

    :raises InvalidArgumentError: not called on the main thread, or no signal that can be handled.
    """
    if not runs_handlers():
        raise InvalidArgumentError("install_signal_handlers: only the main thread of a process can handle signals")
    if not isinstance(signals, Iterable):
        raise InvalidArgumentError(f"signals: must be a list of signals, got {described(signals)}")
    for number in signals:
        try:
            before = signal.getsignal(number)
            if before in (_stop_signals.handle, signal.SIG_IGN, None):
                continue
            signal.signal(number, _stop_signals.handle)
        except (OSError, ValueError, TypeError) as error:
            raise InvalidArgumentError(f"signals: {number!r} cannot be handled: {error}") from error
        _stop_signals.former[number] = before


def drain_at_sigterm() -> None:
    """Let SIGTERM drain all producers where it would end the process at once; done for every integration.

    Where SIGTERM has its default action, :func:`install_signal_handlers` chains to that. A handler that is there stays
    alone: it ends the process in its own time, and the interpreter's exit drains. But some servers put the handler that
    was there back at their end and raise the signal again, so ``signal.raise_signal`` drains first. Off the main thread
    nothing is done.
    """
    if not runs_handlers():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        install_signal_handlers([signal.SIGTERM])
    signal.raise_signal = _raise_drained


_raise_signal = signal.raise_signal


def _raise_drained(number: int) -> None:
    """Drain before a signal that the process raises itself ends it, as uvicorn does: no exit follows that drains."""
    if number == signal.SIGTERM and signal.getsignal(number) is signal.SIG_DFL:
        drain_open()
    _raise_signal(number)
    wait_for_signal()


def _drain_at_signal(_number: int) -> None:
    """Drain on a thread, beside the main thread."""
    global _drained_by  # noqa: PLW0603  # signals are the process's
    with _lock:
        longest = max((timeout for _, timeout in _draining.values()), default=0.0)
    _drained_by = time.monotonic() + longest + CALLBACK_SECONDS
    try:
        drain_open()
    finally:
        _drained_by = math.inf


def _say_pending(_number: int) -> None:
    """Log how many records each open producer has not delivered, before the process may end without a drain."""
    with _lock:
        producers = list(_draining.items())
    for shutdown, (name, _) in producers:
        records = shutdown.closer.pending_records
        if records:
            words = counted(records, "record was not delivered", "records were not delivered")
            _log.error("%s: %s when a second signal came", name, words)


_stop_signals = StopSignals(_drain_at_signal, second=_say_pending, then_former=True)


def wait_for_signal() -> None:
    """Have the main thread, whose send was refused since a signal drains, wait for what that signal does.

    It may be about to end the process. The wait lasts no longer than the drain may take: the caller may hold the lock
    of a log that the drain writes to.
    """
    if threading.current_thread() is threading.main_thread():
        while _stop_signals.stopping and time.monotonic() < _drained_by:
            time.sleep(0.005)


class _Before:
    """What was so when a drain began, for what is said at its end."""

    def __init__(self, shutdown: Shutdown) -> None:
        self._shutdown = shutdown
        self._failed, self._closing, self._began = shutdown.closer.lost_records, shutdown.begun, time.monotonic()

    def say_lost(self, name: str, timeout: float, event: str, *, hurried: bool = False) -> None:
        """Say how many records are lost, and why; nothing if none are."""
        records = self._shutdown.closer.lost_records - self._failed
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

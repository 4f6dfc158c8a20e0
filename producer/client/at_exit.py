"""The end of producers when the process exits, receives a stop signal, or forks.

At exit every open producer drains for at most its ``drain_timeout_ms``, then logs how many records it could not
deliver. SIGTERM and SIGINT do the same, if they are handled, before they take their former effect. After a fork the
child's producers start empty, with threads, locks and connections of their own. The parent's records stay with the
parent.
"""

from __future__ import annotations

import atexit
import math
import signal
import sys
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..model.errors import CloseTimeoutError, FlushTimeoutError, InvalidArgumentError
from ..runtime.forks import Stage, call_in_child
from ..runtime.locks import Lock
from ..runtime.loggers import get_logger
from ..runtime.signals import STOP_SIGNALS, StopSignals, runs_handlers
from ..text.plural import counted
from ..text.printable import described
from .timeouts import check_timeout

if TYPE_CHECKING:
    from ..pipeline.sender import Sender
    from ..pipeline.shutdown import Shutdown

_log = get_logger("loghub.lifecycle")

#: After the drain's time, callbacks of the records that failed get at most this many seconds more.
CALLBACK_SECONDS = 1.0


class _Open(NamedTuple):
    """An open producer: its name, the seconds that its drain may take, and its pipeline."""

    name: str
    timeout: float
    sender: Sender


_lock = Lock()  # guards the variables below
_draining: dict[Shutdown, _Open] = {}
_hooked = False
_exited = False
#: While a signal drains: the time until which a refused send of the main thread waits, monotonic seconds.
_drained_by = math.inf


def drain_at_exit(shutdown: Shutdown, sender: Sender, name: str, timeout: float) -> bool:
    """Close ``shutdown`` when the interpreter exits, unless it is closed before.

    :param sender: the pipeline that it closes, for :func:`flush_all`.
    :param timeout: seconds.
    :returns: False if the producers were drained at exit already, so that this one would never be closed.
    """
    with _lock:
        if _exited:
            return False
        _draining[shutdown] = _Open(name, timeout, sender)
    _hook_multiprocessing()
    _hook_celery()
    return True


def exited() -> bool:
    """True if the producers were drained at the exit of the interpreter."""
    return _exited


def drained(shutdown: Shutdown) -> None:
    """Remove a shutdown that is complete."""
    with _lock:
        _draining.pop(shutdown, None)


def _hook_multiprocessing() -> None:
    """Drain in a child of ``multiprocessing``: it ends by ``os._exit``, which runs only its own finalizers."""
    global _hooked  # noqa: PLW0603  # a process has one exit
    process = sys.modules.get("multiprocessing.process")
    if _hooked or process is None or process.parent_process() is None:
        return
    _hooked = True
    from multiprocessing.util import Finalize  # only where multiprocessing is in use

    Finalize(None, drain_all, exitpriority=100)


def _hook_celery() -> None:
    """Drain in a child of Celery's pool ``prefork``: it ends by ``os._exit``, after a signal of Celery."""
    signals = sys.modules.get("celery.signals")
    if signals is not None:
        signals.worker_process_shutdown.connect(_worker_ends, weak=False, dispatch_uid=__name__)


def _worker_ends(**_: Any) -> None:
    drain_all()


def drain_all() -> None:
    """Close every open producer within its own time, all at the same time.

    An interrupt cuts the waiting short. A producer that is made later is never closed.
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
    for shutdown, (name, timeout, _) in producers:
        left = 0.0 if hurried else max(0.0, started + timeout - time.monotonic())
        hurried |= _close_or_abandon(shutdown, name, left)
        drained(shutdown)
        before[shutdown].report_lost(name, timeout, "the process ended", hurried=hurried)


def _close_or_abandon(shutdown: Shutdown, name: str, timeout: float) -> bool:
    """Close one producer; return True if the user interrupted it and its records were abandoned.

    Each further interrupt cuts a wait short, too. None keeps the close from its end.
    """
    interrupted = False
    while not (interrupted and shutdown.ended):
        try:
            if interrupted:
                _log.error("%s: interrupted while records were in flight: they are lost", name)
            _close(shutdown, name, 0.0 if interrupted else timeout)
            break
        except KeyboardInterrupt:
            interrupted = True
        except Exception:  # noqa: BLE001  # a failure must not keep the others from being drained
            _log.exception("%s: could not be closed", name)
            break
    return interrupted


def _close(shutdown: Shutdown, name: str, timeout: float) -> None:
    try:
        shutdown.close(timeout)
    except CloseTimeoutError as error:
        if not shutdown.wait_for_callbacks(CALLBACK_SECONDS):
            _log.error("%s: callbacks have not run, or not ended; threads: %s", name, ", ".join(error.stuck))


def flush_all(timeout: float | None = None) -> None:
    """Flush every open producer of the process, also those that integrations made for themselves.

    Open batches of all producers are sent at once. The call then waits as :meth:`Producer.flush` does.

    Example:

        >>> from loghub import flush_all
        >>> flush_all(timeout=10)

    :param timeout: seconds, for all producers together; None to wait as long as the retries take.
    :raises InvalidArgumentError: an invalid timeout.
    :raises FlushTimeoutError: the timeout has passed; the deliveries continue. The error counts the batches of all
        producers.
    :raises ProducerError: the call would wait for itself, as :meth:`Producer.flush` describes.
    """
    check_timeout(timeout)
    end = None if timeout is None else time.monotonic() + timeout
    with _lock:
        senders = [each.sender for each in _draining.values()]
    late = []
    for sender in [each for each in senders if _late(each, 0.0) is not None]:  # first sends all open batches
        error = _late(sender, None if end is None else max(0.0, end - time.monotonic()))
        late += [] if error is None else [error]
    if late:
        remaining, stored = sum(error.remaining for error in late), sum(error.stored for error in late)
        raise FlushTimeoutError(remaining, timeout or 0.0, stored)


def _late(sender: Sender, timeout: float | None) -> FlushTimeoutError | None:
    """Flush one producer; return the error of a timeout, None if there was none."""
    try:
        sender.flush(timeout)
    except FlushTimeoutError as error:
        return error
    return None


def drain(shutdown: Shutdown, name: str, timeout: float) -> None:
    """Close one producer, and log the records that could not be delivered.

    :param timeout: seconds.
    """
    before = _Before(shutdown)
    _close(shutdown, name, timeout)
    drained(shutdown)
    before.report_lost(name, timeout, "the last reference to it went")


def install_signal_handlers(signals: Iterable[int] = STOP_SIGNALS) -> None:
    """Drain all producers of the process when it receives one of these signals, then act as before.

    Records in flight get ``drain_timeout_ms``. Meanwhile the program continues, but ``send`` is refused. On the main
    thread ``send`` first waits for the end of the signal's action. Then the former handler is called, or the signal
    ends the process. A second signal does not wait. Python notices a signal late that comes just before the main thread
    blocks in a call, such as a wait for a lock; another signal wakes it.

    Call it on the main thread, before a framework installs its own handlers. In the workers of a
    ``multiprocessing.Pool``, which are ended by SIGTERM: ``Pool(initializer=producer.install_signal_handlers)``. A
    repeated call changes nothing, and an ignored signal stays ignored.

    Example:

        >>> from loghub import install_signal_handlers
        >>> install_signal_handlers()

    :param signals: the signals to handle; by default SIGTERM and SIGINT.
    :raises InvalidArgumentError: not called on the main thread, or a signal that cannot be handled.
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
    """Drain all producers at SIGTERM where it would end the process at once; every integration calls this.

    Where SIGTERM has its default action, :func:`install_signal_handlers` chains to that. Any other handler is left
    alone: it ends the process in its own time, and the exit of the interpreter drains. Some servers restore the default
    action at their end and raise the signal again, so ``signal.raise_signal`` drains first. Off the main thread nothing
    is done.
    """
    if not runs_handlers():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        install_signal_handlers([signal.SIGTERM])
    signal.raise_signal = _raise_drained


_raise_signal = signal.raise_signal


def _raise_drained(number: int) -> None:
    """Drain before the process ends itself by SIGTERM, as uvicorn does: no exit of the interpreter follows."""
    if number == signal.SIGTERM and signal.getsignal(number) is signal.SIG_DFL:
        drain_open()
    _raise_signal(number)
    wait_for_signal()


def _drain_at_signal(_number: int) -> None:
    """Drain on a thread of its own, while the main thread continues."""
    global _drained_by  # noqa: PLW0603  # signals belong to the process
    with _lock:
        longest = max((each.timeout for each in _draining.values()), default=0.0)
    _drained_by = time.monotonic() + longest + CALLBACK_SECONDS
    try:
        drain_open()
    finally:
        _drained_by = math.inf


def _log_pending(_number: int) -> None:
    """Log the number of undelivered records of each open producer, before the process may end without a drain."""
    with _lock:
        producers = list(_draining.items())
    for shutdown, (name, *_) in producers:
        records = shutdown.closer.pending_records
        if records:
            words = counted(records, "record was not delivered", "records were not delivered")
            _log.error("%s: %s when a second signal came", name, words)


_stop_signals = StopSignals(_drain_at_signal, second=_log_pending, then_former=True)


def wait_for_signal() -> None:
    """Block the main thread, whose send a draining signal has refused, until the signal has taken effect.

    The signal may be about to end the process. The wait is no longer than the drain may take, since the caller may hold
    the lock of a log handler that the drain writes to.
    """
    if threading.current_thread() is threading.main_thread():
        while _stop_signals.stopping and time.monotonic() < _drained_by:
            time.sleep(0.005)


class _Before:
    """State at the start of a drain, used to report losses."""

    def __init__(self, shutdown: Shutdown) -> None:
        self._shutdown = shutdown
        self._failed, self._closing, self._began = shutdown.closer.lost_records, shutdown.begun, time.monotonic()

    def report_lost(self, name: str, timeout: float, event: str, *, hurried: bool = False) -> None:
        """Log how many records are lost, and why; log nothing if none are."""
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
    _lock = Lock()
    _hooked = _exited = False
    _draining.clear()


# Registered twice: if Ctrl-C comes at the very start of the first call, atexit skips that call.
atexit.register(drain_all)
atexit.register(drain_all)
call_in_child(_after_fork_in_child, Stage.LOCKS)

"""SIGTERM and SIGINT: what was accepted is delivered, then whatever the signal did before happens.

A signal interrupts the main thread anywhere, also where it holds a lock that a delivery needs: in ``send``, or while it
logs. So the handler delivers nothing itself. A thread does; and the main thread waits for it in the handler, unless
the signal met it at such a place. Then it goes on for a moment, until the signal, sent again, meets it elsewhere::

    signal ──► handler ──in our code, or where locks are held──► goes on; the thread sends the signal again
                  │                                                      │
                  └──elsewhere──► waits for the thread ◄─────────────────┘
                                      │
    thread: close every producer, each in its drain_timeout_ms ──► the handler that was there before

A second signal does not wait for the rest.

Where threads are greenlets, the signal may meet their hub, which must not wait: the handler returns, and a greenlet
drains and calls the previous handler.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
from collections.abc import Iterable
from types import FrameType
from typing import Any

from ..model.errors import InvalidArgumentError
from ..runtime.forks import Stage, call_in_child
from ..runtime.signal_wakeup import ECHO, threads_are_greenlets, wake_for
from ..text.printable import described
from . import at_exit

#: Modules in whose code the main thread may hold what the other threads need.
_HOLDING = ("producer.", "logging", "threading", "queue")
#: How long the drain waits for the main thread to come out of such code, and how often it is asked, seconds.
_PATIENCE, _AGAIN = 0.2, 0.002


class _Drain:
    """One drain, begun by a signal.

    :ivar parked_at: when the main thread began to wait for it, monotonic seconds; None if it does not.
    :ivar done: the producers are closed.
    :ivar over: the previous handler was called.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.parked_at: float | None = None
        self.done = self.over = self.hurried = False

    def run(self) -> None:
        """On a thread of its own: drain, then have the main thread call the previous handler."""
        end = time.monotonic() + _PATIENCE
        while self.parked_at is None and time.monotonic() < end:
            self._signal_again()
        try:
            at_exit.drain_open()
        finally:
            self.done = True
            while not self.over and self.parked_at is None:
                self._signal_again()

    def run_in_greenlet(self, frame: FrameType | None) -> None:
        """In a greenlet: drain, and do what the signal did before."""
        try:
            at_exit.drain_open()
        finally:
            if not self.over:
                _end(self, frame)

    def _signal_again(self) -> None:
        time.sleep(_AGAIN)
        if self.parked_at is None and not self.over:
            os.kill(os.getpid(), self.number)

    def wait(self) -> None:
        """On the main thread, in the handler; plain sleeps, which any signal may interrupt at any step."""
        self.parked_at = time.monotonic()
        while not (self.done or self.hurried):
            time.sleep(_AGAIN)


_previous: dict[int, Any] = {}
_current: _Drain | None = None


def install_signal_handlers(signals: Iterable[int] = (signal.SIGTERM, signal.SIGINT)) -> None:
    """Let these signals drain all producers of the process before they do what they did before.

    ``send`` is refused from then on, and what was accepted gets ``drain_timeout_ms``; then the handler that was there
    is called, or the signal ends the process. A second signal does not wait. Call it on the main thread, before a
    framework installs handlers of its own; in each worker of a ``multiprocessing.Pool``, whose end sends SIGTERM:
    ``Pool(initializer=producer.install_signal_handlers)``. Doing it again changes nothing; an ignored signal stays so.

    :raises InvalidArgumentError: not called on the main thread, or no signal that can be handled.
    """
    if not _may_handle_signals():
        raise InvalidArgumentError("install_signal_handlers: only the main thread of a process can handle signals")
    if not isinstance(signals, Iterable):
        raise InvalidArgumentError(f"signals: must be a list of signals, got {described(signals)}")
    for number in signals:
        try:
            before = signal.getsignal(number)
            if before is _handle or before is signal.SIG_IGN or before is None:
                continue
            signal.signal(number, _handle)
        except (OSError, ValueError, TypeError) as error:
            raise InvalidArgumentError(f"signals: {number!r} cannot be handled: {error}") from error
        _previous[number] = before
    wake_for(_previous)


def _may_handle_signals() -> bool:
    """Whether this is the main thread, whatever ``threading`` says where eventlet has replaced it."""
    if not threads_are_greenlets():
        return threading.current_thread() is threading.main_thread()
    try:
        signal.signal(signal.SIGURG, signal.getsignal(signal.SIGURG))  # refused elsewhere; changes nothing
    except (ValueError, TypeError):
        return False
    return True


def drain_at_sigterm() -> None:
    """Let SIGTERM drain all producers where it would end the process at once; done for every integration.

    Where SIGTERM has its default action, :func:`install_signal_handlers` chains to that. A handler that is there stays
    alone: it ends the process in its own time, and the interpreter's exit drains. But some servers put the default
    action back at their end and raise the signal again, so ``signal.raise_signal`` drains first. Off the main thread
    nothing is done.
    """
    if not _may_handle_signals():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        install_signal_handlers([signal.SIGTERM])
    signal.raise_signal = _raise_drained


_raise_signal = signal.raise_signal


def _raise_drained(number: int) -> None:
    """Drain before a signal that the process raises itself ends it, as uvicorn does: no exit follows that drains."""
    if number == signal.SIGTERM and signal.getsignal(number) is signal.SIG_DFL:
        at_exit.drain_open()
    _raise_signal(number)


def _handle(number: int, frame: FrameType | None) -> None:
    global _current  # noqa: PLW0603  # signals are the process's
    drain = _current
    if drain is None:
        drain = _current = _Drain(number)
        if threads_are_greenlets():
            drain.parked_at = time.monotonic()
            _thread.start_new_thread(drain.run_in_greenlet, (frame,))
            return
        # Not a Thread of threading: its start takes locks that the main thread may hold.
        _thread.start_new_thread(drain.run, ())
    if drain.parked_at is not None:
        if time.monotonic() - drain.parked_at > ECHO:  # or it is one of those that were sent again, or an echo
            drain.hurried = True
            if threads_are_greenlets():
                _end(drain, frame)
        return
    if not drain.done:
        if _holds(frame):
            return
        drain.wait()
    _end(drain, frame)


def _end(drain: _Drain, frame: FrameType | None) -> None:
    """Do what the signal did before."""
    global _current
    drain.over, _current = True, None
    if not drain.done:
        at_exit.say_pending("a second signal came")
    before = _previous.get(drain.number)
    if callable(before):
        before(drain.number, frame)
        return
    signal.signal(drain.number, signal.SIG_DFL)
    os.kill(os.getpid(), drain.number)


def _holds(frame: FrameType | None) -> bool:
    """Whether the main thread may hold what another thread needs: by the code that it is in."""
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        if name.startswith(_HOLDING) and frame.f_code is not _raise_drained.__code__:
            return True
        frame = frame.f_back
    return False


def _after_fork_in_child() -> None:
    global _current  # noqa: PLW0603  # a fork is process-wide
    _current = None


call_in_child(_after_fork_in_child, Stage.LOCKS)

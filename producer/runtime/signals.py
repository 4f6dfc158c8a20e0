"""Stop signals: one owner for the library, the commands, ``ship``, ``serve`` and the agent.

Python runs a handler on the main thread between two bytecodes, also while that thread holds a lock. So the handler
takes no lock. It starts a thread, which calls the callback, and the main thread continues::

    SIGTERM ──► handler ──► thread: callback ──with then_former──► the former action
      again ──► handler ──► the former action, without waiting for the callback

A signal just before the main thread blocks is handled only when the blocking call returns. So the main thread waits in
slices, by :func:`wait`.
"""

from __future__ import annotations

import _thread
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], object]

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: Seconds within which repeated signals of one kind count as one request.
ECHO = 0.5
#: Seconds of the main thread's longest wait, and before an unhandled signal is sent again.
SLICE = 0.5


def runs_handlers() -> bool:
    """Return True on the main thread, which alone may install handlers; also in its greenlets."""
    try:
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    except (ValueError, TypeError):  # another thread, or a handler not installed by Python
        return False
    return True


@contextmanager
def handling(handlers: Mapping[int, Handler | int | None]) -> Iterator[dict[int, Any]]:
    """Install handlers for the block, and restore the former ones at its end.

    The block gets the former ones, and may change them. On a thread other than the main one nothing is done.
    """
    former: dict[int, Any] = {}
    if not runs_handlers():
        yield former
        return
    try:
        for number, handler in handlers.items():
            former[number] = signal.getsignal(number)
            _install(number, handler)
        yield former
    finally:
        for number, handler in former.items():
            _install(number, handler)


def _install(number: int, handler: Any) -> None:
    if handler is not None:  # one not installed by Python cannot be restored
        signal.signal(number, handler)


@contextmanager
def on_stop_signal(callback: Callable[[int], object]) -> Iterator[None]:
    """Call ``callback`` with the number of the first SIGTERM or SIGINT in the block, on a thread.

    The next signal has its former action.
    """
    stops = StopSignals(callback)
    with handling(dict.fromkeys(STOP_SIGNALS, stops.handle)) as stops.former:
        yield


def wait(event: threading.Event, timeout: float = math.inf) -> None:
    """Wait for an event on the main thread, in slices, between which Python runs signal handlers.

    :param timeout: seconds.
    """
    end = time.monotonic() + timeout
    while not event.is_set() and (left := end - time.monotonic()) > 0:
        event.wait(min(left, SLICE))


@contextmanager
def blocked() -> Iterator[None]:
    """Block the stop signals, so that a process started in the block can call :func:`ignore_stops` first."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_stops() -> None:
    """Ignore the stop signals in a process that its parent ends; terminals and service managers signal all."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def ignore_until_exit() -> None:
    """Ignore the signals that would end a process whose exit code is decided.

    An exiting interpreter restores the default actions, with which a signal would replace the exit code.
    """
    if runs_handlers():
        for number in (*STOP_SIGNALS, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)


class Requests:
    """Distinguishes a repeated request to stop from the echo of the first one.

    coreutils' ``timeout`` sends its signal to the command, and then to its process group. SIGINT has no echo: a user
    may press the key twice.
    """

    def __init__(self) -> None:
        self._first: dict[int, float] = {}

    def is_echo(self, number: int) -> bool:
        """Return True if this signal, just received, repeats the first of its kind."""
        now = time.monotonic()
        first = self._first.setdefault(number, now)
        return number != signal.SIGINT and first is not now and now - first < ECHO


class _Stop:
    """State of one request to stop.

    :ivar passes_on: True if the callback has ended: the next run of the handler does the former action.
    :ivar over: True if the former action is done.
    """

    def __init__(self) -> None:
        self.requests = Requests()
        self.process = os.getpid()
        self.passes_on = self.over = False

    def pass_on(self, number: int) -> None:
        """Make the main thread do the former action, which no other thread can."""
        self.passes_on = True
        os.kill(self.process, number)
        while not self._is_over_within(SLICE):
            os.kill(self.process, number)

    def _is_over_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not self.over and time.monotonic() < end:
            time.sleep(0.005)
        return self.over


class StopSignals:
    """A signal handler that calls each of its callbacks on a separate thread.

    :param callback: called with the number of the first signal.
    :param second: called with the number of a later one, which then has its former action; None for nothing.
    :param then_former: True to do the former action after ``callback``, and start over.
    :ivar former: the former handlers.
    """

    def __init__(
        self,
        callback: Callable[[int], object],
        *,
        second: Callable[[int], object] | None = None,
        then_former: bool = False,
    ) -> None:
        self._callback, self._second, self._then_former = callback, second, then_former
        self.former: dict[int, Any] = {}
        self._stop: _Stop | None = None

    @property
    def stopping(self) -> bool:
        """True if this process got a signal, and its former action is not done yet."""
        return bool(self._stop and self._stop.process == os.getpid())

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal; called on the main thread, between any two bytecodes."""
        stop = self._stop
        if stop is None or not self.stopping:  # a forked child does not have the threads
            stop = self._stop = _Stop()
            stop.requests.is_echo(number)
            self._start(stop, self._callback, number)
        elif stop.passes_on or not (stop.requests.is_echo(number) or self._asked_again(stop, number)):
            self._end(stop, number, frame)

    def _asked_again(self, stop: _Stop, number: int) -> bool:
        """Return True if a thread handles the rest."""
        return self._second is not None and self._start(stop, self._second, number)

    def _start(self, stop: _Stop, call: Callable[[int], object], number: int) -> bool:
        """Call on a new thread; False if the interpreter is exiting. That drains, unless a second signal comes."""
        try:
            # No threading.Thread: its start takes locks that the main thread may hold.
            _thread.start_new_thread(self._run, (stop, call, number))
        except RuntimeError:
            return False
        return True

    def _run(self, stop: _Stop, call: Callable[[int], object], number: int) -> None:
        try:
            call(number)
        finally:
            if self._then_former and not stop.passes_on:
                stop.pass_on(number)

    def _end(self, stop: _Stop, number: int, frame: FrameType | None) -> None:
        """Do the former action."""
        if self._then_former:
            stop.over, self._stop = True, None
        former = self.former.get(number)
        if callable(former):
            former(number, frame)
        elif former is signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

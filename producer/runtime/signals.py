"""Signals that ask to stop: one owner for the library, the commands, ``ship``, ``serve`` and the agent.

Python runs a handler on the main thread between two bytecodes, also while that thread holds a lock. So the handler
takes no lock: it starts a thread, which calls the callback, and the main thread goes on::

    SIGTERM ──► handler ──► thread: callback ──with then_former──► what the signal did before
      again ──► handler ──► what the signal did before, without waiting for the callback

A signal that comes in the last nanoseconds before the main thread blocks is handled when that call returns: wait in
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
#: Signals of one kind that come within this time of the first one are one request, seconds.
ECHO = 0.5
#: The longest wait of a main thread, and the pause before a signal that was not handled is sent again, seconds.
SLICE = 0.5


def runs_handlers() -> bool:
    """Return True on the main thread, which alone may install handlers; also in a greenlet of it."""
    try:
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    except (ValueError, TypeError):  # another thread; a handler that is not Python's
        return False
    return True


@contextmanager
def handling(handlers: Mapping[int, Handler | int | None]) -> Iterator[dict[int, Any]]:
    """Install handlers for the block, which gets the former ones; at its end those, as changed by it, are put back.

    On a thread other than the main one nothing is done.
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
    if handler is not None:  # one that is not Python's cannot be put back
        signal.signal(number, handler)


@contextmanager
def on_stop_signal(callback: Callable[[int], object]) -> Iterator[None]:
    """Have the first SIGTERM or SIGINT in the block call ``callback`` with its number, on a thread.

    The next one does what it did before the block.
    """
    stops = StopSignals(callback)
    with handling(dict.fromkeys(STOP_SIGNALS, stops.handle)) as stops.former:
        yield


def wait(event: threading.Event, timeout: float = math.inf) -> None:
    """Wait for an event on the main thread, in slices, between which Python runs handlers.

    :param timeout: seconds.
    """
    end = time.monotonic() + timeout
    while not event.is_set() and (left := end - time.monotonic()) > 0:
        event.wait(min(left, SLICE))


@contextmanager
def blocked() -> Iterator[None]:
    """Block the stop signals, so that a process that is started in the block begins with :func:`ignore_stops`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_stops() -> None:
    """Ignore the stop signals, in a process that its parent ends: terminals and service managers send them to all."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def ignore_until_exit() -> None:
    """Ignore the signals that end a process which has its exit code.

    An interpreter that exits puts the default actions back: with them a signal would end it in place of that code.
    """
    if runs_handlers():
        for number in (*STOP_SIGNALS, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)


class Requests:
    """Tells a signal that asks once more from the echo of the first one.

    coreutils' ``timeout`` sends its signal to its command, and then to the command's process group. SIGINT has no echo:
    it is a key, which a user may press twice.
    """

    def __init__(self) -> None:
        self._first: dict[int, float] = {}

    def is_echo(self, number: int) -> bool:
        """Return True if this signal, which has just come, repeats the first of its kind."""
        now = time.monotonic()
        first = self._first.setdefault(number, now)
        return number != signal.SIGINT and first is not now and now - first < ECHO


class _Stop:
    """What one signal, and those after it, ask for.

    :ivar passes_on: the callback has ended: the next run of the handler does what the signal did before.
    :ivar over: that is done.
    """

    def __init__(self) -> None:
        self.requests = Requests()
        self.process = os.getpid()
        self.passes_on = self.over = False

    def pass_on(self, number: int) -> None:
        """Have the main thread do what the signal did before, which no other thread can."""
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
    """A handler of signals, with its callbacks, each of which is called on a thread of its own.

    :param callback: called with the number of the first signal.
    :param second: called with that of a later one, which does then what it did before; None for nothing.
    :param then_former: True to do, after ``callback``, what the signal did before, and to begin anew.
    :ivar former: the handlers that were there before.
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
        """Whether a signal has come to this process, and what it did before is not done yet."""
        return bool(self._stop and self._stop.process == os.getpid())

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: on the main thread, at any place of it."""
        stop = self._stop
        if stop is None or not self.stopping:  # a forked child has none of the threads
            stop = self._stop = _Stop()
            stop.requests.is_echo(number)
            self._start(stop, self._callback, number)
        elif stop.passes_on or not (stop.requests.is_echo(number) or self._asked_again(stop, number)):
            self._end(stop, number, frame)

    def _asked_again(self, stop: _Stop, number: int) -> bool:
        """Return True if a thread does the rest."""
        return self._second is not None and self._start(stop, self._second, number)

    def _start(self, stop: _Stop, call: Callable[[int], object], number: int) -> bool:
        """Return False if there is no thread: the interpreter is exiting. That drains, unless a second signal comes."""
        try:
            # Not a threading.Thread: its start takes locks that the main thread may hold.
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
        """Do what the signal did before."""
        if self._then_former:
            stop.over, self._stop = True, None
        former = self.former.get(number)
        if callable(former):
            former(number, frame)
        elif former is signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

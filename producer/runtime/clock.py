"""Clock: the source of time for every wait, absolute deadlines, and waiting rooms for threads."""

from __future__ import annotations

import _thread
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Protocol, Self

#: Seconds after which a waiting thread checks again by itself: a signal handler that raised may have prevented its
#: wake-up.
LOOK_AGAIN = 0.5


class Signal:
    """A wake-up for one thread, which may come before the thread waits for it; several are one.

    It has a lock in place of a :class:`queue.SimpleQueue`: before CPython 3.13 ``SimpleQueue.get`` waits without a
    limit if its timeout has passed before its wait begins, as a short one does when the system runs another program.
    """

    __slots__ = ("_gate", "release")

    def __init__(self) -> None:
        self._gate = _thread.allocate_lock()  # locked as long as no wake-up has come
        self._gate.acquire()
        #: :meth:`set` in one step, which raises ``RuntimeError`` if the signal is set.
        self.release = self._gate.release

    def set(self) -> None:
        """Wake the thread, or end its next wait at once; takes no lock and never waits."""
        with suppress(RuntimeError):  # another thread has set it
            self._gate.release()

    def is_set(self) -> bool:
        """Return True if a wake-up has come and no wait has used it."""
        return not self._gate.locked()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a wake-up and use it; return False after the timeout.

        :param timeout: seconds, limited to what the platform can wait for; None for no limit.
        """
        return self._gate.acquire(timeout=-1 if timeout is None else min(timeout, threading.TIMEOUT_MAX))


class Clock(Protocol):
    """Source of time for a stage, and its way to wait."""

    def monotonic(self) -> float:
        """Return seconds that never go backwards; only differences are meaningful."""

    def time(self) -> float:
        """Return seconds since the Unix epoch."""

    def wait_for(self, signal: Signal, deadline: Deadline) -> None:
        """Wait until ``signal`` is set or the deadline passes; callers loop, and hold no lock."""


class SystemClock:
    """The real clock."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    def wait_for(self, signal: Signal, deadline: Deadline) -> None:
        signal.wait(deadline.remaining(self))


class Latch:
    """A flag that is set once, and wakes the threads that wait for it.

    It replaces :class:`threading.Event`, which costs ten times as much to make, and whose lock a thread may leave taken
    if a signal handler raises in :meth:`~threading.Event.wait`.
    """

    __slots__ = ("_gate", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._gate = Signal()

    def is_set(self) -> bool:
        """Return True if it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it; a second call changes nothing."""
        self._is_set = True
        self._gate.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set. Return True if it is.

        :param timeout: seconds; None for no limit.
        """
        end = math.inf if timeout is None else time.monotonic() + timeout
        while not self._is_set and (left := end - time.monotonic()) > 0:
            if self._gate.wait(min(left, LOOK_AGAIN)):
                self._gate.set()  # wakes the next waiter
        return self._is_set


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of an operation, passed down so that all its stages share it: an instant, or an earlier stop.

    :ivar at: monotonic seconds; None for never.
    :ivar stop: ends the operation at once when set; None for none.
    """

    at: float | None
    stop: Stop | None = None

    @classmethod
    def after(cls, clock: Clock, timeout: float | None, stop: Stop | None = None) -> Self:
        """Return the deadline ``timeout`` seconds from now, or an earlier ``stop``; None for never."""
        return cls(None if timeout is None else clock.monotonic() + timeout, stop)

    def remaining(self, clock: Clock) -> float | None:
        """Return the seconds left, never below 0; None for no limit."""
        if self.stop is not None and self.stop.is_set():
            return 0.0
        return None if self.at is None else max(0.0, self.at - clock.monotonic())

    def within(self, clock: Clock, seconds: float) -> Deadline:
        """Return the earlier of this deadline and ``seconds`` from now."""
        soon = clock.monotonic() + seconds
        return Deadline(soon if self.at is None else min(soon, self.at), self.stop)

    def expired(self, clock: Clock) -> bool:
        """True if the instant has passed, or the stop is set."""
        if self.stop is not None and self.stop.is_set():
            return True
        return self.at is not None and clock.monotonic() >= self.at


#: A deadline that never passes.
NO_DEADLINE = Deadline(None)


class WaitingRoom:
    """Queue of threads that wait for a change made by other threads, in order of arrival.

    The thread that makes a change wakes the waiting ones after releasing its own lock. A thread enters the room before
    it checks, so that it misses no change, and holds no lock while it waits. The room has no lock: each step is one
    operation on a dictionary, so that finalizers and signal handlers may wake threads, too.

    :param look_again: seconds after which a waiting thread checks without a wake-up.
    """

    def __init__(self, clock: Clock, look_again: float = 2.0) -> None:
        self._clock, self._look_again = clock, look_again
        self._signals: dict[Signal, bool] = {}

    def __len__(self) -> int:
        """Return the number of waiting threads."""
        return len(self._signals)

    def wait_until(self, ready: Callable[[], object], deadline: Deadline) -> bool:
        """Wait until ``ready()`` is true; return False at the deadline.

        :param ready: called at once and after each wake-up, without a lock. It may take the resource that it waits for,
            and is not called again after it was true.
        """
        if ready():
            return True
        if deadline.stop is None:
            return self._wait_until(ready, deadline)
        with deadline.stop.waking(self.wake_all):
            return self._wait_until(ready, deadline)

    def _wait_until(self, ready: Callable[[], object], deadline: Deadline) -> bool:
        signal = Signal()
        is_ready: object = False
        try:
            while True:
                self._signals[signal] = True
                is_ready = ready()
                if is_ready or deadline.expired(self._clock):
                    return bool(is_ready)
                self._clock.wait_for(signal, deadline.within(self._clock, self._look_again))
        finally:
            unwoken = self._signals.pop(signal, False)
            if not (is_ready and unwoken):  # it may have an unused wake-up, which goes to the next thread
                self.wake_one()

    def wake_one(self) -> None:
        """Let the thread that has waited longest check again."""
        for signal in self._signals.copy():
            if self._wake(signal):
                return

    def wake_all(self) -> None:
        """Let all threads check again."""
        for signal in self._signals.copy():
            self._wake(signal)

    def _wake(self, signal: Signal) -> bool:
        """Wake a signal's owner; False if another thread has woken it already."""
        try:
            return self._signals.pop(signal, False)
        finally:
            # Not by set(): a signal handler that raises as it begins would leave the owner asleep, and out of the room.
            try:  # noqa: SIM105  # a call of Python code, which a signal handler may interrupt
                signal.release()
            except RuntimeError:  # another thread has woken it
                pass


class Stop:
    """Request to end an operation, or one run of a component.

    :param clock: the clock for waits.
    :param outer: the stop of an enclosing operation, which sets this one, too; None for none.
    """

    def __init__(self, clock: Clock | None = None, outer: Stop | None = None) -> None:
        self._outer = outer
        self._clock: Clock = clock or (SystemClock() if outer is None else outer._clock)
        self._room = WaitingRoom(self._clock, look_again=1.0)
        self._set = False
        self._wakes: list[Callable[[], object]] = []

    def set(self) -> None:
        """Request the end; an outer stop stays as it is."""
        self._set = True
        self._room.wake_all()
        for wake in tuple(self._wakes):
            wake()

    @contextmanager
    def waking(self, wake: Callable[[], object]) -> Iterator[None]:
        """Make :meth:`set` call ``wake`` too, inside the block. The thread that enters it checks before it waits."""
        self._wakes.append(wake)
        try:
            with nullcontext() if self._outer is None else self._outer.waking(wake):
                yield
        finally:
            self._wakes.remove(wake)

    def is_set(self) -> bool:
        """Return True if the end was requested."""
        return self._set or (self._outer is not None and self._outer.is_set())

    def wait(self, seconds: float | None = None) -> bool:
        """Sleep for ``seconds``, or until the end is requested. Return True if it was."""
        deadline = Deadline.after(self._clock, seconds, self._outer)
        return self._room.wait_until(self.is_set, deadline) or self.is_set()

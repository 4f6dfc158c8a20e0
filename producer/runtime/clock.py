"""Time as a parameter: the clock that every wait goes through, absolute deadlines, and where threads wait."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, Self

from .reentry import may_hold, waits


class Clock(Protocol):
    """Where a stage gets its time, and how it waits."""

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences mean something."""

    def time(self) -> float:
        """Seconds since the Unix epoch."""

    def wait_for(self, signal: queue.SimpleQueue[None], deadline: Deadline) -> None:
        """Wait until something is put into ``signal``, or the deadline is reached; callers loop.

        No lock is held meanwhile: none that an exception raised by a signal handler could leave in disorder, and none
        that a clock of somebody else's could run into.
        """


class SystemClock:
    """The real clock."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    @waits
    def wait_for(self, signal: queue.SimpleQueue[None], deadline: Deadline) -> None:
        """As :meth:`Clock.wait_for`; a longer time than the platform can wait for is cut to what it can."""
        timeout = deadline.remaining(self)
        with suppress(queue.Empty):
            signal.get(timeout=None if timeout is None else min(timeout, threading.TIMEOUT_MAX))


class Latch:
    """Set once, for all who wait for that. Unlike with :class:`threading.Event`, whoever waits holds nothing at any
    instant that whoever sets it needs: a signal handler that interrupts the one may wait for the other.
    """

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[threading.Lock] = []  # a taken one for each who waits

    def is_set(self) -> bool:
        """Whether it is."""
        return self._is_set

    def set(self) -> None:
        """Let all go on; may be called again."""
        self._is_set = True
        for mine in tuple(self._waiting):
            with suppress(RuntimeError):  # somebody else sets it as well
                mine.release()

    @waits
    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; whether it is.

        :param timeout: seconds; None waits for ever.
        """
        mine = threading.Lock()
        mine.acquire()
        self._waiting.append(mine)
        try:
            if not self._is_set:
                mine.acquire(timeout=-1 if timeout is None else max(0.0, min(timeout, threading.TIMEOUT_MAX)))
            return self._is_set
        finally:
            self._waiting.remove(mine)


@dataclass(frozen=True, slots=True)
class Deadline:
    """An absolute instant, passed down so that every stage of one operation shares one budget.

    :ivar at: monotonic seconds, or None for never.
    """

    at: float | None

    @classmethod
    def after(cls, clock: Clock, timeout: float | None) -> Self:
        """The instant ``timeout`` seconds from now; None is never."""
        return cls(None if timeout is None else clock.monotonic() + timeout)

    def remaining(self, clock: Clock) -> float | None:
        """Seconds left, never below 0; None for never."""
        return None if self.at is None else max(0.0, self.at - clock.monotonic())

    def expired(self, clock: Clock) -> bool:
        """Whether the instant has passed."""
        return self.at is not None and clock.monotonic() >= self.at


#: Never.
NO_DEADLINE = Deadline(None)


#: Who waits for others, whom a signal handler's exception may keep from waking him, looks again after so many seconds.
LOOK_AGAIN = 1.0


@dataclass(frozen=True, slots=True)
class RevocableDeadline(Deadline):
    """One that another thread can bring forward to this moment; whoever waits for it looks every ``LOOK_AGAIN``."""

    _revoked: Latch = field(default_factory=Latch)

    def revoke(self) -> None:
        """Let it have passed."""
        self._revoked.set()

    def remaining(self, clock: Clock) -> float | None:
        """As :meth:`Deadline.remaining`."""
        return 0.0 if self._revoked.is_set() else Deadline.remaining(self, clock)

    def expired(self, clock: Clock) -> bool:
        """As :meth:`Deadline.expired`."""
        return self._revoked.is_set() or Deadline.expired(self, clock)


class WaitingRoom:
    """Where threads wait for a change that others make, in the order in which they came.

    Whoever changes something wakes those in here after it has let go of its own lock. Who waits is in the room before
    he looks, so that no change can slip in between, and holds no lock while he waits.

    :param look_again: whoever waits looks again after so many seconds, should an exception that a signal handler raised
        have kept somebody from waking him; None is never.
    """

    def __init__(self, clock: Clock, look_again: float | None = None) -> None:
        self._clock, self._look_again = clock, look_again
        self._lock = threading.Lock()  # guards _signals
        self._signals: deque[queue.SimpleQueue[None]] = deque()

    def __len__(self) -> int:
        """How many wait at this moment."""
        return len(self._signals)

    def wait_until(self, ready: Callable[[], object], deadline: Deadline) -> bool:
        """Wait until ``ready()``, which is asked without a lock, at once and after every wake; False at the deadline.

        :param ready: may do what it waits for, such as take something; it is not asked again once it was true.
        """
        if ready():
            return True
        signal: queue.SimpleQueue[None] = queue.SimpleQueue()
        owed = False  # it was woken, and has not looked since: if it leaves now, the next one has to look
        try:
            while True:
                owed = self._enter(signal)
                if ready():
                    owed = False
                    return True
                owed = False
                if deadline.expired(self._clock):
                    return False
                self._clock.wait_for(signal, self._next_look(deadline))
        finally:
            self._leave(signal, owed)

    def _next_look(self, deadline: Deadline) -> Deadline:
        if self._look_again is None:
            return deadline
        soon = self._clock.monotonic() + self._look_again
        return Deadline(soon if deadline.at is None else min(soon, deadline.at))

    @may_hold
    def _enter(self, signal: queue.SimpleQueue[None]) -> bool:
        """Be in the room; whether whoever woke this one took it out."""
        with self._lock:
            absent = signal not in self._signals
            if absent:
                self._signals.append(signal)
            return absent

    @may_hold
    def _leave(self, signal: queue.SimpleQueue[None], owed: bool) -> None:
        with self._lock:
            woken = signal not in self._signals
            if not woken:
                self._signals.remove(signal)
        if woken or owed:
            self.wake_one()

    @may_hold
    def wake_one(self) -> None:
        """Let the one who has waited longest look again."""
        if self._signals:  # who enters a moment later looks after that
            with self._lock:
                self._wake_first()

    def _wake_first(self) -> None:
        """The caller holds the lock. Nobody is taken out who was not told, wherever an interrupt comes: told twice he
        looks twice.
        """
        if not self._signals:
            return
        signal = self._signals[0]
        try:
            signal.put(None)
        except BaseException:
            signal.put(None)
            raise
        finally:
            del self._signals[0]

    def nudge(self) -> None:
        """Let everybody look again. It takes no lock, so it may be called with another one held, and by a finalizer,
        which may run anywhere.
        """
        for signal in tuple(self._signals):
            signal.put(None)

    @may_hold
    def wake_all(self) -> None:
        """Let everybody look again."""
        with self._lock:
            while self._signals:
                self._wake_first()

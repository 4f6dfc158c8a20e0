"""Time as a parameter: the clock that every wait goes through, and absolute deadlines."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol


class Clock(Protocol):
    """Where a stage gets its time, and how it waits."""

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences mean something."""

    def time(self) -> float:
        """Seconds since the Unix epoch."""

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Wait on ``condition``, whose lock the caller holds, for at most ``timeout`` seconds (None: for ever).

        Returns False if the time is over, True if it was notified; both may also happen for no reason, so callers loop.
        """

    def wait_for(self, signal: SimpleQueue[None], deadline: Deadline) -> None:
        """Wait until something is put into ``signal``, or the deadline is reached; callers loop.

        Unlike :meth:`wait`, it holds no lock that an exception raised by a signal handler could leave in disorder.
        """


class SystemClock:
    """The real clock."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """As :meth:`Clock.wait`; a longer timeout than the platform can wait for is cut to what it can."""
        return condition.wait(None if timeout is None else min(timeout, threading.TIMEOUT_MAX))

    def wait_for(self, signal: SimpleQueue[None], deadline: Deadline) -> None:
        """As :meth:`Clock.wait_for`."""
        timeout = deadline.remaining(self)
        with suppress(Empty):
            signal.get(timeout=None if timeout is None else min(timeout, threading.TIMEOUT_MAX))


@dataclass(frozen=True, slots=True)
class Deadline:
    """An absolute instant, passed down so that every stage of one operation shares one budget.

    :ivar at: monotonic seconds, or None for never.
    """

    at: float | None

    @classmethod
    def after(cls, clock: Clock, timeout: float | None) -> Deadline:
        """The instant ``timeout`` seconds from now; None is never."""
        return cls(None if timeout is None else clock.monotonic() + timeout)

    def remaining(self, clock: Clock) -> float | None:
        """Seconds left, never below 0; None for never."""
        return None if self.at is None else max(0.0, self.at - clock.monotonic())

    def expired(self, clock: Clock) -> bool:
        """Whether the instant has passed."""
        return self.at is not None and clock.monotonic() >= self.at

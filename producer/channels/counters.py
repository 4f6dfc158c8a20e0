"""Counters: the counts of a channel, named as in Flume, and rates over about the last minute."""

from __future__ import annotations

from ..runtime.clock import Clock

#: The span of a rate, seconds.
RATE_SPAN = 60.0
#: The shortest span of a rate, seconds.
LEAST_SPAN = 1.0


class Rate:
    """Events per second over the last one to two spans, or since the start if that is less."""

    __slots__ = ("_before", "_clock", "_count", "_start", "_start_before")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start = self._start_before = clock.monotonic()
        self._count = self._before = 0

    def add(self, amount: int, now: float) -> None:
        """Count ``amount`` events at the time ``now``."""
        if now - self._start >= RATE_SPAN:
            self._turn(now)
        self._count += amount

    def _turn(self, now: float) -> None:
        if now - self._start >= RATE_SPAN:
            idle = now - self._start >= 2 * RATE_SPAN
            self._before = 0 if idle else self._count
            self._start_before = now - RATE_SPAN if idle else self._start
            self._start, self._count = now if idle else self._start + RATE_SPAN, 0

    def per_second(self) -> float:
        """Return the current rate."""
        now = self._clock.monotonic()
        self._turn(now)
        return (self._before + self._count) / max(now - self._start_before, LEAST_SPAN)


class ChannelCounters:
    """Counts of one channel; guarded by the channel's lock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.put_attempts = self.put_successes = self.put_errors = 0
        self.take_attempts = self.take_successes = self.take_errors = 0
        self.put_rate, self.take_rate = Rate(clock), Rate(clock)
        self._last_take: float | None = None

    def committed(self, puts: int, takes: int, now: float | None = None) -> None:
        """Count a commit.

        :param puts: number of events put.
        :param takes: number of events taken.
        :param now: monotonic seconds; None to read the clock.
        """
        if now is None:
            now = self._clock.monotonic()
        self.put_successes += puts
        self.take_successes += takes
        self.measure(puts, takes, now)

    def measure(self, puts: int, takes: int, now: float) -> None:
        """Add a commit to the rates."""
        if puts:
            self.put_rate.add(puts, now)
        if takes:
            self.take_rate.add(takes, now)
            self._last_take = now

    @property
    def last_take_age(self) -> float | None:
        """Return the seconds since the last committed take; None if there was none."""
        return None if self._last_take is None else self._clock.monotonic() - self._last_take

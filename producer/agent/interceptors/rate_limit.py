"""Let a limited number of events a second pass, and drop the rest; optionally for each value of a header.

The limit never makes a source wait; only a full channel does.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from ...model.options import option
from ...runtime.clock import Clock
from ...runtime.locks import Lock
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .texts import key_of

#: Maximum number of remembered values of the header; a forgotten value may pass a full burst again.
_MOST_VALUES = 10_000


class RateLimitInterceptor:
    """Interceptor that drops events above a rate, optionally for each value of a header."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """The limits."""

        events_per_second: float = option(doc="average rate of events that pass", least=0)
        burst: int | None = option(None, least=1, doc="events that pass at once after a pause; empty for one second's")
        by: str | None = option(None, doc="header whose values are limited separately; empty for one common limit")

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._clock, self._counters = options, context.clock, context.counters
        self._burst = float(options.burst or max(1.0, options.events_per_second))
        self._lock = Lock()  # guards _buckets
        self._buckets: OrderedDict[str | bytes | None, _Bucket] = OrderedDict()

    def intercept(self, batch: EventBatch) -> EventBatch:
        with self._lock:
            if self._options.by is None:
                passing = self._bucket(None).take(batch.count)
                chosen = [True] * passing + [False] * (batch.count - passing)
            else:
                chosen = [self._bucket(key_of(value)).take(1) == 1 for value in batch.values(self._options.by)]
        kept = batch.select(chosen)
        self._counters.add(EventDroppedCount=batch.count - kept.count)
        return kept

    def _bucket(self, value: str | bytes | None) -> _Bucket:
        bucket = self._buckets.get(value)
        if bucket is None:
            bucket = self._buckets[value] = _Bucket(self._options.events_per_second, self._burst, self._clock)
            if len(self._buckets) > _MOST_VALUES:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(value)
        return bucket


class _Bucket:
    """Token bucket: each event takes one token."""

    __slots__ = ("_burst", "_clock", "_rate", "_seen", "_tokens")

    def __init__(self, rate: float, burst: float, clock: Clock) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._tokens, self._seen = burst, clock.monotonic()

    def take(self, wanted: int) -> int:
        """Take tokens; return the number of events that may pass."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._seen) * self._rate)
        self._seen = now
        taken = min(wanted, int(self._tokens))
        self._tokens -= taken
        return taken

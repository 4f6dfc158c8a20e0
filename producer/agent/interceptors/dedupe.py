"""Drop events that were seen within a window: those with an equal body, or an equal value of a header.

An event counts as seen once its batch was committed. So an event that a sender repeats after a failed put is not
dropped. Two equal events that arrive at the same instant on two connections may both pass. The memory of seen events
ends with the process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from ...model.options import option
from ...runtime.locks import Lock
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .texts import key_of


class DedupeInterceptor:
    """Interceptor that drops events seen within a window, by the body or a header."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Criterion of equal events, and size of the window."""

        seconds: float = option(60.0, least=0, doc="seconds for which an event is remembered")
        most: int = option(100_000, least=1, doc="maximum number of remembered events, at about 150 bytes each")
        by: str | None = option(None, doc="header that identifies equal events; empty for the body")

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._clock, self._counters = options, context.clock, context.counters
        self._lock = Lock()  # guards _seen
        self._seen: OrderedDict[Hashable, float] = OrderedDict()

    def intercept(self, batch: EventBatch) -> EventBatch:
        keys = self._keys(batch)
        with self._lock:
            self._forget_old()
            known = set(self._seen) & set(keys)
        chosen: list[bool] = []
        for key in keys:
            chosen.append(key is None or key not in known)
            known.add(key)
        kept = batch.select(chosen)
        self._counters.add(EventDroppedCount=batch.count - kept.count)
        return kept

    def committed(self, batch: EventBatch) -> None:
        now, keys = self._clock.monotonic(), self._keys(batch)
        with self._lock:
            self._remember(keys, now)

    def _keys(self, batch: EventBatch) -> Sequence[Hashable]:
        """Return a key for each event; None for an event without the header, which equals no other."""
        if self._options.by is not None:
            return [key_of(value) for value in batch.values(self._options.by)]
        return [blake2b(body, digest_size=16).digest() for body in batch.bodies()]

    def _remember(self, keys: Sequence[Hashable], now: float) -> None:
        for key in keys:
            if key is not None:
                self._seen.setdefault(key, now)
        while len(self._seen) > self._options.most:
            self._seen.popitem(last=False)

    def _forget_old(self) -> None:
        before = self._clock.monotonic() - self._options.seconds
        while self._seen and next(iter(self._seen.values())) <= before:
            self._seen.popitem(last=False)

"""Keep a share of the events, chosen at random, or by a header's value: all events of a value, or none."""

from __future__ import annotations

import random
from dataclasses import dataclass
from zlib import crc32

from ...model.options import option
from ..events.batch import EventBatch
from ..events.interfaces import Context

_CHECKSUMS = 1 << 32


class SampleInterceptor:
    """Interceptor that keeps a share of the events, at random or by a header's value."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Size and choice of the sample."""

        share: float = option(doc="share of the events to keep, from 0 to 1", least=0, most=1)
        by: str | None = option(None, doc="header whose value decides, such as a trace's id; empty for random choice")

    def __init__(self, options: Options, context: Context) -> None:
        self._share, self._by, self._counters = options.share, options.by, context.counters

    def intercept(self, batch: EventBatch) -> EventBatch:
        share = self._share
        if self._by is None:
            chosen = [random.random() < share for _ in range(batch.count)]  # noqa: S311  # not a secret
        else:
            limit = share * _CHECKSUMS
            chosen = [crc32((value or "").encode(errors="replace")) < limit for value in batch.values(self._by)]
        kept = batch.select(chosen)
        self._counters.add(EventDroppedCount=batch.count - kept.count)
        return kept

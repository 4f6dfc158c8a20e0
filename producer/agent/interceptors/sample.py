"""Keeps a share of the events, chosen at random, or by a header's value: all events of a value, or none."""

from __future__ import annotations

import random
from dataclasses import dataclass
from zlib import crc32

from ...model.options import option
from ..events.batch import EventBatch
from ..events.interfaces import Context

_CHECKSUMS = 1 << 32


class SampleInterceptor:
    """See the module."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Which events stay."""

        share: float = option(doc="of the events that stay, 0 to 1", least=0, most=1)
        by: str | None = option(None, doc="the header whose value decides, such as a trace's id; empty for chance")

    def __init__(self, options: Options, context: Context) -> None:
        self._share, self._by, self._counters = options.share, options.by, context.counters

    def intercept(self, batch: EventBatch) -> EventBatch:
        """See :class:`~..interfaces.Interceptor`."""
        share = self._share
        if self._by is None:
            chosen = [random.random() < share for _ in range(batch.count)]  # noqa: S311  # no secret
        else:
            limit = share * _CHECKSUMS
            chosen = [crc32((value or "").encode(errors="replace")) < limit for value in batch.values(self._by)]
        kept = batch.select(chosen)
        self._counters.add(EventDroppedCount=batch.count - kept.count)
        return kept

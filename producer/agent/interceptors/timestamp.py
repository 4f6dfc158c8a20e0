"""Add the time of an event's arrival, in milliseconds since the epoch, as a header.

Modelled on Flume's ``TimestampInterceptor``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...model.options import option
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .texts import with_header


class TimestampInterceptor:
    """Interceptor that adds the time of arrival in milliseconds. Modelled on Flume's ``TimestampInterceptor``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options of Flume's ``timestamp``."""

        header_name: str = option("timestamp", doc="header for the time")
        preserve_existing: bool = option(False, doc="keep the header of events that have it")

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._clock = options, context.clock

    def intercept(self, batch: EventBatch) -> EventBatch:
        now = str(int(self._clock.time() * 1000))
        return with_header(batch, self._options.header_name, now, self._options.preserve_existing)

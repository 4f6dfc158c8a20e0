"""The time at which an event came, in milliseconds since 1970, as a header.

Source: Flume's ``TimestampInterceptor``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...model.options import option
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .texts import with_header


class TimestampInterceptor:
    """See the module."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's ``timestamp``'s."""

        header_name: str = option("timestamp", doc="the header")
        preserve_existing: bool = option(False, doc="leave it to events that have it")

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._clock = options, context.clock

    def intercept(self, batch: EventBatch) -> EventBatch:
        """See :class:`~..interfaces.Interceptor`."""
        now = str(int(self._clock.time() * 1000))
        return with_header(batch, self._options.header_name, now, self._options.preserve_existing)

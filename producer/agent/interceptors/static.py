"""A header with one value. Source: Flume's ``StaticInterceptor``."""

from __future__ import annotations

from dataclasses import dataclass

from ...model.options import option
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .texts import with_header


class StaticInterceptor:
    """See the module."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's ``static``'s."""

        key: str = option("key", doc="the header")
        value: str = option("value", doc="its value")
        preserve_existing: bool = option(True, doc="leave it to events that have it")

    def __init__(self, options: Options, context: Context) -> None:
        self._options = options

    def intercept(self, batch: EventBatch) -> EventBatch:
        """See :class:`~..interfaces.Interceptor`."""
        return with_header(batch, self._options.key, self._options.value, self._options.preserve_existing)

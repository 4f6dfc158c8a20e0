"""Add a header with one value. Modelled on Flume's ``StaticInterceptor``."""

from __future__ import annotations

from dataclasses import dataclass

from ...model.options import option
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .texts import with_header


class StaticInterceptor:
    """Interceptor that adds a header with a fixed value. Modelled on Flume's ``StaticInterceptor``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options of Flume's ``static``."""

        key: str = option("key", doc="name of the header")
        value: str = option("value", doc="value of the header")
        preserve_existing: bool = option(True, doc="keep the header of events that have it")

    def __init__(self, options: Options, context: Context) -> None:
        self._options = options

    def intercept(self, batch: EventBatch) -> EventBatch:
        return with_header(batch, self._options.key, self._options.value, self._options.preserve_existing)

"""Add a random UUID to each event as a header. Modelled on Flume's ``UUIDInterceptor``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from uuid import UUID

from ...model.options import option
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .texts import with_values


class UuidInterceptor:
    """Interceptor that adds a random UUID to each event. Modelled on Flume's ``UUIDInterceptor``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options of Flume's UUID interceptor."""

        header_name: str = option("id", doc="header for the UUID")
        preserve_existing: bool = option(True, doc="keep the header of events that have it")
        prefix: str = option("", doc="prefix of the UUID")

    def __init__(self, options: Options, context: Context) -> None:
        self._options = options

    def intercept(self, batch: EventBatch) -> EventBatch:
        options = self._options
        if options.preserve_existing and options.header_name in batch.shared:
            return batch
        random = os.urandom(16 * batch.count)
        made = [
            f"{options.prefix}{UUID(bytes=random[at : at + 16], version=4)}" for at in range(0, 16 * batch.count, 16)
        ]
        return with_values(batch, options.header_name, made, preserve=options.preserve_existing)

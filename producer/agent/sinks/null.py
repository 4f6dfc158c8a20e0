"""Forgets what it is given. Source: Flume's ``NullSink``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...model.options import option
from ..events.batch import EventBatch
from ..events.interfaces import Context


class NullSink:
    """See the module."""

    most_bytes = 16 << 20

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's ``null``'s."""

        batch_size: int = option(100_000, least=1, doc="events taken at once, at most")

    def __init__(self, options: Options, context: Context) -> None:
        self.most_events = options.batch_size

    def write(self, batches: Sequence[EventBatch]) -> None:
        """See :class:`~..interfaces.Sink`."""

    def close(self) -> None:
        """See :class:`~..interfaces.Sink`."""

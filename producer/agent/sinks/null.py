"""Discard events. Modelled on Flume's ``NullSink``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...model.options import option
from ...runtime.clock import Clock
from ..events.batch import EventBatch
from ..events.interfaces import Context


class NullSink:
    """Sink that discards events. Modelled on Flume's ``NullSink``."""

    most_bytes = 16 << 20

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options of Flume's ``null``."""

        batch_size: int = option(100_000, least=1, doc="maximum number of events taken at once")

    @staticmethod
    def render_sample(_options: Options, _event: EventBatch, _clock: Clock) -> str:
        """Return a remark, since nothing is sent."""
        return "discarded"

    def __init__(self, options: Options, context: Context) -> None:
        self.most_events = options.batch_size

    def write(self, batches: Sequence[EventBatch]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

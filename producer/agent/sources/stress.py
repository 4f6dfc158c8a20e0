"""Events of one size, as fast as the channels take them: for measuring. Source: Flume's ``StressSource``."""

from __future__ import annotations

from dataclasses import dataclass

from ..batch import EventBatch
from ..interfaces import Context, Outlet, Stop
from ..options import option


class StressSource:
    """See the module; ends after ``max_total_events``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's ``stress``'s."""

        size: int = option(500, least=1, unit="bytes", doc="bytes of an event")
        batch_size: int = option(1, least=1, doc="events put at once")
        max_total_events: int = option(-1, doc="how many in all; -1 for no end")

    def __init__(self, options: Options, context: Context) -> None:  # noqa: ARG002
        self._options = options

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """See :class:`~..interfaces.Source`."""
        options, left = self._options, self._options.max_total_events
        body = b"x" * options.size
        while left and not stop.is_set():
            count = options.batch_size if left < 0 else min(options.batch_size, left)
            if outlet.put_until(EventBatch.of_bodies([body] * count), stop):
                left -= count if left > 0 else 0

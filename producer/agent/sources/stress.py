"""Events of one size, as fast as the channels take them: for measuring. Source: Flume's ``StressSource``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...model.options import option
from ...runtime.clock import Stop
from ..events.batch import EventBatch
from ..events.interfaces import Context, Outlet


class StressSource:
    """See the module; ends after ``max_total_events``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's ``stress``'s."""

        size: int = option(500, least=1, unit="bytes", doc="bytes of an event")
        batch_size: int = option(1, least=1, doc="events put at once")
        max_total_events: int = option(-1, doc="how many in all; -1 for no end")
        max_events_per_second: int = option(0, least=0, doc="how many a second; 0 for as many as there is room for")

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Each event is put until it is in the channel: all are successful."""
            found = dict(texts)
            limits = [found.pop("maxSuccessfulEvents", "-1"), found.get("maxTotalEvents", "-1")]
            given = [each for each in limits if each.strip() != "-1"]
            if given:
                found["maxTotalEvents"] = min(given, key=int) if all(map(str.isdecimal, given)) else given[-1]
            return found

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._clock = options, context.clock

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """See :class:`~..interfaces.Source`."""
        options, left = self._options, self._options.max_total_events
        body, begun, done = b"x" * options.size, self._clock.monotonic(), 0
        while left and not stop.is_set():
            count = options.batch_size if left < 0 else min(options.batch_size, left)
            if outlet.put_until(EventBatch.of_bodies([body] * count), stop):
                left -= count if left > 0 else 0
                done += count
                if options.max_events_per_second:
                    stop.wait(max(0.0, begun + done / options.max_events_per_second - self._clock.monotonic()))

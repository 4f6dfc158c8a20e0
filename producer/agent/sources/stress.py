"""Equal events, as fast as the channels take them, for measurements. Modelled on Flume's ``StressSource``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...model.options import option
from ...runtime.clock import Stop
from ..events.batch import EventBatch
from ..events.interfaces import Context, Outlet


class StressSource:
    """Source of equal events, as fast as the channels take them. Modelled on Flume's ``StressSource``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options of Flume's ``stress``."""

        size: int = option(500, least=1, unit="bytes", doc="bytes of an event")
        batch_size: int = option(1, least=1, doc="events put at once")
        max_total_events: int = option(-1, doc="number of events in total; -1 for no limit")
        max_events_per_second: int = option(0, least=0, doc="maximum rate in events a second; 0 for no limit")

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Merge Flume's two limits: each event is put until it succeeds, so all events are successful ones."""
            found = dict(texts)
            limits = [found.pop("maxSuccessfulEvents", "-1"), found.get("maxTotalEvents", "-1")]
            given = [each for each in limits if each.strip() != "-1"]
            if given:
                found["maxTotalEvents"] = min(given, key=int) if all(map(str.isdecimal, given)) else given[-1]
            return found

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._clock = options, context.clock

    def run(self, outlet: Outlet, stop: Stop) -> None:
        options, left = self._options, self._options.max_total_events
        body, begun, done = b"x" * options.size, self._clock.monotonic(), 0
        while left and not stop.is_set():
            count = options.batch_size if left < 0 else min(options.batch_size, left)
            if outlet.put_until(EventBatch.of_bodies([body] * count), stop):
                left -= count if left > 0 else 0
                done += count
                if options.max_events_per_second:
                    stop.wait(max(0.0, begun + done / options.max_events_per_second - self._clock.monotonic()))

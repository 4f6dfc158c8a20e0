"""Rising numbers as text, for tests. Modelled on Flume's ``SequenceGeneratorSource``."""

from __future__ import annotations

from dataclasses import dataclass

from ...model.options import option
from ...runtime.clock import Stop
from ..events.batch import EventBatch
from ..events.interfaces import Context, Outlet


class SequenceSource:
    """Source of the numbers from 0 on, for tests. Modelled on Flume's ``SequenceGeneratorSource``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options of Flume's ``seq``."""

        batch_size: int = option(1, least=1, doc="events put at once")
        total_events: int = option(2**63 - 1, least=0, doc="number of events in total")

    def __init__(self, options: Options, context: Context) -> None:
        self._options = options

    def run(self, outlet: Outlet, stop: Stop) -> None:
        number, options = 0, self._options
        while number < options.total_events and not stop.is_set():
            after = min(number + options.batch_size, options.total_events)
            if outlet.put_until(EventBatch.of_bodies([b"%d" % each for each in range(number, after)]), stop):
                number = after

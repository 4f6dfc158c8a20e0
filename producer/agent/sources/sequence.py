"""The numbers from 0 on, as text: for tests. Source: Flume's ``SequenceGeneratorSource``."""

from __future__ import annotations

from dataclasses import dataclass

from ...model.options import option
from ...runtime.clock import Stop
from ..events.batch import EventBatch
from ..events.interfaces import Context, Outlet


class SequenceSource:
    """See the module; ends after ``total_events``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's ``seq``'s."""

        batch_size: int = option(1, least=1, doc="events put at once")
        total_events: int = option(2**63 - 1, least=0, doc="how many in all")

    def __init__(self, options: Options, context: Context) -> None:
        self._options = options

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """See :class:`~..interfaces.Source`."""
        number, options = 0, self._options
        while number < options.total_events and not stop.is_set():
            after = min(number + options.batch_size, options.total_events)
            if outlet.put_until(EventBatch.of_bodies([b"%d" % each for each in range(number, after)]), stop):
                number = after

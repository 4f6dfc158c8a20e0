"""CountedSink: a sink of a group under its own name, and one that cannot be made as one that fails."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence

from ...runtime.clock import Deadline
from ..events.batch import EventBatch
from ..events.counters import Counters, timed
from ..events.interfaces import Patience, RefusedError, Sink, SinkError, give_up, left_of, tick
from .health import Health


class CountedSink:
    """A sink of a group, whose deliveries are counted under its own name. One that cannot be made, since its directory
    or its certificate is not there, is one that fails: the others of the group deliver.

    :param make: makes it; tried again by deliveries.
    :param health: is told how each delivery ended.
    :param again: has the group begin anew, when one can be made that could not: it may take less at a time.
    :ivar failure: why it could not be made.
    """

    def __init__(
        self, make: Callable[[], Sink], counters: Counters, health: Health, again: Callable[[], object] = lambda: None
    ) -> None:
        self._make, self._counters, self._health, self._again = make, counters, health, again
        self._sink: Sink | None = None
        self.failure: Exception | None = None
        # While it is not there it keeps its group from nothing.
        self.patience: Patience | None = Patience(math.inf, math.inf)
        self.most_events, self.most_bytes = sys.maxsize, sys.maxsize
        try:
            sink = self._sink = make()
        except Exception as error:  # noqa: BLE001  # a sink of anybody's; its group says what becomes of it
            self.failure = error
        else:
            self.patience = getattr(sink, "patience", None)
            self.most_events, self.most_bytes = sink.most_events, sink.most_bytes

    def write(self, batches: Sequence[EventBatch]) -> None:
        """See :class:`~.interfaces.Sink`."""
        count = sum(batch.count for batch in batches)
        self._counters.add(EventDrainAttemptCount=count)
        self._health.begun()
        try:
            with timed(self._counters, "DeliveryMicroseconds", self._health.clock):
                self._made().write(batches)
        except Exception as error:
            self._health.failed(error)
            self._counters.add(EventWriteFail=1)
            later = _events(left_of(error, batches))
            if later < count or isinstance(error, RefusedError):
                self._health.worked()
                self._counters.add(EventDrainSuccessCount=count - later)
            raise
        self._health.worked()
        self._counters.add(EventDrainSuccessCount=count)

    def _made(self) -> Sink:
        """
        :raises Exception: it could not be made, and cannot now, either.
        :raises SinkError: it can now, and is once its group begins.
        """
        if self._sink is None:
            self._make().close()
            self._again()
            raise SinkError("the sink can be made again, and starts with its group")
        return self._sink

    def tick(self) -> None:
        """See :class:`~.interfaces.Sink`."""
        tick(self._sink)

    def give_up(self, deadline: Deadline) -> None:
        """See :class:`~.interfaces.Sink`."""
        give_up(self._sink, deadline)

    def close(self) -> None:
        """See :class:`~.interfaces.Sink`."""
        if self._sink is not None:
            self._sink.close()


def _events(batches: Sequence[EventBatch]) -> int:
    return sum(batch.count for batch in batches)

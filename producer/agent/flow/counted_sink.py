"""Sinks of a group, each with its own counters and health."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence

from ...runtime.clock import Deadline
from ..events.batch import EventBatch
from ..events.counters import timed
from ..events.interfaces import Patience, RefusedError, Sink, SinkError, give_up, left_of, tick
from .health import Health
from .refusals import events_of


class CountedSink:
    """A sink of a group, with its own counters. While the sink cannot be built, its deliveries fail, and the group's
    other sinks deliver.

    :param make: builds the sink; called again by deliveries until it succeeds.
    :param health: records the outcome of each delivery.
    :param again: restarts the group once the sink can be built, since its limits may be lower.
    :ivar failure: the error that prevented the first build; None if there was none.
    """

    def __init__(self, make: Callable[[], Sink], health: Health, again: Callable[[], object] = lambda: None) -> None:
        self._make, self._counters, self._health, self._again = make, health.counters, health, again
        self._sink: Sink | None = None
        self.failure: Exception | None = None
        # A missing sink sets no limit for its group.
        self.patience: Patience | None = Patience(math.inf, math.inf)
        self.most_events, self.most_bytes = sys.maxsize, sys.maxsize
        try:
            sink = self._sink = make()
        except Exception as error:  # noqa: BLE001  # a plugin's sink may raise anything; its group decides
            self.failure = error
        else:
            self.patience = getattr(sink, "patience", None)
            self.most_events, self.most_bytes = sink.most_events, sink.most_bytes

    def write(self, batches: Sequence[EventBatch]) -> None:
        count = events_of(batches)
        self._counters.add(EventDrainAttemptCount=count)
        self._health.begun()
        try:
            with timed(self._counters, "DeliveryMicroseconds", self._health.clock):
                self._made().write(batches)
        except Exception as error:
            self._health.failed(error)
            self._counters.add(EventWriteFail=1)
            later = events_of(left_of(error, batches))
            if later < count or isinstance(error, RefusedError):
                self._health.worked()
                self._counters.add(EventDrainSuccessCount=count - later)
            raise
        self._health.worked()
        self._counters.add(EventDrainSuccessCount=count)

    def _made(self) -> Sink:
        """Return the sink.

        :raises Exception: if it still cannot be built.
        :raises SinkError: if it can be built now; it starts with the restart of its group.
        """
        if self._sink is None:
            self._make().close()
            self._again()
            raise SinkError("the sink can be built again, and starts with its group")
        return self._sink

    def tick(self) -> None:
        tick(self._sink)

    def give_up(self, deadline: Deadline) -> None:
        give_up(self._sink, deadline)

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()

"""Record the last events that a destination refused permanently, and the reasons, for the monitoring."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from ...runtime.clock import Clock
from ...runtime.locks import Lock
from ..events.batch import EventBatch
from .taps import Seen, sample

#: Maximum number of reasons, and of events, that are kept.
_MOST_REASONS, _MOST_EVENTS = 20, 5
#: Maximum number of characters of a reason that are kept.
MOST_REASON = 2000


class RefusedEvent(NamedTuple):
    """A copy of a refused event.

    :ivar time: the time of the refusal, seconds since the epoch.
    """

    time: float
    reason: str
    event: Seen


class Refused:
    """The refused events of one sink or group, as dead letters or dropped; thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()  # guards the fields below
        self._reasons: dict[str, int] = {}  # the last reason at the end
        self._others = 0
        self._events: deque[RefusedEvent] = deque(maxlen=_MOST_EVENTS)

    def add(self, batch: EventBatch, reason: str, clock: Clock) -> None:
        """Count the events of a batch by their reason, and copy some of them."""
        reason, now = reason[:MOST_REASON], clock.time()
        events = [RefusedEvent(now, reason, each) for each in sample(batch, min(batch.count, _MOST_EVENTS))]
        with self._lock:
            self._reasons[reason] = self._reasons.pop(reason, 0) + batch.count
            if len(self._reasons) > _MOST_REASONS:
                self._others += self._reasons.pop(next(iter(self._reasons)))
            self._events.extend(events)

    def reasons(self) -> tuple[Mapping[str, int], int]:
        """Return the number of events by reason, the last reason first, and the number for all older reasons."""
        with self._lock:
            return dict(reversed(self._reasons.items())), self._others

    def events(self) -> list[RefusedEvent]:
        """Return copies of the last events, the last one first."""
        with self._lock:
            return list(reversed(self._events))

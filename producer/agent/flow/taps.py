"""Copy a sample of the events that pass a component, for operators who watch (``producer agent tap``).

A component that is not watched tests an empty tuple for each batch, and does no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ...runtime.clock import Clock
from ...runtime.locks import Lock
from ..events.batch import EventBatch

#: Maximum events of a viewer that wait for its client; at this number the oldest are dropped.
_MOST_WAITING = 200
#: Maximum bytes of a body, and characters and number of headers, that are copied.
MOST_BODY, MOST_HEADER, MOST_HEADERS = 8 << 10, 2 << 10, 64


class Seen(NamedTuple):
    """A copy of an event.

    :ivar headers: the headers; long ones are cut, and further ones left out.
    :ivar body: the begin of the body.
    :ivar size: the bytes of the whole body.
    """

    headers: dict[str, str]
    body: bytes
    size: int


class Viewer:
    """A bounded sample of the events of one component, for one client.

    :param rate: the maximum number of events a second.
    """

    def __init__(self, rate: int, clock: Clock) -> None:
        self._rate, self._clock = rate, clock
        self._lock = Lock()  # guards the fields below
        self._seen: deque[Seen] = deque(maxlen=_MOST_WAITING)
        self._passed, self._allowed, self._then = 0, float(rate), clock.monotonic()

    def offer(self, batch: EventBatch) -> None:
        """Copy events of a batch that passes, evenly distributed, as far as the rate allows."""
        with self._lock:
            now = self._clock.monotonic()
            self._allowed = min(float(self._rate), self._allowed + self._rate * (now - self._then))
            count = min(int(self._allowed), batch.count)
            self._allowed, self._then, self._passed = self._allowed - count, now, self._passed + batch.count
        if count:
            copied = list(sample(batch, count))
            with self._lock:
                self._seen.extend(copied)

    def take(self) -> tuple[list[Seen], int]:
        """Return the copies since the last call, and the number of all events that have passed since then."""
        with self._lock:
            seen, passed = list(self._seen), self._passed
            self._seen.clear()
            self._passed = 0
            return seen, passed


class Tap:
    """The viewers of one component.

    :ivar viewers: the viewers; empty if nothing is watched.
    """

    def __init__(self) -> None:
        self._lock = Lock()  # guards replacements of `viewers`
        self.viewers: tuple[Viewer, ...] = ()

    def show(self, *batches: EventBatch) -> None:
        """Offer batches to all viewers."""
        for viewer in self.viewers:
            for batch in batches:
                viewer.offer(batch)

    @contextmanager
    def watched(self, viewer: Viewer) -> Iterator[None]:
        """Offer the events that pass during the block to a viewer."""
        with self._lock:
            self.viewers = (*self.viewers, viewer)
        try:
            yield
        finally:
            with self._lock:
                self.viewers = tuple(each for each in self.viewers if each is not viewer)


def sample(batch: EventBatch, count: int) -> Iterator[Seen]:
    """Yield copies of so many events of a batch, evenly distributed."""
    chosen = {number * batch.count // count for number in range(count)}
    for headers, body in batch.select([number in chosen for number in range(batch.count)]).events():
        kept = list(headers.items())[:MOST_HEADERS]
        yield Seen({name[:MOST_HEADER]: value[:MOST_HEADER] for name, value in kept}, body[:MOST_BODY], len(body))

"""What a component counts, under Flume's names; shown by the monitoring."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from ...runtime.clock import Clock


class Counters:
    """Named numbers that only grow, and gauges that are asked for; thread-safe.

    :ivar last_error: what went wrong at last, also if it works again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _values
        self._values: defaultdict[str, int] = defaultdict(int)
        self.last_error: str | None = None

    def add(self, **amounts: int) -> None:
        """Count."""
        with self._lock:
            for name, amount in amounts.items():
                self._values[name] += amount

    def set(self, **gauges: int) -> None:
        """Say how many there are at this moment."""
        with self._lock:
            self._values.update(gauges)

    def get(self, name: str) -> int:
        """What was counted under a name."""
        with self._lock:
            return self._values.get(name, 0)

    def snapshot(self) -> dict[str, int]:
        """All of them at one moment."""
        with self._lock:
            return dict(self._values)


@contextmanager
def timed(counters: Counters, name: str, clock: Clock) -> Iterator[None]:
    """Count how long what is done meanwhile takes, also if it fails.

    :param name: of the counter, which ends with ``Microseconds``.
    """
    begun = clock.monotonic()
    try:
        yield
    finally:
        counters.add(**{name: round((clock.monotonic() - begun) * 1e6)})

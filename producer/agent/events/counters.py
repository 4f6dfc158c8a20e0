"""Count under Flume's names, for the monitoring."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from ...runtime.clock import Clock
from ...runtime.locks import Lock


class Counters:
    """Named counters and gauges of a component; thread-safe.

    :ivar last_error: the last error, also after recovery; None if there was none.
    """

    def __init__(self) -> None:
        self._lock = Lock()  # guards _values
        self._values: defaultdict[str, int] = defaultdict(int)
        self.last_error: str | None = None

    def add(self, **amounts: int) -> None:
        """Add to counters."""
        with self._lock:
            for name, amount in amounts.items():
                self._values[name] += amount

    def set(self, **gauges: int) -> None:
        """Set gauges to their present values."""
        with self._lock:
            self._values.update(gauges)

    def get(self, name: str) -> int:
        """Return a counter's value."""
        with self._lock:
            return self._values.get(name, 0)

    def snapshot(self) -> dict[str, int]:
        """Return a copy of all values."""
        with self._lock:
            return dict(self._values)


@contextmanager
def timed(counters: Counters, name: str, clock: Clock) -> Iterator[None]:
    """Count the microseconds that the block takes, also if it fails.

    :param name: the name of the counter, which ends with ``Microseconds``.
    """
    begun = clock.monotonic()
    try:
        yield
    finally:
        counters.add(**{name: round((clock.monotonic() - begun) * 1e6)})

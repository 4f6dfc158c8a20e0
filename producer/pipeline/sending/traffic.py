"""Traffic: requests, bytes, latency and failures of each destination, for ``stats()``.

Each attempt is counted once, before the futures of its batch are completed. The counts of a destination are kept for
the life of the pipeline, also while nothing is sent there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from ...model.errors import AttemptError
from ...model.metrics import LATENCY_BOUNDS, DestinationStats, FewNames, LastError, LatencyStats
from ...model.results import Attempt
from ...runtime.locks import Lock
from ...text.printable import one_line
from ..batching.batch import ProducerBatch

#: Destinations with counts of their own; the others are counted together.
_MOST_SHOWN = 100
_OTHERS = "other destinations"
#: Error codes of a destination.
_MOST_CODES = 20
#: Characters of the message of the last error.
_MOST_OF_MESSAGE = 300


class _Figures:
    """The counts of one destination; guarded by the lock of :class:`Traffic`."""

    __slots__ = ("answers", "codes", "failures", "last_error", "logs", "raw", "requests", "seconds", "sent")

    def __init__(self) -> None:
        self.requests = self.sent = self.logs = self.raw = 0
        self.seconds = 0.0
        self.answers = [0] * (len(LATENCY_BOUNDS) + 1)
        self.failures: dict[str, int] = {}
        self.codes = FewNames(_MOST_CODES)
        self.last_error: LastError | None = None

    def answer(self, seconds: float) -> None:
        self.answers[bisect_left(LATENCY_BOUNDS, seconds)] += 1
        self.seconds += seconds

    def added_to(self, stats: DestinationStats) -> DestinationStats:
        return replace(
            stats,
            requests=self.requests,
            sent_bytes=self.sent,
            delivered_logs=self.logs,
            delivered_bytes=self.raw,
            latency=LatencyStats(counts=tuple(self.answers), seconds=self.seconds),
            failures_by_code=dict(self.failures),
            last_error=self.last_error,
        )


class Traffic:
    """The counts of all destinations. All methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()  # guards the rest
        self._by_name: dict[str, _Figures] = {}

    def _figures(self, destination: str) -> _Figures:
        found = self._by_name.get(destination)
        if found is None:
            name = destination if len(self._by_name) < _MOST_SHOWN else _OTHERS
            found = self._by_name.setdefault(name, _Figures())
        return found

    def delivered(self, destination: str, batch: ProducerBatch, sent: int, seconds: float) -> None:
        """Count an acknowledged request.

        :param sent: the size of its body, bytes.
        :param seconds: its duration.
        """
        with self._lock:
            figures = self._figures(destination)
            figures.requests += 1
            figures.sent += sent
            figures.logs += batch.log_count
            figures.raw += batch.size
            figures.answer(seconds)

    def failed(self, destination: str, error: AttemptError, attempt: Attempt, sent: int, seconds: float) -> None:
        """Count a failed attempt; its duration only if the server answered.

        :param attempt: the record of the attempt.
        :param sent: the size of its body, bytes.
        :param seconds: its duration.
        """
        message = one_line(error.message[:_MOST_OF_MESSAGE])
        last = LastError(error.code, message, error.request_id, attempt.timestamp_ms)
        with self._lock:
            figures = self._figures(destination)
            figures.requests += 1
            figures.sent += sent
            code = figures.codes.of(error.code)
            figures.failures[code] = figures.failures.get(code, 0) + 1
            figures.last_error = last
            if error.http_status is not None:
                figures.answer(seconds)

    def added_to(self, destinations: Sequence[DestinationStats]) -> tuple[DestinationStats, ...]:
        """Return the destinations with their counts, and behind them the ones that are not in use."""
        with self._lock:
            return self._added_to(destinations)

    def _added_to(self, destinations: Sequence[DestinationStats]) -> tuple[DestinationStats, ...]:
        known = {each.name for each in destinations}
        idle = [DestinationStats(name=name) for name in self._by_name if name not in known]
        return tuple(
            self._by_name[each.name].added_to(each) if each.name in self._by_name else each
            for each in (*destinations, *idle)
        )

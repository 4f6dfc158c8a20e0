"""The metrics of a producer for OpenTelemetry and Prometheus: names, units, and their values in ``stats()``."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from ..client.producer import Producer
from ..model.errors import ConfigError
from ..model.interfaces import ChannelStats
from ..model.metrics import DestinationStats, LatencyStats, Stats

#: Labels and their value.
Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric.

    :ivar name: the name with dots, such as ``logs.accepted``.
    :ivar unit: the unit in OpenTelemetry's notation: ``By``, ``s``, or the counted thing in braces.
    :ivar grows: True for a counter, False for a gauge.
    :ivar help: the description.
    :ivar read: the function that reads its samples.
    """

    name: str
    unit: str
    grows: bool
    help: str
    read: Callable[[Stats], Iterable[Sample]]


def _one(value: Callable[[Stats], float | None]) -> Callable[[Stats], Iterable[Sample]]:
    def read(stats: Stats) -> Iterator[Sample]:
        found = value(stats)
        if found is not None:
            yield {}, found

    return read


def _each(label: str, values: Callable[[Stats], Mapping[str, float]]) -> Callable[[Stats], Iterable[Sample]]:
    return lambda stats: [({label: name}, value) for name, value in values(stats).items()]


def _of_channel(value: Callable[[Stats, ChannelStats], float]) -> Callable[[Stats], Iterable[Sample]]:
    return _one(lambda stats: None if stats.channel is None else value(stats, stats.channel))


def _of_destinations(value: Callable[[DestinationStats], float | None]) -> Callable[[Stats], Iterable[Sample]]:
    def read(stats: Stats) -> Iterator[Sample]:
        for one in stats.destinations:
            found = value(one)
            if found is not None:
                yield {"destination": one.name}, found

    return read


def _failures(stats: Stats) -> Iterator[Sample]:
    for one in stats.destinations:
        for code, failures in one.failures_by_code.items():
            yield {"destination": one.name, "code": code}, failures


def latencies(stats: Stats) -> Iterator[tuple[Mapping[str, str], LatencyStats]]:
    """Yield the labels and the latency histogram of each destination."""
    for one in stats.destinations:
        yield {"destination": one.name}, one.latency


def buckets(latency: LatencyStats) -> Iterator[tuple[str, float]]:
    """Yield the cumulative buckets of a histogram, each with its upper limit, as Prometheus writes them."""
    limits = (*(f"{bound:g}" for bound in latency.bounds), "+Inf")
    yield from zip(limits, map(float, accumulate(latency.counts)), strict=True)


#: The name, the unit and the description of the histogram that :func:`latencies` reads.
LATENCY = ("destination.request.duration", "s", "Duration of the requests that were answered.")


def _in_use(stats: Stats) -> Iterator[Sample]:
    for one in stats.endpoints:
        for endpoint in one.endpoints:
            yield {"project": one.project, "endpoint": endpoint}, float(endpoint == one.endpoint)


def _changes(stats: Stats) -> Iterator[Sample]:
    for one in stats.endpoints:
        yield {"project": one.project}, one.changes


FIGURES = (
    Figure("logs.accepted", "{log}", True, "Logs that send accepted.", _one(lambda s: s.accepted)),
    Figure("logs.delivered", "{log}", True, "Logs that LogHub acknowledged.", _one(lambda s: s.delivered)),
    Figure("logs.failed", "{log}", True, "Logs that failed permanently.", _one(lambda s: s.failed)),
    Figure(
        "logs.failed_by_code",
        "{log}",
        True,
        "Logs that failed permanently, by error code.",
        _each("code", lambda s: s.failed_by_code),
    ),
    Figure("logs.dropped", "{log}", True, "Logs that integrations dropped.", _each("reason", lambda s: s.dropped)),
    Figure("logs.retried", "{log}", True, "Logs that were scheduled for another attempt.", _one(lambda s: s.retried)),
    Figure("requests", "{request}", True, "Requests made, by batches.", _one(lambda s: s.attempts)),
    Figure("logs.pending", "{log}", False, "Logs neither delivered nor failed.", _one(lambda s: s.pending)),
    Figure("batches", "{batch}", False, "Batches not completed, by state.", _each("state", lambda s: s.batches)),
    Figure("memory.used", "By", False, "Memory used, by stage.", _each("stage", lambda s: s.memory_by_stage)),
    Figure("memory.limit", "By", False, "total_size_in_bytes.", _one(lambda s: s.memory_limit)),
    Figure("memory.wait", "s", True, "Time that senders waited for memory.", _one(lambda s: s.memory_wait_seconds)),
    Figure("waiting_senders", "{thread}", False, "Threads that wait for memory.", _one(lambda s: s.waiting_senders)),
    Figure("oldest.record.age", "s", False, "Age of the oldest record.", _one(lambda s: s.oldest_record_age)),
    Figure(
        "callbacks.pending", "{batch}", False, "Completed, callbacks not run yet.", _one(lambda s: s.callbacks_pending)
    ),
    Figure(
        "destination.requests", "{request}", True, "Requests made, by batches.", _of_destinations(lambda d: d.requests)
    ),
    Figure("destination.requests.failed", "{request}", True, "Requests that failed, by error code.", _failures),
    Figure(
        "destination.logs.delivered",
        "{log}",
        True,
        "Logs that were acknowledged.",
        _of_destinations(lambda d: d.delivered_logs),
    ),
    Figure(
        "destination.delivered",
        "By",
        True,
        "Bytes of acknowledged logs before compression.",
        _of_destinations(lambda d: d.delivered_bytes),
    ),
    Figure(
        "destination.sent",
        "By",
        True,
        "Bytes of request bodies, as compressed, retries included.",
        _of_destinations(lambda d: d.sent_bytes),
    ),
    Figure(
        "destination.last_error.timestamp",
        "s",
        False,
        "Unix time of the last failed request.",
        _of_destinations(lambda d: None if d.last_error is None else d.last_error.timestamp_ms / 1000),
    ),
    Figure(
        "destination.requests.in_flight",
        "{request}",
        False,
        "Requests in flight.",
        _of_destinations(lambda d: d.in_flight),
    ),
    Figure(
        "destination.requests.limit",
        "{request}",
        False,
        "Limit of requests in flight, as learned.",
        _of_destinations(lambda d: d.limit or None),
    ),
    Figure(
        "destination.held",
        "{destination}",
        False,
        "1 while sending to it is paused.",
        _of_destinations(lambda d: float(d.held is not None)),
    ),
    Figure("endpoint.in_use", "{endpoint}", False, "1 for the endpoint in use, 0 for the others.", _in_use),
    Figure("endpoint.changes", "{change}", True, "Changes of the endpoint in use.", _changes),
    Figure("channel.events", "{event}", False, "Events in the channel.", _of_channel(lambda s, _: s.stored)),
    Figure("channel.used", "By", False, "Bytes in the channel.", _of_channel(lambda _, c: c.bytes)),
    Figure("channel.fill", "1", False, "Used part of the channel's capacity.", _of_channel(lambda _, c: c.fill)),
    Figure("dead_lettered", "{event}", True, "Moved to the dead letters.", _of_channel(lambda s, _: s.dead_lettered)),
)


def check_producer(producer: object) -> None:
    """Check that the argument is a producer or None.

    :raises ConfigError: it is something else, such as the project, which is the next argument.
    """
    if producer is not None and not callable(getattr(producer, "stream", None)):
        words = "must be a Producer; without one, give all other arguments by name: project=, logstore=, endpoint="
        raise ConfigError("producer", words, type(producer).__name__ if not isinstance(producer, str) else producer)


class Watched:
    """Weak references to the producers whose metrics are read."""

    def __init__(self, producers: Iterable[Producer]) -> None:
        for producer in producers:
            check_producer(producer)
        self._producers = [weakref.ref(producer) for producer in producers]

    def stats(self) -> Iterator[tuple[str, Stats]]:
        """Yield the name and the stats of each producer that still exists."""
        for alive in self._producers:
            producer = alive()
            if producer is not None:
                yield producer.name, producer.stats()

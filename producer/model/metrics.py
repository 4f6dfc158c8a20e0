"""Metrics: counters, and the frozen snapshot that ``stats()`` returns."""

from __future__ import annotations

import enum
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from .interfaces import ChannelStats, EndpointStats


class Counters:
    """Named sums that only grow; any thread may add."""

    def __init__(self) -> None:
        # Sums by name and thread: each thread changes only its own sums, so that IO threads need no lock.
        self._sums: dict[tuple[str, int], int] = {}

    def add(self, name: str, amount: int) -> None:
        """Add ``amount`` to the sum ``name``."""
        own = name, threading.get_ident()
        self._sums[own] = self._sums.get(own, 0) + amount

    def __getitem__(self, name: str) -> int:
        """Return the sum ``name``; 0 if nothing was added."""
        return sum(amount for (known, _), amount in self._sums.copy().items() if known == name)

    def under(self, prefix: str) -> dict[str, int]:
        """Return the sums whose names begin with ``prefix``, by the rest of the name."""
        found: dict[str, int] = {}
        for (name, _), amount in sorted(self._sums.copy().items()):
            if name.startswith(prefix):
                rest = name.removeprefix(prefix)
                found[rest] = found.get(rest, 0) + amount
        return found


#: Prefixes of the counts of lost logs: by error code, and by an integration's reason.
FAILED_BY_CODE, DROPPED = "failed:", "dropped:"


#: The name that stands for all further ones of :class:`FewNames`.
OTHER = "other"


class FewNames:
    """The first names of a kind; those that a server invents later are counted together.

    :param most: the number of names.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def of(self, name: str) -> str:
        """Return the name, or :data:`OTHER` for a new one beyond the limit."""
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(name)
        return name


#: States of a batch that is not completed.
BATCH_STAGES = ("open", "queued", "sending", "waiting")
#: Users of memory: records before their batch, batches by state, and completed records.
MEMORY_STAGES = ("reserved", *BATCH_STAGES, "callbacks")


def _no_batches() -> Mapping[str, int]:
    return dict.fromkeys(BATCH_STAGES, 0)


def _no_memory() -> Mapping[str, int]:
    return dict.fromkeys(MEMORY_STAGES, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStats:
    """Statistics of one stream since it was last remembered (idle streams are forgotten). Counts are logs.

    :ivar project: the project.
    :ivar logstore: the logstore.
    :ivar topic: the topic; may be empty.
    :ivar source: the source; may be empty.
    :ivar shard_hash: the shard hash, adjusted to buckets; None if there is none.
    :ivar tags: pairs of name and value, including those of the configuration.
    :ivar order: ``ordered``, ``idempotent``, or ``sequence:`` and the handle's name; empty for other streams.
    :ivar accepted: logs accepted by ``send``.
    :ivar delivered: logs acknowledged by the server.
    :ivar failed: logs that failed.
    :ivar pending: logs neither delivered nor failed.
    :ivar pending_bytes: their memory as accounted, bytes.
    """

    project: str
    logstore: str
    topic: str = ""
    source: str = ""
    shard_hash: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    order: str = ""
    accepted: int = 0
    delivered: int = 0
    failed: int = 0
    pending: int = 0
    pending_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldStats:
    """A destination or logstore where sending is paused.

    :ivar name: the name of the destination or logstore.
    :ivar reason: ``over quota``, ``unreachable``, or ``to be mended``.
    :ivar seconds: seconds until the next try; 0.0 if one is in progress.
    """  # prose: the name of a state

    name: str
    reason: str
    seconds: float


#: Upper limits of the buckets of :class:`LatencyStats`, seconds.
LATENCY_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyStats:
    """A histogram of the durations of requests that the server answered, also with an error.

    :ivar counts: the number of requests in each bucket, and of those above the last bound.
    :ivar seconds: the sum of their durations.
    :ivar bounds: the upper limits of the buckets, seconds.
    """

    counts: tuple[int, ...] = (0,) * (len(LATENCY_BOUNDS) + 1)
    seconds: float = 0.0
    bounds: tuple[float, ...] = LATENCY_BOUNDS

    @property
    def count(self) -> int:
        """The number of requests."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class LastError:
    """The last failed attempt at a destination.

    :ivar code: the error code, such as ``WriteQuotaExceed``.
    :ivar message: the error message, at most 300 characters.
    :ivar request_id: the server's id of the request; empty if there was no response.
    :ivar timestamp_ms: the start of the attempt, milliseconds since the Unix epoch.
    """

    code: str
    message: str
    request_id: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationStats:
    """Statistics of a destination as the sink defines it; for LogHub, a project at its endpoint or endpoints.

    Counts are those since the producer was made. Beyond a hundred destinations, one named ``other destinations`` has
    the counts of the others together.

    :ivar name: the destination as text; for LogHub ``my-project https://cn-hangzhou.log.aliyuncs.com``.
    :ivar limit: current limit on concurrent requests, as learned; 0 if nothing was sent there recently.
    :ivar in_flight: requests in flight.
    :ivar queued: batches that wait for their turn.
    :ivar held: the reason and time if sending is paused; None if not.
    :ivar held_logstores: the paused logstores, at most 100.
    :ivar requests: attempts made; each sends one batch.
    :ivar sent_bytes: bytes of all request bodies, as compressed, retries included.
    :ivar delivered_logs: logs that were acknowledged.
    :ivar delivered_bytes: their bytes before compression.
    :ivar latency: the durations of the requests that were answered.
    :ivar failures_by_code: failed attempts by error code, at most 20 codes; further ones as ``other``.
    :ivar last_error: the last failed attempt; None if there was none. It remains after successes.
    """

    name: str
    limit: int = 0
    in_flight: int = 0
    queued: int = 0
    held: HeldStats | None = None
    held_logstores: tuple[HeldStats, ...] = ()
    requests: int = 0
    sent_bytes: int = 0
    delivered_logs: int = 0
    delivered_bytes: int = 0
    latency: LatencyStats = LatencyStats()
    failures_by_code: Mapping[str, int] = field(default_factory=dict)
    last_error: LastError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Statistics of a producer at one moment. Counts of records are logs, since the producer was made.

    All values are numbers, texts and sequences of them: ``json.dumps(stats.to_dict())`` works.

    With a channel, ``accepted`` counts the logs that ``send`` stored. ``delivered`` and ``failed`` also count records
    that an earlier producer had stored. ``pending`` and ``batches`` cover only records in memory.

    :ivar accepted: logs accepted by ``send``.
    :ivar delivered: logs acknowledged by the server.
    :ivar failed: logs that failed.
    :ivar failed_by_code: failed logs by the error code of the last attempt, such as ``ProducerClosed``; at most 50
        codes, further ones as ``other``.
    :ivar dropped: logs that integrations (handlers, sinks, processors, exporters) could not enqueue, by reason:
        ``full`` (memory, or the channel), ``too_large``, ``invalid``, ``closed``, ``stopped``, ``channel``, ``error``.
        They are not in ``accepted``. Errors that ``send`` raises are not counted.
    :ivar retried: logs scheduled for another attempt, once for each time.
    :ivar pending: logs neither delivered nor failed.
    :ivar attempts: requests made, by batches.
    :ivar batches: incomplete batches by state: ``open``, ``queued``, ``sending``, ``waiting``.
    :ivar memory_limit: ``total_size_in_bytes``.
    :ivar memory_used: bytes in use.
    :ivar memory_by_stage: ``memory_used`` by use. ``reserved`` is for records that are in no batch yet: Arrow data
        being encoded, and 2 to 64 KiB for each open batch of a handle, released when memory is short. The states of
        ``batches`` follow. ``callbacks`` is for completed records until their handler processes them.
    :ivar waiting_senders: threads that wait in ``send`` for memory.
    :ivar memory_wait_seconds: total wait of all senders for memory; with a channel, of the records read from it.
    :ivar oldest_record_age: seconds since the oldest incomplete batch got its first record; None if there is none.
    :ivar callbacks_pending: completed batches whose callbacks no handler thread has started.
    :ivar streams: streams in use, or used recently.
    :ivar destinations: those in use or used within a minute, at most 100, the busiest first; then the idle ones.
    :ivar endpoints: the endpoint in use of each project that has several.
    :ivar stored: events in the channel, including those in flight; 0 without a channel. After ``close``: the events
        left there.
    :ivar recovered: events that were in the channel when the producer was made.
    :ivar dead_lettered: events moved to the dead letter channel.
    :ivar kept_back: events in the channel that this producer no longer tries: unreadable ones, and those that the dead
        letter channel refused. The next producer on the channel tries them.
    :ivar channel: the channel's own statistics; None without one, and in a forked child that has sent nothing.
    :ivar twin: the implementation of the encoder: ``native`` or ``pure``.
    """

    memory_limit: int
    accepted: int = 0
    delivered: int = 0
    failed: int = 0
    failed_by_code: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    retried: int = 0
    pending: int = 0
    attempts: int = 0
    batches: Mapping[str, int] = field(default_factory=_no_batches)
    memory_used: int = 0
    memory_by_stage: Mapping[str, int] = field(default_factory=_no_memory)
    waiting_senders: int = 0
    oldest_record_age: float | None = None
    callbacks_pending: int = 0
    streams: tuple[StreamStats, ...] = field(default=(), repr=False)
    destinations: tuple[DestinationStats, ...] = field(default=(), repr=False)
    endpoints: tuple[EndpointStats, ...] = field(default=(), repr=False)
    stored: int = 0
    recovered: int = 0
    dead_lettered: int = 0
    kept_back: int = 0
    memory_wait_seconds: float = 0.0
    channel: ChannelStats | None = None
    twin: str = "pure"

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as JSON types: dictionaries, lists, numbers and texts."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    return value.value if isinstance(value, enum.Enum) else value

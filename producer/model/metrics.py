"""Counters, and the frozen snapshot that ``stats()`` returns."""

from __future__ import annotations

import enum
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from .interfaces import ChannelStats


class Counters:
    """Named sums that only grow; any thread may add."""

    def __init__(self) -> None:
        # By name and thread, which alone changes its own: IO threads would else meet here twice a batch.
        self._sums: dict[tuple[str, int], int] = {}

    def add(self, name: str, amount: int) -> None:
        """Add ``amount`` to the sum ``name``."""
        own = name, threading.get_ident()
        self._sums[own] = self._sums.get(own, 0) + amount

    def __getitem__(self, name: str) -> int:
        """The sum ``name``; 0 if nothing was added."""
        return sum(amount for (known, _), amount in self._sums.copy().items() if known == name)

    def under(self, prefix: str) -> dict[str, int]:
        """The sums whose names begin with ``prefix``, by the rest of the name."""
        found: dict[str, int] = {}
        for (name, _), amount in sorted(self._sums.copy().items()):
            if name.startswith(prefix):
                rest = name.removeprefix(prefix)
                found[rest] = found.get(rest, 0) + amount
        return found


#: How the names of sums begin that are of logs by why they were lost: error codes, and reasons of integrations.
FAILED_BY_CODE, DROPPED = "failed:", "dropped:"


#: Where a batch is that is not settled.
BATCH_STAGES = ("open", "queued", "sending", "waiting")
#: Where memory is that is taken: in batches by their stage, before them and behind them.
MEMORY_STAGES = ("reserved", *BATCH_STAGES, "callbacks")


def _no_batches() -> Mapping[str, int]:
    return dict.fromkeys(BATCH_STAGES, 0)


def _no_memory() -> Mapping[str, int]:
    return dict.fromkeys(MEMORY_STAGES, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStats:
    """One stream, since it was last remembered anew (idle streams are forgotten). Counts are logs.

    :ivar project: what names the stream, as are the next ones.
    :ivar logstore: the logstore.
    :ivar topic: the topic; may be empty.
    :ivar source: the source; may be empty.
    :ivar shard_hash: the shard hash, adjusted to buckets; None if there is none.
    :ivar tags: pairs of name and value, those of the configuration included.
    :ivar order: ``ordered``, ``idempotent``, ``sequence:`` and what names its handle; empty for other streams.
    :ivar accepted: logs that ``send`` took.
    :ivar delivered: logs that the server acknowledged.
    :ivar failed: logs that were given up.
    :ivar pending: logs that are neither.
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
    """That nothing is sent somewhere at this moment.

    :ivar name: of the destination, or of the logstore.
    :ivar reason: ``over quota``, ``unreachable``, or ``to be mended``.
    :ivar seconds: until it is tried again; 0.0 if that is happening.
    """

    name: str
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationStats:
    """A destination: what the sink calls one, a project at its endpoint for LogHub.

    :ivar name: the text of that; for LogHub ``my-project https://cn-hangzhou.log.aliyuncs.com``.
    :ivar limit: requests to it that may be under way at the same time, as learned.
    :ivar in_flight: requests that are.
    :ivar queued: batches that wait for their turn.
    :ivar held: why and how long nothing is sent to it; None if something is.
    :ivar held_logstores: likewise its logstores, at most 100 of them.
    """

    name: str
    limit: int
    in_flight: int
    queued: int
    held: HeldStats | None = None
    held_logstores: tuple[HeldStats, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """A producer at one moment. Counts of records are logs, since the producer was made.

    All of it is numbers, texts and sequences of them: ``json.dumps(stats.to_dict())`` works.

    With a channel, ``accepted`` counts what ``send`` stored, ``delivered`` and ``failed`` also count records that an
    earlier producer had stored, and ``pending`` and ``batches`` are about those that are in memory.

    :ivar accepted: logs that ``send`` took.
    :ivar delivered: logs that the server acknowledged.
    :ivar failed: logs that were given up.
    :ivar failed_by_code: the same by the error code of the last attempt, such as ``ProducerClosed``.
    :ivar dropped: logs that integrations (handlers, sinks, processors, exporters) could not enqueue, by reason:
        ``full`` (memory, or the channel), ``too_large``, ``invalid``, ``closed``, ``stopped``, ``channel``, ``error``.
        They are not among ``accepted``. What ``send`` raises is not counted: its caller knows.
    :ivar retried: logs that were scheduled for another attempt, once for each time.
    :ivar pending: logs that are neither delivered nor failed.
    :ivar attempts: requests made, by batches.
    :ivar batches: batches that are not settled, by state: ``open``, ``queued``, ``sending``, ``waiting``.
    :ivar memory_limit: ``total_size_in_bytes``.
    :ivar memory_used: bytes taken from it.
    :ivar memory_by_stage: ``memory_used`` by where it is: ``reserved`` for records that are in no batch yet (Arrow data
        that is being encoded; 2 to 64 KiB for each open batch of a handle, which go back when memory is short), the
        states of ``batches``, and ``callbacks`` for what settled records still occupy until their handler takes
        them up.
    :ivar waiting_senders: threads that wait in ``send`` for memory.
    :ivar memory_wait_seconds: how long all senders together have waited for memory; with a channel, how long what
        comes out of it has.
    :ivar oldest_record_age: seconds since the oldest batch that is not settled got its first record; None if
        there is none.
    :ivar callbacks_pending: settled batches that no handler thread has taken up yet, to run their callbacks.
    :ivar streams: only streams in use or used a short while ago.
    :ivar destinations: those in use or used a minute ago, at most 100, the busiest first.
    :ivar stored: events in the channel, those included that are on their way; 0 without a channel. After ``close``:
        what was left there.
    :ivar recovered: events that were in the channel when the producer was made.
    :ivar dead_lettered: events that went to the dead letter channel.
    :ivar kept_back: events that are in the channel, and that this producer tries no more: unreadable ones, and those
        that the dead letter channel refused. The next producer on the channel tries them.
    :ivar channel: the channel's own statistics; None without one, and in a forked child that has sent nothing.
    :ivar twin: what encodes: ``native`` or ``pure``.
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
    stored: int = 0
    recovered: int = 0
    dead_lettered: int = 0
    kept_back: int = 0
    memory_wait_seconds: float = 0.0
    channel: ChannelStats | None = None
    twin: str = "pure"

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: dictionaries with names, lists, numbers, texts."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    return value.value if isinstance(value, enum.Enum) else value

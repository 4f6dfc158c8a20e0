"""Requests to the store and its answers, as dataclasses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .log_groups import StoredLogGroup, unpack

DEFAULT_TTL_DAYS = 30
#: A time to live of so many days never ends.
TTL_FOR_EVER = 3650


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The logstore of a request."""

    project: str
    logstore: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The shard of a write by key.

    :ivar key: the place in the key space.
    :ivar sequence: the sequence number of an idempotent write, or None.
    """

    key: int
    sequence: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project; ``created`` and ``modified`` are Unix seconds."""

    name: str
    description: str
    created: float
    modified: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Logstore:
    """A logstore.

    :ivar row: its row number.
    :ivar name: its name.
    :ivar shard_count: number of shards that take writes.
    :ivar settings: the settings of its creator.
    :ivar created: time of creation, Unix seconds.
    :ivar modified: time of the last change, Unix seconds.
    """

    row: int
    name: str
    shard_count: int
    settings: dict[str, Any]
    created: float
    modified: float

    @property
    def ttl_days(self) -> int:
        """Return the days after which its logs expire; 3650 for never."""
        days = self.settings.get("ttl", DEFAULT_TTL_DAYS)
        # An earlier version stored any value of a creator.
        return days if type(days) is int and 1 <= days <= TTL_FOR_EVER else DEFAULT_TTL_DAYS

    def horizon(self, now: float) -> float:
        """Return the time (Unix seconds) before which received logs have expired."""
        return now - self.ttl_days * 86400.0 if self.ttl_days < TTL_FOR_EVER else -math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSize:
    """Size of a shard.

    :ivar number: its number.
    :ivar is_writable: True if it takes writes.
    :ivar logs: number of logs.
    :ivar bytes: raw bytes of the logs.
    :ivar first: time of the first receipt, Unix seconds; None for an empty shard.
    :ivar last: time of the last receipt, Unix seconds; None for an empty shard.
    :ivar new_logs: number of recent logs.
    :ivar new_bytes: raw bytes of recent logs.
    """

    number: int
    is_writable: bool
    logs: int
    bytes: int
    first: float | None
    last: float | None
    new_logs: int
    new_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogstoreSize:
    """Size of a logstore, by shard; ``earliest`` and ``latest`` are times of logs (Unix seconds, None without any)."""

    place: Place
    ttl_days: int
    shards: list[ShardSize]
    earliest: int | None
    latest: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedGroup:
    """A row of LogGroups, still packed, so that the reader unpacks it and not the database's thread."""

    row: int
    shard: int
    position: int
    received: float
    raw_size: int
    count: int
    packed: bytes

    def unpack(self) -> StoredLogGroup:
        """Unpack the LogGroup."""
        return StoredLogGroup(
            shard=self.shard,
            position=self.position,
            received=self.received,
            raw=unpack(self.packed, self.raw_size),
            count=self.count,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of a search.

    :ivar groups: the rows, in order of arrival.
    :ivar after: row to continue after; None for the last page.
    """

    groups: list[PackedGroup]
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A condition on LogGroups: one with a log in [begin, end), of the topic unless it is None.

    :ivar across: seconds; only LogGroups whose logs are in several parts of this length, or not all in [begin, end).
        None for no such condition.
    """

    begin: int
    end: int
    topic: str | None = None
    across: int | None = None


EVERYTHING = Search(begin=0, end=1 << 33)

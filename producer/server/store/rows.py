"""What the store is asked with and what it answers with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .log_groups import StoredLogGroup, unpack

DEFAULT_TTL_DAYS = 30
#: A time to live of so many days has no end.
TTL_FOR_EVER = 3650


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a request wants to write or read."""

    project: str
    logstore: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Which shard a write wants.

    :ivar key: the place in the key space.
    :ivar sequence: the sequence number of an idempotent write, or None.
    """

    key: int
    sequence: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project: name, description, and when it was created and last changed (Unix seconds)."""

    name: str
    description: str
    created: float
    modified: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Logstore:
    """A logstore: its row number, name, how many shards take logs, what its creator asked for, and when it was created
    and last changed (Unix seconds).
    """

    row: int
    name: str
    shard_count: int
    settings: dict[str, Any]
    created: float
    modified: float

    @property
    def ttl_days(self) -> int:
        """Days after which what it holds expires; 3650 for never."""
        days = self.settings.get("ttl", DEFAULT_TTL_DAYS)
        # An earlier version kept whatever a creator wrote there.
        return days if type(days) is int and 1 <= days <= TTL_FOR_EVER else DEFAULT_TTL_DAYS

    def horizon(self, now: float) -> float:
        """What was received before this time (Unix seconds) has expired."""
        return now - self.ttl_days * 86400.0 if self.ttl_days < TTL_FOR_EVER else -math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSize:
    """What one shard holds: logs, their raw bytes, when the first and the last were received (Unix seconds, None for
    an empty one), and how many of them lately.
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
    """What one logstore holds, by shard; and the earliest and latest time of its logs (Unix seconds, None without
    any).
    """

    place: Place
    ttl_days: int
    shards: list[ShardSize]
    earliest: int | None
    latest: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedGroup:
    """One row of LogGroups, still packed: its reader unpacks it, not the thread of the database."""

    row: int
    shard: int
    position: int
    received: float
    raw_size: int
    count: int
    packed: bytes

    def unpack(self) -> StoredLogGroup:
        """The LogGroup in it."""
        return StoredLogGroup(
            shard=self.shard,
            position=self.position,
            received=self.received,
            raw=unpack(self.packed, self.raw_size),
            count=self.count,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some rows that a search found.

    :ivar groups: the rows, in order of arrival.
    :ivar after: where the next page begins; None when this is the last.
    """

    groups: list[PackedGroup]
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Which LogGroups may hold what a reader looks for: those with a log in [begin, end), and of that topic unless it
    is None.

    :ivar across: only those whose logs lie in several parts of so many seconds, or not all in [begin, end); or None.
    """

    begin: int
    end: int
    topic: str | None = None
    across: int | None = None


EVERYTHING = Search(begin=0, end=1 << 33)

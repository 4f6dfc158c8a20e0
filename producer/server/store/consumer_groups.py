"""Consumer groups: who reads which shard of a logstore, and how far each is read.

A consumer says in each heartbeat which shards it has, and is told which ones it shall have. A consumer that was not
heard of for the timeout of its group has none. Each consumer shall have as many shards as the others, or one more; who
has too many is told so, and another gets them when he no longer names them: no shard is read by two at a time. In a
group that reads in order, the shards that a split or a merge made are nobody's until what they were made of is read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass

from ...wire.cursors import position_of
from ..errors import ApiError
from .catalog import logstore_of
from .database import Database
from .rows import Place
from .shards import Shard, find_shard, shards_of

MAX_GROUPS = 30
#: Consumers of one group that are alive: several times as many as a logstore has shards.
MAX_CONSUMERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    """One group: its name, seconds after which a silent consumer has left, and whether the shards that a split made
    shall be read after the one that was split.
    """

    name: str
    timeout: float
    in_order: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """How far a shard is read: the cursor (empty for nowhere yet), when that was said (Unix seconds, 0 for never) and
    by whom.
    """

    shard: int
    cursor: str
    updated: float
    consumer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """Where a consumer group is."""

    place: Place
    group: str


class ConsumerGroups:
    """All consumer groups. Every function returns a future, and refuses with ``ConsumerGroupNotExist`` or what a
    missing logstore is refused with.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, place: Place, group: ConsumerGroup) -> Future[None]:
        """Refuses with ``ConsumerGroupAlreadyExist``, or ``ParameterInvalid`` when there are too many."""

        def job(connection: sqlite3.Connection) -> None:
            logstore = logstore_of(connection, place).row
            names = [one.name for one in _groups(connection, logstore)]
            if group.name in names:
                raise ApiError("ConsumerGroupAlreadyExist", f"consumer group {group.name} exists already")
            if len(names) >= MAX_GROUPS:
                raise ApiError("ParameterInvalid", f"the logstore has {MAX_GROUPS} consumer groups, which are the most")
            connection.execute(
                "INSERT INTO consumer_groups (logstore, name, timeout, in_order) VALUES (?, ?, ?, ?)",
                (logstore, group.name, group.timeout, group.in_order),
            )

        return self._database.submit(job)

    def groups(self, place: Place) -> Future[list[ConsumerGroup]]:
        """The groups of a logstore, by name."""
        return self._database.submit(lambda connection: _groups(connection, logstore_of(connection, place).row))

    def update(self, where: GroupPlace, timeout: float | None, in_order: bool | None) -> Future[None]:
        """Change what is not None."""

        def job(connection: sqlite3.Connection) -> None:
            values = "timeout = COALESCE(?, timeout), in_order = COALESCE(?, in_order)"
            update = f"UPDATE consumer_groups SET {values} WHERE id = ?"
            connection.execute(update, (timeout, in_order, _find(connection, where)[1]))

        return self._database.submit(job)

    def delete(self, where: GroupPlace) -> Future[None]:
        """Delete a group with its checkpoints."""

        def job(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM consumer_groups WHERE id = ?", (_find(connection, where)[1],))

        return self._database.submit(job)

    def heartbeat(self, where: GroupPlace, consumer: str, held: Iterable[int], now: float) -> Future[list[int]]:
        """A consumer lives and has the shards ``held``; the answer is which ones it shall have. Refuses with
        ``ParameterInvalid`` one more consumer than a group may have.
        """

        def job(connection: sqlite3.Connection) -> list[int]:
            logstore, group = _find(connection, where)
            _see(connection, group, consumer, now)
            _shards(connection, logstore, group)
            _take_back(connection, group, consumer, set(held))
            shards = shards_of(connection, logstore)
            early = _too_early(connection, group, shards)
            return _assign(connection, group, consumer, [one.number for one in shards if one.number not in early])

        return self._database.submit(job)

    def checkpoints(self, where: GroupPlace, shard: int | None) -> Future[list[Checkpoint]]:
        """How far each shard is read, or this one. Refuses with ``ShardNotExist``."""

        def job(connection: sqlite3.Connection) -> list[Checkpoint]:
            logstore, group = _find(connection, where)
            _shards(connection, logstore, group)
            if shard is not None:
                find_shard(connection, logstore, shard)
            query = (
                "SELECT shard, checkpoint, updated, updater FROM consumer_shards"
                " WHERE consumer_group = ? AND (? IS NULL OR shard = ?) ORDER BY shard"
            )
            rows = connection.execute(query, (group, shard, shard))
            return [Checkpoint(shard=row[0], cursor=row[1], updated=row[2], consumer=row[3]) for row in rows]

        return self._database.submit(job)

    def save_checkpoint(self, where: GroupPlace, checkpoint: Checkpoint, force: bool) -> Future[None]:
        """A shard is read so far. Without ``force`` only the consumer that has the shard may say so; refuses with
        ``ConsumerNotExsit`` (as LogHub spells it), ``ConsumerNotMatch`` and ``ShardNotExist``.
        """

        def job(connection: sqlite3.Connection) -> None:
            logstore, group = _find(connection, where)
            find_shard(connection, logstore, checkpoint.shard)
            _shards(connection, logstore, group)
            if not force:
                _check_owner(connection, group, checkpoint)
            connection.execute(
                "UPDATE consumer_shards SET checkpoint = ?, updated = ?, updater = ?"
                " WHERE consumer_group = ? AND shard = ?",
                (checkpoint.cursor, checkpoint.updated, checkpoint.consumer, group, checkpoint.shard),
            )

        return self._database.submit(job)


def _groups(connection: sqlite3.Connection, logstore: int) -> list[ConsumerGroup]:
    query = "SELECT name, timeout, in_order FROM consumer_groups WHERE logstore = ? ORDER BY name"
    rows = connection.execute(query, (logstore,))
    return [ConsumerGroup(name=name, timeout=timeout, in_order=bool(in_order)) for name, timeout, in_order in rows]


def _find(connection: sqlite3.Connection, where: GroupPlace) -> tuple[int, int]:
    """The rows of the logstore and of the group."""
    logstore = logstore_of(connection, where.place).row
    query = "SELECT id FROM consumer_groups WHERE logstore = ? AND name = ?"
    row = connection.execute(query, (logstore, where.group)).fetchone()
    if row is None:
        raise ApiError("ConsumerGroupNotExist", f"consumer group {where.group} does not exist: create it first")
    return logstore, row[0]


def _see(connection: sqlite3.Connection, group: int, consumer: str, now: float) -> None:
    """A consumer lives; those that were not heard of for too long have left, and what they had is free."""
    connection.execute(
        "DELETE FROM consumers WHERE consumer_group = ?"
        " AND seen < ? - (SELECT timeout FROM consumer_groups WHERE id = consumer_group)",
        (group, now),
    )
    others = "SELECT COUNT(*) FROM consumers WHERE consumer_group = ? AND name != ?"
    if connection.execute(others, (group, consumer)).fetchone()[0] >= MAX_CONSUMERS:
        raise ApiError("ParameterInvalid", f"the group has {MAX_CONSUMERS} consumers, which are the most")
    connection.execute("INSERT OR REPLACE INTO consumers VALUES (?, ?, ?)", (group, consumer, now))
    connection.execute(
        "UPDATE consumer_shards SET owner = NULL, released = 0 WHERE consumer_group = ?"
        " AND owner NOT IN (SELECT name FROM consumers WHERE consumer_group = ?)",
        (group, group),
    )


def _shards(connection: sqlite3.Connection, logstore: int, group: int) -> None:
    """Give each shard a row of the group."""
    connection.executemany(
        "INSERT OR IGNORE INTO consumer_shards (consumer_group, shard) VALUES (?, ?)",
        [(group, shard.number) for shard in shards_of(connection, logstore)],
    )


def _too_early(connection: sqlite3.Connection, group: int, shards: list[Shard]) -> set[int]:
    """The shards that were made of others which the group, reading in order, has not read to their end."""
    (in_order,) = connection.execute("SELECT in_order FROM consumer_groups WHERE id = ?", (group,)).fetchone()
    if not in_order:
        return set()
    query = "SELECT shard, checkpoint FROM consumer_shards WHERE consumer_group = ?"
    read = {shard: position_of(cursor) or 0 for shard, cursor in connection.execute(query, (group,))}
    unread = [one for one in shards if not one.is_writable and read[one.number] < one.next]
    # What takes keys that an older shard took was made of it.
    return {
        one.number
        for one in shards
        if any(old.number < one.number and old.begin < one.end and one.begin < old.end for old in unread)
    }


def _take_back(connection: sqlite3.Connection, group: int, consumer: str, held: set[int]) -> None:
    """Free what a consumer was to give up and no longer names; what it names and nobody has, it has had before this
    server knew of it.
    """
    query = "SELECT shard FROM consumer_shards WHERE consumer_group = ? AND owner = ? AND released"
    for (shard,) in connection.execute(query, (group, consumer)).fetchall():
        if shard not in held:
            _give(connection, group, shard, None)
    for shard in held:
        connection.execute(
            "UPDATE consumer_shards SET owner = ? WHERE consumer_group = ? AND shard = ? AND owner IS NULL",
            (consumer, group, shard),
        )


def _assign(connection: sqlite3.Connection, group: int, consumer: str, shards: list[int]) -> list[int]:
    """Which of the shards a consumer shall have: what it has, without what is too much, and with what is free."""
    query = "SELECT shard, owner FROM consumer_shards WHERE consumer_group = ? AND NOT released ORDER BY shard"
    owners = [(shard, owner) for shard, owner in connection.execute(query, (group,)) if shard in shards]
    mine = [shard for shard, owner in owners if owner == consumer]
    free = [shard for shard, owner in owners if owner is None]
    share = _share(connection, group, consumer, len(shards))
    for shard in mine[share:]:
        connection.execute(
            "UPDATE consumer_shards SET released = 1 WHERE consumer_group = ? AND shard = ?", (group, shard)
        )
    new = free[: max(0, share - len(mine))]
    for shard in new:
        _give(connection, group, shard, consumer)
    return sorted(mine[:share] + new)


def _share(connection: sqlite3.Connection, group: int, consumer: str, shards: int) -> int:
    """How many shards a consumer may have: all have as many, and some of them one more, while there are such."""
    count = "SELECT COUNT(*) FROM consumers WHERE consumer_group = ? AND name != ?"
    (others,) = connection.execute(count, (group, consumer)).fetchone()
    each, more = divmod(shards, others + 1)
    # By the shards, of which there are few: so a heartbeat takes as long in a group of many consumers.
    query = (
        "SELECT COUNT(*) FROM consumer_shards WHERE consumer_group = ? AND owner != ? AND NOT released"
        " GROUP BY owner HAVING COUNT(*) > ?"
    )
    with_more = len(connection.execute(query, (group, consumer, each)).fetchall())
    return int(each + (with_more < more))


def _give(connection: sqlite3.Connection, group: int, shard: int, consumer: str | None) -> None:
    update = "UPDATE consumer_shards SET owner = ?, released = 0 WHERE consumer_group = ? AND shard = ?"
    connection.execute(update, (consumer, group, shard))


def _check_owner(connection: sqlite3.Connection, group: int, checkpoint: Checkpoint) -> None:
    known = "SELECT 1 FROM consumers WHERE consumer_group = ? AND name = ?"
    if connection.execute(known, (group, checkpoint.consumer)).fetchone() is None:
        raise ApiError("ConsumerNotExsit", f"consumer {checkpoint.consumer!r} is not alive: it must send heartbeats")
    query = "SELECT owner FROM consumer_shards WHERE consumer_group = ? AND shard = ?"
    (owner,) = connection.execute(query, (group, checkpoint.shard)).fetchone()
    if owner != checkpoint.consumer:
        raise ApiError(
            "ConsumerNotMatch", f"shard {checkpoint.shard} belongs to {owner!r}, not {checkpoint.consumer!r}"
        )

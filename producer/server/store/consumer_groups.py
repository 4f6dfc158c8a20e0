"""Consumer groups: owners of a logstore's shards, and a checkpoint for each shard.

A consumer's heartbeat lists the shards that it reads, and the answer lists the shards assigned to it. A consumer
without a heartbeat for the group's timeout loses its shards. Shards are spread evenly: no consumer has two more than
another.

A consumer with too many shards gets an answer without them. They are assigned to another consumer only when the first
one no longer lists them, so no shard has two readers. In a group that reads in order, shards from a split or merge stay
unassigned until their parent shards are read to the end.

Each public function is a job of the store. It raises :class:`ApiError`: ``ConsumerGroupNotExist``, ``ProjectNotExist``
or ``LogStoreNotExist``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from ...wire.cursors import position_of
from ..errors import ApiError
from .catalog import logstore_of
from .rows import Place
from .shards import Shard, find_shard, shards_of

MAX_GROUPS = 30
#: Maximum number of live consumers of one group: several times the number of a logstore's shards.
MAX_CONSUMERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    """A consumer group.

    :ivar name: its name.
    :ivar timeout: seconds without a heartbeat after which a consumer has left.
    :ivar in_order: True to read the shards of a split or merge after their parents.
    """

    name: str
    timeout: float
    in_order: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The checkpoint of a shard.

    :ivar shard: the shard's number.
    :ivar cursor: the cursor to continue at; empty if there is none yet.
    :ivar updated: time of the last update, Unix seconds; 0 for never.
    :ivar consumer: the consumer that updated it.
    """

    shard: int
    cursor: str
    updated: float
    consumer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """The place of a consumer group: its logstore and its name."""

    place: Place
    group: str


def create(connection: sqlite3.Connection, place: Place, group: ConsumerGroup) -> None:
    """Create a group.

    :raises ApiError: ``ConsumerGroupAlreadyExist``, or ``ParameterInvalid`` if there are too many.
    """
    names = [one.name for one in groups(connection, place)]
    if group.name in names:
        raise ApiError("ConsumerGroupAlreadyExist", f"consumer group {group.name} already exists")
    if len(names) >= MAX_GROUPS:
        message = f"the logstore has {MAX_GROUPS} consumer groups, the limit: delete one first"
        raise ApiError("ParameterInvalid", message)
    connection.execute(
        "INSERT INTO consumer_groups (logstore, name, timeout, in_order) VALUES (?, ?, ?, ?)",
        (logstore_of(connection, place).row, group.name, group.timeout, group.in_order),
    )


def groups(connection: sqlite3.Connection, place: Place) -> list[ConsumerGroup]:
    """Return the groups of a logstore, by name."""
    query = "SELECT name, timeout, in_order FROM consumer_groups WHERE logstore = ? ORDER BY name"
    rows = connection.execute(query, (logstore_of(connection, place).row,))
    return [ConsumerGroup(name=name, timeout=timeout, in_order=bool(in_order)) for name, timeout, in_order in rows]


def update(connection: sqlite3.Connection, where: GroupPlace, timeout: float | None, in_order: bool | None) -> None:
    """Change a group; None keeps a value."""
    values = "timeout = COALESCE(?, timeout), in_order = COALESCE(?, in_order)"
    statement = f"UPDATE consumer_groups SET {values} WHERE id = ?"
    connection.execute(statement, (timeout, in_order, _find(connection, where)[1]))


def delete(connection: sqlite3.Connection, where: GroupPlace) -> None:
    """Delete a group with its checkpoints."""
    connection.execute("DELETE FROM consumer_groups WHERE id = ?", (_find(connection, where)[1],))


def heartbeat(
    connection: sqlite3.Connection, where: GroupPlace, consumer: str, held: Iterable[int], now: float
) -> list[int]:
    """Record a consumer's heartbeat with the shards it reads, and return the shards assigned to it.

    :raises ApiError: ``ParameterInvalid``, the group has too many consumers.
    """
    logstore, group = _find(connection, where)
    _see(connection, group, consumer, now)
    _shards(connection, logstore, group)
    _take_back(connection, group, consumer, set(held))
    shards = shards_of(connection, logstore)
    early = _too_early(connection, group, shards)
    return _assign(connection, group, consumer, [one.number for one in shards if one.number not in early])


def checkpoints(connection: sqlite3.Connection, where: GroupPlace, shard: int | None) -> list[Checkpoint]:
    """Return the checkpoint of each shard, or of one.

    :raises ApiError: ``ShardNotExist``.
    """
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


def save_checkpoint(connection: sqlite3.Connection, where: GroupPlace, checkpoint: Checkpoint, force: bool) -> None:
    """Save a checkpoint. Without ``force`` only the owner of the shard may do so.

    :raises ApiError: ``ConsumerNotExsit`` (LogHub's spelling), ``ConsumerNotMatch`` or ``ShardNotExist``.
    """
    logstore, group = _find(connection, where)
    find_shard(connection, logstore, checkpoint.shard)
    _shards(connection, logstore, group)
    if not force:
        _check_owner(connection, group, checkpoint)
    connection.execute(
        "UPDATE consumer_shards SET checkpoint = ?, updated = ?, updater = ? WHERE consumer_group = ? AND shard = ?",
        (checkpoint.cursor, checkpoint.updated, checkpoint.consumer, group, checkpoint.shard),
    )


def _find(connection: sqlite3.Connection, where: GroupPlace) -> tuple[int, int]:
    """Return the rows of the logstore and of the group."""
    logstore = logstore_of(connection, where.place).row
    query = "SELECT id FROM consumer_groups WHERE logstore = ? AND name = ?"
    row = connection.execute(query, (logstore, where.group)).fetchone()
    if row is None:
        raise ApiError("ConsumerGroupNotExist", f"consumer group {where.group} does not exist: create it first")
    return logstore, row[0]


def _see(connection: sqlite3.Connection, group: int, consumer: str, now: float) -> None:
    """Record that a consumer is alive; remove consumers beyond the timeout and free their shards."""
    connection.execute(
        "DELETE FROM consumers WHERE consumer_group = ?"
        " AND seen < ? - (SELECT timeout FROM consumer_groups WHERE id = consumer_group)",
        (group, now),
    )
    others = "SELECT COUNT(*) FROM consumers WHERE consumer_group = ? AND name != ?"
    if connection.execute(others, (group, consumer)).fetchone()[0] >= MAX_CONSUMERS:
        raise ApiError("ParameterInvalid", f"the group has {MAX_CONSUMERS} consumers, the limit: stop one first")
    connection.execute("INSERT OR REPLACE INTO consumers VALUES (?, ?, ?)", (group, consumer, now))
    connection.execute(
        "UPDATE consumer_shards SET owner = NULL, released = 0 WHERE consumer_group = ?"
        " AND owner NOT IN (SELECT name FROM consumers WHERE consumer_group = ?)",
        (group, group),
    )


def _shards(connection: sqlite3.Connection, logstore: int, group: int) -> None:
    """Insert the missing rows of the group's shards."""
    connection.executemany(
        "INSERT OR IGNORE INTO consumer_shards (consumer_group, shard) VALUES (?, ?)",
        [(group, shard.number) for shard in shards_of(connection, logstore)],
    )


def _too_early(connection: sqlite3.Connection, group: int, shards: list[Shard]) -> set[int]:
    """Return the shards whose parents a group that reads in order has not read to their end."""
    (in_order,) = connection.execute("SELECT in_order FROM consumer_groups WHERE id = ?", (group,)).fetchone()
    if not in_order:
        return set()
    query = "SELECT shard, checkpoint FROM consumer_shards WHERE consumer_group = ?"
    read = {shard: position_of(cursor) or 0 for shard, cursor in connection.execute(query, (group,))}
    unread = [one for one in shards if not one.is_writable and read[one.number] < one.next]
    # A newer shard whose range overlaps an older shard's was made from it.
    return {
        one.number
        for one in shards
        if any(old.number < one.number and old.begin < one.end and one.begin < old.end for old in unread)
    }


def _take_back(connection: sqlite3.Connection, group: int, consumer: str, held: set[int]) -> None:
    """Free the shards that a consumer was to release and no longer lists.

    A shard that it lists and that has no owner becomes its own: it read the shard before this server knew of it.
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
    """Return the shards assigned to a consumer: its own up to its share, then free ones."""
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
    """Return the number of shards that a consumer may have: an even share, and one more while some are left over."""
    count = "SELECT COUNT(*) FROM consumers WHERE consumer_group = ? AND name != ?"
    (others,) = connection.execute(count, (group, consumer)).fetchone()
    each, more = divmod(shards, others + 1)
    # Counted over shards, which are few, so that a heartbeat is fast in a group of many consumers.
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
        raise ApiError("ConsumerNotExsit", f"consumer {checkpoint.consumer!r} is not alive: send heartbeats first")
    query = "SELECT owner FROM consumer_shards WHERE consumer_group = ? AND shard = ?"
    (owner,) = connection.execute(query, (group, checkpoint.shard)).fetchone()
    if owner != checkpoint.consumer:
        raise ApiError(
            "ConsumerNotMatch", f"shard {checkpoint.shard} belongs to {owner!r}, not {checkpoint.consumer!r}"
        )

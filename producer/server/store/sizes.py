"""Sizes of logstores, without a scan of all rows.

``log_blocks`` has sums of each block of 1024 positions of a shard. They change in the transaction that adds LogGroups,
so they survive a crash. Logs expire in order, so at most one block of each shard has expired in part. For this block,
and for blocks with removed rows, the rows themselves are summed.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from .catalog import logstore_of
from .log_groups import CheckedGroup
from .rows import Logstore, LogstoreSize, Place, ShardSize

#: Also in ``schema.py``: another number needs another version of the data.
BLOCK = 1024

_ADD = """
INSERT INTO log_blocks (logstore, shard, block, first, last, logs, raw_size, min_time, max_time)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (logstore, shard, block) DO UPDATE SET
    last = excluded.last, logs = logs + excluded.logs, raw_size = raw_size + excluded.raw_size,
    min_time = MIN(min_time, excluded.min_time), max_time = MAX(max_time, excluded.max_time)
"""
_REMOVED = "UPDATE log_blocks SET is_whole = 0 WHERE logstore = ? AND shard = ? AND block = ? AND is_whole"
# Receipts since a time: sums of whole blocks, and single rows of partial ones.
_SINCE = f"""
    SELECT shard, first, last, logs, raw_size, min_time, max_time
    FROM log_blocks WHERE logstore = :logstore AND is_whole AND first >= :since
    UNION ALL
    SELECT g.shard, g.received, g.received, g.logs, g.raw_size, g.min_time, g.max_time
    FROM log_blocks b CROSS JOIN log_groups g ON g.logstore = b.logstore AND g.shard = b.shard
        AND g.position >= b.block * {BLOCK} AND g.position < (b.block + 1) * {BLOCK}
    WHERE b.logstore = :logstore AND b.last >= :since AND NOT (b.is_whole AND b.first >= :since)
        AND g.received >= :since
"""
_SUMS = f"""
    SELECT shard, SUM(logs), SUM(raw_size), MIN(first), MAX(last), MIN(min_time), MAX(max_time)
    FROM ({_SINCE}) GROUP BY shard
"""


def count_in(
    connection: sqlite3.Connection,
    logstore: Logstore,
    place: tuple[int, int],
    groups: list[CheckedGroup],
    received: float,
) -> None:
    """Add LogGroups to the sums, from ``place`` on, a shard and its first position."""
    shard, first = place
    blocks: dict[int, list[CheckedGroup]] = {}
    for position, group in enumerate(groups, first):
        blocks.setdefault(position // BLOCK, []).append(group)
    for block, added in blocks.items():
        sums = (sum(group.count for group in added), sum(group.raw_size for group in added))
        times = (min(group.min_time for group in added), max(group.max_time for group in added))
        connection.execute(_ADD, (logstore.row, shard, block, received, received, *sums, *times))


def count_out(connection: sqlite3.Connection, logstore: Logstore, places: list[tuple[int, int]]) -> None:
    """Mark the blocks of removed LogGroups, given as shards and positions."""
    blocks = {(shard, position // BLOCK) for shard, position in places}
    connection.executemany(_REMOVED, [(logstore.row, *block) for block in blocks])


def sizes_of(connection: sqlite3.Connection, now: float, lately: float) -> list[LogstoreSize]:
    """Return the size of every logstore; logs received since ``lately`` (Unix seconds) are recent."""
    places = connection.execute("SELECT project, name FROM logstores ORDER BY project, name").fetchall()
    return [_size_of(connection, Place(project=project, logstore=name), now, lately) for project, name in places]


def _size_of(connection: sqlite3.Connection, place: Place, now: float, lately: float) -> LogstoreSize:
    logstore = logstore_of(connection, place)
    horizon = logstore.horizon(now)
    held, new = (_sums(connection, logstore, since) for since in (horizon, max(horizon, lately)))
    shards = connection.execute(
        "SELECT shard, status FROM shards WHERE logstore = ? ORDER BY shard", (logstore.row,)
    ).fetchall()
    nothing = (0, 0, None, None)
    return LogstoreSize(
        place=place,
        ttl_days=logstore.ttl_days,
        shards=[
            _shard_size(number, status, held.get(number, nothing), new.get(number, nothing))
            for number, status in shards
        ],
        earliest=min((sums[4] for sums in held.values()), default=None),
        latest=max((sums[5] for sums in held.values()), default=None),
    )


def _shard_size(number: int, status: str, held: tuple[Any, ...], new: tuple[Any, ...]) -> ShardSize:
    return ShardSize(
        number=number,
        is_writable=status == "readwrite",
        logs=held[0],
        bytes=held[1],
        first=held[2],
        last=held[3],
        new_logs=new[0],
        new_bytes=new[1],
    )


def count_of(connection: sqlite3.Connection, place: Place, now: float) -> int:
    """Return the number of logs in a logstore."""
    logstore = logstore_of(connection, place)
    return sum(sums[0] for sums in _sums(connection, logstore, logstore.horizon(now)).values())


def _sums(connection: sqlite3.Connection, logstore: Logstore, since: float) -> dict[int, tuple[Any, ...]]:
    """Return by shard: logs, bytes, first and last time of receipt, earliest and latest time of a log."""
    rows = connection.execute(_SUMS, {"logstore": logstore.row, "since": since})
    return {shard: tuple(sums) for shard, *sums in rows}

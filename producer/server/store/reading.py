"""Reads of LogGroups: of a shard in order of arrival, of a search, and of a log's neighbours.

Each function is a job of the store. It raises :class:`ApiError`: ``ProjectNotExist``, ``LogStoreNotExist`` or
``ShardNotExist``. ``now`` is the server's time, Unix seconds; logs that have expired by then are invisible.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from .catalog import logstore_of, with_shard
from .positions import first_since
from .rows import Logstore, PackedGroup, Page, Place, Search
from .shards import find_shard

#: Maximum number of rows that one step of a search scans, of all logstores; and maximum raw bytes that it returns (but
#: at least one row). The database serves other requests between steps, and the searcher holds the rows.
_ROWS_PER_STEP = 20_000
_BYTES_PER_STEP = 4 * 1024 * 1024
_GROUPS_PER_STEP = 10

_GROUP_COLUMNS = "id, shard, position, received, raw_size, logs, packed"
_READ_SHARD = (
    f"SELECT {_GROUP_COLUMNS} FROM log_groups"
    " WHERE logstore = ? AND shard = ? AND position >= ? AND position < ? AND received >= ? ORDER BY position LIMIT ?"
)
_MATCHING = (
    "FROM log_groups WHERE logstore = :logstore AND id > :after AND id <= :until AND received >= :horizon"
    " AND max_time >= :begin AND min_time < :end AND (:topic IS NULL OR topic = :topic)"
)
_SEARCH = (
    f"SELECT {_GROUP_COLUMNS} {_MATCHING} AND (:across IS NULL OR min_time / :across != max_time / :across"
    " OR min_time < :begin OR max_time >= :end) ORDER BY id"
)
_COUNT = (
    f"SELECT min_time / :step, SUM(logs) {_MATCHING} AND min_time / :step = max_time / :step"
    " AND min_time >= :begin AND max_time < :end GROUP BY 1"
)


def end_of(connection: sqlite3.Connection, place: Place, shard: int) -> int:
    """Return the position of a shard's next LogGroup."""
    return find_shard(connection, logstore_of(connection, place).row, shard).next


def position_since(connection: sqlite3.Connection, place: Place, shard: int, time: float, now: float) -> int:
    """Return the position of the first LogGroup received at ``time`` (Unix seconds) or later."""
    logstore = with_shard(connection, place, shard)
    return first_since(connection, logstore, shard, max(time, logstore.horizon(now)))


def received_at(connection: sqlite3.Connection, place: Place, shard: int, position: int, now: float) -> float | None:
    """Return when the LogGroup at ``position`` was received, Unix seconds; None if there is none."""
    logstore = with_shard(connection, place, shard)
    query = "SELECT received FROM log_groups WHERE logstore = ? AND shard = ? AND position = ? AND received >= ?"
    row = connection.execute(query, (logstore.row, shard, position, logstore.horizon(now))).fetchone()
    return None if row is None else float(row[0])


def read_shard(
    connection: sqlite3.Connection,
    place: Place,
    shard: int,
    positions: range,
    now: float,
    *,
    limit: int,
    max_raw_bytes: int,
) -> list[PackedGroup]:
    """Return up to ``limit`` LogGroups of a shard at ``positions``, in order.

    They have at most ``max_raw_bytes`` together, but there is at least one.
    """
    logstore = with_shard(connection, place, shard)
    values = (logstore.row, shard, positions.start, positions.stop, logstore.horizon(now), limit)
    return _take(connection.execute(_READ_SHARD, values), max_raw_bytes)[0]


def last_row(connection: sqlite3.Connection, place: Place) -> int:
    """Return the last row to arrive, of any logstore; raises if ``place`` does not exist."""
    logstore_of(connection, place)
    (last,) = connection.execute("SELECT MAX(id) FROM log_groups").fetchone()
    return last or 0


def search(connection: sqlite3.Connection, place: Place, search: Search, after: int, until: int, now: float) -> Page:
    """Return the next LogGroups that may match, in order of arrival, after row ``after`` up to row ``until``.

    A page may be empty although another follows.
    """
    step = min(until, after + _ROWS_PER_STEP)
    values = _values(logstore_of(connection, place), search, (after, step), now)
    groups, whole = _take(connection.execute(_SEARCH, values), _BYTES_PER_STEP)
    seen = step if whole else groups[-1].row
    return Page(groups=groups, after=seen if seen < until else None)


def search_back(connection: sqlite3.Connection, place: Place, search: Search, before: int, now: float) -> Page:
    """Return the LogGroups below row ``before`` that may match, the last to arrive first.

    The page's ``after`` is the next ``before``.
    """
    step = max(0, before - 1 - _ROWS_PER_STEP)
    values = _values(logstore_of(connection, place), search, (step, before - 1), now)
    groups, whole = _take(connection.execute(f"{_SEARCH} DESC", values), _BYTES_PER_STEP)
    seen = step + 1 if whole else groups[-1].row
    return Page(groups=groups, after=seen if seen > 1 else None)


def counts(
    connection: sqlite3.Connection, place: Place, search: Search, step: int, rows: tuple[int, int], now: float
) -> dict[int, int]:
    """Return the number of logs in each part of ``step`` seconds, by the part's number.

    Only LogGroups after the first of ``rows`` up to the second are counted, and of these only the ones whose logs are
    all in the same part and within the search's times.
    """
    values = _values(logstore_of(connection, place), search, rows, now) | {"step": step}
    return dict(connection.execute(_COUNT, values).fetchall())


def group(connection: sqlite3.Connection, place: Place, row: int, now: float) -> PackedGroup | None:
    """Return the LogGroup of a row, or None if it has expired."""
    logstore = logstore_of(connection, place)
    query = f"SELECT {_GROUP_COLUMNS} FROM log_groups WHERE id = ? AND logstore = ? AND received >= ?"
    return _one(connection.execute(query, (row, logstore.row, logstore.horizon(now))))


def group_at(connection: sqlite3.Connection, place: Place, shard: int, position: int, now: float) -> PackedGroup | None:
    """Return the LogGroup at a position, or None if it has expired."""
    logstore = with_shard(connection, place, shard)
    values = (logstore.row, shard, position, position + 1, logstore.horizon(now), 1)
    return _one(connection.execute(_READ_SHARD, values))


def next_in_context(
    connection: sqlite3.Connection, place: Place, group: PackedGroup, backward: bool, now: float
) -> list[PackedGroup]:
    """Return some LogGroups of the same sender after ``group``, or before it, the nearest first.

    Empty for a LogGroup without a pack id.
    """
    logstore = logstore_of(connection, place)
    sign, order = ("<", "DESC") if backward else (">", "ASC")
    query = (
        f"SELECT {_GROUP_COLUMNS} FROM log_groups WHERE logstore = ?"
        " AND context = (SELECT context FROM log_groups WHERE id = ?)"
        f" AND (pack, id) {sign} (SELECT pack, id FROM log_groups WHERE id = ?) AND received >= ?"
        f" ORDER BY pack {order}, id {order} LIMIT ?"
    )
    values = (logstore.row, group.row, group.row, logstore.horizon(now), _GROUPS_PER_STEP)
    return _take(connection.execute(query, values), _BYTES_PER_STEP)[0]


def _values(logstore: Logstore, search: Search, rows: tuple[int, int], now: float) -> dict[str, Any]:
    return {
        "logstore": logstore.row,
        "after": rows[0],
        "until": rows[1],
        "horizon": logstore.horizon(now),
        "begin": search.begin,
        "end": search.end,
        "topic": search.topic,
        "across": search.across,
    }


def _one(cursor: sqlite3.Cursor) -> PackedGroup | None:
    return next(iter(_take(cursor, 0)[0]), None)


def _take(cursor: sqlite3.Cursor, max_raw_bytes: int) -> tuple[list[PackedGroup], bool]:
    """Return rows of ``cursor`` up to the limit of bytes, but at least one, and True if there are no more."""
    taken: list[PackedGroup] = []
    total = 0
    for number, shard, position, received, raw_size, logs, packed in cursor:
        total += raw_size
        if taken and total > max_raw_bytes:
            cursor.close()
            return taken, False
        taken.append(
            PackedGroup(
                row=number,
                shard=shard,
                position=position,
                received=received,
                raw_size=raw_size,
                count=logs,
                packed=packed,
            )
        )
    return taken, True

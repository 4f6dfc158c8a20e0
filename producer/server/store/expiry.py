"""Expiry of LogGroups beyond their logstore's time to live, and of unused sequence numbers.

Readers never see expired LogGroups, even if their rows still exist. Rows are removed by writes. Each write removes more
expired rows of its logstore than it adds, so a logstore does not outgrow its time to live.
"""

from __future__ import annotations

import math
import sqlite3

from ..errors import ApiError
from .rows import Logstore, Route
from .sizes import count_out

#: Expired rows that a write removes beyond the number it adds; each can have megabytes.
_MORE_ROWS = 16


def remove_expired(connection: sqlite3.Connection, logstore: Logstore, added: int, now: float) -> None:
    """Remove some expired rows, for a write of ``added`` LogGroups."""
    horizon = logstore.horizon(now)
    oldest = "SELECT received FROM log_groups WHERE logstore = ? ORDER BY id LIMIT 1"
    row = connection.execute(oldest, (logstore.row,)).fetchone()
    if row is not None and row[0] < horizon:
        eldest = (
            "SELECT id, shard, position FROM log_groups WHERE received < ? AND id IN"
            " (SELECT id FROM log_groups WHERE logstore = ? ORDER BY id LIMIT ?)"
        )
        rows = connection.execute(eldest, (horizon, logstore.row, added + _MORE_ROWS)).fetchall()
        connection.executemany("DELETE FROM log_groups WHERE id = ?", [(number,) for number, _, _ in rows])
        count_out(connection, logstore, [(shard, position) for _, shard, position in rows])


def advance_sequence(connection: sqlite3.Connection, logstore: Logstore, route: Route, now: float, keys: int) -> None:
    """Accept a sequence number once.

    A key is remembered for the logstore's time to live after its last use. By then the logs that it wrote have expired.
    Beyond ``keys`` keys in a logstore the least recently used are forgotten.

    :raises ApiError: ``InvalidSequenceId``, the number is not above the last one of its key.
    """
    if route.sequence is None:
        return
    hash_key = f"{route.key:032x}"
    query = "SELECT last FROM sequences WHERE logstore = ? AND hash_key = ? AND used >= ?"
    row = connection.execute(query, (logstore.row, hash_key, logstore.horizon(now))).fetchone()
    if row is not None and route.sequence <= row[0]:
        raise ApiError(
            "InvalidSequenceId",
            f"seqid {route.sequence} of key {hash_key} is not above {row[0]}, the last accepted: nothing was stored",
        )
    update = "UPDATE sequences SET last = ?, used = ? WHERE logstore = ? AND hash_key = ?"
    if connection.execute(update, (route.sequence, now, logstore.row, hash_key)).rowcount == 0:
        _add_key(connection, logstore, (hash_key, route.sequence, now), keys)


def _add_key(connection: sqlite3.Connection, logstore: Logstore, new: tuple[str, int, float], keys: int) -> None:
    hash_key, _, now = new
    connection.execute("INSERT INTO sequences VALUES (?, ?, ?, ?)", (logstore.row, *new))
    held = _count_keys(connection, logstore, 1)
    gone = _forget_keys(connection, logstore, hash_key, (logstore.horizon(now), _MORE_ROWS))
    if held - gone > keys:
        gone += _forget_keys(connection, logstore, hash_key, (math.inf, held - gone - keys))
    _count_keys(connection, logstore, -gone)


def _forget_keys(connection: sqlite3.Connection, logstore: Logstore, but: str, up_to: tuple[float, int]) -> int:
    """Delete keys last used before a time, the oldest first, up to a number; return the number deleted."""
    eldest = "SELECT rowid FROM sequences WHERE logstore = ? AND hash_key != ? AND used < ? ORDER BY used LIMIT ?"
    delete = f"DELETE FROM sequences WHERE rowid IN ({eldest})"
    return connection.execute(delete, (logstore.row, but, *up_to)).rowcount


def _count_keys(connection: sqlite3.Connection, logstore: Logstore, change: int) -> int:
    update = "UPDATE logstores SET sequence_keys = sequence_keys + ? WHERE id = ?"
    connection.execute(update, (change, logstore.row))
    query = "SELECT sequence_keys FROM logstores WHERE id = ?"
    (held,) = connection.execute(query, (logstore.row,)).fetchone()
    return int(held)

"""Positions in a shard: where it ends, and where what was received since a time begins.

Within a shard no LogGroup is received before the one at the position before it, also where the clock was set back: it
then counts as received together with that one. So a time is looked for by halving, and not from the beginning.
"""

from __future__ import annotations

import math
import sqlite3

from .rows import Logstore

_NEXT = (
    "SELECT position, received FROM log_groups WHERE logstore = ? AND shard = ? AND position >= ?"
    " ORDER BY position LIMIT 1"
)
_LAST = "SELECT received FROM log_groups WHERE logstore = ? AND shard = ? ORDER BY position DESC LIMIT 1"


def end_position(connection: sqlite3.Connection, logstore: Logstore, shard: int) -> int:
    """The position that a shard's next LogGroup will get."""
    query = "SELECT next FROM shards WHERE logstore = ? AND shard = ?"
    row = connection.execute(query, (logstore.row, shard)).fetchone()
    return 0 if row is None else int(row[0])


def received_last(connection: sqlite3.Connection, logstore: Logstore, shard: int) -> float:
    """When a shard's last LogGroup was received, Unix seconds; before all times when there is none."""
    row = connection.execute(_LAST, (logstore.row, shard)).fetchone()
    return -math.inf if row is None else float(row[0])


def first_since(connection: sqlite3.Connection, logstore: Logstore, shard: int, time: float) -> int:
    """The position of the first LogGroup received at ``time`` (Unix seconds) or later, else the shard's end."""

    def following(position: int) -> tuple[int, float]:
        """The first LogGroup from ``position`` on (those before may have been removed), and when it was received."""
        row = connection.execute(_NEXT, (logstore.row, shard, position)).fetchone()
        return (end, math.inf) if row is None else row

    low, high = 0, (end := end_position(connection, logstore, shard))
    while low < high:
        middle = (low + high) // 2
        position, received = following(middle)
        if received >= time:
            high = middle
        else:
            low = position + 1
    return following(low)[0]

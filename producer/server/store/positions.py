"""Positions in a shard: the first one since a time.

Within a shard the time of receipt never decreases, even if the clock is set back: such a LogGroup gets the time of the
one before it. So a time is found by binary search.
"""

from __future__ import annotations

import math
import sqlite3

from .rows import Logstore
from .shards import find_shard

_NEXT = (
    "SELECT position, received FROM log_groups WHERE logstore = ? AND shard = ? AND position >= ?"
    " ORDER BY position LIMIT 1"
)
_LAST = "SELECT received FROM log_groups WHERE logstore = ? AND shard = ? ORDER BY position DESC LIMIT 1"


def received_last(connection: sqlite3.Connection, logstore: Logstore, shard: int) -> float:
    """Return when a shard's last LogGroup was received, Unix seconds; minus infinity if there is none."""
    row = connection.execute(_LAST, (logstore.row, shard)).fetchone()
    return -math.inf if row is None else float(row[0])


def first_since(connection: sqlite3.Connection, logstore: Logstore, shard: int, time: float) -> int:
    """Return the position of the first LogGroup received at ``time`` (Unix seconds) or later, else the shard's end."""

    def following(position: int) -> tuple[int, float]:
        """Return position and time of receipt of the first LogGroup from ``position`` on; earlier ones may be gone."""
        row = connection.execute(_NEXT, (logstore.row, shard, position)).fetchone()
        return (end, math.inf) if row is None else row

    low, high = 0, (end := find_shard(connection, logstore.row, shard).next)
    while low < high:
        middle = (low + high) // 2
        position, received = following(middle)
        if received >= time:
            high = middle
        else:
            low = position + 1
    return following(low)[0]

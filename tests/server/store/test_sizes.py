"""Sizes that the store reports."""

import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from producer.server.store.catalog import delete_logstore, update_logstore
from producer.server.store.log_groups import CheckedGroup
from producer.server.store.rows import LogstoreSize, Place, Route
from producer.server.store.sizes import BLOCK, count_of, sizes_of
from producer.server.store.store import Store

PLACE = Place(project="my-project", logstore="app-log")
HOUR, DAY = 3600.0, 86_400.0
ROWS = """
SELECT shard, SUM(logs), SUM(raw_size), MIN(received), MAX(received), SUM(received >= ?),
    COALESCE(SUM(CASE WHEN received >= ? THEN raw_size END), 0), MIN(min_time), MAX(max_time)
FROM log_groups WHERE received >= ? GROUP BY shard ORDER BY shard
"""


def open_store(directory: Path) -> Store:
    return Store(directory, shards=2, auto_create=True, sequence_keys=10)


def group(dice: random.Random) -> CheckedGroup:
    time = dice.randrange(1_700_000_000)
    return CheckedGroup(raw_size=dice.randrange(99), count=1, topic="", min_time=time, max_time=time + 9, packed=b"")


def append(store: Store, dice: random.Random, count: int, now: float, shard: int) -> None:
    route = Route(key=shard << 127, sequence=None)
    store.submit(store.append, PLACE, [group(dice) for _ in range(count)], route, now).result()


def reported(store: Store, now: float, lately: float) -> list[tuple[Any, ...]]:
    (size,) = store.submit(sizes_of, now, lately).result()
    assert [one.number for one in size.shards] == [0, 1]
    rows = [
        (s.number, s.logs, s.bytes, s.first, s.last, s.new_logs, s.new_bytes) for s in size.shards if s.last is not None
    ]
    assert store.submit(count_of, PLACE, now).result() == sum(row[1] for row in rows)
    return [*rows, (size.earliest, size.latest)]


def counted(store: Store, horizon: float, lately: float) -> list[tuple[Any, ...]]:
    values = (lately, lately, horizon)
    rows = store._database.submit(lambda connection: connection.execute(ROWS, values).fetchall()).result()
    return [
        *(row[:7] for row in rows),
        (min((row[7] for row in rows), default=None), max((row[8] for row in rows), default=None)),
    ]


def test_sizes_equal_sums_over_rows_after_writes_expiry_removal_restarts_and_a_longer_time_to_live(
    tmp_path: Path,
) -> None:
    """Sizes equal sums over rows after writes, expiry, removal, restarts, and a longer time to live."""
    dice, now = random.Random(7), 1_700_000_000.0
    store, days = open_store(tmp_path), 30
    append(store, dice, 1, now, 0)
    for step in range(40):
        now += dice.choice([1.0, HOUR, 9 * HOUR])
        append(store, dice, dice.choice([1, 30, BLOCK - 1, BLOCK]), now, dice.randrange(2))
        if step % 9 == 8:
            days = dice.choice([1, 2, 3650])
            store.submit(update_logstore, PLACE, {"ttl": days}, now).result()
        if step % 13 == 12:
            store.close()
            store = open_store(tmp_path)
        horizon = now - days * DAY if days < 3650 else 0
        lately = now - dice.choice([0.5, 10 * HOUR, 9 * DAY])
        assert reported(store, now, lately) == counted(store, horizon, max(lately, horizon))
    store.close()


def test_a_failed_transaction_leaves_the_sums_unchanged_and_a_deleted_logstore_leaves_none(tmp_path: Path) -> None:
    """A failed transaction leaves the sums unchanged, and a deleted logstore leaves none."""
    dice, now, store = random.Random(7), 1_700_000_000.0, open_store(tmp_path)
    append(store, dice, 3, now, 0)
    before = reported(store, now, now)
    store._database.submit(lambda connection: connection.execute("PRAGMA max_page_count = 1").fetchall()).result()
    big = CheckedGroup(raw_size=1, count=1, topic="", min_time=0, max_time=1, packed=bytes(1 << 22))
    with pytest.raises(Exception, match="free space"):
        store.submit(store.append, PLACE, [big], None, now).result()
    assert reported(store, now, now) == before
    store._database.submit(lambda connection: connection.execute("PRAGMA max_page_count = 9999").fetchall()).result()
    store.submit(delete_logstore, PLACE).result()
    append(store, dice, 1, now, 0)
    assert store.submit(count_of, PLACE, now).result() == 1
    store.close()


def test_sizes_do_not_read_every_row(tmp_path: Path) -> None:
    """Sizes are read by blocks, in fewer database steps than there are LogGroups."""
    store, now, dice = open_store(tmp_path), 1_700_000_000.0, random.Random(7)

    def steps(connection: sqlite3.Connection) -> list[LogstoreSize]:
        connection.set_progress_handler(lambda: seen.append(1) or 0, 100)
        return []

    seen: list[int] = []
    store._database.submit(steps).result()
    for _ in range(30):
        append(store, dice, BLOCK, now, 0)
    seen.clear()
    reported(store, now, now + 1)
    assert len(seen) * 100 < 30 * BLOCK / 2
    store.close()

"""Search for the first LogGroup of a time in a shard."""

import sqlite3
from collections.abc import Iterator

import pytest

from producer.server.store import store as stores
from producer.server.store.catalog import find_logstore
from producer.server.store.log_groups import CheckedGroup
from producer.server.store.reading import position_since
from producer.server.store.rows import Place
from producer.server.store.store import Store

PLACE = Place(project="p", logstore="l")
GROUP = CheckedGroup(raw_size=0, count=1, topic="", min_time=0, max_time=0, packed=b"")
DAY = 86400.0


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store(None, shards=1, auto_create=True, sequence_keys=10)
    yield store
    store.close()


def fill(store: Store, times: list[float]) -> None:
    """Store one LogGroup for each time of receipt."""

    def job(connection: sqlite3.Connection) -> None:
        logstore = find_logstore(connection, PLACE)
        assert logstore is not None
        for time in times:
            stores._insert_groups(connection, logstore, 0, [GROUP], time)

    store.submit(store.create_logstore, PLACE, {}, times[0]).result()
    store._database.submit(job).result()


def since(store: Store, time: float, now: float) -> int:
    """Return the position of a cursor by time."""
    return store.submit(position_since, PLACE, 0, time, now).result()


def test_a_time_is_found_at_every_position(store: Store) -> None:
    """A time finds the first LogGroup received then or later, for every time before, at, between and after; else the
    end.
    """
    times = [100.0, 100.0, 101.0, 105.0, 105.0, 105.0, 110.0]
    fill(store, times)
    for tenths in range(980, 1120):
        time = tenths / 10
        assert since(store, time, 111) == sum(received < time for received in times)


def test_expired_loggroups_are_skipped_whether_removed_or_not(store: Store) -> None:
    """Expired LogGroups are skipped, whether their rows are removed or not."""
    fill(store, [0.0, 1.0, 2.0, 29 * DAY])
    assert since(store, 0, 29 * DAY) == 0
    assert since(store, 0, 31 * DAY) == 3
    store.submit(store.append, PLACE, [GROUP], None, 31 * DAY).result()
    assert (since(store, 0, 31 * DAY), since(store, 30 * DAY, 31 * DAY)) == (3, 4)
    assert since(store, 32 * DAY, 31 * DAY) == 5
    store.submit(store.append, PLACE, [GROUP], None, 90 * DAY).result()
    assert (since(store, 0, 90 * DAY), since(store, 91 * DAY, 90 * DAY)) == (5, 6)


def test_a_clock_that_was_set_back_hides_nothing(store: Store) -> None:
    """After the clock is set back, new LogGroups get the time of the last one, and a reader from then finds them."""
    fill(store, [100.0, 200.0, 50.0, 60.0, 210.0])
    assert [since(store, time, 300) for time in (0, 55, 101, 200, 201, 211)] == [0, 0, 1, 1, 4, 5]


def test_a_shard_is_not_walked_from_its_beginning(store: Store) -> None:
    """Finding a time among 20,000 LogGroups takes a few look-ups, wherever it is."""
    fill(store, [float(number) for number in range(20_000)])
    ticks: list[int] = []
    count = store._database.submit(lambda connection: connection.set_progress_handler(lambda: ticks.append(1), 100))
    count.result()
    for time in (0, 10_000, 19_999, 30_000):
        ticks.clear()
        assert since(store, time, 30_000) == min(time, 20_000)
        assert len(ticks) < 20

"""Recent: recent puts are taken from memory; lagging takers and restarts read from the disk."""

import pytest

from producer.channels.file.queue import recent
from producer.channels.file.queue.recent import Recent
from tests.channels.file.opening import file_stats, fill, killed, open_channel, opened_channel, segments
from tests.channels.helpers import bodies, drained, opened, put, take
from tests.support.sim_fs import SimFS


def reads(disk: SimFS) -> int:
    return disk.count("read", "log-")


@pytest.mark.parametrize("fsync", ["commit", "os", 5.0])
def test_a_taker_that_keeps_up_gets_recent_events_from_memory_without_reading_a_segment(fsync: str | float) -> None:
    """A taker that keeps up gets recent events from memory, without reading a segment."""
    disk = SimFS()
    with opened_channel(disk, fsync=fsync) as channel:
        before = reads(disk)
        for number in range(3):
            expected = fill(channel, 20, each=5)
            assert take(channel, 20) == expected, number
        assert reads(disk) == before


def test_a_returned_event_is_read_from_the_disk() -> None:
    """A returned event is read from the disk."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "a", "b")
        taking = opened(channel)
        assert bodies(taking.take(2)) == ["a", "b"]
        taking.rollback()
        before = reads(disk)
        assert take(channel, 2) == ["a", "b"]
        assert reads(disk) > before


def test_after_a_restart_all_events_are_read_from_the_disk() -> None:
    """After a restart all events are read from the disk."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a", "b")
    after = killed(channel, disk)
    with opened_channel(after) as again:
        before = reads(after)
        assert drained(again) == ["a", "b"]
        assert reads(after) > before


def test_the_cache_is_bounded_and_keeps_the_oldest_events_until_some_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is bounded and keeps the oldest events until some are taken."""
    monkeypatch.setattr(recent, "MOST", 10)
    monkeypatch.setattr(recent, "EVENT_OVERHEAD", 0)
    kept = Recent()
    kept.add(1, [b"1234", b"5678"])
    kept.add(3, [b"abc"])
    assert kept.pop([3]) == []
    assert kept.pop([1]) == [b"1234"]
    kept.add(4, [b"defghi"])
    assert kept.pop([1, 2, 3, 4]) == [b"5678", b"defghi"]


def test_the_caches_size_includes_object_overhead_and_stats_reports_it() -> None:
    """The cache's size includes object overhead, and ``stats`` reports it."""
    with opened_channel() as channel:
        put(channel, "a", "b")
        both = file_stats(channel).recent_bytes
        assert both > 2 * recent.EVENT_OVERHEAD
        assert take(channel, 1) == ["a"]
        assert file_stats(channel).recent_bytes == both // 2
        assert take(channel, 1) == ["b"]
        assert file_stats(channel).recent_bytes == 0
    kept, number = Recent(), 0
    while kept.size == number * (recent.EVENT_OVERHEAD + 1):
        kept.add(number, [b"x"])
        number += 1
    assert recent.MOST - recent.EVENT_OVERHEAD - 1 <= kept.size <= recent.MOST


def test_a_take_of_events_partly_in_memory_and_partly_on_the_disk_returns_each_once_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A take of events partly in memory and partly on the disk returns each once, in order."""
    monkeypatch.setattr(recent, "MOST", 1000)
    disk = SimFS()
    with opened_channel(disk) as channel:
        expected = fill(channel, 60, each=3)
        got = take(channel, 7)
        expected += fill(channel, 30, each=3)
        while more := take(channel, 7):
            got += more
        assert got == expected
        assert len(segments(disk)) > 1


def test_a_wrong_size_of_the_cache_is_corrected_once_everything_is_taken() -> None:
    """A wrong size of the cache is corrected once everything is taken."""
    kept = Recent()
    kept.add(1, [b"a"])
    kept._size = recent.MOST  # as if an interrupt had come between a payload that goes and the sum
    kept.add(2, [b"b"])
    assert kept.pop([1, 2]) == [b"a"]
    kept.add(3, [b"c"])
    assert kept.pop([3]) == [b"c"]


def test_a_channel_that_is_closed_keeps_nothing() -> None:
    """A closed channel releases the cache."""
    channel = open_channel()
    put(channel, "a")
    channel.close()
    assert channel._ledger.recent.pop([1]) == []

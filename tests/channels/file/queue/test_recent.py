"""What was put a moment ago is taken from memory; the disk is read by those who are behind, and after a restart."""

import pytest

from producer.channels.file.queue import recent
from producer.channels.file.queue.recent import Recent
from tests.channels.file.opening import file_stats, fill, killed, open_channel, opened_channel, segments
from tests.channels.helpers import bodies, drained, opened, put, take
from tests.support.sim_fs import SimFS


def reads(disk: SimFS) -> int:
    return disk.count("read", "log-")


@pytest.mark.parametrize("fsync", ["commit", "os", 5.0])
def test_who_keeps_up_reads_nothing_back(fsync: str | float) -> None:
    """Events that were just committed are taken, in order and with their headers, and no segment is read."""
    disk = SimFS()
    with opened_channel(disk, fsync=fsync) as channel:
        before = reads(disk)
        for number in range(3):
            expected = fill(channel, 20, each=5)
            assert take(channel, 20) == expected, number
        assert reads(disk) == before


def test_what_is_given_back_is_read_from_the_disk() -> None:
    """Taken once, an event is in memory no more; it comes again, whole, from the disk."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "a", "b")
        taking = opened(channel)
        assert bodies(taking.take(2)) == ["a", "b"]
        taking.rollback()
        before = reads(disk)
        assert take(channel, 2) == ["a", "b"]
        assert reads(disk) > before


def test_a_new_channel_knows_only_the_disk() -> None:
    """After a death of the process everything is read."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a", "b")
    after = killed(channel, disk)
    with opened_channel(after) as again:
        before = reads(after)
        assert drained(again) == ["a", "b"]
        assert reads(after) > before


def test_what_is_kept_is_bounded_and_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the bound nothing more is kept until something was taken: a taker who is behind finds the next ones."""
    monkeypatch.setattr(recent, "MOST", 10)
    monkeypatch.setattr(recent, "EVENT_OVERHEAD", 0)
    kept = Recent()
    kept.add(1, [b"1234", b"5678"])
    kept.add(3, [b"abc"])
    assert kept.pop([3]) == []
    assert kept.pop([1]) == [b"1234"]
    kept.add(4, [b"defghi"])
    assert kept.pop([1, 2, 3, 4]) == [b"5678", b"defghi"]


def test_what_is_kept_in_memory_is_told_and_counts_the_objects() -> None:
    """Small events take more than their bytes: both count against the bound, and ``stats`` tells the sum."""
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


def test_a_taker_who_is_behind_misses_and_repeats_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of a block in memory and others on the disk: all of them come once, in order."""
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


def test_an_interrupt_within_the_bookkeeping_does_not_fill_it_for_ever() -> None:
    """A sum that is wrong is right again once everything was taken."""
    kept = Recent()
    kept.add(1, [b"a"])
    kept._size = recent.MOST  # as if an interrupt had come between a payload that goes and the sum
    kept.add(2, [b"b"])
    assert kept.pop([1, 2]) == [b"a"]
    kept.add(3, [b"c"])
    assert kept.pop([3]) == [b"c"]


def test_a_channel_that_is_closed_keeps_nothing() -> None:
    """What was in memory is given back with the channel, however long somebody holds it."""
    channel = open_channel()
    put(channel, "a")
    channel.close()
    assert channel._ledger.recent.pop([1]) == []

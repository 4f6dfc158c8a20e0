"""Statistics of the file channel: each number means what it says."""

import dataclasses
import json
import pickle

import pytest

from producer.channels import Event
from producer.model.errors import ChannelFullError
from producer.model.interfaces import ChannelStats, FileStats
from producer.testing import ManualClock
from tests.channels.file.opening import (
    CHECKPOINTS,
    DIRECTORY,
    file_stats,
    fill,
    flip,
    killed,
    names,
    open_channel,
    opened_channel,
    segments,
)
from tests.channels.helpers import bodies, drained, events, opened, put, take
from tests.support.sim_fs import PLENTY, SimFS
from tests.support.waiting import Call, eventually


def test_a_new_channel_has_done_nothing() -> None:
    """A new channel reports zeros, one segment and one checkpoint."""
    disk = SimFS()
    with opened_channel(disk, name="orders", capacity=50, byte_capacity=9000) as channel:
        assert channel.stats() == ChannelStats(
            name="orders",
            capacity=50,
            byte_capacity=9000,
            file=FileStats(
                segments=1,
                disk_bytes=sum(len(disk.content(path)) for path in segments(disk)),
                free_bytes=PLENTY,
                checkpoints=1,
            ),
        )


def test_attempts_count_at_once_successes_at_commit() -> None:
    """Attempts count at once, successes at commit."""
    with opened_channel() as channel:
        assert take(channel) == []
        transaction = opened(channel)
        transaction.put_many(events("abc"))
        assert (channel.stats().put_attempts, channel.stats().put_successes) == (3, 0)
        transaction.commit()
        assert (channel.stats().put_attempts, channel.stats().put_successes) == (3, 3)
        transaction = opened(channel)
        transaction.put(Event({}, b"d"))
        transaction.rollback()
        assert (channel.stats().put_attempts, channel.stats().put_successes) == (4, 3)
        transaction = opened(channel)
        transaction.take(2)
        assert (channel.stats().take_attempts, channel.stats().take_successes) == (3, 0)
        transaction.rollback()
        assert (channel.stats().take_attempts, channel.stats().take_successes) == (3, 0)
        assert take(channel, 100) == ["a", "b", "c"]
        assert (channel.stats().take_attempts, channel.stats().take_successes) == (6, 3)
        assert (channel.stats().put_errors, channel.stats().take_errors) == (0, 0)


def test_size_taken_and_fill_follow_the_events() -> None:
    """Size, taken and fill follow the events."""
    with opened_channel(capacity=8) as channel:
        put(channel, *"abcd")
        transaction = opened(channel)
        taken = transaction.take(3)
        stats = channel.stats()
        assert (stats.size, stats.taken, stats.fill) == (1, 3, 0.5)
        transaction.acknowledge(taken[:1])
        stats = channel.stats()
        assert (stats.size, stats.taken, stats.fill) == (1, 2, 0.375)
        transaction.rollback()
        stats = channel.stats()
        assert (stats.size, stats.taken, stats.fill) == (3, 0, 0.375)


def test_bytes_include_headers_and_taken_events_and_survive_a_restart() -> None:
    """Bytes include headers and taken events, and survive a restart."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        with channel.transaction() as transaction:
            transaction.put(Event({"name": "value"}, b"x" * 100))
            transaction.put(Event({}, b"y" * 50))
        size = (4 + 6 + 4 + 5 + 100) + (4 + 50)
        assert channel.stats().bytes == size
        taking = opened(channel)
        taking.take()
        assert channel.stats().bytes == size
        taking.rollback()
    with opened_channel(disk) as channel:
        assert channel.stats().bytes == size
        take(channel)
        assert channel.stats().bytes == 54


def test_rates_are_over_the_last_minute() -> None:
    """Rates cover the last minute, and fade."""
    clock = ManualClock()
    with opened_channel(clock=clock) as channel:
        for _ in range(10):
            clock.advance(1)
            fill(channel, 10)
            take(channel, 5)
        assert channel.stats().put_rate == pytest.approx(10)
        assert channel.stats().take_rate == pytest.approx(5)
        clock.advance(1000)
        assert (channel.stats().put_rate, channel.stats().take_rate) == (0, 0)


def test_ages_are_those_of_the_head_and_the_last_take_also_after_a_restart() -> None:
    """Ages are those of the head and the last take, also after a restart."""
    disk, clock = SimFS(), ManualClock()
    channel = open_channel(disk, clock=clock)
    assert (channel.stats().oldest_event_age, channel.stats().last_take_age) == (None, None)
    put(channel, "a")
    clock.advance(10)
    put(channel, "b")
    clock.advance(5)
    assert channel.stats().oldest_event_age == 15
    take(channel)
    clock.advance(2)
    assert (channel.stats().oldest_event_age, channel.stats().last_take_age) == (7, 2)
    disk = killed(channel, disk)
    for checkpointed in (False, True):
        with opened_channel(disk, clock=ManualClock(clock.time() + 100)) as again:
            assert again.stats().oldest_event_age == 107
            assert again.stats().last_take_age is None
            assert file_stats(again).replayed == (0 if checkpointed else 6)


def test_a_clock_that_was_set_back_makes_no_negative_age() -> None:
    """A clock set back gives an age of zero."""
    disk = SimFS()
    with opened_channel(disk, clock=ManualClock(2_000_000_000.0)) as channel:
        put(channel, "a")
    with opened_channel(disk, clock=ManualClock(1_000_000_000.0)) as channel:
        assert channel.stats().oldest_event_age == 0
        assert drained(channel) == ["a"]


def test_waiting_threads_are_counted_until_they_end() -> None:
    """Waiting threads are counted until they end."""
    clock = ManualClock()
    with opened_channel(capacity=1, clock=clock) as channel:
        put(channel, "a")
        waiting = []
        for _ in range(3):
            transaction = opened(channel)
            transaction.put(Event({}, b"b"))
            waiting.append(Call(lambda transaction=transaction: transaction.commit(timeout=30)))
        eventually(lambda: channel.stats().waiting == 3)
        clock.advance(31)
        for call in waiting:
            with pytest.raises(ChannelFullError):
                call.result()
        assert (channel.stats().waiting, channel.stats().put_errors) == (0, 3)


def test_segments_bytes_free_space_syncs_rolls_and_checkpoints_are_counted() -> None:
    """Segments, bytes, free space, syncs, rolls and checkpoints are counted."""
    disk = SimFS(capacity=500_000)
    with opened_channel(disk) as channel:
        fill(channel, 100)
        found = file_stats(channel)
        assert found.segments == len(segments(disk)) == found.rolls + 1
        assert found.disk_bytes == sum(len(disk.content(path)) for path in segments(disk))
        assert found.free_bytes == 500_000 - disk.used
        assert found.syncs == 100
        assert found.unsynced_bytes == 0
        assert found.checkpoints == 1
        drained(channel)
        channel.checkpoint()
        after = file_stats(channel)
        assert (after.segments, after.checkpoints) == (1, 2)
        assert after.rolls == int(segments(disk)[0][-10:]) - 1
        assert after.disk_bytes < found.disk_bytes


def test_unsynced_bytes_are_reported_and_zero_after_sync() -> None:
    """Unsynced bytes are reported, and zero after sync()."""
    disk = SimFS()
    with opened_channel(disk, fsync="os") as channel:
        before = len(disk.content(segments(disk)[0]))
        put(channel, "a")
        assert file_stats(channel).unsynced_bytes == len(disk.content(segments(disk)[0])) - before
        channel.sync()
        assert file_stats(channel).unsynced_bytes == 0


def test_the_findings_of_an_opening_are_reported_until_the_next_one() -> None:
    """The findings of an opening are reported until the next one."""
    disk = SimFS()
    channel = open_channel(disk)
    fill(channel, 20)
    disk = killed(channel, disk)
    flip(disk, CHECKPOINTS[0], 20)
    flip(disk, segments(disk)[0], 700)
    for clean in (False, True):
        with opened_channel(disk) as channel:
            found = file_stats(channel)
            assert found.recovered == channel.stats().size == 19
            assert found.replayed == (0 if clean else 40)
            assert found.checkpoint_fallbacks == (0 if clean else 1)
            assert (found.damaged_records, found.lost_events, found.quarantined) == ((0, 0, 0) if clean else (1, 1, 1))
            assert channel.stats().put_successes == 0


def test_statistics_are_frozen_comparable_picklable_and_ready_for_json() -> None:
    """Statistics are frozen, comparable, picklable and ready for JSON."""
    with opened_channel() as channel:
        put(channel, "a")
        stats = channel.stats()
        assert pickle.loads(pickle.dumps(stats)) == stats
        assert json.loads(json.dumps(dataclasses.asdict(stats)))["file"]["syncs"] == 1
        with pytest.raises(dataclasses.FrozenInstanceError):
            stats.size = 5  # type: ignore[misc]
        for kind in (ChannelStats, FileStats):
            for field in dataclasses.fields(kind):
                assert f":ivar {field.name}:" in (kind.__doc__ or "")


def test_statistics_are_consistent_under_load() -> None:
    """Statistics are consistent under load."""
    with opened_channel(capacity=30) as channel:
        seen: list[ChannelStats] = []
        work = [Call(lambda: [(put(channel, "a"), take(channel)) for _ in range(200)]) for _ in range(3)]
        while not all(call.done for call in work):
            seen.append(channel.stats())
        for call in work:
            call.result()
        for stats in seen:
            assert 0 <= stats.size + stats.taken <= 30
            assert stats.put_successes <= stats.put_attempts
            assert stats.take_successes <= stats.take_attempts
            assert 0 <= stats.fill <= 1
        assert channel.stats().put_successes == channel.stats().take_successes == 600


@pytest.mark.usefixtures("read_back")
def test_quarantine_and_statistics_agree() -> None:
    """The count of quarantined segments equals the files there."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        fill(channel, 60)
        for path in segments(disk)[:2]:
            flip(disk, path, 700)
        assert len(drained(channel)) == 58
        assert file_stats(channel).quarantined == len(names(disk, f"{DIRECTORY}/quarantine")) == 2
        taking = opened(channel)
        assert bodies(taking.take()) == []
        taking.commit()

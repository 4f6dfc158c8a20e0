"""Group commit: commits share syncs, and a failed sync costs a segment and no event.

The file is long because the list of promises is.
"""

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from producer.channels import FileChannel, Stored
from producer.channels.file.log import log as log_module
from producer.channels.file.log.run import Run
from producer.channels.file.store.format import FIRST_RECORD, Kind
from producer.channels.file.store.pointers import pointer_to
from producer.model.errors import ChannelIOError
from producer.testing import ManualClock
from tests.channels.file.opening import (
    DIRECTORY,
    contents,
    file_stats,
    fill,
    header,
    killed,
    open_channel,
    opened_channel,
    records,
    segments,
)
from tests.channels.helpers import bodies, drained, events, opened, put, take
from tests.support.sim_fs import SimFS
from tests.support.waiting import PATIENCE, Call, eventually

THREADS = 20


def log_syncs(disk: SimFS) -> int:
    return disk.count("sync", "log-")


@contextmanager
def all_written_before_any_syncs(channel: FileChannel, count: int) -> Iterator[None]:
    """Hold back every sync until ``count`` commits have written."""
    barrier, wait_synced = threading.Barrier(count), channel._log._wait_synced

    def waiting(*arguments: object) -> object:
        barrier.wait(PATIENCE)
        return wait_synced(*arguments)  # type: ignore[arg-type]

    channel._log._wait_synced = waiting  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        channel._log._wait_synced = wait_synced  # type: ignore[method-assign]


def test_twenty_commits_that_have_written_share_one_sync() -> None:
    """Twenty written commits need exactly one sync, and are on the disk when they return."""
    disk = SimFS()
    with opened_channel(disk, segment_size=100_000) as channel:
        before, counted = log_syncs(disk), file_stats(channel).syncs
        with all_written_before_any_syncs(channel, THREADS):
            calls = [Call(lambda name=name: put(channel, f"{name:02}")) for name in range(THREADS)]
            numbers = [call.result() for call in calls]
        assert log_syncs(disk) - before == 1
        assert file_stats(channel).syncs - counted == 1
        assert sorted(numbers) == list(range(1, THREADS + 1))
        assert channel.synced_sequence == THREADS
        crashed = disk.crash(1)
    assert sorted(contents(crashed)) == [f"{name:02}" for name in range(THREADS)]


def test_commits_that_come_during_a_sync_share_the_next_one() -> None:
    """All commits written during a slow sync share one more sync."""
    disk = SimFS()
    with opened_channel(disk, segment_size=100_000) as channel:
        go, begun, once = threading.Event(), threading.Event(), iter([None])

        def slow(operation: str, path: str) -> None:
            if operation == "sync" and "log-" in path and next(once, 0) is None:
                begun.set()
                assert go.wait(PATIENCE)

        before = log_syncs(disk)
        disk.hook = slow
        first = Call(lambda: put(channel, "first"))
        assert begun.wait(PATIENCE)
        appends = disk.count("append", "log-")
        others = [Call(lambda name=name: put(channel, str(name))) for name in range(THREADS)]
        eventually(lambda: disk.count("append", "log-") == appends + THREADS)
        assert channel.stats().size == 0
        assert not any(call.done for call in (first, *others))
        go.set()
        for call in (first, *others):
            call.result()
        assert log_syncs(disk) - before == 2
        assert channel.stats().size == THREADS + 1


def test_takes_are_committed_in_the_same_group_as_puts_in_log_order() -> None:
    """Takes are committed in the same group as puts, in log order."""
    disk = SimFS()
    with opened_channel(disk, segment_size=100_000) as channel:
        put(channel, *range(10))
        taking = [opened(channel) for _ in range(10)]
        for transaction in taking:
            transaction.take()
        before = log_syncs(disk)
        with all_written_before_any_syncs(channel, 20):
            calls = [Call(transaction.commit) for transaction in taking]
            calls += [Call(lambda name=name: put(channel, f"new {name}")) for name in range(10)]
            for call in calls:
                call.result()
        assert log_syncs(disk) - before == 1
        assert sorted(contents(disk.crash(3))) == [f"new {name}" for name in range(10)]
    killed(channel, disk)


def test_sequence_numbers_follow_the_order_of_the_log() -> None:
    """Concurrent transactions get consecutive numbers, and their events are delivered in that order."""
    with opened_channel(segment_size=100_000) as channel:
        calls = [Call(lambda name=name: put(channel, *[f"{name:02}"] * 5)) for name in range(THREADS)]
        lasts = {f"{name:02}": call.result() for name, call in enumerate(calls)}
        expected = [body for body in sorted(lasts, key=lasts.__getitem__) for _ in range(5)]
        assert sorted(lasts.values()) == list(range(5, 101, 5))
        assert drained(channel) == expected


def test_after_a_failed_sync_the_commit_still_succeeds_in_a_new_segment() -> None:
    """After a failed sync the commit still succeeds in a new segment, and its event is delivered once."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "before")
    disk.fail("sync")
    transaction = opened(channel)
    transaction.put_many(events(["a", "b"]))
    assert transaction.commit() is Stored.DISK
    found = file_stats(channel)
    assert (found.poisoned, found.segments) == (1, 2)
    old, new = segments(disk)
    size = len(disk.content(old))
    put(channel, "after")
    assert len(disk.content(old)) == size
    assert [record.sequence for record in records(disk, new) if record.kind == Kind.PUT] == [2, 3, 4]
    assert channel.stats().put_errors == 0
    taking = opened(channel)
    assert bodies(taking.take(10)) == ["before", "a", "b", "after"]
    taking.rollback()
    for seed in range(20):
        again = disk.after_crash(seed) if seed % 2 else disk.copy()
        assert contents(again) == ["before", "a", "b", "after"]
    channel.close()


def test_of_an_event_that_was_written_again_the_later_copy_counts() -> None:
    """A replay of the log alone ignores the void end of a segment whose sync failed."""
    disk = SimFS()
    channel = open_channel(disk)
    disk.fail("sync")
    disk.fail("truncate")  # otherwise they would be cut off there
    put(channel, "a", "b")
    disk = killed(channel, disk)
    poisoned, good = segments(disk)
    for name in ("checkpoint", "checkpoint.backup"):
        disk.unlink(f"{DIRECTORY}/{name}")
    with opened_channel(disk) as again:
        assert file_stats(again).replayed == 3
        assert poisoned not in segments(disk)
        assert good in segments(disk)
        assert drained(again) == ["a", "b"]


def test_a_failed_sync_of_twenty_commits_fails_none_of_them() -> None:
    """A failed sync poisons one segment, and one new sync serves all its commits."""
    disk = SimFS()
    with opened_channel(disk, segment_size=100_000) as channel:
        before = log_syncs(disk)
        disk.fail("sync")
        with all_written_before_any_syncs(channel, THREADS):
            for call in [Call(lambda name=name: put(channel, f"{name:02}")) for name in range(THREADS)]:
                call.result()
        assert file_stats(channel).poisoned == 1
        assert log_syncs(disk) - before == 2  # the failed sync, and that of the new segment
        assert sorted(contents(disk.copy())) == [f"{name:02}" for name in range(THREADS)]
        assert sorted(drained(channel)) == [f"{name:02}" for name in range(THREADS)]


def failing_twice(disk: SimFS) -> None:
    """Fail a sync, and also the sync of the rewritten records."""
    disk.fail("sync", nth=1, times=None)


def test_a_second_failure_is_an_error_and_nothing_happened() -> None:
    """If rewriting fails too, the commit raises, nothing is visible, and the transaction can be committed again."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "before")
        transaction = opened(channel)
        transaction.put_many(events(["a", "b"]))
        failing_twice(disk)
        with pytest.raises(ChannelIOError, match="a commit could not be synced to the disk") as caught:
            transaction.commit()
        assert "It is not committed, but may still appear if the power fails before another commit succeeds" in str(
            caught.value
        )
        assert caught.value.errno == errno.EIO
        assert (channel.stats().size, channel.stats().put_errors) == (1, 1)
        disk.heal()
        transaction.commit()
        assert transaction.last_sequence is not None
        assert drained(channel) == ["before", "a", "b"]
        assert channel.stats().bytes == 0
    assert contents(disk) == []


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_the_next_segment_voids_the_records_of_a_failed_commit_and_a_replay_ignores_them(
    again: bool, checkpointed: bool
) -> None:
    """The next segment voids the records of a failed commit, and a replay ignores them."""
    disk = SimFS()
    channel = open_channel(disk)
    transaction = opened(channel)
    transaction.put_many(events(["never", "never either"]))
    failing_twice(disk)
    with pytest.raises(ChannelIOError):
        transaction.commit()
    disk.heal()
    if again:
        transaction.commit()
    else:
        transaction.rollback()
    put(channel, "kept")
    assert header(disk, segments(disk)[-1]).void_from == pointer_to(1, FIRST_RECORD)
    expected = ["never", "never either", "kept"] if again else ["kept"]
    if checkpointed:
        channel.checkpoint()
    disk = killed(channel, disk)
    assert contents(disk.copy()) == expected
    for path in (f"{DIRECTORY}/checkpoint", f"{DIRECTORY}/checkpoint.backup"):
        disk.unlink(path)
    assert contents(disk) == expected


def test_each_of_twenty_failed_commits_raises() -> None:
    """Each of twenty failed commits raises; the channel is empty afterwards, works, and stays so after a restart."""
    disk = SimFS()
    with opened_channel(disk, segment_size=100_000) as channel:
        failing_twice(disk)
        with all_written_before_any_syncs(channel, THREADS):
            calls = [Call(lambda name=name: put(channel, f"{name:02}")) for name in range(THREADS)]
            for call in calls:
                with pytest.raises(ChannelIOError):
                    call.result()
        assert (channel.stats().size, channel.stats().bytes, channel.stats().put_errors) == (0, 0, THREADS)
        disk.heal()
        put(channel, "works")
        assert header(disk, segments(disk)[-1]).void_from == pointer_to(1, FIRST_RECORD)
        assert contents(disk.copy()) == ["works"]


def test_a_take_whose_commit_failed_can_be_committed_again_or_rolled_back() -> None:
    """A take whose commit failed can be committed again or rolled back."""
    for end in ("commit", "rollback"):
        disk = SimFS()
        with opened_channel(disk) as channel:
            put(channel, "a", "b")
            taking = opened(channel)
            taking.take()
            failing_twice(disk)
            with pytest.raises(ChannelIOError):
                taking.commit()
            assert channel.stats().taken == 1
            disk.heal()
            getattr(taking, end)()
            put(channel, "c")
            expected = ["b", "c"] if end == "commit" else ["a", "b", "c"]
            assert contents(disk.copy()) == expected
            assert drained(channel) == expected


def test_events_in_an_open_take_are_found_in_the_new_segment_after_a_failed_sync() -> None:
    """Events in an open take are found in the new segment after a failed sync."""
    disk = SimFS()
    with opened_channel(disk, fsync=1000.0) as channel:
        put(channel, "a", "b", "c")
        taking = opened(channel)
        assert bodies(taking.take(2)) == ["a", "b"]
        disk.fail("sync")
        channel.sync()
        old, new = segments(disk)
        file = disk.open(old)
        disk.truncate(file, 640)  # as if the kernel had dropped it
        disk.close(file)
        taking.rollback()
        assert take(channel, 3) == ["a", "b", "c"]
        assert file_stats(channel).lost_events == 0
        assert len(records(disk, new)) >= 4


def test_with_a_sync_interval_a_failed_sync_rewrites_the_unsynced_records_to_a_new_segment() -> None:
    """With a sync interval, a failed sync rewrites the unsynced records to a new segment, which survives a crash."""
    disk, clock = SimFS(), ManualClock()
    with opened_channel(disk, fsync=5.0, clock=clock) as channel:
        expected = fill(channel, 30)
        rolled = file_stats(channel).rolls
        assert rolled >= 1
        disk.fail("sync")
        eventually(lambda: clock.waiting == 1)
        clock.advance(5.1)
        eventually(lambda: channel.synced_sequence == 30)
        assert file_stats(channel).poisoned == 1
        for seed in range(10):
            assert contents(disk.after_crash(seed)) == expected
        assert drained(channel) == expected


@pytest.mark.parametrize("fsync", [1000.0, "os"])
def test_sync_raises_only_if_rewriting_fails_too_each_time_until_the_disk_works(fsync: str | float) -> None:
    """sync() raises only if rewriting fails too, each time until the disk works; then everything is on the disk."""
    disk = SimFS()
    with opened_channel(disk, fsync=fsync) as channel:
        put(channel, "a")
        failing_twice(disk)
        for _ in range(3):
            with pytest.raises(ChannelIOError, match=r"could not be synced to the disk.*writes it again"):
                channel.sync()
            with pytest.raises(ChannelIOError, match="a commit failed"):
                put(channel, "refused, lest it stands before what is owed")
            assert channel.synced_sequence < 1
        assert file_stats(channel).unsynced_bytes > 0
        disk.heal()
        put(channel, "b")
        assert channel.synced_sequence == 1
        channel.sync()
        assert (channel.synced_sequence, file_stats(channel).unsynced_bytes) == (2, 0)
        for seed in range(10):
            assert contents(disk.after_crash(seed)) == ["a", "b"]
        assert drained(channel) == ["a", "b"]


def test_sync_waits_for_all_earlier_commits_but_not_longer_than_its_timeout() -> None:
    """sync() waits for all earlier commits, but not longer than its timeout."""
    disk, clock = SimFS(), ManualClock()
    with opened_channel(disk, fsync="os", clock=clock) as channel:
        put(channel, "a")
        go, begun = threading.Event(), threading.Event()

        def slow(operation: str, path: str) -> None:
            if operation == "sync" and "log-" in path and not begun.is_set():
                begun.set()
                assert go.wait(PATIENCE)

        disk.hook = slow
        first = Call(channel.sync)
        assert begun.wait(PATIENCE)
        with pytest.raises(TimeoutError, match="not synced within 0 s; the sync continues"):
            channel.sync(timeout=0)
        second = Call(lambda: channel.sync(timeout=50))
        eventually(lambda: clock.waiting == 1)
        clock.advance(51)
        with pytest.raises(TimeoutError):
            second.result()
        third = Call(lambda: channel.sync(timeout=50))
        go.set()
        first.result()
        third.result()
        assert channel.synced_sequence == 1


def test_a_roll_between_two_commits_syncs_both_segments() -> None:
    """sync() syncs every segment with unsynced records."""
    disk = SimFS()
    with opened_channel(disk, fsync="os") as channel:
        expected = fill(channel, 60)
        assert file_stats(channel).rolls >= 2
        assert file_stats(channel).unsynced_bytes > 0
        channel.sync()
        assert file_stats(channel).unsynced_bytes == 0
        for seed in range(10):
            assert contents(disk.after_crash(seed)) == expected


@pytest.mark.parametrize("fsync", ["os", 1000.0])
def test_without_a_sync_at_commit_a_crash_keeps_a_prefix_of_the_log_on_the_disk(
    fsync: str | float,
) -> None:
    """Without a sync at commit, a crash keeps a prefix of the log on the disk and counts earlier gaps as lost."""
    seen = set()
    for seed in range(40):
        disk = SimFS()
        channel = open_channel(disk, fsync=fsync)
        expected = fill(channel, 30, each=3)
        crashed = disk.crash(seed)
        channel.close()
        with opened_channel(crashed) as again:
            lost, found = file_stats(again).lost_events, drained(again)
        places = [expected.index(body) for body in found]
        assert places == sorted(places)
        missing = max(places, default=-1) + 1 - len(places)
        assert missing <= lost <= len(expected) - len(found)
        seen.add((len(found), lost))
        assert contents(crashed.kill()) == []
    assert len({lost for _, lost in seen}) > 3


def test_a_commit_is_refused_while_unsynced_records_of_a_failed_sync_cannot_be_read_back() -> None:
    """A commit is refused while unsynced records of a failed sync cannot be read back."""
    disk = SimFS()
    with opened_channel(disk, fsync="os") as channel:
        put(channel, "a")
        disk.fail("sync", times=None)
        disk.fail("read", times=None)
        with pytest.raises(ChannelIOError):
            channel.sync()
        with pytest.raises(ChannelIOError):
            put(channel, "refused")
        disk.heal()
        put(channel, "b")
        channel.sync()
        for seed in range(10):
            assert contents(disk.after_crash(seed)) == ["a", "b"]


def test_owed_runs_are_written_before_any_other_run_even_after_an_interrupt() -> None:
    """Owed runs are written before any other run, even after an interrupt."""
    with opened_channel(SimFS(), fsync="os") as channel:
        end = channel._log._end
        assert end.fits_current(10)
        end.owed = [Run()]
        fits_current, end.owed = end.fits_current(10), []
        assert not fits_current


def test_with_a_sync_interval_unsynced_records_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a sync interval, unsynced records in memory are bounded, and synced early beyond that."""
    monkeypatch.setattr(log_module, "MAX_UNSYNCED", 1000)
    with opened_channel(SimFS(), fsync=1000.0, segment_size=1 << 20) as channel:
        before = file_stats(channel).syncs
        fill(channel, 3)
        assert file_stats(channel).syncs == before
        fill(channel, 20)
        assert file_stats(channel).syncs > before
        assert channel._log._unsynced_bytes <= 1000


def test_one_sync_serves_commits_in_two_segments() -> None:
    """One sync serves commits in two segments."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        with all_written_before_any_syncs(channel, 2):
            for call in [Call(lambda body=body: put(channel, body * 3000)) for body in "ab"]:
                call.result()
        assert file_stats(channel).rolls == 1
        for seed in range(10):
            assert sorted(contents(disk.after_crash(seed))) == ["a" * 3000, "b" * 3000]

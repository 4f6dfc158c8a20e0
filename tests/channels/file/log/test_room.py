"""Preallocation: zeros after the records, so that a sync of a small commit only writes its bytes."""

import itertools
import os
from pathlib import Path

import pytest

from producer.channels import FileChannel
from producer.channels.file.log.appender import ROOM
from producer.channels.file.store.space import FRESH
from producer.testing import ManualClock
from tests.channels.file.opening import (
    DIRECTORY,
    SEGMENT,
    contents,
    cut,
    end_of,
    file_stats,
    fill,
    flip,
    killed,
    look,
    names,
    open_channel,
    opened_channel,
    put_record,
    segments,
    zero,
)
from tests.channels.helpers import bodies, drained, put, take
from tests.support.sim_file import SECTOR
from tests.support.sim_fs import SimFS


def sizes(disk: SimFS) -> list[int]:
    return [len(disk.content(path)) for path in segments(disk)]


def ends(disk: SimFS) -> list[int]:
    return [end_of(disk, path) for path in segments(disk)]


def test_commits_into_room_do_not_change_the_size_of_the_file() -> None:
    """The first commit preallocates space, and later ones overwrite it until it is used up."""
    disk = SimFS()
    with open_channel(disk, segment_size=3 * ROOM) as channel:
        put(channel, "first")
        (before,) = sizes(disk)
        assert before == end_of(disk, segments(disk)[0]) + ROOM
        for number in range(20):
            put(channel, number)
        assert sizes(disk) == [before]
        assert disk.count("preallocate") == 1
        while end_of(disk, segments(disk)[0]) <= before:
            put(channel, "x" * 16_000)
        assert disk.count("preallocate") == 2
        assert sizes(disk) == [end_of(disk, segments(disk)[0]) + ROOM]


@pytest.mark.parametrize("fsync", ["os", 1.0])
def test_where_no_commit_waits_for_the_disk_no_room_is_laid_out(fsync: str | float) -> None:
    """Nothing is preallocated if commits do not wait for the disk."""
    disk = SimFS()
    with opened_channel(disk, fsync=fsync) as channel:
        put(channel, "a")
        assert sizes(disk) == ends(disk)


def test_for_large_commits_no_room_is_laid_out() -> None:
    """Nothing is preallocated for large commits."""
    disk = SimFS()
    with opened_channel(disk, segment_size=3 * ROOM) as channel:
        put(channel, "x" * 70_000)
        assert sizes(disk) == ends(disk)


def test_on_a_disk_that_is_nearly_full_no_room_is_laid_out() -> None:
    """Nothing is preallocated on a nearly full disk."""
    disk = SimFS(capacity=20_000)
    with opened_channel(disk) as channel:
        put(channel, "a")
        assert sizes(disk) == ends(disk)


@pytest.mark.parametrize("segment_size", [SEGMENT, 3 * ROOM])
def test_room_never_reaches_beyond_a_segment(segment_size: int) -> None:
    """Preallocated space never exceeds the segment size."""
    disk = SimFS()
    channel = open_channel(disk, segment_size=segment_size)
    fill(channel, 60)
    assert all(size <= segment_size for size in sizes(disk))
    killed(channel, disk)


def test_a_segment_that_is_full_and_a_channel_that_is_closed_leave_no_room() -> None:
    """Full segments and closed channels release the preallocated space."""
    disk = SimFS()
    channel = open_channel(disk)
    fill(channel, 60)
    *full, last = zip(sizes(disk), ends(disk), strict=True)
    assert len(full) > 1
    assert all(size == end for size, end in full)
    assert last[0] > last[1]
    channel.close()
    assert sizes(disk) == ends(disk)


def test_a_failed_preallocation_does_not_fail_the_commit() -> None:
    """A failed preallocation does not fail the commit."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        disk.fail("preallocate")
        put(channel, "a")
        assert sizes(disk) == ends(disk)
        put(channel, "b")
        assert sizes(disk)[0] > ends(disk)[0]
        assert drained(channel) == ["a", "b"]


def test_a_partly_failed_preallocation_does_not_fail_the_commit_the_zeros_are_released_or_overwritten() -> None:
    """A partly failed preallocation does not fail the commit; the zeros are released or overwritten."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        disk.fail("preallocate", written=700)
        put(channel, "a")
        assert sizes(disk) == ends(disk)
        disk.fail("preallocate", written=700)
        disk.fail("truncate")
        put(channel, "b")
        assert sizes(disk)[0] == ends(disk)[0] + 700
        put(channel, "c")
        assert drained(channel) == ["a", "b", "c"]


def test_a_disk_that_cannot_report_its_free_space_still_accepts_takes() -> None:
    """A disk that cannot report its free space still accepts takes."""
    disk, clock = SimFS(), ManualClock()
    with opened_channel(disk, clock=clock) as channel:
        disk.fail("preallocate")
        put(channel, "a", "b")
        clock.advance(2 * FRESH)
        disk.fail("free")
        assert take(channel) == ["a"]
        assert sizes(disk) == ends(disk)
    assert contents(disk) == ["b"]


def test_the_room_of_processes_that_died_does_not_add_up() -> None:
    """An opening releases the preallocated space of a killed process."""
    disk = SimFS()
    for life in range(5):
        channel = open_channel(disk, segment_size=3 * ROOM)
        put(channel, life)
        disk = killed(channel, disk)
        assert sizes(disk) == [*ends(disk)[:-1], ends(disk)[-1] + ROOM]
    assert contents(disk) == ["0", "1", "2", "3", "4"]


def test_a_channel_opens_even_if_preallocated_space_cannot_be_released() -> None:
    """A channel opens even if preallocated space cannot be released."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a")
    disk = killed(channel, disk)
    disk.fail("truncate", times=None)
    with opened_channel(disk) as again:
        assert sizes(disk)[0] > end_of(disk, segments(disk)[0])
        assert drained(again) == ["a"]
        assert file_stats(again).torn_tails == 0


def test_preallocated_space_of_a_killed_process_is_neither_torn_nor_damage_for_inspection_and_opening() -> None:
    """Preallocated space of a killed process is neither torn nor damage, for inspection and opening."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a", "b")
    disk = killed(channel, disk)
    assert sizes(disk)[0] > ends(disk)[0]
    report = look(disk)
    assert (report.damaged, report.torn, report.events) == (False, False, 2)
    with opened_channel(disk) as again:
        found = file_stats(again)
        assert (found.torn_tails, found.damaged_records, found.lost_events, found.quarantined) == (0, 0, 0, 0)
        put(again, "c")
    with opened_channel(disk) as again:
        assert drained(again) == ["a", "b", "c"]
    assert "quarantine" not in names(disk)


LOST = [(first, count) for first in range(5) for count in range(1, 6 - first)]


@pytest.mark.parametrize(("first", "count"), LOST)
def test_a_commit_with_any_unwritten_sectors_is_dropped_whole_and_all_earlier_ones_are_kept(
    first: int, count: int
) -> None:
    """A commit with any unwritten sectors is dropped whole, and all earlier ones are kept."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a")
    path = segments(disk)[0]
    whole = end_of(disk, path)
    put(channel, *("x" * 400 for _ in range(4)))
    written = end_of(disk, path)
    disk = killed(channel, disk)
    assert sizes(disk)[0] > written
    bounds = [whole, *range(whole // SECTOR * SECTOR + SECTOR, written, SECTOR), written]
    parts = list(itertools.pairwise(bounds))
    assert len(parts) == 5
    zero(disk, path, parts[first][0], parts[first + count - 1][1])
    with opened_channel(disk) as again:
        found = file_stats(again)
        assert (found.damaged_records, found.lost_events) == (0, 0)
        assert found.torn_tails == (count < 5)
        assert drained(again) == ["a"]
        put(again, "later")
    with opened_channel(disk) as again:
        assert drained(again) == ["later"]


@pytest.mark.parametrize("place", ["first", "last"])
def test_the_last_record_damaged_before_room_is_damage_and_not_torn(place: str) -> None:
    """A damaged last record before preallocated zeros counts as damage, not as torn."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a", "b")
    path, record = put_record(disk, "b")
    end = end_of(disk, path)
    disk = killed(channel, disk)
    flip(disk, path, record.offset + 40 if place == "first" else end - 50)
    with opened_channel(disk) as again:
        found = file_stats(again)
        assert (found.torn_tails, found.damaged_records) == (0, 1)
        assert drained(again) == (["a"] if place == "first" else ["a", "b"])


def test_a_partial_write_that_reached_the_disk_in_spite_of_its_truncation_is_torn() -> None:
    """A partial write that reached the disk in spite of its truncation is torn."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a")
    path = segments(disk)[0]
    whole = end_of(disk, path)
    put(channel, "b")
    written = end_of(disk, path)
    disk = killed(channel, disk)
    assert written > whole
    zero(disk, path, written - 1, written)
    with opened_channel(disk) as again:
        found = file_stats(again)
        assert (found.torn_tails, found.damaged_records) == (1, 0)
        assert drained(again) == ["a"]


def test_foreign_bytes_in_preallocated_space_are_cut_off_and_quarantined() -> None:
    """Foreign bytes in preallocated space are cut off and quarantined."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a")
    path = segments(disk)[0]
    place = end_of(disk, path) + 700
    disk = killed(channel, disk)
    flip(disk, path, place)
    with opened_channel(disk) as again:
        assert file_stats(again).torn_tails == 1
        assert drained(again) == ["a"]
    assert len(disk.names(f"{DIRECTORY}/quarantine")) == 1


def test_zeros_in_place_of_events_of_the_log_count_as_lost_events() -> None:
    """Zeros in place of events of the log count as lost events."""
    disk = SimFS()
    channel = open_channel(disk, checkpoint_interval=None)
    expected = fill(channel, 60)
    first, *_ = segments(disk)
    _, tenth = put_record(disk, expected[10])
    disk = killed(channel, disk)
    lost = sum(put_record(disk, body)[0] == first for body in expected[10:])
    zero(disk, first, tenth.offset, len(disk.content(first)))
    for copy in ("checkpoint", "checkpoint.backup"):
        disk.unlink(f"{DIRECTORY}/{copy}")
    with opened_channel(disk) as again:
        assert file_stats(again).lost_events == lost
        assert drained(again) == expected[:10] + expected[10 + lost :]


def test_a_commit_undone_in_room_is_never_found(tmp_path: Path) -> None:
    """After a partial write into preallocated space the segment is abandoned."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a")
    before = len(segments(disk))
    disk.fail("append", number=None, written=70)
    put(channel, "b")
    assert len(segments(disk)) == before + 1
    disk = killed(channel, disk)
    with opened_channel(disk) as again:
        assert drained(again) == ["a", "b"]
        assert file_stats(again).torn_tails == 0


def test_a_child_that_drops_its_copy_leaves_the_parents_room_alone(tmp_path: Path) -> None:
    """A forked child does not release the parent's preallocated space."""
    channel = FileChannel(tmp_path, minimum_free_space=0, reserve=0)
    put(channel, 1)
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.read(go[0], 1)
        channel.close()
        del channel
        os.write(ready[1], b"1")
        os._exit(0)
    put(channel, 2)
    os.write(go[1], b"1")
    os.read(ready[0], 1)
    os.waitpid(child, 0)
    put(channel, 3)
    channel.close()
    with FileChannel(tmp_path, minimum_free_space=0, reserve=0) as again:
        assert bodies([*again.peek()]) == ["1", "2", "3"]


def test_a_take_in_room_survives_a_kill() -> None:
    """A take written into preallocated space survives a kill."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a", "b")
    assert take(channel) == ["a"]
    disk = killed(channel, disk)
    with opened_channel(disk) as again:
        assert drained(again) == ["b"]


def test_a_log_cut_in_its_room_is_whole() -> None:
    """A log whose preallocated zeros are cut off is valid."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a")
    path = segments(disk)[0]
    disk = killed(channel, disk)
    cut(disk, path, end_of(disk, path) + 13)
    with opened_channel(disk) as again:
        assert file_stats(again).torn_tails == 0
        assert drained(again) == ["a"]

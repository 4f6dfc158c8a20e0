"""Holes: valid records after a hole are kept, missing events are counted, and the tools agree."""

from functools import cache
from random import Random

import pytest

from producer.channels.file.store.format import FIRST_RECORD, SECTOR, Kind
from tests.channels.file.opening import (
    CHECKPOINTS,
    Written,
    cut,
    file_stats,
    killed,
    log,
    look,
    names,
    open_channel,
    opened_channel,
    segments,
    zero,
)
from tests.channels.helpers import drained, put
from tests.support.sim_fs import SimFS

COUNT = 10


@cache
def written(fsync: str) -> tuple[SimFS, list[Written], list[str]]:
    """Return a disk with a segment of ten transactions of two events, its records, and the events in order."""
    disk = SimFS()
    channel = open_channel(disk, fsync=fsync, segment_size=1 << 20)
    bodies = [f"{number}:".ljust(300 + number % 3 * 200, "x") for number in range(2 * COUNT)]
    for start in range(0, 2 * COUNT, 2):
        put(channel, *bodies[start : start + 2])
    disk = killed(channel, disk)
    records = log(disk)
    cut(disk, segments(disk)[0], records[-1].end)
    return disk, records, bodies


def holed(fsync: str, start: int, size: int, *, garbage: bool) -> tuple[SimFS, list[str]]:
    """Return a disk with a hole, and the events whose records are intact."""
    whole, records, bodies = written(fsync)
    disk, (path,) = whole.copy(), segments(whole)
    end = min(start + size, records[-1].end)
    if garbage:
        content = disk.content(path)
        disk.put(path, content[:start] + Random(start).randbytes(end - start) + content[end:])
    else:
        zero(disk, path, start, end)
    puts = [record for record in records if record.kind == Kind.PUT]
    intact = [body for body, at in zip(bodies, puts, strict=True) if at.end <= start or at.offset >= end]
    return disk, intact


@pytest.mark.parametrize("checkpoint", ["with", "without"])
@pytest.mark.parametrize("garbage", [False, True], ids=["zeros", "garbage"])
@pytest.mark.parametrize("fsync", ["commit", "os"])
def test_valid_records_after_a_hole_are_kept_the_tools_and_a_second_opening_agree(
    fsync: str, checkpoint: str, garbage: bool
) -> None:
    """Valid records after a hole are kept; the tools and a second opening agree."""
    _, records, bodies = written(fsync)
    for start in range(-(-FIRST_RECORD // SECTOR) * SECTOR, records[-1].end, SECTOR):
        size = (SECTOR, 4 * SECTOR, 8 * SECTOR)[start // SECTOR % 3]
        disk, intact = holed(fsync, start, size, garbage=garbage)
        if checkpoint == "without":
            for name in CHECKPOINTS:
                disk.unlink(name)
        report = look(disk)
        with opened_channel(disk) as channel:
            found, stats = [event.body.decode() for event in channel.peek()], file_stats(channel)
        assert report.events == len(found), start
        assert report.lost_events == stats.lost_events, start
        left = [record for record in records if record.end <= start or record.offset >= start + size]
        last = left[-1].transaction
        touched = any(record.transaction == last for record in records if record not in left)
        if stats.torn_tails:
            assert not garbage, f"{start}: garbage is nothing that a crash leaves"
            assert found == [body for body in intact if not touched or body not in bodies[2 * last - 2 : 2 * last]]
        else:
            assert found == intact, start
            behind = bodies.index(found[-1]) + 1 if left[-1].end <= start else len(bodies)
            assert behind - len(found) <= stats.lost_events <= len(bodies) - len(found), start
        for name in CHECKPOINTS:
            disk.unlink(name)
        with opened_channel(disk) as again:
            assert drained(again) == found, start
            assert file_stats(again).lost_events == 0, f"{start}: counted twice"


@pytest.mark.parametrize("fsync", ["commit", "os"])
def test_damage_over_a_commit_loses_no_event(fsync: str) -> None:
    """A damaged Commit loses no event."""
    _, records, bodies = written(fsync)
    for commit in (record for record in records if record.kind == Kind.COMMIT):
        for garbage in (False, True):
            disk, _ = holed(fsync, commit.offset, commit.end - commit.offset, garbage=garbage)
            if commit is records[-1] and not garbage:
                continue  # it looks unwritten
            with opened_channel(disk) as channel:
                assert drained(channel) == bodies
                stats = file_stats(channel)
                assert (stats.lost_events, stats.damaged_records, stats.torn_tails) == (0, 1, 0)
            assert any(name.startswith("log-") for name in names(disk, "/channel/quarantine"))


def test_an_incomplete_transaction_confirmed_by_a_later_segment_is_damaged_not_torn() -> None:
    """An incomplete transaction confirmed by a later segment is damaged, not torn."""
    for garbage in (False, True):
        disk = SimFS()
        channel = open_channel(disk, segment_size=4096)
        bodies = [f"{number}".ljust(700, "x") for number in range(8)]
        put(channel, *bodies[:4])
        put(channel, *bodies[4:])
        disk = killed(channel, disk)
        for name in CHECKPOINTS:
            disk.unlink(name)
        first, _ = segments(disk)
        records = [record for record in log(disk) if record.transaction == 1]
        content, start = disk.content(first), records[3].offset
        lost = Random(1).randbytes(records[-1].end - start) if garbage else bytes(records[-1].end - start)
        disk.put(first, content[:start] + lost)
        assert (look(disk).events, look(disk).lost_events) == (7, 1)
        with opened_channel(disk) as channel:
            assert file_stats(channel).lost_events == 1
            assert drained(channel) == [*bodies[:3], *bodies[4:]]

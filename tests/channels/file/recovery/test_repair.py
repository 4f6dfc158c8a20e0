"""Repair: lock, read, copy and compare before any change; torn transactions are never revived.

The file is long because the list of possible faults is.
"""

import errno
import threading
from typing import cast

import pytest

from producer.channels.file.recovery.repair import Repair, repair
from producer.channels.file.store.disk import Disk
from producer.channels.file.store.format import FRAME_SIZE, SECTOR, Kind
from producer.channels.file.store.segment import SegmentState
from producer.model.errors import ChannelError, ChannelFormatError, ChannelIOError, ChannelKeyError, ChannelLockedError
from tests.channels.file.opening import (
    CHECKPOINTS,
    DIRECTORY,
    contents,
    cut,
    file_stats,
    fill,
    flip,
    killed,
    look,
    names,
    open_channel,
    opened_channel,
    put_record,
    records,
    segments,
)
from tests.channels.file.store.test_encryption import Keys
from tests.channels.helpers import drained, put, take
from tests.support.bad_sectors import BadSectors
from tests.support.sim_fs import SimFS
from tests.support.waiting import Call, eventually

QUARANTINE = f"{DIRECTORY}/quarantine"


def keys(which: str) -> Keys:
    """Return keys with one id, different for each name."""
    return Keys(k=which.encode().ljust(32, b"-"))


def mend(disk: SimFS, **options: object) -> Repair:
    return repair(DIRECTORY, disk=cast("Disk", disk), **options)  # type: ignore[arg-type]


def damaged(count: int = 60, hit: int = 10) -> tuple[SimFS, list[str], str]:
    """Return a disk with one damaged event: the remaining events, and the segment."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        expected = fill(channel, count)
    path, record = put_record(disk, expected[hit])
    flip(disk, path, record.offset + 60)
    del expected[hit]
    return disk, expected, path


def content_of(disk: SimFS) -> dict[str, bytes]:
    """Return every file of the directory, except those about its owner."""
    return {name: disk.content(f"{DIRECTORY}/{name}") for name in names(disk) if name not in ("LOCK", "quarantine")}


def without_checkpoints(disk: SimFS) -> SimFS:
    for path in CHECKPOINTS:
        if disk.exists(path):
            disk.unlink(path)
    return disk


# Results


def test_a_repaired_directory_is_valid_keeps_all_other_events_and_the_original_segment_is_copied() -> None:
    """A repaired directory is valid, keeps all other events, and the original segment is copied."""
    disk, left, path = damaged()
    as_it_was = disk.content(path)
    done = mend(disk)
    assert done.failures == []
    assert list(done.repaired) == [path]
    assert done.lost_events == 1
    assert disk.content(done.copies[path]) == as_it_was
    assert done.after is not None
    assert (done.after.damaged, done.after.events, done.after.lost_events) == (False, 59, 0)
    assert disk.open_files == []
    for copy in (disk.copy(), without_checkpoints(disk.copy())):
        with opened_channel(copy) as channel:
            assert channel.stats().size == 59
            assert drained(channel) == left
            found = file_stats(channel)
            assert (found.damaged_records, found.lost_events, found.quarantined) == (0, 0, 0)


def test_a_sound_directory_is_left_as_it_is() -> None:
    """A valid directory is not changed by a byte."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        fill(channel, 60)
        take(channel, 20)
    before = content_of(disk)
    done = mend(disk)
    assert (done.repaired, done.failures) == ({}, [])
    assert content_of(disk) == before
    assert "quarantine" not in names(disk)


def test_a_repair_splits_a_gap_at_a_checkpoints_position_where_replay_starts() -> None:
    """A repair splits a gap at a checkpoint's position, where replay starts."""
    disk = SimFS()
    channel = open_channel(disk, segment_size=1 << 20)
    put(channel, "before")
    channel.checkpoint()
    put(channel, "after")
    put(channel, "last")
    disk = killed(channel, disk)
    path, first = put_record(disk, "before")
    last = put_record(disk, "last")[1]
    for record in records(disk, path):
        if first.offset < record.offset < last.offset:
            flip(disk, path, record.offset)
    done = mend(disk)
    assert done.failures == []
    for copy in (disk.copy(), without_checkpoints(disk.copy())):
        with opened_channel(copy) as again:
            assert drained(again) == ["before", "last"]
            assert (file_stats(again).damaged_records, file_stats(again).quarantined) == (0, 0)


def test_a_confirmed_transaction_with_a_destroyed_commit_keeps_its_events_after_the_repair() -> None:
    """A confirmed transaction with a destroyed Commit keeps its events after the repair."""
    disk = SimFS()
    with opened_channel(disk, segment_size=1280) as channel:
        expected = fill(channel, 6, size=900)
    path = segments(disk)[1]
    last = records(disk, path)[-1]
    assert last.kind == Kind.COMMIT
    cut(disk, path, last.offset + 20)
    assert look(disk).damaged
    assert mend(disk).failures == []
    assert not look(disk).damaged
    assert contents(without_checkpoints(disk)) == expected


def test_headers_are_restored_byte_by_byte() -> None:
    """A repair restores either copy of the header from the other."""
    for offset in (20, 530):
        disk = SimFS()
        with opened_channel(disk) as channel:
            expected = fill(channel, 5)
        path = segments(disk)[0]
        as_it_was = disk.content(path)
        flip(disk, path, offset)
        assert look(disk).segments[0].header_damaged
        assert mend(disk).failures == []
        assert disk.content(path) == as_it_was
        assert contents(disk) == expected


# Lock before reading


def test_a_repair_takes_the_lock_before_its_first_read() -> None:
    """A repair takes the lock before its first read."""
    disk, _, _ = damaged()
    disk.calls.clear()
    mend(disk)
    operations = [call.operation for call in disk.calls]
    assert operations.index("lock") < operations.index("read")


def test_a_directory_in_use_is_refused_and_left_alone() -> None:
    """A directory in use is refused and not changed."""
    disk, left, _ = damaged()
    with opened_channel(disk) as channel:
        before = content_of(disk)
        with pytest.raises(ChannelLockedError, match="in use by the channel"):
            mend(disk)
        assert content_of(disk) == before
        assert drained(channel) == left


@pytest.mark.parametrize("options", [{}, {"data_directories": ["/nowhere"]}])
def test_nothing_is_made_where_no_channel_is(options: dict[str, list[str]]) -> None:
    """A repair creates no directories."""
    disk = SimFS()
    if options:
        open_channel(disk).close()
    before = disk.names("/")
    with pytest.raises(ChannelFormatError, match="does not exist"):
        mend(disk, **options)
    assert disk.names("/") == before


# Copy before changing


@pytest.mark.parametrize("operation", ["create", "append", "sync", "sync_directory", "make_directory"])
def test_without_a_copy_nothing_is_overwritten(operation: str) -> None:
    """If the copy fails, the segment stays unchanged and the report says so."""
    disk, left, path = damaged()
    as_it_was = disk.content(path)

    def refuse(called: str, where: str) -> None:
        if called == operation and where.startswith(QUARANTINE):
            raise OSError(errno.ENOSPC, "No space left on device", where)

    disk.hook = refuse
    done = mend(disk)
    assert disk.content(path) == as_it_was
    assert (done.repaired, len(done.failures)) == ({}, 1)
    assert "is unchanged: it could not be copied to quarantine" in done.failures[0]
    assert "No space left" in done.failures[0]
    assert done.after is not None
    assert done.after.damaged
    disk.hook = None
    if operation != "make_directory":
        assert names(disk, QUARANTINE) == []
    assert contents(disk.copy()) == left
    assert mend(disk).failures == []


def test_a_copy_of_former_times_does_not_do() -> None:
    """An older copy is not enough: a new one is made, and the old one stays."""
    disk, _, path = damaged()
    assert len(contents(disk.copy())) == 59
    old = f"{QUARANTINE}/{path.rpartition('/')[2]}.copy"
    disk.make_directory(QUARANTINE)
    disk.put(old, b"an older copy")
    as_it_was = disk.content(path)
    done = mend(disk)
    assert done.copies[path] == f"{old}.2"
    assert disk.content(done.copies[path]) == as_it_was
    assert disk.content(old) == b"an older copy"


def test_if_the_copy_differs_from_the_original_nothing_is_overwritten() -> None:
    """If the copy differs from the original, nothing is overwritten."""

    class Lying(SimFS):
        def append(self, file: int, data: bytes, end: int | None = None) -> int:
            if self._path(file).startswith(QUARANTINE):
                data = data[:-1] + bytes([data[-1] ^ 1])
            return super().append(file, data, end)

    sound, _, path = damaged()
    disk = Lying()
    disk._medium = sound._medium
    as_it_was = disk.content(path)
    done = mend(disk)
    assert "the copy differs from the file" in done.failures[0]
    assert disk.content(path) == as_it_was


def test_a_segment_that_the_disk_cannot_read_is_not_overwritten() -> None:
    """A partly unreadable segment is not overwritten, and the report names the bytes."""
    disk = BadSectors()
    with opened_channel(disk, segment_size=1 << 20) as channel:
        expected = fill(channel, 50)
        disk.break_record(expected[20])
    path = segments(disk)[0]
    as_it_was = disk.content(path)
    report = look(disk)
    assert report.damaged
    assert len(report.segments[0].unread) == 1
    assert 40 <= report.events < 50  # type: ignore[operator]  # the whole sectors
    done = mend(disk)
    assert "the disk cannot read its bytes" in done.failures[0]
    assert disk.content(path) == as_it_was
    disk.bad.clear()
    assert contents(disk) == expected


# Torn transactions stay void


#: Events that the torn logs below must keep.
OWED = ["a", "b" * 3000, "c" * 1200]


def torn(place: str) -> SimFS:
    """Return a log with a damaged record, a torn transaction, and perhaps one after it."""
    disk = on_their_way()
    path, record = put_record(disk, "never-2")
    if place == "at the end":
        disk.unlink(segments(disk)[2])
        cut(disk, path, record.end + 10)
    else:
        content = disk.content(path)
        start = -(-(record.end + FRAME_SIZE) // SECTOR) * SECTOR
        disk.put(path, content[:start] + bytes(SECTOR) + content[start + SECTOR :])
    first = segments(disk)[0]
    flip(disk, first, put_record(disk, "damaged")[1].offset + 44)
    return disk


def on_their_way() -> SimFS:
    """Return a disk where one commit waits for a sync and another was written after it, to a third segment."""
    disk = SimFS()
    channel = open_channel(disk)
    for body in ("a", "damaged", *OWED[1:]):
        put(channel, body)
    waiting, go = threading.Event(), threading.Event()

    def wait(operation: str, path: str) -> None:
        if (operation, path) == ("sync", f"{DIRECTORY}/log-0000000002"):
            waiting.set()
            assert go.wait(60)

    disk.hook = wait
    calls = [Call(lambda: put(channel, "never-1", "never-2", "x" * 1200))]
    assert waiting.wait(60)
    calls.append(Call(lambda: put(channel, "behind" * 200)))
    eventually(lambda: len(segments(disk)) == 3 and b"behind" in disk.content(segments(disk)[2]))
    snapshot = disk.copy()
    go.set()
    for call in calls:
        call.result()
    channel.close()
    return snapshot


def test_without_a_copy_or_a_second_name_no_checkpoint_passes_over_the_damage() -> None:
    """Without any copy of the damage no checkpoint is written, so that the segment stays."""
    disk, left, path = damaged()
    for name in CHECKPOINTS:
        disk.unlink(name)

    def refuse(called: str, where: str) -> None:
        if called in ("create", "link") and where.startswith((QUARANTINE, path)):
            raise OSError(errno.EACCES, "Permission denied", where)

    disk.hook = refuse
    done = mend(disk)
    assert "could not be copied to quarantine, so it has to stay" in done.failures[-1]
    assert not any(disk.exists(name) for name in CHECKPOINTS)
    disk.hook = None
    assert contents(disk) == left
    assert names(disk, QUARANTINE) == [path.rpartition("/")[2] + ".copy"]


@pytest.mark.parametrize("checkpoint", ["with", "without"])
@pytest.mark.parametrize("place", ["at the end", "in the middle"])
def test_no_half_of_a_torn_transaction_appears_after_a_repair(place: str, checkpoint: str) -> None:
    """A repair revives no half of a torn transaction, wherever it is."""
    disk = torn(place)
    if checkpoint == "without":
        without_checkpoints(disk)
    owed = [*OWED, "behind" * 200] if place == "in the middle" else OWED  # the valid transaction after it is kept
    assert contents(disk.copy()) == owed
    done = mend(disk)
    assert done.failures == []
    assert len(done.repaired) == 1
    assert done.after is not None
    assert not done.after.damaged
    for copy in (disk.copy(), without_checkpoints(disk.copy())):
        with opened_channel(copy) as channel:
            assert drained(channel) == owed
            assert file_stats(channel).damaged_records == 0


def test_a_void_half_of_a_transaction_in_an_older_segment_stays_void() -> None:
    """A void half of a transaction in an older segment stays void."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a")
    disk.fail("append", written=100)
    disk.fail("truncate", times=None)
    with pytest.raises(ChannelIOError):
        put(channel, "never-1", "never-2", "never-3")
    disk.heal()
    put(channel, "later")
    disk = killed(channel, disk)
    before = content_of(disk)
    for checked in (disk, without_checkpoints(disk.copy())):
        report = look(checked)
        assert [len(segment.torn) for segment in report.segments] == [0, 0]
        assert (report.damaged, report.torn, report.events) == (False, False, 2)
        assert mend(checked).repaired == {}
        assert contents(checked.copy()) == ["a", "later"]
    assert content_of(disk) == before


def test_a_torn_end_is_not_cut_without_a_copy() -> None:
    """A repair does not cut a torn end that it cannot copy."""
    disk = torn("at the end")
    before = content_of(disk)

    def refuse(called: str, where: str) -> None:
        if called == "create" and ".from-" in where:
            raise OSError(errno.ENOSPC, "No space left on device", where)

    disk.hook = refuse
    done = mend(disk)
    assert "was not cut: it could not be copied to quarantine" in done.failures[0]
    path = segments(disk)[1]
    assert disk.content(path) == before[path.rpartition("/")[2]]
    disk.hook = None
    assert mend(disk).failures == []
    assert contents(disk) == OWED


def test_encrypted_segments_are_not_repaired_without_their_keys() -> None:
    """Encrypted segments are not repaired without their keys."""
    disk = SimFS()
    channel = open_channel(disk, fsync="os", encryption=keys("one"))
    put(channel, "a")
    put(channel, "damaged")
    put(channel, "b")
    put(channel, "never-1", "never-2")
    disk = killed(channel, disk)
    path = segments(disk)[0]
    written = records(disk, path)
    flip(disk, path, written[2].offset + FRAME_SIZE + 20)
    cut(disk, path, written[-1].offset - 7)
    before = content_of(disk)
    for wrong in (None, keys("other")):
        with pytest.raises(ChannelKeyError):
            mend(disk, keys=wrong)
        assert content_of(disk) == before
        report = look(disk, keys=wrong)
        assert (report.unchecked, report.damaged, report.events) == (True, False, None)
    assert look(disk, keys=keys("one")).damaged
    done = mend(disk, keys=keys("one"))
    assert done.failures == []
    for copy in (disk.copy(), without_checkpoints(disk.copy())):
        assert contents(copy, encryption=keys("one")) == ["a", "b"]


def test_an_encrypted_segment_with_only_gaps_still_opens_with_its_key() -> None:
    """An encrypted segment with only gaps still opens with its key."""
    disk = SimFS()
    with opened_channel(disk, encryption=keys("one")) as channel:
        put(channel, "a")
        channel._log._end.active.move(SegmentState.FULL)  # type: ignore[union-attr]
        put(channel, "b")
    path = segments(disk)[0]
    for record in records(disk, path):
        flip(disk, path, record.offset)
    assert mend(disk, keys=keys("one")).failures == []
    assert contents(disk, encryption=keys("one")) == ["b"]


# Missing segments


def test_missing_segments_are_abandoned_only_on_request() -> None:
    """Missing segments are abandoned only on request."""
    disk, _, _ = damaged()
    gone = segments(disk)[1]
    content = disk.content(gone)
    disk.unlink(gone)
    before = content_of(disk)
    with pytest.raises(ChannelIOError, match=r"segments 2, .*--give-up-missing"):
        mend(disk)
    assert content_of(disk) == before
    done = mend(disk, give_up_missing=True)
    assert done.given_up == (2,)
    assert done.lost_events > 1
    assert disk.content(f"{QUARANTINE}/checkpoint.copy") == before["checkpoint"]
    assert len(contents(disk)) == 60 - done.lost_events
    disk.put(gone, content)
    open_channel(disk).close()
    assert disk.content(f"{QUARANTINE}/log-0000000002.unknown") == content


# Faults during a repair


def test_a_repair_that_dies_anywhere_costs_nothing() -> None:
    """A crash at any operation of a repair loses nothing, and the next repair finishes it."""
    disk, left, _ = damaged(40, hit=3)
    put_more = open_channel(disk, fsync="os")
    put(put_more, "x", "y" * 300)
    disk = killed(put_more, disk)
    cut(disk, segments(disk)[-1], -30)
    for operations in range(200):
        for seed in range(3):
            dying = disk.copy()
            dying.die_after(operations)
            try:
                done = mend(dying)
            except ChannelError:
                done = None
            finished = not dying.dead
            after = dying.crash(seed)
            assert contents(after.copy()) == left, (operations, seed)
            assert contents(without_checkpoints(after.copy())) == left, (operations, seed)
            assert mend(after).failures == [], (operations, seed)
            assert not look(after).damaged, (operations, seed)
            assert contents(after) == left, (operations, seed)
        if finished:
            assert done is not None
            break
    assert finished
    assert operations > 20


def test_a_disk_error_at_any_operation_of_a_repair_is_reported_and_loses_nothing() -> None:
    """A disk error at any operation of a repair is reported and loses nothing."""
    disk, left, _ = damaged(40, hit=3)
    for nth in range(1, 300):
        failing = disk.copy()
        fault = failing.fail("*", nth)
        try:
            done = mend(failing)
            told = bool(done.failures)
        except ChannelError:
            told = True
        assert failing.open_files == [], nth
        failing.heal()
        assert contents(failing) == left, nth
        if not fault.met:
            break
    assert not fault.met
    assert not told

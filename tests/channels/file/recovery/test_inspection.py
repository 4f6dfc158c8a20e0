"""Inspection: it changes nothing, blocks no owner, and reports even heavily damaged directories."""

import fcntl
import os
from pathlib import Path

import pytest

from producer.channels import FileChannel
from producer.channels.file.recovery import inspection
from producer.channels.file.recovery.inspection import examine
from producer.channels.file.store.disk import Disk
from producer.model.errors import ChannelFormatError, ChannelIOError
from producer.runtime import directory_lock
from tests.channels.file.opening import (
    CHECKPOINTS,
    DIRECTORY,
    cut,
    end_of,
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
from tests.channels.helpers import drained, put, take
from tests.support.bad_sectors import BadSectors
from tests.support.sim_fs import SimFS


def test_looking_calls_nothing_that_changes_anything() -> None:
    """Inspection creates, writes, cuts, moves, removes and locks nothing."""
    disk = SimFS()
    channel = open_channel(disk)
    fill(channel, 60)
    disk = killed(channel, disk)
    flip(disk, segments(disk)[0], 700)
    for offset in (20, 530):
        flip(disk, segments(disk)[1], offset)
    flip(disk, CHECKPOINTS[0], 20)
    disk.calls.clear()
    report = look(disk)
    assert report.damaged
    looks = {"open", "read", "size", "size_of", "close", "names", "exists", "is_directory", "load", "is_locked"}
    assert {call.operation for call in disk.calls} <= looks
    assert disk.open_files == []


def test_inspection_opens_every_file_for_reading_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inspection opens every file for reading only."""
    with FileChannel(tmp_path / "c", minimum_free_space=0, reserve=0) as channel:
        put(channel, "a")
    opened = os.open

    def reading(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", reading)
    report = examine(str(tmp_path / "c"))
    assert (report.events, report.damaged, report.in_use) == (1, False, False)


def test_a_directory_that_may_not_be_read_is_an_error_that_names_it() -> None:
    """An unreadable directory raises an error with path and reason."""
    disk = SimFS()
    open_channel(disk).close()
    for operation in ("names", "open", "read"):
        disk.fail(operation, number=13, times=None)
        with pytest.raises(ChannelIOError, match=rf"{DIRECTORY} cannot be read"):
            look(disk)
        disk.heal()


def test_checking_whether_a_channel_is_in_use_never_blocks_its_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checking whether a channel is in use never blocks its opening."""
    path = str(tmp_path / "LOCK")
    Disk().unlock(Disk().lock(path))
    looker = os.open(path, os.O_RDONLY)
    fcntl.flock(looker, fcntl.LOCK_SH)
    assert not Disk().is_locked(path)
    is_free = directory_lock.is_free

    def look_and_end(file: int) -> bool:
        free = is_free(file)
        fcntl.flock(looker, fcntl.LOCK_UN)
        return free

    monkeypatch.setattr(directory_lock, "is_free", look_and_end)
    owner = Disk().lock(path)
    assert Disk().is_locked(path)
    with pytest.raises(BlockingIOError):
        Disk().lock(path)
    Disk().unlock(owner)
    os.close(looker)


def test_an_inspection_disturbed_by_a_checkpoint_of_the_running_channel_starts_over() -> None:
    """An inspection disturbed by a checkpoint of the running channel starts over."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        expected = fill(channel, 60)
        assert take(channel, 50) == expected[:50]
        begun: list[str] = []

        def meanwhile(operation: str, path: str) -> None:
            if operation == "open" and path == segments_before[1] and not begun:
                begun.append(path)
                channel.checkpoint(force=True)

        segments_before = segments(disk)
        disk.hook = meanwhile
        report = look(disk)
        disk.hook = None
        assert begun
        assert (report.damaged, report.missing, report.events, report.in_use) == (False, (), 10, True)
        assert drained(channel) == expected[50:]


def test_puts_during_an_inspection_are_not_reported_as_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts during an inspection are not reported as damage."""
    disk = SimFS()
    with opened_channel(disk, fsync=60.0) as channel:
        expected = fill(channel, 3)
        judged = inspection._Scan._replayed

        def meanwhile(look: inspection._Scan) -> object:
            put(channel, "later")
            return judged(look)

        monkeypatch.setattr(inspection._Scan, "_replayed", meanwhile)
        report = look(disk)
        monkeypatch.undo()
        assert (report.damaged, report.torn, report.lost_events, report.events) == (False, False, 0, 3)
        assert drained(channel) == [*expected, "later"]


def test_a_commit_in_progress_during_an_inspection_is_not_reported_as_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit in progress during an inspection is not reported as damage."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "a")
        put(channel, "b")
        path, record = put_record(disk, "b")
        whole, judged = disk.content(path), inspection._Scan._replayed
        zero(disk, path, record.offset + 30, record.end)

        def meanwhile(look: inspection._Scan) -> object:
            disk.put(path, whole)
            return judged(look)

        monkeypatch.setattr(inspection._Scan, "_replayed", meanwhile)
        report = look(disk)
        monkeypatch.undo()
        assert (report.damaged, report.events, report.in_use) == (False, 2, True)
        assert drained(channel) == ["a", "b"]


def test_a_half_written_record_is_reported_as_torn() -> None:
    """A half-written record is reported as torn."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a")
    path = segments(disk)[0]
    whole = end_of(disk, path)
    put(channel, "b", "c")
    cut(disk, path, whole + 70)
    report = look(disk)
    assert (report.damaged, report.torn, report.events, report.in_use) == (False, True, 1, True)
    killed(channel, disk)


def test_damage_is_reported_even_beside_a_torn_end_or_before_a_checkpoint() -> None:
    """Damage is reported even beside a torn end or before a checkpoint."""
    disk = SimFS()
    channel = open_channel(disk, segment_size=1 << 20)
    put(channel, "a")
    put(channel, "damaged")
    put(channel, "b")
    channel.checkpoint()
    put(channel, "never", "acknowledged")
    disk = killed(channel, disk)
    path, record = put_record(disk, "never")
    _, damaged = put_record(disk, "damaged")
    disk.put(path, disk.content(path)[: record.end + 10])
    flip(disk, path, damaged.offset + 44)
    report = look(disk)
    assert (report.damaged, report.torn) == (True, True)
    assert len(report.segments[0].damages) == len(report.segments[0].torn) == 1


def test_an_empty_file_or_half_a_header_after_a_crash_is_not_damage() -> None:
    """An empty file or half a header after a crash is not damage."""
    for content in (b"", b"LHSEGMNT", bytes(600)):
        disk = SimFS()
        with opened_channel(disk) as channel:
            put(channel, "a")
        disk.put(f"{DIRECTORY}/log-0000000099", content)
        report = look(disk)
        assert (report.damaged, report.unreadable, report.events) == (False, (), 1)


def test_a_segment_that_is_there_twice_is_refused() -> None:
    """A duplicate segment is refused."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "a")
    disk.make_directory("/data")
    disk.put("/data/log-0000000001", disk.content(segments(disk)[0]))
    with pytest.raises(ChannelFormatError, match="are the same segment"):
        look(disk, data_directories=["/data"])
    assert names(disk, "/data") == ["log-0000000001"]


def test_an_unreadable_sector_is_reported_with_its_offsets_and_the_rest_is_counted() -> None:
    """An unreadable sector is reported with its offsets, and the rest is counted."""
    disk = BadSectors()
    with opened_channel(disk, segment_size=1 << 20) as channel:
        expected = fill(channel, 200)
        disk.break_record(expected[100])
        channel.checkpoint(force=True)
    report = look(disk)
    (segment,) = report.segments
    ((start, end),) = segment.unread
    path, record = put_record(disk, expected[100])
    assert start <= record.offset + 36 < record.end <= end
    assert end - start <= 1536
    assert report.damaged
    assert report.events is not None
    assert 190 <= report.events < 200
    assert path == segment.path


def test_a_directory_above_channels_names_some_of_them(tmp_path: Path) -> None:
    """A directory above channels is refused, with some of them named."""
    FileChannel(tmp_path / "agent" / "channels" / "queue" / "events", minimum_free_space=0, reserve=0).close()
    with pytest.raises(ChannelFormatError, match=r"name one of them: channels/queue/events$"):
        examine(str(tmp_path / "agent"))
    for number in range(7):
        FileChannel(tmp_path / "base" / f"p{number}", minimum_free_space=0, reserve=0).close()
    with pytest.raises(ChannelFormatError, match=r"name one of them: p\d, p\d, p\d, p\d, p\d and 2 more$"):
        examine(str(tmp_path / "base"))

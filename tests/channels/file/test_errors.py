"""Errors of input and disks: what happened and what to do; Flume's TestFileChannelErrorMetrics.

The file is long because the list of errors is.
"""

import errno
import logging
import os
import re
import shutil
import struct
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from producer import ProducerError
from producer.channels import FileChannel
from producer.channels.file.store.disk import Disk
from producer.channels.file.store.format import HEADER_SIZES, SECOND_HEADER
from producer.model.errors import ChannelError, ChannelFormatError, ChannelIOError, ChannelLockedError, DiskFullError
from producer.testing import ManualClock
from tests.channels.file.opening import (
    CHECKPOINTS,
    DIRECTORY,
    contents,
    file_stats,
    fill,
    flip,
    names,
    open_channel,
    opened_channel,
    put_record,
    segments,
)
from tests.channels.helpers import bodies, drained, opened, put, take
from tests.support.sim_fs import SimFS
from tests.support.waiting import eventually

REAL: dict[str, Any] = {"checkpoint_interval": None, "minimum_free_space": 0, "reserve": 0, "keep_alive": 0}


class Forbidding(Disk):
    """The real disk, with one operation refused for paths with a given end."""

    def __init__(self, operation: str, ending: str, number: int = errno.EACCES) -> None:
        method = getattr(self, operation)

        def refuse(path: str, *arguments: object) -> object:
            if path.endswith(ending):
                raise OSError(number, os.strerror(number), path)
            return method(path, *arguments)

        setattr(self, operation, refuse)


def open_files() -> int:
    """Return the number of open files of this process; 0 if unknown."""
    descriptors = Path("/proc/self/fd")
    return sum(1 for _ in descriptors.iterdir()) if descriptors.is_dir() else 0


def forget_open_files(channel: FileChannel) -> None:
    """Close files open for reading, which would survive their deletion."""
    for file in channel._segments._files.values():
        channel._disk.close(file)
    channel._segments._files.clear()


# Counts


@pytest.mark.usefixtures("read_back")
def test_errors_of_puts_and_takes_are_counted(tmp_path: Path) -> None:
    """A failed put and a failed take count once each."""
    clock = ManualClock()
    channel = FileChannel(tmp_path / "c", clock=clock, segment_size=1280, **REAL)
    put(channel, "test1", "x" * 900)
    assert take(channel) == ["test1"]
    stats = channel.stats()
    assert (stats.put_attempts, stats.put_successes, stats.put_errors) == (2, 2, 0)
    assert (stats.take_attempts, stats.take_successes, stats.take_errors) == (1, 1, 0)
    shutil.rmtree(tmp_path / "c")
    clock.advance(2)
    with pytest.raises(ChannelIOError, match=r"a commit failed: .*No such file"):
        put(channel, "test")
    forget_open_files(channel)
    taking = opened(channel)
    with pytest.raises(ChannelIOError, match=r"an event cannot be read \(try 1 of 3"):
        taking.take()
    stats = channel.stats()
    assert (stats.put_attempts, stats.put_successes, stats.put_errors) == (3, 2, 1)
    assert (stats.take_attempts, stats.take_successes, stats.take_errors) == (2, 1, 1)
    assert (stats.size, stats.taken) == (1, 0)
    assert stats.file is not None
    assert (stats.file.disk_bytes, stats.file.free_bytes) == (0, 0)
    channel.close()


@pytest.mark.usefixtures("read_back")
def test_a_damaged_event_counts_as_an_error_of_the_take() -> None:
    """A damaged event counts as a take error without an exception."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "test")
        path, record = put_record(disk, "test")
        flip(disk, path, record.offset)
        assert take(channel) == []
        stats = channel.stats()
        assert (stats.take_attempts, stats.take_successes, stats.take_errors) == (1, 0, 1)


def test_checkpoints_that_fail_are_counted_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """Failed checkpoints are counted, logged and tried again."""
    disk, clock = SimFS(), ManualClock()
    with opened_channel(disk, checkpoint_interval=30.0, clock=clock) as channel:
        put(channel, "a")
        disk.fail("rename", times=None)
        for errors in (1, 2):
            eventually(lambda: clock.waiting == 1)
            clock.advance(30.1)
            eventually(lambda errors=errors: file_stats(channel).checkpoint_errors == errors)
        assert file_stats(channel).checkpoints == 1
        assert "channel channel: a checkpoint could not be written: [Errno 5]" in caplog.text
        disk.heal()
        eventually(lambda: clock.waiting == 1)
        clock.advance(30.1)
        eventually(lambda: file_stats(channel).checkpoints == 2)
        assert drained(channel) == ["a"]


@pytest.mark.parametrize("operation", ["create", "append", "sync", "rename", "sync_directory"])
def test_second_copies_that_fail_are_counted_apart(operation: str, caplog: pytest.LogCaptureFixture) -> None:
    """Failed second copies are counted separately, and nothing is deleted."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        fill(channel, 60)
        drained(channel)
        before = segments(disk)
        channel._log.sync()
        # A Live precedes the two copies, in one write and one sync.
        fault = disk.fail(operation, nth=3 if operation in ("append", "sync") else 2)
        assert channel.checkpoint()
        assert fault.met == 1
        found = file_stats(channel)
        assert (found.checkpoints, found.checkpoint_errors, found.checkpoint_backup_errors) == (2, 0, 1)
        assert "the second copy of a checkpoint could not be written: [Errno 5]" in caplog.text
        assert segments(disk) == before
        put(channel, "a")
        assert channel.checkpoint()
        assert len(segments(disk)) < len(before)


def test_a_segment_that_cannot_be_deleted_is_tried_again() -> None:
    """A failed deletion is counted and tried again."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        fill(channel, 60)
        drained(channel)
        disk.fail("unlink", times=None)
        channel.checkpoint()
        left = len(segments(disk))
        assert left > 2
        disk.heal()
        put(channel, "a")
        channel.checkpoint()
        assert len(segments(disk)) < left
        assert drained(channel) == ["a"]


def test_a_healthy_channel_reports_no_errors() -> None:
    """A healthy channel reports no errors."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a")
    take(channel)
    for expected in (True, False):
        stats = channel.stats()
        assert stats.open == expected
        assert (stats.put_errors, stats.take_errors) == (0, 0)
        found = file_stats(channel)
        assert (found.checkpoint_errors, found.damaged_records, found.lost_events, found.poisoned) == (0, 0, 0, 0)
        channel.close()


def test_a_segment_of_rubbish_is_set_aside_and_the_channel_opens(caplog: pytest.LogCaptureFixture) -> None:
    """An invalid segment is quarantined, and the channel opens."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "a")
    disk.put(f"{DIRECTORY}/log-0000000009", b"invalid data file content" * 40)
    with opened_channel(disk) as channel:
        assert (file_stats(channel).quarantined, file_stats(channel).damaged_records) == (1, 1)
        assert drained(channel) == ["a"]
    assert re.search(r"log-0000000009 has no readable header; it is moved to /channel/quarantine/log-", caplog.text)
    assert disk.content(f"{DIRECTORY}/quarantine/log-0000000009.unreadable").startswith(b"invalid data")
    with opened_channel(disk) as channel:
        assert file_stats(channel).quarantined == 0


# Directories


def test_a_file_in_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    """A file in place of a directory is refused."""
    (tmp_path / "file").write_text("precious")
    for directory, options in (
        (tmp_path / "file", {}),
        (tmp_path / "file" / "below", {}),
        (tmp_path / "good", {"data_directories": [tmp_path / "file"]}),
    ):
        before = open_files()
        with pytest.raises(ChannelFormatError, match=r"file.*: give"):
            FileChannel(directory, **REAL, **options)
        assert open_files() == before
    assert (tmp_path / "file").read_text() == "precious"
    with FileChannel(tmp_path / "good", **REAL) as channel:
        put(channel, "a")


def test_a_directory_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    """A directory with foreign files is refused with some names, unchanged."""
    for name in ("holiday.jpg", "a", "b", "thesis.doc"):
        (tmp_path / name).write_text("precious")
    with pytest.raises(ChannelFormatError) as caught:
        FileChannel(tmp_path, **REAL)
    assert (
        f"{tmp_path} holds files that are not a channel's (a, b, holiday.jpg, …): give an empty directory, "
        "or the path of a new one" in str(caught.value)
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "holiday.jpg", "thesis.doc"]


@pytest.mark.parametrize("found", [[], ["lost+found"], ["checkpoint.new"], ["log-0000000001.new"]])
def test_an_empty_directory_will_do(found: list[str]) -> None:
    """An empty directory, or one with only traces of a crash, is accepted."""
    disk = SimFS()
    disk.make_directory(DIRECTORY)
    for name in found:
        disk.put(f"{DIRECTORY}/{name}", b"")
    with opened_channel(disk) as channel:
        put(channel, "a")
        assert drained(channel) == ["a"]


def test_missing_directories_are_made_and_are_private(tmp_path: Path) -> None:
    """Missing directories are created, private."""
    with FileChannel(tmp_path / "a" / "b" / "c", **REAL) as channel:
        put(channel, "a")
    for path in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"):
        assert path.stat().st_mode & 0o077 == 0


def test_a_segment_of_a_newer_version_is_refused_and_left_alone() -> None:
    """A segment of a newer version is refused, with the readable versions."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "a")
    path = segments(disk)[0]
    original = disk.content(path)
    content = bytearray(original)
    for start in (0, SECOND_HEADER):
        content[start + 8] = 7
        body = content[start : start + HEADER_SIZES[1] - 4]  # the part common to all versions
        content[start + HEADER_SIZES[1] - 4 : start + HEADER_SIZES[1]] = struct.pack("<I", crc32(body))
    disk.put(path, bytes(content))
    with pytest.raises(ChannelFormatError) as caught:
        open_channel(disk)
    assert str(caught.value) == (
        f"channel channel: {path} has format version 7, and this package reads versions up to 2: "
        "use the newer package that wrote it, or give another directory"
    )
    assert disk.content(path) == bytes(content)
    assert disk.open_files == []
    disk.put(path, original)
    assert contents(disk) == ["a"]


def test_a_directory_with_the_name_of_a_segment_is_an_error_that_names_it(tmp_path: Path) -> None:
    """A directory with a segment's name is an error with its path."""
    FileChannel(tmp_path, **REAL).close()
    (tmp_path / "log-0000000005").mkdir()
    with pytest.raises(ChannelIOError, match=r"log-0000000005.*check the disk"):
        FileChannel(tmp_path, **REAL)


# Errors of the system


@pytest.mark.parametrize(
    ("operation", "ending"),
    [
        ("make_directory", "/c"),
        ("names", "/c"),
        ("lock", "/LOCK"),
        ("open", "log-0000000001"),
        ("create", "log-0000000002.new"),
    ],
)
@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE])
def test_a_refused_operation_raises_with_channel_path_reason_and_number_and_releases_everything(
    tmp_path: Path, operation: str, ending: str, number: int
) -> None:
    """A refused operation raises with channel, path, reason and number, and releases everything."""
    with FileChannel(tmp_path / "c", **REAL) as channel:
        put(channel, "a")
    before = open_files()
    with pytest.raises(ChannelIOError, match=os.strerror(number)) as caught:
        FileChannel(tmp_path / "c", disk=Forbidding(operation, ending, number), name="orders", **REAL)
    assert caught.value.errno == number
    assert caught.value.channel == "orders"
    assert str(tmp_path / "c") in str(caught.value)
    assert open_files() == before
    with FileChannel(tmp_path / "c", **REAL) as channel:
        assert drained(channel) == ["a"]


def test_a_directory_without_write_permission_raises_with_advice(tmp_path: Path) -> None:
    """A directory without write permission raises with advice."""
    with pytest.raises(ChannelIOError, match="give a directory that this user may write, or change its owner"):
        FileChannel(tmp_path / "c", disk=Forbidding("lock", "/LOCK"), **REAL)


def test_a_checkpoint_that_may_not_be_read_is_passed_over(tmp_path: Path) -> None:
    """An unreadable checkpoint is ignored."""
    with FileChannel(tmp_path / "c", **REAL) as channel:
        put(channel, "a")
    with FileChannel(tmp_path / "c", disk=Forbidding("open", "/checkpoint"), **REAL) as channel:
        assert file_stats(channel).checkpoint_fallbacks == 1
        assert drained(channel) == ["a"]


def test_on_a_full_disk_a_new_channel_is_refused_and_an_existing_one_opens() -> None:
    """On a full disk a new channel is refused, and an existing one opens."""
    with pytest.raises(ChannelIOError, match="No space left on device") as caught:
        open_channel(SimFS(capacity=0))
    assert caught.value.errno == errno.ENOSPC
    disk = SimFS()
    with opened_channel(disk, reserve=5000) as channel:
        expected = fill(channel, 40)
    disk.capacity = disk.used
    with opened_channel(disk, reserve=5000, minimum_free_space=5000) as channel:
        assert "reserve" not in names(disk)
        with pytest.raises(DiskFullError):
            put(channel, "no")
        assert drained(channel) == expected
        assert channel.checkpoint()


def test_an_error_while_opening_gives_the_directory_up() -> None:
    """Any failure while opening raises, releases the lock and loses nothing."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        expected = fill(channel, 40)
    errors = []
    for nth in range(1, 100):
        fault = disk.fail("*", nth)
        try:
            open_channel(disk).close()
        except ChannelIOError as error:
            errors.append(str(error))
        disk.heal()
        assert disk.open_files == []
        if not fault.met:
            break
    assert not fault.met
    assert len(errors) > 5
    assert [text for text in errors if not text.startswith("channel channel: ")] == []
    assert contents(disk) == expected


@pytest.mark.usefixtures("read_back")
def test_reading_that_fails_for_a_moment_costs_nothing() -> None:
    """After a temporary read error the same event is delivered."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "a", "b")
        taking = opened(channel)
        for failures in (1, 2):
            disk.fail("read", times=2)  # both events at once, then the first alone
            with pytest.raises(ChannelIOError, match=f"try {failures} of 3"):
                taking.take(2)
        assert bodies(taking.take(2)) == ["a", "b"]
        taking.commit()
        assert (channel.stats().take_errors, file_stats(channel).lost_events) == (2, 0)


def test_all_errors_are_channelerrors_and_disk_errors_are_oserrors_with_a_number() -> None:
    """All errors are ChannelErrors, and disk errors are OSErrors with a number."""
    for kind in (ChannelFormatError, ChannelIOError, ChannelLockedError, DiskFullError):
        assert issubclass(kind, ChannelError)
        assert issubclass(kind, ProducerError)
    assert issubclass(ChannelIOError, OSError)
    assert issubclass(ChannelFormatError, ValueError)


def test_no_error_is_swallowed_when_the_last_checkpoint_fails(caplog: pytest.LogCaptureFixture) -> None:
    """A failed last checkpoint is logged, and the lock is released."""
    disk = SimFS()
    channel = open_channel(disk)
    expected = fill(channel, 40)
    disk.fail("create", times=None)
    with caplog.at_level(logging.ERROR):
        channel.close()
    assert "a checkpoint could not be written" in caplog.text
    assert disk.open_files == []
    disk.heal()
    for path in CHECKPOINTS:
        assert disk.exists(path)
    assert contents(disk) == expected

"""Missing segments: the channel refuses to open without them, and deletes no unknown ones."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from producer.channels import FileChannel
from producer.channels.file.recovery.repair import repair
from producer.model.errors import ChannelIOError
from tests.channels.file.opening import (
    DIRECTORY,
    contents,
    file_stats,
    fill,
    flip,
    killed,
    names,
    open_channel,
    opened_channel,
    segments,
)
from tests.channels.helpers import drained, put, take
from tests.support.sim_fs import SimFS

SMALL: dict[str, Any] = {
    "segment_size": 1280,
    "checkpoint_interval": None,
    "minimum_free_space": 0,
    "reserve": 0,
    "keep_alive": 0,
}

# Stores events in the directories argv[1] and argv[2], and dies without closing anything.
_VICTIM = """
import os, signal, sys
from producer.channels import Event, FileChannel
channel = FileChannel(
    sys.argv[1], data_directories=sys.argv[1:], segment_size=1280, checkpoint_interval=None, minimum_free_space=0
)
for number in range(10):
    with channel.transaction() as transaction:
        transaction.put(Event({}, str(number).encode().ljust(400, b".")))
os.kill(os.getpid(), signal.SIGKILL)
"""


def damage(path: Path, body: str) -> None:
    """Damage the event with this body."""
    content = bytearray(path.read_bytes())
    content[content.index(body.encode()) + 5] ^= 0xFF
    path.write_bytes(content)


class Mounted:
    """A channel with two directories, of which the second can be unmounted."""

    def __init__(self, base: Path) -> None:
        self.main, self.other, self.away = base / "main", base / "other", base / "away"

    def open(self) -> FileChannel:
        return FileChannel(self.main, data_directories=[self.main, self.other], **SMALL)

    def unmount(self) -> None:
        self.other.rename(self.away)
        self.other.mkdir()

    def mount(self) -> None:
        shutil.rmtree(self.other)
        self.away.rename(self.other)


def test_a_segment_with_only_a_copy_in_quarantine_counts_as_missing(tmp_path: Path) -> None:
    """A segment with only a copy in quarantine counts as missing."""
    disks = Mounted(tmp_path)
    with disks.open() as channel:  # the first segment is in the other directory, the second in the main one
        put(channel, "damaged")
        put(channel, "beside it")
        put(channel, large := "large".ljust(600, "."))
    disks.open().close()
    damage(disks.other / "log-0000000001", "damaged")
    with disks.open() as channel:
        taking = channel.transaction()
        taking.begin()
        assert len(taking.take(100)) == 2
        taking.rollback()
        assert file_stats(channel).quarantined == 1
        put(channel, "new")
    assert [path.name for path in disks.other.glob("log-*")] == ["log-0000000001"]
    disks.unmount()
    for _ in range(2):
        with pytest.raises(ChannelIOError, match="mount"):
            disks.open()
    (disks.other / "LOCK").touch()  # as if the channel had been opened on the empty directory once
    with pytest.raises(ChannelIOError, match=r"which the checkpoint in .* needs, are in none of its directories"):
        disks.open()
    disks.mount()
    with disks.open() as channel:
        assert drained(channel) == ["beside it", large, "new"]


def test_a_directory_that_is_not_mounted_is_missed_though_no_checkpoint_needs_it(tmp_path: Path) -> None:
    """An unmounted directory refuses the opening even if no checkpoint needs it."""
    disks = Mounted(tmp_path)
    disks.open().close()
    done = subprocess.run([sys.executable, "-c", _VICTIM, disks.main, disks.other], check=False)
    assert done.returncode == -signal.SIGKILL
    disks.unmount()
    for _ in range(2):
        with pytest.raises(ChannelIOError, match=r"other is one of the channel's directories, .* is its disk mounted"):
            disks.open()
        assert list(disks.other.iterdir()) == []
    disks.mount()
    with disks.open() as channel:
        assert [body.rstrip(".") for body in drained(channel)] == [str(number) for number in range(10)]


def test_a_data_directory_that_is_new_is_made(tmp_path: Path) -> None:
    """A new data directory is created."""
    with FileChannel(tmp_path / "main", **SMALL) as channel:
        put(channel, "a")
    with Mounted(tmp_path).open() as channel:
        assert drained(channel) == ["a"]
        assert (tmp_path / "other" / "LOCK").exists()


def test_a_segment_that_was_set_aside_unreadable_is_not_missing() -> None:
    """A segment quarantined as unreadable does not count as missing."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        expected = fill(channel, 60)
    path = segments(disk)[1]
    for offset in (20, 530):
        flip(disk, path, offset)
    disk.fail("rename", nth=3, times=None)  # the first is that to quarantine, the second that of a new segment
    disk = killed(open_channel(disk), disk)
    disk.heal()
    assert names(disk, f"{DIRECTORY}/quarantine") == [f"{path.rpartition('/')[2]}.unreadable"]
    found = contents(disk)
    assert 0 < len(found) < 60
    assert [body for body in expected if body in found] == found


def test_no_number_of_a_segment_is_given_twice() -> None:
    """Segment numbers of quarantined and abandoned segments are not reused."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "a")
    last = segments(disk)[-1]
    for offset in (20, 530):
        flip(disk, last, offset)
    opened = open_channel(disk)
    assert segments(disk)[-1] > last
    opened.close()
    newest = segments(disk)[-1]
    disk.unlink(newest)
    repair(DIRECTORY, give_up_missing=True, disk=disk)  # type: ignore[arg-type]
    opened = open_channel(disk)
    assert segments(disk)[-1] > newest
    opened.close()


def test_an_abandoned_segment_that_comes_back_is_quarantined_and_can_be_drained_as_the_log_says(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An abandoned segment that comes back is quarantined, and can be drained as the log says."""
    disk = SimFS()
    places = ("/one", "/two")
    with opened_channel(disk, data_directories=places) as channel:
        expected = fill(channel, 60)
    kept = {path: disk.content(path) for path in segments(disk, "/two")}
    for path in kept:
        disk.unlink(path)
    repair(DIRECTORY, data_directories=places, give_up_missing=True, disk=disk)  # type: ignore[arg-type]
    with opened_channel(disk, data_directories=places) as channel:
        left = drained(channel)
        put(channel, "new")
    for path, content in kept.items():
        disk.put(path, content)
    with opened_channel(disk, data_directories=places) as channel:
        assert drained(channel) == ["new"]
        channel.checkpoint(force=True)
        assert file_stats(channel).quarantined == len(kept)
    assert "is unknown to the checkpoint, because it was missing when that was written" in caplog.text
    disk.make_directory("/back")
    for path, content in kept.items():
        name = path.rpartition("/")[2]
        assert disk.content(f"/two/quarantine/{name}.unknown") == content
        disk.put(f"/back/{name}", content)
    assert sorted(contents(disk, directory="/back") + left) == expected


def test_segments_that_are_needed_no_more_are_deleted_also_after_a_crash() -> None:
    """A crash between a checkpoint and the deletions quarantines and redelivers nothing."""
    disk = SimFS()
    channel = open_channel(disk)
    expected = fill(channel, 60)
    assert take(channel, 50) == expected[:50]
    disk.fail("unlink", times=None)
    channel.checkpoint()
    disk = killed(channel, disk)
    before = len(segments(disk))
    with opened_channel(disk) as channel:
        assert file_stats(channel).quarantined == 0
        assert len(segments(disk)) < before
        assert drained(channel) == expected[50:]
    assert "quarantine" not in names(disk)


def test_the_segment_of_a_checkpoints_position_is_needed_even_if_it_was_empty_then() -> None:
    """The segment of a checkpoint's position is needed even if it was empty then."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a")
    take(channel)
    channel.checkpoint(force=True)
    put(channel, "b")
    after = killed(channel, disk)
    for path in segments(after):
        after.unlink(path)
    with pytest.raises(ChannelIOError, match="missing"):
        open_channel(after)

"""Ownership: a directory has one owner, and a second one is refused with its name."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from producer.channels import FileChannel
from producer.model.errors import ChannelClosedError, ChannelFormatError, ChannelLockedError
from producer.testing import ManualClock
from tests.channels.file.opening import DIRECTORY, names, open_channel, opened_channel
from tests.channels.helpers import drained, put
from tests.support.sim_fs import SimFS

REAL: dict[str, Any] = {"checkpoint_interval": None, "minimum_free_space": 0, "reserve": 0, "keep_alive": 0}

_OWNER = """
import sys
from producer.channels import FileChannel
channel = FileChannel(sys.argv[1], name="orders", minimum_free_space=0, checkpoint_interval=None)
print("open", flush=True)
sys.stdin.read()
"""
_STRANGER = """
import fcntl, sys
file = open(sys.argv[1], "a+")
fcntl.flock(file, fcntl.LOCK_EX)
print("open", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process(program: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program until it has opened its channel; kill it at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_process_is_refused_with_the_owners_name_and_admitted_after_the_owner_is_killed(
    tmp_path: Path,
) -> None:
    """A second process is refused with the owner's name, and admitted after the owner is killed."""
    with another_process(_OWNER, tmp_path / "c") as owner:
        with pytest.raises(ChannelLockedError) as caught:
            FileChannel(tmp_path / "c", name="mine", **REAL)
        assert str(caught.value) == (
            f"channel mine: {tmp_path / 'c'} is in use by the channel 'orders' of process {owner.pid} on "
            f"{socket.gethostname()}: close that one, or give each process a directory of its own "
            "(ProcessFileChannel)"
        )
        assert caught.value.channel == "mine"
    with FileChannel(tmp_path / "c", **REAL) as channel:
        put(channel, "a")
        assert drained(channel) == ["a"]


def test_a_second_channel_in_the_same_process_is_refused_also_by_another_path(tmp_path: Path) -> None:
    """A second channel in the same process is refused, also by another path."""
    (tmp_path / "link").symlink_to(tmp_path / "c")
    with FileChannel(tmp_path / "c", **REAL) as channel:
        for path in (tmp_path / "c", tmp_path / "link", f"{tmp_path}/./c/"):
            with pytest.raises(ChannelLockedError, match=rf"process {os.getpid()} \(this process\) on"):
                FileChannel(path, **REAL)
        put(channel, "a")
        assert drained(channel) == ["a"]


def test_a_lock_of_something_else_is_respected(tmp_path: Path) -> None:
    """A lock with an empty or invalid text is respected."""
    FileChannel(tmp_path / "c", **REAL).close()
    for text in ("", "rubbish", "[1, 2]", json.dumps({"pid": None})):
        (tmp_path / "c" / "LOCK").write_text(text)
        used = re.escape(str(tmp_path / "c")) + " is in use by"
        with another_process(_STRANGER, tmp_path / "c" / "LOCK"), pytest.raises(ChannelLockedError, match=used):
            FileChannel(tmp_path / "c", **REAL)
    with FileChannel(tmp_path / "c", **REAL):
        owner = json.loads((tmp_path / "c" / "LOCK").read_text())
        assert owner["pid"] == os.getpid()


def test_the_lock_file_names_its_last_owner_after_closing() -> None:
    """The lock file names its last owner after closing."""
    disk = SimFS()
    for name, start in (("first", 1_700_000_000.0), ("second", 1_800_000_000.0)):
        with opened_channel(disk, name=name, clock=ManualClock(start)):
            pass
        owner = json.loads(disk.content(f"{DIRECTORY}/LOCK"))
        assert owner == {"channel": name, "host": socket.gethostname(), "pid": os.getpid(), "since": int(start)}


def test_all_directories_are_locked_or_none() -> None:
    """If one directory is locked by another owner, all are released."""
    disk = SimFS()
    with opened_channel(disk, directory="/one", data_directories=["/shared"], name="one"):
        with pytest.raises(ChannelLockedError, match="/shared is in use by the channel 'one'"):
            open_channel(disk, directory="/two", data_directories=["/mine", "/shared"])
        assert disk.open_files == ["/one/LOCK", "/shared/LOCK", "/shared/log-0000000001"]
        for directory in ("/one", "/shared"):
            with pytest.raises(ChannelLockedError):
                open_channel(disk, directory=directory)
    with opened_channel(disk, directory="/two", data_directories=["/mine"]) as channel:
        put(channel, "a")
        assert drained(channel) == ["a"]


def test_the_same_directory_may_be_named_twice() -> None:
    """The same directory may be named twice."""
    disk = SimFS()
    with opened_channel(disk, data_directories=[DIRECTORY, "/data", DIRECTORY]) as channel:
        put(channel, "a")
        assert drained(channel) == ["a"]
    assert disk.open_files == []


@pytest.mark.parametrize("strange", ["notes.txt", "log-1", "log-0000000001.gz", "checkpoint.old"])
def test_strange_files_matter_only_before_the_first_opening(strange: str) -> None:
    """Foreign files are refused only in a directory without a lock file."""
    disk = SimFS()
    disk.make_directory(DIRECTORY)
    disk.put(f"{DIRECTORY}/{strange}", b"precious")
    with pytest.raises(ChannelFormatError, match=re.escape(f"not a channel's ({strange})")):
        open_channel(disk)
    assert names(disk) == [strange]
    disk.unlink(f"{DIRECTORY}/{strange}")
    open_channel(disk).close()
    disk.put(f"{DIRECTORY}/{strange}", b"precious")
    open_channel(disk).close()
    assert disk.content(f"{DIRECTORY}/{strange}") == b"precious"


def test_a_directory_that_lost_its_lock_file_is_still_a_channels() -> None:
    """A channel's directory without its lock file still opens."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "a")
    disk.unlink(f"{DIRECTORY}/LOCK")
    with opened_channel(disk) as channel:
        assert drained(channel) == ["a"]


def test_closing_gives_the_lock_file_back(tmp_path: Path) -> None:
    """Closing closes the lock file; a second close closes nothing else."""
    channel = FileChannel(tmp_path / "c", **REAL)
    files = list(channel._ownership.files)
    assert [path for _, path in files] == [str(tmp_path / "c"), str(tmp_path / "c" / "LOCK")]
    channel.close()
    channel.close()
    assert channel._ownership.files == []
    for file, _ in files:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file)


SECOND = """
import sys
from producer.channels import FileChannel
FileChannel(sys.argv[1], minimum_free_space=0, reserve=0)
"""


@pytest.mark.parametrize("what", ["segment", "checkpoint"])
def test_deleting_the_lock_file_admits_no_other_owner_and_closes_the_channel_at_its_next_segment(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Deleting the lock file admits no other owner, and closes the channel at its next segment."""
    directory = tmp_path / "c"
    channel = FileChannel(directory, segment_size=4096, **REAL)
    put(channel, "a")
    (directory / "LOCK").unlink()
    second = subprocess.run([sys.executable, "-c", SECOND, str(directory)], capture_output=True, text=True, check=False)
    assert "ChannelLockedError" in second.stderr
    assert not (directory / "LOCK").exists(), "the one that is refused has changed something"
    if what == "segment":
        with pytest.raises(ChannelLockedError, match="LOCK was removed or replaced, so another process may use"):
            put(channel, "x" * 4096)
    else:
        assert not channel.checkpoint()
    with pytest.raises(ChannelClosedError, match="LOCK was removed or replaced"):
        put(channel, "b")
    channel.close()
    assert caplog.text.count("another process may use the directory") >= 1
    with FileChannel(directory, **REAL) as channel:
        assert drained(channel) == ["a"]


def test_another_lock_file_in_the_place_of_the_first_ends_the_channel() -> None:
    """Without directory locks, a replaced lock file closes the channel."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a")
    disk.unlink(f"{DIRECTORY}/LOCK")
    with opened_channel(disk) as other:
        assert not channel.checkpoint(force=True)
        with pytest.raises(ChannelClosedError, match="LOCK was removed or replaced"):
            put(channel, "b")
        channel.close()
        assert drained(other) == ["a"]

"""ProcessFileChannel: a directory per process below one base; orphans are adopted."""

import errno
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from producer.channels import Event, FileChannel, ProcessFileChannel
from producer.channels.file.recovery.recovery import quarantine
from producer.channels.file.store.disk import Disk
from producer.model.errors import ChannelClosedError, ChannelIOError, ConfigError
from tests.support.waiting import eventually

Make = Callable[..., ProcessFileChannel]

# Commits events to its own directory below argv[1], and dies without closing anything.
_VICTIM = """
import os, signal, sys
from producer.channels import Event, ProcessFileChannel
channel = ProcessFileChannel(sys.argv[1], minimum_free_space=0)
with channel.transaction() as transaction:
    transaction.put_many([Event({"n": str(number)}, sys.argv[2].encode()) for number in range(int(sys.argv[3]))])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make channels below one base that scan for orphans once; close them at the end."""
    made: list[ProcessFileChannel] = []

    def new(**options: Any) -> ProcessFileChannel:
        options = {
            "adopt_interval": None,
            "checkpoint_interval": None,
            "minimum_free_space": 0,
            "keep_alive": 0,
        } | options
        channel = ProcessFileChannel(tmp_path / "base", **options)
        made.append(channel)
        return channel

    yield new
    for channel in made:
        channel.close()


def put(channel: ProcessFileChannel | FileChannel, *bodies: bytes) -> None:
    with channel.transaction() as transaction:
        transaction.put_many([Event({}, body) for body in bodies])


def take_all(channel: ProcessFileChannel | FileChannel) -> list[bytes]:
    with channel.transaction() as transaction:
        return [event.body for event in transaction.take(1000, timeout=0)]


def directories(base: Path) -> list[Path]:
    return sorted(path for path in base.iterdir() if path.is_dir())


def kill_one(base: Path, body: str, count: int = 3) -> None:
    """Leave the directory of a killed process with ``count`` events."""
    done = subprocess.run([sys.executable, "-c", _VICTIM, str(base), body, str(count)], check=False)
    assert done.returncode == -signal.SIGKILL


def leave(place: Path, name: str, body: str, count: int = 1) -> None:
    """Leave such a directory under this name."""
    kill_one(place / "elsewhere", body, count)
    (directory,) = directories(place / "elsewhere")
    directory.rename(place / "base" / name)


def in_child(work: Callable[[], object]) -> int:
    """Run ``work`` in a forked child; return its exit code."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001  # the child ends here, whatever happens
            os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_each_process_has_a_directory_of_its_own(make: Make, tmp_path: Path) -> None:
    """A forked child uses the same object with another directory."""
    channel = make()
    put(channel, b"parent")
    mine = channel.directory
    before = sorted((path.name, path.stat().st_size) for path in Path(mine).iterdir())

    def work() -> None:
        put(channel, b"child")
        assert channel.directory != mine

    assert in_child(work) == 0
    assert sorted((path.name, path.stat().st_size) for path in Path(mine).iterdir()) == before
    assert len(directories(tmp_path / "base")) == 2
    assert channel._adopt() == 1
    assert take_all(channel) == [b"parent", b"child"]


def test_a_new_process_takes_over_the_first_orphans_directory(make: Make, tmp_path: Path) -> None:
    """A new process takes over the first orphan's directory."""
    kill_one(tmp_path / "base", "x")
    (orphan,) = directories(tmp_path / "base")
    channel = make()
    assert channel.directory == str(orphan)
    assert channel.stats().size == 3
    assert channel.stats().file is not None
    assert channel.stats().file.recovered == 3


def test_the_adopter_moves_the_events_of_every_orphan_in_order_and_removes_its_directory(
    make: Make, tmp_path: Path
) -> None:
    """The adopter moves the events of every orphan in order, and removes its directory."""
    channel = make(adopt_interval=0.05)
    put(channel, b"mine")
    for name in ("a", "b"):
        kill_one(tmp_path / "base", name)
    eventually(lambda: len(directories(tmp_path / "base")) == 1)
    assert sorted(take_all(channel)) == [b"a"] * 3 + [b"b"] * 3 + [b"mine"]
    assert channel.stats().file is not None
    assert channel.stats().file.adopted == 6


def test_an_unknown_option_is_refused_at_once(tmp_path: Path) -> None:
    """An unknown option is refused by the constructor, with the nearest name, before a directory is opened."""
    with pytest.raises(ConfigError, match=r"capacty.*capacity"):
        ProcessFileChannel(tmp_path / "base", capacty=3)
    assert not (tmp_path / "base").exists()


def test_living_process_is_not_robbed(make: Make) -> None:
    """Running processes keep their directories."""
    first, second = make(), make()
    put(first, b"first")
    put(second, b"second")
    assert first._adopt() == second._adopt() == 0
    assert (take_all(first), take_all(second)) == ([b"first"], [b"second"])


def test_a_full_channel_adopts_what_fits_and_the_rest_later(make: Make, tmp_path: Path) -> None:
    """A full channel adopts what fits, and the rest later."""
    channel = make(capacity=4, transaction_capacity=4)
    put(channel, b"1", b"2")
    kill_one(tmp_path / "base", "x", 3)
    assert channel._adopt() == 2
    assert len(directories(tmp_path / "base")) == 2
    assert take_all(channel) == [b"1", b"2", b"x", b"x"]
    assert channel._adopt() == 1
    assert take_all(channel) == [b"x"]
    assert len(directories(tmp_path / "base")) == 1


def test_with_lower_limits_events_are_adopted_in_parts(make: Make, tmp_path: Path) -> None:
    """With lower limits events are adopted in parts."""
    channel = make(byte_capacity=1000)
    put(channel, b"mine")
    leave(tmp_path, "large", "x" * 300, 10)
    found = take_all(channel)
    while moved := channel._adopt():
        assert moved <= 3
        found += take_all(channel)
    assert found == [b"mine"] + [b"x" * 300] * 10
    assert len(directories(tmp_path / "base")) == 1


def test_an_event_that_never_fits_is_logged_with_advice_and_other_directories_are_adopted(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An event that never fits is logged with advice, and other directories are adopted."""
    channel = make(byte_capacity=1000)
    put(channel, b"mine")
    leave(tmp_path, "0-large", "x" * 2000)
    leave(tmp_path, "1-small", "small")
    assert channel._adopt() == 1
    assert take_all(channel) == [b"mine", b"small"]
    assert (tmp_path / "base" / "0-large").exists()
    assert not (tmp_path / "base" / "1-small").exists()
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "0-large can never fit" in line
    assert "(byte_capacity)" in line
    assert "producer channel drain" in line


def test_adopted_events_are_synced_before_the_orphans_takes_are_committed(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adopted events are synced before the orphan's takes are committed."""
    kill_one(tmp_path / "base", "a")
    kill_one(tmp_path / "base", "b")  # takes over the first one's directory
    channel = make(fsync="os")
    put(channel, b"mine")
    kill_one(tmp_path / "base", "c")
    steps: list[str] = []
    sync, commit = FileChannel.sync, FileChannel._commit_takes
    monkeypatch.setattr(FileChannel, "sync", lambda self, timeout=None: (steps.append("sync"), sync(self, timeout)))
    monkeypatch.setattr(FileChannel, "_commit_takes", lambda *given: (steps.append("take"), commit(*given)))
    assert channel._adopt() == 3
    assert steps == ["sync", "take"]


def test_empty_directory_is_removed_at_close(make: Make, tmp_path: Path) -> None:
    """An empty directory is removed at close, others stay."""
    empty, full = make(), make()
    put(empty, b"x")
    put(full, b"y")
    assert take_all(empty) == [b"x"]
    kept = full.directory
    empty.close()
    full.close()
    assert directories(tmp_path / "base") == [Path(kept)]
    assert take_all(make()) == [b"y"]


def test_foreign_files_stay_when_a_directory_is_removed(make: Make) -> None:
    """Foreign files stay when a directory is removed."""
    channel = make()
    put(channel, b"x")
    directory = Path(channel.directory)
    (directory / "notes.txt").write_text("mine")
    assert take_all(channel) == [b"x"]
    channel.close()
    assert [path.name for path in directory.iterdir()] == ["notes.txt"]


@pytest.mark.usefixtures("read_back")
def test_a_directory_with_uncopied_damage_is_not_removed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with uncopied damage is not removed."""
    channel = make()
    put(channel, b"abc" * 50, b"y")
    (segment,) = Path(channel.directory).glob("log-*")
    content = bytearray(segment.read_bytes())
    content[content.index(b"abcabc") + 3] ^= 0xFF
    segment.write_bytes(content)

    def full(disk: Disk, path: str) -> str:
        del disk
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(quarantine, "copy", full)
    assert take_all(channel) == [b"y"]
    channel.close()
    assert segment.read_bytes().startswith(content.rstrip(b"\0"))


@pytest.mark.parametrize("operations", range(1, 9))
def test_a_crash_while_a_directory_is_removed_brings_nothing_back(
    make: Make, monkeypatch: pytest.MonkeyPatch, operations: int
) -> None:
    """A crash during the removal brings no event back."""
    channel = make(segment_size=1280)
    for number in range(6):
        put(channel, b"%d" % number * 400)
    assert len(take_all(channel)) == 6
    directory, unlink, done = Path(channel.directory), Path.unlink, []

    def dying(self: Path, *, missing_ok: bool = False) -> None:
        done.append(self.name)
        if len(done) > operations:
            raise OSError(errno.EIO, "the process died here")
        unlink(self, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", dying)
        channel.close()
    if directory.exists():
        with FileChannel(directory, minimum_free_space=0) as again:
            assert again.stats().size == 0


def test_damaged_orphan_is_not_removed(make: Make, tmp_path: Path) -> None:
    """An orphan with quarantined damage is not removed."""
    channel = make()
    put(channel, b"mine")
    kill_one(tmp_path / "base", "abc" * 50)
    (orphan,) = [path for path in directories(tmp_path / "base") if str(path) != channel.directory]
    (segment,) = orphan.glob("log-*")
    content = bytearray(segment.read_bytes())
    content[content.index(b"abcabc") + 3] ^= 0xFF
    segment.write_bytes(content)
    assert channel._adopt() == 2
    assert (orphan / "quarantine" / f"{segment.name}.copy").exists()


def test_other_directories_below_the_base_are_left_alone(make: Make, tmp_path: Path) -> None:
    """Directories without a lock file are ignored."""
    strange = tmp_path / "base" / "notes"
    strange.mkdir(parents=True)
    (strange / "file").write_text("mine")
    channel = make()
    assert channel._adopt() == 0
    assert (strange / "file").read_text() == "mine"


def test_pickled_channel_opens_a_directory_where_it_arrives(make: Make) -> None:
    """A pickled channel carries its configuration only."""
    channel = make(capacity=77, transaction_capacity=7)
    put(channel, b"x")
    arrived = pickle.loads(pickle.dumps(channel))
    try:
        assert arrived.directory != channel.directory
        assert arrived.stats().capacity == 77
        assert take_all(arrived) == []
    finally:
        arrived.close()


def test_a_closed_channel_opens_no_directory_again(make: Make) -> None:
    """A closed channel opens no directory again."""
    channel = make()
    channel.close()
    channel.close()
    with pytest.raises(ChannelClosedError, match="closed"):
        channel.transaction()


def test_base_that_is_a_file_is_an_error_for_people(tmp_path: Path) -> None:
    """A base that is a file raises with path and advice."""
    (tmp_path / "file").write_text("x")
    channel = ProcessFileChannel(tmp_path / "file")
    with pytest.raises(ChannelIOError, match=r"file cannot be used.*give a directory"):
        channel.transaction()


def test_data_directories_cannot_be_shared(tmp_path: Path) -> None:
    """Data directories are refused."""
    with pytest.raises(ConfigError, match="data_directories"):
        ProcessFileChannel(tmp_path, data_directories=[tmp_path / "data"])

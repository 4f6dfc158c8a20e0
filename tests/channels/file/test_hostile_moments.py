"""Interrupts and failures at any moment: committed events stay, uncommitted ones never appear, nothing hangs."""

import contextlib
import errno
import gc
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from producer import ConfigError, Producer
from producer.channels import Event, FileChannel, ProcessFileChannel
from producer.channels.file.store.disk import Disk
from producer.model.errors import (
    ChannelClosedError,
    ChannelError,
    ChannelKeyError,
    InvalidArgumentError,
    TransactionStateError,
)
from producer.testing import RecordingSink
from tests.support.waiting import Call

SMALL: dict[str, Any] = {"minimum_free_space": 0, "reserve": 0, "checkpoint_interval": None}


class Unlucky(Disk):
    """A disk with replaceable calls; each ``on_`` function gets the arguments and the original."""

    on_append: Callable[..., int] | None = None
    on_sync: Callable[..., None] | None = None
    on_truncate: Callable[..., None] | None = None

    def append(self, file: int, data: bytes, end: int | None = None) -> int:
        return super().append(file, data, end) if self.on_append is None else self.on_append(file, data, end)

    def sync(self, file: int) -> None:
        if self.on_sync is not None:
            self.on_sync()
        super().sync(file)

    def truncate(self, file: int, size: int) -> None:
        if self.on_truncate is not None:
            self.on_truncate()
        super().truncate(file, size)

    def plain_append(self, file: int, data: bytes, end: int | None) -> int:
        return super().append(file, data, end)


def put(channel: FileChannel, *bodies: bytes) -> None:
    with channel.transaction() as transaction:
        transaction.put_many([Event({}, body) for body in bodies])


def bodies(channel: FileChannel) -> list[bytes]:
    return [event.body for event in channel.peek()]


def fails(times: int) -> Callable[..., None]:
    left = [times]

    def call(*_: object) -> None:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EIO, "Input/output error")

    return call


def test_an_interrupt_while_a_commit_is_written_costs_no_later_commit(tmp_path: Path) -> None:
    """An interrupt during a write undoes that commit and no later one."""
    disk = Unlucky()
    channel = FileChannel(tmp_path, disk=disk, **SMALL)
    put(channel, b"first")

    def interrupted(file: int, data: bytes, end: int | None) -> int:
        disk.on_append = None
        disk.plain_append(file, data, end)
        raise KeyboardInterrupt

    disk.on_append = interrupted
    with pytest.raises(KeyboardInterrupt):
        put(channel, b"interrupted")
    put(channel, b"second")
    put(channel, b"third")
    assert bodies(channel) == [b"first", b"second", b"third"]
    channel.close()
    with FileChannel(tmp_path, **SMALL) as channel:
        assert bodies(channel) == [b"first", b"second", b"third"]
        assert channel.stats().file is not None
        assert channel.stats().file.lost_events == 0


@pytest.mark.parametrize("cut", [41, 82, 123, 130, 150])
def test_half_a_commit_that_cannot_be_cut_off_never_counts(tmp_path: Path, cut: int) -> None:
    """A partial commit that cannot be truncated never counts."""
    child = os.fork()
    if child == 0:
        disk = Unlucky()
        channel = FileChannel(tmp_path, disk=disk, **SMALL)
        put(channel, b"1")

        def half(file: int, data: bytes, end: int | None) -> int:
            disk.on_append = lambda *_: fails(1)() or 0
            return disk.plain_append(file, data[:cut], end)

        disk.on_append, disk.on_truncate = half, fails(99)
        try:
            put(channel, b"x", b"y", b"z")
        except ChannelError:
            disk.on_append = disk.on_truncate = None
            put(channel, b"2")
            put(channel, b"3")
        os._exit(0)
    os.waitpid(child, 0)
    with FileChannel(tmp_path, **SMALL) as channel:
        assert bodies(channel) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("syncs", [1, 2])
@pytest.mark.parametrize("end", ["exit", "close"])
def test_a_failed_and_rolled_back_take_is_there_after_a_restart(tmp_path: Path, syncs: int, end: str) -> None:
    """A failed and rolled back take is there after a restart."""
    child = os.fork()
    if child == 0:
        disk = Unlucky()
        channel = FileChannel(tmp_path, disk=disk, **SMALL)
        put(channel, b"x")
        disk.on_sync = fails(syncs + 1)
        taking = channel.transaction()
        taking.begin()
        taking.take()
        try:
            taking.commit()
        except ChannelError:
            taking.rollback()
        if end == "close":
            channel.close()
        os._exit(0)
    os.waitpid(child, 0)
    with FileChannel(tmp_path, **SMALL) as channel:
        assert bodies(channel) == [b"x"]


def test_nothing_is_promised_when_a_key_provider_fails_while_a_segment_is_replaced(tmp_path: Path) -> None:
    """If the key provider fails after a failed sync, every commit raises and none counts."""

    class Keys:
        away = False

        def current_key_id(self) -> str:
            if self.away:
                raise RuntimeError("the key service is away")
            return "k"

        def get_key(self, key_id: str) -> bytes:
            return b"k" * 32

    keys, disk = Keys(), Unlucky()
    channel = FileChannel(tmp_path, disk=disk, encryption=keys, **SMALL)
    together = threading.Barrier(3)

    def slow_failure() -> None:
        time.sleep(0)
        raise OSError(errno.EIO, "Input/output error")

    def commit() -> None:
        together.wait()
        put(channel, b"never")

    disk.on_sync, keys.away = slow_failure, True
    for call in [Call(commit) for _ in range(3)]:
        with pytest.raises((ChannelError, RuntimeError)):
            call.result()
    assert bodies(channel) == []
    disk.on_sync, keys.away = None, False
    put(channel, b"again")
    assert bodies(channel) == [b"again"]
    channel.close()


def test_key_id_that_does_not_fit_is_refused_at_once(tmp_path: Path) -> None:
    """A key id above 64 bytes is refused."""

    class Keys:
        def current_key_id(self) -> str:
            return "x" * 65

        def get_key(self, key_id: str) -> bytes:
            return b"k" * 32

    with pytest.raises(ChannelKeyError, match="1 to 64 bytes"):
        FileChannel(tmp_path, encryption=Keys(), **SMALL)


def test_close_that_was_interrupted_is_finished_by_the_next_one(tmp_path: Path) -> None:
    """An interrupted close is finished by the next one."""
    channel = FileChannel(tmp_path, **SMALL)
    put(channel, b"x")
    stop = channel._keeper.stop

    def interrupted() -> None:
        channel._keeper.stop = stop  # type: ignore[method-assign]
        raise KeyboardInterrupt

    channel._keeper.stop = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        channel.close()
    channel.close()
    with FileChannel(tmp_path, **SMALL) as channel:
        assert bodies(channel) == [b"x"]


def test_channel_that_is_dropped_gives_its_directory_back(tmp_path: Path) -> None:
    """A dropped channel releases its directory."""
    channel = FileChannel(tmp_path, **SMALL)
    put(channel, b"x")
    del channel
    gc.collect()
    with FileChannel(tmp_path, **SMALL) as channel:
        assert bodies(channel) == [b"x"]


def test_a_channel_without_a_thread_releases_its_directory_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A channel without a thread releases its directory at once."""

    def full(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        with pytest.raises(RuntimeError, match="can't start") as raised:
            FileChannel(tmp_path, minimum_free_space=0)
    FileChannel(tmp_path, minimum_free_space=0).close()
    assert raised.value.__traceback__ is not None


def test_one_transaction_is_committed_by_one_thread(tmp_path: Path) -> None:
    """A second commit or rollback during a commit is refused."""
    inside, go = threading.Event(), threading.Event()
    disk = Unlucky()
    channel = FileChannel(tmp_path, disk=disk, **SMALL)
    transaction = channel.transaction()
    transaction.begin()
    transaction.put(Event({}, b"x"))

    def wait() -> None:
        inside.set()
        go.wait(60)

    disk.on_sync = wait
    first = Call(transaction.commit)
    assert inside.wait(60)
    for call in (transaction.commit, transaction.rollback):
        with pytest.raises(TransactionStateError, match="another thread"):
            call()
    go.set()
    first.result()
    assert bodies(channel) == [b"x"]
    channel.close()


@pytest.mark.parametrize("wrong", [1.5, "1", 0, None])
def test_wrong_count_takes_nothing(tmp_path: Path, wrong: Any) -> None:
    """An invalid count takes nothing."""
    with FileChannel(tmp_path, **SMALL) as channel:
        put(channel, b"a", b"b")
        with channel.transaction() as transaction:
            transaction.take(1)
            with pytest.raises(InvalidArgumentError, match="count"):
                transaction.take(wrong)
            assert len(transaction.take(5)) == 1


def test_an_orphan_that_cannot_be_opened_does_not_stop_the_process(tmp_path: Path) -> None:
    """An orphan that cannot be opened does not stop the process."""
    (tmp_path / "orphan").mkdir()
    (tmp_path / "orphan" / "LOCK").touch()
    segment = tmp_path / "orphan" / "log-0000000001"
    segment.mkdir()  # unreadable
    with ProcessFileChannel(tmp_path, adopt_interval=None, **SMALL) as channel:
        with channel.transaction() as transaction:
            transaction.put(Event({}, b"mine"))
        assert channel._adopt() == 0
    assert segment.is_dir()


def test_events_committed_during_close_are_kept(tmp_path: Path) -> None:
    """Events committed during close are kept."""
    channel = ProcessFileChannel(tmp_path, adopt_interval=None, **SMALL)
    transaction = channel.transaction()
    transaction.begin()
    transaction.put(Event({}, b"x"))
    stop = channel.own._keeper.stop

    stored: list[bytes] = []

    def commit_meanwhile() -> None:
        with contextlib.suppress(ChannelClosedError):
            transaction.commit()
            stored.append(b"x")
        stop()

    channel.own._keeper.stop = commit_meanwhile  # type: ignore[method-assign]
    channel.close()
    with ProcessFileChannel(tmp_path, adopt_interval=None, **SMALL) as again:
        assert bodies(again.own) == stored


def test_one_channel_cannot_serve_two_producers(tmp_path: Path) -> None:
    """A second producer on a channel is refused."""
    channel = FileChannel(tmp_path / "a", **SMALL)
    with Producer(sink=RecordingSink(), channel=channel), pytest.raises(ConfigError, match="no other producer"):
        Producer(sink=RecordingSink(), channel=channel)
    base = tempfile.mkdtemp(dir=tmp_path)
    with pytest.raises(ConfigError, match="another base"):
        Producer(
            sink=RecordingSink(),
            channel=ProcessFileChannel(base),
            dead_letter=ProcessFileChannel(base),
        )

"""FileChannel: its promises to putting and taking threads; Flume's TestFileChannel and TestFileChannelRollback.

The file is long because the list of promises is.
"""

import errno
import gc
import itertools
import logging
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from producer.channels import Event, FileChannel, Stored
from producer.channels.file import channel as channel_module
from producer.model.errors import (
    ChannelClosedError,
    ChannelError,
    ChannelFullError,
    ConfigError,
    InvalidArgumentError,
    TransactionFullError,
    TransactionStateError,
)
from producer.model.interfaces import Channel, Transaction
from producer.testing import ManualClock
from tests.channels.file.opening import (
    contents,
    file_stats,
    fill,
    flip,
    killed,
    open_channel,
    opened_channel,
    put_record,
    segments,
)
from tests.channels.helpers import bodies, drained, events, opened, put, take
from tests.support.sim_fs import SimFS
from tests.support.waiting import Call, eventually


def test_single_and_batched_puts_are_taken_in_order_whole() -> None:
    """Single and batched puts are taken in order, whole."""
    with opened_channel() as channel:
        assert take(channel, 5) == []
        alone = fill(channel, 40)
        assert [body for _ in alone for body in take(channel)] == alone
        together = fill(channel, 200, each=50)
        assert drained(channel) == together
        assert take(channel) == []


def test_it_satisfies_the_protocols_and_counts_sequence_numbers() -> None:
    """Channel and Transaction are implemented, and committed events get increasing numbers."""
    with opened_channel() as channel:
        as_channel: Channel = channel
        transaction: Transaction = as_channel.transaction()
        with transaction:
            transaction.put_many(events("abc"))
            assert transaction.last_sequence is None
        assert transaction.last_sequence == 3
        assert put(channel, "d") == 4
        with channel.transaction() as taking:
            assert [event.sequence for event in taking.take(10)] == [1, 2, 3, 4]


def test_a_put_without_a_transaction_stores_all_or_nothing_with_the_same_errors_and_counts() -> None:
    """A put without a transaction stores all or nothing, with the same errors and counts."""
    whole = [Event({"a": "b"}, bytes(range(256)) * 40), Event({}, b"s"), Event({"c": None}, b"x" * 5000)]
    fs = SimFS()
    with opened_channel(fs, capacity=4, transaction_capacity=3, keep_alive=0) as channel:
        assert channel._put_at_once(whole, 0.0) == (channel.options.promise, 3)
        with pytest.raises(ChannelFullError):
            channel._put_at_once(whole[:2], 0.0)
        with pytest.raises(TransactionFullError):
            channel._put_at_once(whole[:2] * 2, 0.0)
        stats = channel.stats()
        assert (stats.put_attempts, stats.put_successes, stats.put_errors, stats.size) == (9, 3, 1, 3)
        with channel.transaction() as taking:
            assert taking.take(5) == whole
            taking.rollback()
    with opened_channel(fs) as channel, channel.transaction() as taking:
        assert taking.take(5) == whole
    with pytest.raises(ChannelClosedError):
        channel._put_at_once(whole[:1], 0.0)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, b""),
        ({"a": None}, b"x"),
        ({"a": "", "": "b"}, b"\0" * 300),
        ({"größe": "éè", "lone": "\ud800"}, bytes(range(256))),
        ({"a": "1", "b": "2", "c": None, "d": "x" * 5000}, b"\xa7LH\x1e" * 20),
    ],
)
def test_headers_and_bodies_are_unchanged_also_after_a_restart_none_stays_none(
    headers: dict[str, str | None], body: bytes
) -> None:
    """Headers and bodies are unchanged, also after a restart; None stays None."""
    disk = SimFS()
    for reopened in (False, True):
        channel = open_channel(disk)
        if not reopened:
            with channel.transaction() as transaction:
                transaction.put(Event(headers, body))
            assert [*channel.transaction().__enter__().take()] == [Event(headers, body)]
        else:
            with channel.transaction() as transaction:
                assert transaction.take() == [Event(headers, body)]
        channel.close()


@pytest.mark.parametrize("body", ["text", 5, ["x"], object()])
def test_invalid_events_are_refused_and_the_transaction_stays_usable(body: Any) -> None:
    """Invalid events are refused, and the transaction stays usable."""
    with opened_channel() as channel:
        with channel.transaction() as transaction:
            transaction.put(Event({}, b"good"))
            for wrong in (Event({}, body), body, None, Event({"a": 1}, b""), Event({2: "b"}, b"")):  # type: ignore[dict-item]
                with pytest.raises(InvalidArgumentError, match="put: "):
                    transaction.put(wrong)
        assert drained(channel) == ["good"]


def test_a_body_of_none_or_of_other_bytes_is_stored_as_bytes() -> None:
    """None is stored as empty, and bytearray and memoryview as copies."""
    with opened_channel() as channel:
        buffer = bytearray(b"before")
        with channel.transaction() as transaction:
            for body in (None, buffer, memoryview(b"view")):
                transaction.put(Event({}, body))  # type: ignore[arg-type]
            buffer[:] = b"later!"
        assert drained(channel) == ["", "before", "view"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("capacity", value) for value in (0, -3, 1.5, "9", None, True)),
        *(("transaction_capacity", value) for value in (0, -1)),
        *(("byte_capacity", value) for value in (0, -1, 2.0)),
        *(("segment_size", value) for value in (-2, 0, 1279, 1 << 32, None)),
        *(("minimum_free_space", value) for value in (-1, None)),
        *(("reserve", value) for value in (-1, 0.5)),
        *(("keep_alive", value) for value in (-1, float("nan"), "3", None, True)),
        *(("checkpoint_interval", value) for value in (0, -5, "x", True)),
        *(("fsync", value) for value in (0, -1.0, "never", None, True, float("nan"))),
        *(("dual_checkpoints", value) for value in (None, 1)),
    ],
)
def test_a_wrong_option_is_refused_by_its_name_and_nothing_is_made(option: str, value: Any) -> None:
    """An invalid option raises ConfigError, and nothing is created."""
    disk = SimFS()
    with pytest.raises(ConfigError) as caught:
        open_channel(disk, **{option: value})
    assert caught.value.name == option
    assert repr(value) in str(caught.value) or value != value
    assert disk.calls == []


def test_a_transaction_capacity_above_the_capacity_is_refused() -> None:
    """A transaction capacity above the capacity is refused with both numbers."""
    with pytest.raises(ConfigError, match=r"transaction_capacity: must not be above capacity \(5\), got 6"):
        open_channel(capacity=5, transaction_capacity=6)


def test_the_defaults_are_those_of_the_documents() -> None:
    """The defaults are those of the documents."""
    with FileChannel("/channel", disk=SimFS(), clock=ManualClock()) as channel:  # type: ignore[arg-type]
        options = channel.options
        assert (options.capacity, options.transaction_capacity, options.byte_capacity) == (1_000_000, 10_000, None)
        assert (options.keep_alive, options.fsync, options.promise) == (3.0, "commit", Stored.DISK)
        assert (options.segment_size, options.checkpoint_interval, options.dual_checkpoints) == (1 << 26, 30.0, True)
        assert (options.minimum_free_space, options.reserve) == (1 << 26, 1 << 22)


def test_a_transaction_holds_at_most_its_capacity_of_puts_and_of_takes() -> None:
    """Puts and takes beyond the transaction's capacity raise and change nothing."""
    with opened_channel(transaction_capacity=3) as channel:
        with channel.transaction() as transaction:
            transaction.put_many(events("abc"))
            with pytest.raises(TransactionFullError, match=r"at most 3 puts \(transaction_capacity\)"):
                transaction.put(Event({}, b"d"))
        put(channel, "d", "e")
        taking = opened(channel)
        assert bodies(taking.take(100)) == ["a", "b", "c"]
        with pytest.raises(TransactionFullError, match="at most 3 takes"):
            taking.take()
        taking.rollback()
        assert drained(channel) == ["a", "b", "c", "d", "e"]


def test_a_transaction_either_puts_or_takes() -> None:
    """Puts and takes in one transaction are refused."""
    with opened_channel() as channel:
        put(channel, "old")
        with channel.transaction() as transaction:
            transaction.put(Event({}, b"new"))
            with pytest.raises(TransactionStateError, match="either puts or takes: use two"):
                transaction.take()
        with channel.transaction() as transaction:
            assert bodies(transaction.take()) == ["old"]
            with pytest.raises(TransactionStateError, match="either puts or takes: use two"):
                transaction.put(Event({}, b"x"))
        assert drained(channel) == ["new"]


def test_takes_that_found_nothing_commit_and_roll_back() -> None:
    """An empty take leaves the transaction free to put."""
    with opened_channel() as channel:
        with channel.transaction() as transaction:
            assert transaction.take(5) == []
            transaction.put(Event({}, b"a"))
        assert drained(channel) == ["a"]


def test_a_full_channel_refuses_a_commit_with_all_that_one_needs_to_know() -> None:
    """ChannelFullError has name, size, capacity, wanted events and the last take; the transaction stays open."""
    clock = ManualClock()
    with opened_channel(capacity=3, clock=clock, name="orders") as channel:
        put(channel, "a", "b", "c")
        late = opened(channel)
        late.put_many(events("de"))
        with pytest.raises(ChannelFullError, match="no take was committed yet") as caught:
            late.commit()
        error = caught.value
        assert (error.channel, error.size, error.capacity, error.wanted) == ("orders", 3, 3, 2)
        assert "channel orders: no room within 0.000 s (keep_alive) for 2 events of 10 bytes" in str(error)
        assert "it holds 3 of 3 events (capacity) and 15 bytes of no limit (byte_capacity)" in str(error)
        take(channel)
        clock.advance(2.5)
        with pytest.raises(ChannelFullError, match=r"it holds 2 of 3 events .* the last take was 2.5 s ago"):
            late.commit()
        take(channel)
        assert late.commit() is Stored.DISK
        assert drained(channel) == ["c", "d", "e"]
        assert channel.stats().put_errors == 2


def test_taken_events_keep_their_room_until_the_take_is_committed() -> None:
    """Only a committed take frees capacity."""
    with opened_channel(capacity=5) as channel:
        put(channel, *"abcde")
        for end in ("open", "rollback", "commit"):
            taking = opened(channel)
            assert bodies(taking.take()) == ["a"]
            if end != "open":
                getattr(taking, end)()
            if end != "commit":
                with pytest.raises(ChannelFullError):
                    put(channel, "f")
            if end == "open":
                taking.rollback()
        put(channel, "f")
        assert drained(channel) == ["b", "c", "d", "e", "f"]


def test_a_transaction_larger_than_the_byte_capacity_is_refused_at_once() -> None:
    """A transaction larger than the byte capacity is refused at once."""
    with opened_channel(byte_capacity=1000, clock=ManualClock()) as channel:
        with channel.transaction() as transaction:
            transaction.put(Event({"h": "v" * 400}, b"x" * 400))
        with pytest.raises(ChannelFullError, match="of 1000 bytes") as caught:
            put(channel, "y" * 300)
        assert (caught.value.used_bytes, caught.value.wanted_bytes) == (channel.stats().bytes, 304)
        huge = opened(channel)
        huge.put_many(events(["z" * 2000]))
        never = Call(lambda: huge.commit(timeout=10**9))
        with pytest.raises(ChannelFullError, match="2004 bytes"):
            never.result()
        huge.rollback()
        put(channel, "small")
        assert len(drained(channel)) == 2


def test_a_put_that_waits_for_room_goes_through_when_a_take_is_committed() -> None:
    """A waiting put succeeds when a take is committed."""
    disk, clock = SimFS(), ManualClock()
    channel = open_channel(disk, capacity=3, keep_alive=60, clock=clock)
    put(channel, "a", "b", "c")
    waiting = Call(lambda: put(channel, "d"))
    eventually(lambda: channel.stats().waiting == 1)
    assert take(channel) == ["a"]
    waiting.result()
    assert channel.stats().waiting == 0
    with pytest.raises(ChannelFullError):
        put_at_once(channel, "e")
    disk = killed(channel, disk)
    for checkpoint in (True, False):
        if not checkpoint:
            disk.unlink("/channel/checkpoint")
            disk.unlink("/channel/checkpoint.backup")
        with opened_channel(disk, capacity=3) as again:
            assert again.stats().size == 3
            taking = opened(again)
            assert bodies(taking.take(10)) == ["b", "c", "d"]
            taking.rollback()


def put_at_once(channel: FileChannel, body: str) -> None:
    with channel.transaction() as transaction:
        transaction.put(Event({}, body.encode()))
        transaction.commit(timeout=0)


def test_a_take_waits_for_the_first_event_and_is_woken_by_a_commit() -> None:
    """A waiting take is woken by a commit, or ends at its timeout."""
    clock = ManualClock()
    with opened_channel(clock=clock, keep_alive=60) as channel:
        waiting = Call(lambda: take(channel, 10, timeout=30))
        eventually(lambda: clock.waiting == 1)
        put(channel, "a", "b")
        assert waiting.result() == ["a", "b"]
        waiting = Call(lambda: take(channel, 10, timeout=30))
        eventually(lambda: clock.waiting == 1)
        clock.advance(31)
        assert waiting.result() == []


def test_take_stops_before_max_bytes_but_gives_one_at_least() -> None:
    """A take stays within max_bytes, but returns at least one event."""
    with opened_channel() as channel:
        put(channel, *("x" * size for size in (100, 100, 100, 900, 50)))
        with channel.transaction() as transaction:
            sizes = [[len(event.body) for event in transaction.take(10, max_bytes=250)] for _ in range(4)]
        assert sizes == [[100, 100], [100], [900], [50]]


def test_twenty_threads_on_a_real_disk_deliver_each_event_once(tmp_path: Path) -> None:
    """Twenty threads on a real disk deliver each event once."""
    options: dict[str, Any] = {"segment_size": 20_000, "keep_alive": 20, "checkpoint_interval": None, "reserve": 0}
    with FileChannel(tmp_path / "c", minimum_free_space=0, **options) as channel:
        done = threading.Event()

        def source(name: int) -> list[str]:
            own = [f"{name}-{number}" for number in range(100)]
            for start in range(0, 100, 1 + name % 7):
                put(channel, *own[start : start + 1 + name % 7])
            return own

        def sink(name: int) -> list[str]:
            got: list[str] = []
            while (new := take(channel, 1 + name % 5, timeout=0.05)) or not done.is_set():
                got += new
            return got

        sources = [Call(lambda name=name: source(name)) for name in range(10)]
        sinks = [Call(lambda name=name: sink(name)) for name in range(10)]
        expected = [body for call in sources for body in call.result()]
        done.set()
        taken = [body for call in sinks for body in call.result()]
        assert sorted(taken) == sorted(expected)
        assert file_stats(channel).rolls >= 1
        assert channel.stats().put_successes == channel.stats().take_successes == 1000


def test_relative_paths_are_resolved_at_the_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths are resolved at the opening."""
    monkeypatch.chdir(tmp_path)
    options: dict[str, Any] = {"segment_size": 1280, "checkpoint_interval": None, "reserve": 0, "minimum_free_space": 0}
    with FileChannel("c", data_directories=["one", "two"], keep_alive=0, **options) as channel:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        expected = fill(channel, 4, size=900)
        assert drained(channel) == expected
        assert channel.checkpoint()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_closed_channel_refuses_every_use_and_can_be_closed_again() -> None:
    """A closed channel refuses every use, and can be closed again."""
    disk = SimFS()
    channel = open_channel(disk, name="orders")
    put(channel, "a", "b")
    putting, taking = opened(channel), opened(channel)
    putting.put(Event({}, b"late"))
    assert bodies(taking.take()) == ["a"]
    assert channel.stats().open
    assert repr(channel) == "<FileChannel /channel open>"
    channel.close()
    channel.close()
    assert not channel.stats().open
    assert repr(channel) == "<FileChannel /channel closed>"
    for use in (putting.commit, taking.commit, taking.take, channel.transaction, channel.sync, channel.checkpoint):
        with pytest.raises(ChannelClosedError, match="channel orders: it was closed"):
            use()
    taking.rollback()
    putting.rollback()
    assert disk.open_files == []
    assert contents(disk) == ["a", "b"]


def test_a_checkpoint_after_close_writes_nothing_to_the_directory() -> None:
    """A checkpoint after close writes nothing to the directory."""
    disk = SimFS()
    first = open_channel(disk)
    first.close()
    with opened_channel(disk) as second:
        put(second, "a")
        before = len(disk.calls)
        with pytest.raises(ChannelClosedError):
            first.checkpoint(force=True)
        assert [call.operation for call in disk.calls[before:]] == []
        assert drained(second) == ["a"]


def test_closing_wakes_waiting_puts_and_takes_with_an_error() -> None:
    """Closing wakes waiting puts and takes with an error."""
    clock = ManualClock()
    full, empty = open_channel(capacity=1, clock=clock), open_channel(clock=clock)
    put(full, "a")
    late = opened(full)
    late.put(Event({}, b"b"))
    calls = [Call(lambda: late.commit(timeout=50)), Call(lambda: take(empty, timeout=50))]
    eventually(lambda: clock.waiting == 2)
    full.close()
    empty.close()
    for call in calls:
        with pytest.raises(ChannelClosedError):
            call.result()


def test_pickling_is_refused_with_a_hint_to_processfilechannel() -> None:
    """Pickling is refused with a hint to ProcessFileChannel."""
    with opened_channel() as channel, pytest.raises(TypeError, match="ProcessFileChannel"):
        pickle.dumps(channel)


def test_rolled_back_takes_return_in_order_also_after_a_restart() -> None:
    """Rolled back takes return in order, also after a restart."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, *range(10))
    first, second, third = (opened(channel) for _ in range(3))
    assert [bodies(each.take(count)) for each, count in ((first, 3), (second, 2), (third, 2))] == [
        ["0", "1", "2"],
        ["3", "4"],
        ["5", "6"],
    ]
    for each in (second, first, third):
        each.rollback()
    again = opened(channel)
    assert bodies(again.take(10)) == [str(number) for number in range(10)]
    again.rollback()
    assert contents(killed(channel, disk)) == [str(number) for number in range(10)]


@pytest.mark.parametrize("checkpointed", [False, True])
def test_open_takes_of_a_killed_process_come_back_in_order(checkpointed: bool) -> None:
    """Open takes of a killed process come back in order."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, *"abcde")
    first, second = opened(channel), opened(channel)
    assert bodies(first.take(2)) + bodies(second.take(3)) == list("abcde")
    assert channel.checkpoint() is True if checkpointed else True
    assert contents(killed(channel, disk)) == list("abcde")


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("what", "end", "left"),
    [("put", "commit", "abc"), ("take", "commit", "b"), ("take", "rollback", "ab"), ("take", "", "ab")],
)
def test_a_transaction_that_crosses_a_checkpoint_counts_once(
    between: bool, after: bool, what: str, end: str, left: str
) -> None:
    """A transaction around checkpoints counts once, after a kill at any point."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a", "b")
    transaction = opened(channel)
    if what == "put":
        transaction.put(Event({}, b"c"))
    else:
        transaction.take()
    if between:
        channel.checkpoint(force=True)
    if end:
        getattr(transaction, end)()
    if after:
        channel.checkpoint(force=True)
    assert contents(killed(channel, disk)) == list(left)


def test_the_example_of_the_sources_leaves_b() -> None:
    """After putting a and b, a checkpoint and a take of a, a restart delivers b."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a", "b")
    channel.checkpoint()
    take(channel)
    disk = killed(channel, disk)
    with opened_channel(disk) as again:
        assert file_stats(again).replayed == 2
        assert drained(again) == ["b"]


def test_segments_of_open_takes_are_kept_through_a_checkpoint() -> None:
    """A checkpoint keeps the segments of open takes."""
    disk = SimFS()
    channel = open_channel(disk, segment_size=1280)
    expected = fill(channel, 15, size=300)
    taking = opened(channel)
    assert bodies(taking.take(10)) == expected[:10]
    before = segments(disk)
    assert len(before) > 5
    channel.checkpoint(force=True)
    assert segments(disk)[: len(before)] == before
    taking.rollback()
    assert drained(channel) == expected
    channel.checkpoint()
    assert len(segments(disk)) == 1
    channel.close()


def test_after_a_rollback_nothing_is_in_progress() -> None:
    """After a rollback no event counts as taken."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a")
    for _ in range(3):
        transaction = opened(channel)
        transaction.take()
        assert channel.stats().taken == 1
        transaction.rollback()
    assert (channel.stats().taken, channel.stats().size) == (0, 1)
    channel.checkpoint(force=True)
    assert contents(killed(channel, disk)) == ["a"]


@pytest.mark.usefixtures("read_back")
@pytest.mark.parametrize("fsync", ["commit", "os", 5.0])
def test_an_event_that_is_damaged_on_the_disk_is_lost_alone(fsync: str | float, caplog: Any) -> None:
    """One damaged event of a hundred is lost, counted and logged."""
    disk = SimFS()
    with opened_channel(disk, fsync=fsync) as channel:
        expected = fill(channel, 100)
        path, record = put_record(disk, expected[50])
        flip(disk, path, record.offset + 60)
        with caplog.at_level(logging.ERROR):
            assert drained(channel) == expected[:50] + expected[51:]
        assert "1 event is damaged on the disk and lost; delivery continues with the next event" in caplog.text
        found = file_stats(channel)
        assert (found.lost_events, found.damaged_records, found.quarantined) == (1, 1, 1)
        assert channel.stats().take_errors == 1
        assert disk.exists(f"/channel/quarantine/{path.rpartition('/')[2]}.copy")
        put(channel, "on it goes")
        assert drained(channel) == ["on it goes"]


@pytest.mark.usefixtures("read_back")
@pytest.mark.parametrize("restart", [False, True])
def test_a_damaged_segment_is_not_deleted_for_want_of_room_for_its_copy(restart: bool) -> None:
    """On a full disk a damaged segment gets a second name in quarantine."""
    disk = SimFS()
    channel = open_channel(disk, reserve=6000)
    expected = fill(channel, 60)
    path, record = put_record(disk, expected[5])
    flip(disk, path, record.offset + 60)
    damaged = disk.content(path)
    disk.capacity = disk.used
    if restart:
        for name in ("checkpoint", "checkpoint.backup"):
            disk.unlink(f"/channel/{name}")
        disk = killed(channel, disk)
        disk.capacity = disk.used
        channel = open_channel(disk, reserve=6000)
    assert drained(channel) == expected[:5] + expected[6:]
    channel.checkpoint()
    channel.close()
    disk.capacity = None
    open_channel(disk).close()
    assert not disk.exists(path)
    assert disk.content(f"/channel/quarantine/{path.rpartition('/')[2]}.link").startswith(damaged)


@pytest.mark.usefixtures("read_back")
@pytest.mark.parametrize("restarts", [0, 2])
def test_a_damaged_segment_without_any_copy_stays_until_one_is_possible(restarts: int) -> None:
    """A damaged segment without any copy stays until one is possible."""
    disk = SimFS()
    channel = open_channel(disk)
    expected = fill(channel, 60)
    path, record = put_record(disk, expected[5])
    flip(disk, path, record.offset + 60)
    damaged = disk.content(path)
    disk.fail("make_directory", times=None, number=errno.EACCES)
    assert drained(channel) == expected[:5] + expected[6:]
    for _ in range(restarts):
        assert not channel.checkpoint(force=True)
        channel.close()
        channel = open_channel(disk)
        assert drained(channel) == []
    put(channel, "more")
    assert drained(channel) == ["more"]
    assert not channel.checkpoint(force=True)
    assert disk.content(path) == damaged
    disk.heal()
    assert channel.checkpoint(force=True)
    assert not disk.exists(path)
    assert disk.content(f"/channel/quarantine/{path.rpartition('/')[2]}.copy") == damaged
    channel.close()


def test_acknowledged_events_are_gone_permanently_and_the_rest_stays_taken() -> None:
    """Acknowledged events are gone permanently, and the rest stays taken."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, *"abcdef")
    taking, other = opened(channel), opened(channel)
    first, stranger = taking.take(4), other.take(1)
    taking.acknowledge([first[1], first[3]])
    taking.acknowledge([])
    assert (channel.stats().taken, channel.stats().take_successes) == (3, 2)
    for wrong in (stranger, [first[1]], [Event({}, b"b")], [first[0], stranger[0]], [first[0], first[0]]):
        with pytest.raises(ChannelError, match=r"(was|were) not taken in this transaction"):
            taking.acknowledge(wrong)
    assert contents(killed(channel, disk)) == ["a", "c", "e", "f"]


@pytest.mark.parametrize(("fsync", "stored"), [("commit", Stored.DISK), ("os", Stored.CACHE), (2.0, Stored.CACHE)])
def test_commit_returns_the_durability_and_sync_raises_it_to_disk(fsync: str | float, stored: Stored) -> None:
    """commit() returns the durability, and sync() raises it to DISK."""
    disk = SimFS()
    with opened_channel(disk, fsync=fsync) as channel:
        transaction = opened(channel)
        transaction.put_many(events("ab"))
        syncs = disk.count("sync", "log-")
        assert transaction.commit() is stored
        on_disk = stored is Stored.DISK
        assert disk.count("sync", "log-") - syncs == on_disk
        assert channel.synced_sequence == (2 if on_disk else 0)
        channel.sync()
        assert channel.synced_sequence == 2
        assert disk.count("sync", "log-") - syncs == 1


def test_with_an_interval_the_disk_follows_by_itself() -> None:
    """With a sync interval a thread syncs by itself."""
    disk, clock = SimFS(), ManualClock()
    with opened_channel(disk, fsync=5.0, clock=clock) as channel:
        eventually(lambda: clock.waiting == 1)
        put(channel, "a")
        assert channel.synced_sequence == 0
        clock.advance(5.1)
        eventually(lambda: channel.synced_sequence == 1)


@pytest.mark.parametrize("fsync", ["os", 1000.0])
def test_a_sync_begins_before_a_commit_would_have_to_wait_for_it(
    fsync: str | float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync thread syncs after enough bytes, so that no commit waits for the disk."""
    monkeypatch.setattr(channel_module, "SYNC_AHEAD", 2000)
    disk, syncing = SimFS(), list[str]()
    sync = disk.sync

    meanwhile = list[Callable[[], object]]()

    def noted(file: int) -> None:
        syncing.append(threading.current_thread().name)
        sync(file)
        while meanwhile:
            Call(meanwhile.pop()).result()

    monkeypatch.setattr(disk, "sync", noted)
    with opened_channel(disk, fsync=fsync, checkpoint_interval=1000.0, segment_size=1 << 20) as channel:
        syncing.clear()
        put(channel, "x" * 1500)
        assert channel.synced_sequence == 0
        put(channel, "x" * 1500)
        eventually(lambda: channel.synced_sequence == 2)
        assert set(syncing) == {f"{channel.name}-keeper"}
        put(channel, "a")
        assert channel._log.behind < 1000
        assert channel.synced_sequence == 2
        meanwhile += [lambda: put(channel, "x" * 1500), lambda: put(channel, "x" * 1500)]
        put(channel, "x" * 2500)
        eventually(lambda: channel.synced_sequence >= 6, "the next sync ahead")


def test_checkpoints_are_written_at_each_interval_with_changes() -> None:
    """Checkpoints are written at each interval with changes."""
    disk, clock = SimFS(), ManualClock()
    with opened_channel(disk, checkpoint_interval=30.0, clock=clock) as channel:
        for number in range(1, 4):
            put(channel, "a")
            eventually(lambda: clock.waiting == 1)
            clock.advance(30.1)
            eventually(lambda number=number: file_stats(channel).checkpoints == number + 1)
        eventually(lambda: clock.waiting == 1)
        reads = disk.count("rename")
        clock.advance(30.1)
        eventually(lambda: clock.waiting == 1)
        assert disk.count("rename") == reads
        assert channel.checkpoint() is False
        assert channel.checkpoint(force=True) is True


def test_reopening_with_another_capacity_keeps_all_events() -> None:
    """Reopening with another capacity keeps all events."""
    disk = SimFS()
    channel = open_channel(disk, capacity=10)
    expected = fill(channel, 10)
    channel.close()
    for capacity in (20, 4, 10):
        with opened_channel(disk, capacity=capacity) as channel:
            assert (channel.stats().size, channel.stats().capacity) == (10, capacity)
            assert file_stats(channel).checkpoint_fallbacks == 0
            if capacity <= 10:
                with pytest.raises(ChannelFullError):
                    put(channel, "x")
    with opened_channel(disk, capacity=4) as channel:
        assert [body for _ in range(7) for body in take(channel)] == expected[:7]
        put(channel, "y")
        assert drained(channel) == [*expected[7:], "y"]


def test_empty_channels_stay_empty_through_restarts() -> None:
    """An empty channel keeps one segment and no events across restarts."""
    disk = SimFS()
    for _ in range(5):
        with opened_channel(disk) as channel:
            assert channel.stats().size == 0
    assert len(segments(disk)) <= 2


def test_puts_takes_and_checkpoints_under_load_lose_and_duplicate_nothing() -> None:
    """Puts, takes and checkpoints under load lose and duplicate nothing."""
    disk = SimFS()
    with opened_channel(disk, capacity=50, keep_alive=20) as channel:
        stop = threading.Event()
        expected = [f"{number:05}".ljust(120, "-") for number in range(1500)]

        def source() -> None:
            numbers = iter(expected)
            while batch := list(itertools.islice(numbers, 7)):
                with channel.transaction() as transaction:
                    transaction.put_many(events(batch))
                    transaction.commit(timeout=10**6)

        def keep() -> None:
            while not stop.is_set():
                channel.checkpoint()

        source_call, keeper, got = Call(source), Call(keep), []
        while len(got) < len(expected):
            got += take(channel, 11)
        source_call.result()
        stop.set()
        keeper.result()
        assert got == expected
        channel.checkpoint(force=True)  # The keeper's last one may have started before the last segments.
        found = file_stats(channel)
        assert found.rolls >= 10
        assert found.checkpoints >= 2
        assert len(segments(disk)) <= 2


def test_takes_of_a_dropped_transaction_come_back_at_the_next_use() -> None:
    """Takes of a dropped transaction come back at the next use."""
    with opened_channel(capacity=5) as channel:
        put(channel, *"abcde")
        forgotten = opened(channel)
        taken = forgotten.take(3)
        forgotten.acknowledge(taken[1:2])
        putting = opened(channel)
        putting.put(Event({}, b"never"))
        del forgotten, putting
        gc.collect()
        assert take(channel) == ["a"]
        opened(channel).take(2)
        gc.collect()
        assert (channel.stats().size, channel.stats().taken) == (3, 0)
        assert drained(channel) == ["c", "d", "e"]
        with channel.transaction() as kept:
            assert kept.take() == []


def test_room_of_events_that_are_given_back_is_not_given_away_twice() -> None:
    """Capacity in use equals the content after rollbacks and acknowledgements."""
    with opened_channel(capacity=10) as channel:
        put(channel, *range(10))
        for count in (1, 3, 5):
            transaction = opened(channel)
            taken = transaction.take(count)
            transaction.acknowledge(taken[:1])
            transaction.rollback()
        assert (channel.stats().size, channel.stats().fill) == (7, 0.7)
        put(channel, "a", "b", "c")
        with pytest.raises(ChannelFullError):
            put(channel, "d")

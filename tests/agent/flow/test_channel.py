"""Channels of batches, and the ledgers of their sources."""

import base64
import errno
import json
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from producer.agent.events.batch import EventBatch, Position
from producer.agent.flow.channel import BatchChannel
from producer.channels.file.queue import recent
from producer.channels.file.store.disk import Disk
from producer.model.errors import ChannelFullError, ChannelIOError, ChannelKeyError, DiskFullError
from producer.runtime.clock import Deadline, Stop
from producer.testing import ManualClock

from ...support.waiting import Call, eventually
from ..doubles import file_channel, is_safe, ledger_in, memory_channel, opened, spillable_channel, taken


def _lines(first: int, after: int, end: int | None = None, name: str = "s/f", start: int = 0) -> EventBatch:
    block = b"".join(b"%d\n" % number for number in range(first, after))
    return EventBatch.of_lines(block, position=None if end is None else Position(name, end, "", start))


def test_capacity_counts_the_events_of_the_batches(tmp_path: Path) -> None:
    """A batch of three events uses three places of the capacity, as in Flume."""
    with opened(memory_channel(tmp_path, capacity=4)) as channel:
        channel.put(_lines(0, 3), 0)
        with pytest.raises(ChannelFullError, match=r"for 2 events of [1-9]\d* bytes: it holds 3 of 4 events"):
            channel.put(_lines(3, 5), 0)
        channel.put(_lines(3, 4), 0)
        assert channel.held == 4


def test_a_batch_larger_than_the_channel_is_let_in_alone(tmp_path: Path) -> None:
    """A batch above the capacity waits until the channel is empty, and is then accepted."""
    with opened(memory_channel(tmp_path, capacity=2)) as channel:
        channel.put(_lines(0, 1), 0)
        with pytest.raises(ChannelFullError):
            channel.put(_lines(1, 6), 0)
        assert taken(channel) == [b"0"]
        channel.put(_lines(1, 6), 0)
        assert channel.held == 5


@pytest.mark.parametrize("make", [file_channel, memory_channel])
def test_a_batch_of_more_bytes_than_the_channel_holds_is_let_in_alone(
    tmp_path: Path, make: Callable[..., BatchChannel]
) -> None:
    """A block with more bytes than the channel's limit, such as Flume's 800,000, is accepted alone."""
    with opened(make(tmp_path, byte_capacity=100)) as channel:
        channel.put(EventBatch.of_lines(b"0\n"), 0)
        larger = EventBatch.of_lines(b"x" * 200 + b"\n")
        with pytest.raises(ChannelFullError) as full:
            channel.put(larger, 0)
        assert not full.value.never
        assert taken(channel) == [b"0"]
        channel.put(larger, 0)
        with pytest.raises(ChannelFullError):
            channel.put(EventBatch.of_lines(b"1\n"), 0)
        assert taken(channel) == [b"x" * 200]
        channel.put(EventBatch.of_lines(b"1\n"), 0)


@pytest.mark.parametrize("make", [file_channel, spillable_channel])
def test_with_a_key_file_no_event_is_readable_on_the_disk_a_restart_needs_the_keys(
    tmp_path: Path, make: Callable[..., BatchChannel]
) -> None:
    """With a key file no event is readable on the disk; a restart needs the keys."""
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"current": "a", "keys": {"a": base64.b64encode(b"k" * 32).decode()}}))
    state = tmp_path / "state"
    with opened(make(state, key_file=keys)) as channel:
        for number in range(40):
            channel.put(EventBatch.of_lines(b"secret %d\n" % number), 0)
    written = [path.read_bytes() for path in state.rglob("*") if path.is_file()]
    assert written
    assert not any(b"secret" in content for content in written)
    with pytest.raises(ChannelKeyError):
        make(state)
    with opened(make(state, key_file=keys)) as channel:
        assert b"secret 39" in taken(channel)


def test_a_committed_take_makes_room_for_a_waiting_put(tmp_path: Path) -> None:
    """A committed take makes room for a waiting put."""
    with opened(memory_channel(tmp_path, capacity=1)) as channel:
        channel.put(_lines(0, 1))
        putter = threading.Thread(target=channel.put, args=(_lines(1, 2), 30))
        putter.start()
        taking = channel.take(10, 1000, 5)
        assert taking is not None
        taking.commit()
        putter.join(60)
        assert not putter.is_alive()
        assert taken(channel) == [b"1"]


def test_a_put_that_fails_takes_no_room(tmp_path: Path) -> None:
    """A failed put returns its places."""
    with opened(memory_channel(tmp_path, capacity=100, byte_capacity=100)) as channel:
        channel.put(EventBatch.of_lines(b"1\n"), 0)
        with pytest.raises(ChannelFullError):
            channel.put(EventBatch.of_lines(b"x" * 200), 0)
        assert channel.held == 1


def test_a_rolled_back_batch_returns_to_its_place(tmp_path: Path) -> None:
    """A rolled-back batch returns to its place, and counts as before."""
    with opened(memory_channel(tmp_path)) as channel:
        for number in range(3):
            channel.put(_lines(number, number + 1))
        taking = channel.take(2, 1000, 0)
        assert taking is not None
        assert [batch.bodies() for batch in taking.batches] == [[b"0"], [b"1"]]
        taking.rollback()
        assert (channel.held, taken(channel)) == (3, [b"0", b"1", b"2"])


def test_a_take_may_be_committed_in_part_the_other_batches_return(tmp_path: Path) -> None:
    """A take may be committed in part; the other batches return."""
    with opened(file_channel(tmp_path)) as channel:
        for number in range(3):
            channel.put(_lines(number, number + 1))
        taking = channel.take(3, 1000, 0)
        assert taking is not None
        taking.commit(taking.batches[1:2])
        assert (channel.held, taken(channel)) == (1, [b"1"])


def test_a_waiting_taker_is_woken_at_once_by_batches_that_a_partial_delivery_returns(tmp_path: Path) -> None:
    """A waiting taker is woken at once by batches that a partial delivery returns."""
    clock = ManualClock()
    with opened(memory_channel(tmp_path, clock=clock)) as channel:
        channel.put(_lines(0, 1))
        first = channel.take(3, 1000, 0)
        assert first is not None
        waiting = Call(lambda: channel.take(3, 1000, 60, Stop(clock)))
        eventually(lambda: clock.waiting)
        first.commit(first.batches)
        second = waiting.result()
        assert second is not None
        second.commit()


def test_the_reset_of_lost_events_count_in_an_empty_channel_keeps_a_concurrent_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reset of lost events' count in an empty channel keeps a concurrent put."""
    with opened(memory_channel(tmp_path)) as channel:
        channel._unsure = True
        monkeypatch.setattr(ledger_in(channel), "putting", lambda *_: channel.take(9, 99, 0))
        channel.put(_lines(0, 2, 4))
        assert channel.held == 2


@pytest.mark.parametrize("step", ["left", "leave"])
def test_the_reset_of_lost_events_count_does_not_count_a_concurrent_delivery_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The reset of lost events' count does not count a concurrent delivery twice."""
    with opened(memory_channel(tmp_path)) as channel:
        channel.put(_lines(0, 2, 4).at(Position("s/f", 4)))
        taking = channel.take(9, 99, 0)
        assert taking is not None
        channel._unsure = True
        owner: Any = channel if step == "leave" else ledger_in(channel)
        told = getattr(owner, step)

        def late(*what: Any) -> None:
            assert channel.take(9, 99, 0) is None
            told(*what)

        monkeypatch.setattr(owner, step, late)
        taking.commit()
        assert (channel.held, ledger_in(channel).safe_end("s/f")) == (0, 4)
        assert channel.take(9, 99, 0) is None
        assert not channel._unsure


def test_a_channel_with_one_event_is_not_empty(tmp_path: Path) -> None:
    """A channel with one event is not empty, or a stop would lose it."""
    clock = ManualClock()
    with opened(memory_channel(tmp_path, clock=clock)) as channel:
        channel.put(_lines(0, 1))
        assert not channel.wait_until_empty(Deadline.after(clock, 0))


def test_a_put_that_failed_does_not_keep_its_file_from_being_safe_once_earlier_batches_are_delivered(
    tmp_path: Path,
) -> None:
    """A put that failed does not keep its file from being safe once earlier batches are delivered."""
    with opened(memory_channel(tmp_path, byte_capacity=100)) as channel:
        channel.put(_lines(0, 60, 2))
        with pytest.raises(ChannelFullError):
            channel.put(_lines(60, 120, 4, start=2), 0)
        taken(channel)
        assert is_safe(channel, "s/f")
        assert ledger_in(channel).safe_end("s/f") == 2


def test_a_take_has_whole_batches_within_its_limits_a_larger_batch_is_taken_alone(tmp_path: Path) -> None:
    """A take has whole batches within its limits; a larger batch is taken alone."""
    with opened(memory_channel(tmp_path)) as channel:
        for first, after in ((0, 5), (5, 7), (7, 9)):
            channel.put(_lines(first, after))
        sizes = []
        while (taking := channel.take(3, 1000, 0)) is not None:
            sizes.append([batch.count for batch in taking.batches])
            taking.commit()
        assert sizes == [[5], [2], [2]]


def test_a_take_reads_little_more_than_it_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A take of few events reads few batches more than it returns."""
    monkeypatch.setattr(recent, "MOST", 0)
    with opened(file_channel(tmp_path)) as channel:
        for number in range(20):
            channel.put(_lines(10 * number, 10 * number + 10))
        segments = channel.channel._segments  # type: ignore[attr-defined]
        read, seen = segments.read, list[int]()
        monkeypatch.setattr(segments, "read", lambda entries: (seen.append(len(entries)), read(entries))[1])
        for _ in range(20):
            taking = channel.take(5, 1000, 0)
            assert taking is not None
            assert taking.count == 10
            taking.commit()
        assert sum(seen) == 20


def test_a_reopened_file_channel_counts_the_events_in_its_batches(tmp_path: Path) -> None:
    """A reopened file channel counts the events in its batches."""
    with opened(file_channel(tmp_path)) as channel:
        channel.put(_lines(0, 7))
    with opened(file_channel(tmp_path)) as channel:
        assert channel.held == 7
        assert len(taken(channel)) == 7


@pytest.mark.parametrize("delivered", [False, True])
def test_a_source_does_not_read_a_committed_batch_again_whether_it_waits_or_was_delivered(
    tmp_path: Path, *, delivered: bool
) -> None:
    """A source does not read a committed batch again, whether it waits or was delivered."""
    with opened(file_channel(tmp_path)) as channel:
        channel.put(_lines(0, 2, 4))
        if delivered:
            taken(channel)
    with opened(file_channel(tmp_path)) as channel:
        assert ledger_in(channel).ends("s/f") == [4]
        assert ledger_in(channel).names() == {"s/f"}


def test_a_position_is_noted_before_its_batch_leaves(tmp_path: Path) -> None:
    """The position is noted before the take is committed, so that a crash finds one of both."""
    with opened(file_channel(tmp_path)) as channel:
        channel.put(_lines(0, 2, 4))
        notes = ledger_in(channel)._notes
        commit = channel.channel.transaction
        noted: list[dict[str, bytes]] = []

        def transaction() -> object:
            made = commit()
            end = made.commit
            made.commit = lambda *args: (noted.append(notes.items("position:")), end(*args))[1]  # type: ignore[method-assign]
            return made

        channel.channel.transaction = transaction  # type: ignore[method-assign,assignment]
        taken(channel)
        assert noted == [{"position:0:s/f": b"4"}]


def test_events_in_a_memory_channel_at_a_crash_are_read_again(tmp_path: Path) -> None:
    """Events in a memory channel at a crash are read again."""
    clock = ManualClock()
    with opened(memory_channel(tmp_path, clock=clock)) as channel:
        channel.put(_lines(0, 2, 4))
        channel.put(_lines(2, 4, 8, start=4))
        taking = channel.take(2, 1000, 0)
        assert taking is not None
        taking.commit()
        assert ledger_in(channel).ends("s/f") == [8]
    with opened(memory_channel(tmp_path)) as channel:
        assert ledger_in(channel).ends("s/f") == [4]


def test_with_deliveries_out_of_order_the_position_is_the_end_of_those_without_a_gap(tmp_path: Path) -> None:
    """With deliveries out of order, the position is the end of those without a gap."""
    with opened(memory_channel(tmp_path)) as channel:
        for number in range(3):
            channel.put(_lines(number, number + 1, 2 * number + 2, start=2 * number))
        first, second = channel.take(1, 1000, 0), channel.take(1, 1000, 0)
        assert first is not None
        assert second is not None
        second.commit()
        channel.flush()
        assert ledger_in(channel).safe_end("s/f") == 0
        assert ledger_in(channel)._notes.items("position:") == {"position:0:s/f": b"0 2-4"}
        first.commit()
        channel.flush()
        assert ledger_in(channel)._notes.items("position:") == {"position:0:s/f": b"4"}


@pytest.mark.parametrize("make", [memory_channel, file_channel])
def test_ranges_without_events_are_noted_for_the_next_start(tmp_path: Path, make: object) -> None:
    """Ranges without events are noted for the next start, and forgotten names are not."""
    with opened(make(tmp_path)) as channel:  # type: ignore[operator]
        ledger_in(channel).pass_over(Position("s/f", 10))
        ledger_in(channel).pass_over(Position("s/gone", 10))
        channel.flush()
        ledger_in(channel).forget("s/gone")
    with opened(make(tmp_path)) as channel:  # type: ignore[operator]
        assert ledger_in(channel).ends("s/f") == [10]
        assert ledger_in(channel).names() == {"s/f"}


def test_nothing_is_delivered_that_a_power_cut_could_take_from_the_channel(tmp_path: Path) -> None:
    """A batch is synced before it is taken, in every mode of fsync."""
    with opened(file_channel(tmp_path, fsync="os")) as channel:
        for number in range(3):
            channel.put(_lines(number, number + 1))
        before = channel.channel.synced_sequence
        taking = channel.take(3, 1000, 0)
        assert taking is not None
        newest = taking.batches[-1].sequence or 0
        assert before < newest <= channel.channel.synced_sequence
        taking.commit()


@pytest.mark.parametrize("make", [file_channel, partial(spillable_channel, memory_bytes=1)], ids=["file", "spilled"])
def test_a_batch_that_others_have_passed_has_no_number_to_be_known_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], BatchChannel]
) -> None:
    """A batch delivered after later ones has no origin, since destinations expect rising numbers."""
    monkeypatch.setattr(recent, "MOST", 0)
    with opened(make(tmp_path)) as channel:
        for number in range(3):
            channel.put(_lines(number, number + 1))
        files: Any = getattr(channel.channel, "_overflow", channel.channel)
        segments = files._segments
        read = segments.read

        def failing(entries: Sequence[Any]) -> Any:
            if any(entry.sequence == first for entry in entries):
                raise OSError(errno.EIO, "Input/output error")
            return read(entries)

        first = next(files.peek()).sequence
        monkeypatch.setattr(segments, "read", failing)
        for _ in range(2):
            with pytest.raises(ChannelIOError):
                channel.take(1, 1000, 0)
        taking = channel.take(10, 1000, 0)
        assert taking is not None
        assert [(batch.bodies(), batch.origin is None) for batch in taking.batches] == [
            ([b"1"], False),
            ([b"2"], False),
        ]
        taking.commit()
    with opened(make(tmp_path)) as channel:
        channel.put(_lines(3, 4))
        taking = channel.take(10, 1000, 0)
        assert taking is not None
        assert [(batch.bodies(), batch.origin is None) for batch in taking.batches] == [
            ([b"0"], True),
            ([b"3"], False),
        ]
        taking.commit()


def test_at_the_end_a_memory_channel_is_emptied_even_of_more_batches_than_one_transaction_may_take(
    tmp_path: Path,
) -> None:
    """At the end a memory channel is emptied, even of more batches than one transaction may take."""
    with opened(memory_channel(tmp_path)) as channel:
        for _ in range(10_001):
            channel.put(EventBatch.of_lines(b"a\n"))
        assert channel.discard() == 10_001
        assert channel.discard() == 0


def test_only_events_in_memory_are_dropped_at_the_end_spilled_ones_count_at_the_next_start(tmp_path: Path) -> None:
    """Only events in memory are dropped at the end; spilled ones count at the next start."""
    with opened(spillable_channel(tmp_path)) as channel:
        for number in range(0, 60, 2):
            channel.put(_lines(number, number + 2))
        given_up = channel.discard()
        assert 0 < given_up < 60
    with opened(spillable_channel(tmp_path)) as channel:
        assert channel.held == 60 - given_up
        channel.put(_lines(60, 62))
        assert taken(channel) == [b"%d" % number for number in range(given_up, 62)]
        assert channel.held == 0


def test_a_put_into_a_full_disk_deletes_files_of_delivered_events_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A put into a full disk deletes files of delivered events at once."""
    free = [12 << 20]
    monkeypatch.setattr(Disk, "free", lambda _disk, _directory: free[0])
    large = EventBatch.of_lines(b"x" * 700_000 + b"\n")
    with opened(file_channel(tmp_path, segment_size=1 << 20, checkpoint_interval=3600)) as channel:
        channel.put(large)
        free[0] = 0

        def fill() -> None:
            for _ in range(20):
                channel.put(large)
                taken(channel)

        with pytest.raises(DiskFullError):
            fill()
        assert len(list(tmp_path.rglob("log-*"))) <= 2


def test_a_channel_on_a_full_disk_is_full_whatever_its_own_limits_and_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A channel on a full disk is full, whatever its own limits and content."""
    free = [1 << 40]
    monkeypatch.setattr(Disk, "free", lambda _disk, _path: free[0])
    with opened(file_channel(tmp_path, minimum_free_space=1 << 20, capacity=1000)) as channel:
        channel.put(_lines(0, 3))
        assert channel.fill < 0.01
        free[0] = (1 << 20) + channel.stats().bytes
        assert channel.fill == pytest.approx(0.5)  # as much is free as is used
        free[0] = (1 << 20) + 10
        channel.channel._space._free = None  # type: ignore[attr-defined]  # what was seen within a second is trusted
        with pytest.raises(DiskFullError):
            channel.put(_lines(3, 1000))
        assert channel.fill == 1.0
        assert not channel.has_room(1)
        free[0] = 1 << 10
        assert channel.fill == 1.0
        assert len(taken(channel)) == 3
        assert channel.fill == 1.0  # empty, but the disk takes nothing
        free[0] = 1 << 40
        assert channel.fill == 0.0
        assert channel.has_room(1)


def test_memory_that_cannot_spill_has_room_once_it_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a full disk prevents spilling, memory accepts events again once it has room."""
    free = [1 << 40]
    monkeypatch.setattr(Disk, "free", lambda _disk, _path: free[0])
    with opened(spillable_channel(tmp_path, minimum_free_space=1 << 20)) as channel:
        free[0] = 0

        def fill() -> None:
            for number in range(100):
                channel.put(_lines(number, number + 1))

        with pytest.raises(DiskFullError):
            fill()
        assert channel.fill == 1.0
        taken(channel)
        assert channel.has_room(1)
        channel.put(_lines(0, 1))


def test_a_full_channel_says_how_full_it_is_in_events(tmp_path: Path) -> None:
    """The error of a full channel counts events, not batches, and names only limits that exist."""
    with opened(memory_channel(tmp_path, byte_capacity=500)) as channel:
        channel.put(_lines(0, 100))
        with pytest.raises(ChannelFullError, match=r"for 30 events of \d+ bytes: it holds 100 events and ") as full:
            channel.put(_lines(100, 130), 0)
        assert (full.value.size, full.value.wanted) == (100, 30)


def test_at_the_agents_end_only_events_in_memory_count_as_lost_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At the agent's end only events in memory count as lost, once."""
    with opened(spillable_channel(tmp_path, memory_bytes=1000)) as channel:
        for number in range(5):
            channel.put(_lines(100 * number, 100 * number + 100))
        memory = channel.channel._memory.stats().size  # type: ignore[attr-defined]
        assert 0 < memory < 5
        assert channel.discard() == 100 * memory
    assert "closed with" not in caplog.text
    with opened(spillable_channel(tmp_path)) as channel:
        assert len(taken(channel)) == 100 * (5 - memory)

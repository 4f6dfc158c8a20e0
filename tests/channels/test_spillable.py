"""SpillableChannel: memory first, then the overflow, in order; over memory and file channels.

The file is long because it tests the channel call by call.
"""

import logging
import math
import pickle
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from producer import InvalidArgumentError
from producer.channels import Event, FileChannel, MemoryChannel, SpillableChannel, Stored
from producer.channels.spillable import MEMORY_NUMBERS
from producer.model.errors import (
    ChannelClosedError,
    ChannelError,
    ChannelFullError,
    ChannelIOError,
    TransactionFullError,
    TransactionStateError,
)
from producer.model.interfaces import Channel, ChannelStats, FileStats
from producer.runtime.clock import Deadline, Signal
from producer.testing import ManualClock
from tests.support.waiting import PATIENCE, Call, eventually

from .helpers import bodies, drained, events, opened, put, take

#: Makes a channel with three events of memory.
Make = Callable[..., tuple[SpillableChannel, MemoryChannel, Channel]]


@pytest.fixture(params=["memory", "file"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Make a channel with three events of memory, and an overflow of either kind."""
    made: list[SpillableChannel] = []

    def _make(clock: ManualClock | None = None, **options: Any) -> tuple[SpillableChannel, MemoryChannel, Channel]:
        limits = {"capacity": 20, "transaction_capacity": 10, "keep_alive": 0.0} | options
        memory = MemoryChannel(3, 3, keep_alive=0, clock=clock)
        overflow: Channel = MemoryChannel(**limits)
        if request.param == "file":
            overflow = FileChannel(tmp_path, checkpoint_interval=None, minimum_free_space=0, fsync="os", **limits)
        made.append(SpillableChannel(memory, overflow, clock=clock))
        return made[-1], memory, overflow

    yield _make
    for channel in made:
        channel.close()


def test_three_events_go_to_memory_the_rest_to_the_overflow_and_all_come_out_in_order(make: Make) -> None:
    """Three events go to memory, the rest to the overflow, and all come out in order."""
    channel, memory, overflow = make()
    for number in range(8):
        put(channel, number)
    assert (memory.stats().size, overflow.stats().size) == (3, 5)
    assert drained(channel) == [str(number) for number in range(8)]
    assert channel.stats().size == 0


def test_while_the_overflow_holds_anything_puts_go_there(make: Make) -> None:
    """Puts go to the overflow until it is empty and has no open take."""
    channel, memory, overflow = make()
    for number in range(4):
        put(channel, number)
    assert take(channel, 3) == ["0", "1", "2"]
    put(channel, 4)
    assert (memory.stats().size, overflow.stats().size) == (0, 2)
    transaction = opened(channel)
    assert bodies(transaction.take(5, timeout=0)) == ["3", "4"]
    put(channel, 5)
    assert (memory.stats().size, overflow.stats().size) == (0, 1)
    transaction.rollback()
    assert drained(channel) == ["3", "4", "5"]
    put(channel, 6)
    assert (memory.stats().size, overflow.stats().size) == (1, 0)


def test_the_puts_of_a_transaction_go_to_one_of_the_two_whole(make: Make) -> None:
    """The puts of a transaction go to one channel, whole."""
    channel, memory, overflow = make()
    put(channel, 0, 1)
    put(channel, 2, 3)
    assert (memory.stats().size, overflow.stats().size) == (2, 2)
    assert [take(channel, 10), take(channel, 10)] == [["0", "1"], ["2", "3"]]


def test_events_beyond_memorys_bytes_go_to_the_overflow_if_both_are_full_a_commit_is_refused() -> None:
    """Events beyond memory's bytes go to the overflow; if both are full, a commit is refused."""
    overflow = MemoryChannel(2, transaction_capacity=2)
    memory = MemoryChannel(100, transaction_capacity=2, byte_capacity=20, byte_capacity_buffer_percentage=0)
    with SpillableChannel(memory, overflow) as channel:
        for number in range(4):
            put(channel, f"ten bytes{number}")
        assert (memory.stats().size, overflow.stats().size) == (2, 2)
        transaction = opened(channel)
        transaction.put(Event({}, b"ten bytes4"))
        with pytest.raises(ChannelFullError):
            transaction.commit(0)
        transaction.rollback()
        assert drained(channel) == [f"ten bytes{number}" for number in range(4)]


def test_a_transaction_does_not_mix_puts_and_takes(make: Make) -> None:
    """Puts and takes in one transaction are refused."""
    channel, _, _ = make()
    put(channel, 0)
    transaction = opened(channel)
    transaction.put(Event({}, b"1"))
    with pytest.raises(TransactionStateError, match=r"take\(\) in a transaction that has puts: use one for puts"):
        transaction.take()
    transaction.commit()
    transaction = opened(channel)
    transaction.take()
    with pytest.raises(TransactionStateError, match=r"put\(\) in a transaction that has takes"):
        transaction.put(Event())
    transaction.commit()
    assert drained(channel) == ["1"]


def test_commit_says_where_the_events_are(make: Make) -> None:
    """commit() returns the durability of the channel used."""
    channel, _, overflow = make()
    promised = Stored.CACHE if isinstance(overflow, FileChannel) else Stored.MEMORY
    said = []
    for number in range(4):
        transaction = opened(channel)
        transaction.put_many(events([number]))
        said.append((transaction.commit(), transaction.last_sequence))
    assert [stored for stored, _ in said] == [Stored.MEMORY] * 3 + [promised]
    assert [sequence for _, sequence in said][:3] == [MEMORY_NUMBERS, MEMORY_NUMBERS + 1, MEMORY_NUMBERS + 2]


def test_synced_sequence_never_covers_an_event_in_memory(tmp_path: Path) -> None:
    """``synced_sequence`` never covers an event in memory."""
    overflow = FileChannel(tmp_path, checkpoint_interval=None, minimum_free_space=0, fsync="os")
    channel = SpillableChannel(MemoryChannel(3, 3), overflow)
    numbers = [put(channel, number) for number in range(5)]
    channel.sync()
    assert [number is not None and number <= channel.synced_sequence for number in numbers] == [False] * 3 + [True] * 2
    channel.close()


def test_recovered_events_of_the_overflow_come_first(tmp_path: Path) -> None:
    """Recovered events of the overflow come first."""
    options: dict[str, Any] = {"checkpoint_interval": None, "minimum_free_space": 0}
    first = SpillableChannel(MemoryChannel(3, 3), FileChannel(tmp_path, **options))
    for number in range(5):
        put(first, number)
    first.close()
    second = SpillableChannel(MemoryChannel(3, 3), FileChannel(tmp_path, **options))
    put(second, 5)
    assert drained(second) == ["3", "4", "5"]
    second.close()


def test_close_loses_and_logs_the_events_in_memory_and_keeps_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """close() loses and logs the events in memory, and keeps the others."""
    overflow = FileChannel(tmp_path, checkpoint_interval=None, minimum_free_space=0)
    channel = SpillableChannel(MemoryChannel(3, 3, name="front"), overflow)
    for number in range(5):
        put(channel, number)
    with caplog.at_level(logging.WARNING, "loghub.channels.memory"):
        channel.close()
    assert "channel front: closed with 3 events that were not taken" in caplog.text
    again = FileChannel(tmp_path, checkpoint_interval=None, minimum_free_space=0)
    assert drained(again) == ["3", "4"]
    again.close()


def test_takes_from_both_are_committed_and_rolled_back_together(make: Make) -> None:
    """Takes from both channels are committed or rolled back together."""
    channel, _, _ = make()
    for number in range(5):
        put(channel, number)
    transaction = opened(channel)
    assert bodies(transaction.take(9)) + bodies(transaction.take(9)) == ["0", "1", "2", "3", "4"]
    assert channel.stats().taken == 5
    transaction.rollback()
    transaction.close()
    transaction = opened(channel)
    taken = transaction.take(2) + transaction.take(2) + transaction.take(9)
    transaction.commit()
    transaction.close()
    assert bodies(taken) == ["0", "1", "2", "3", "4"]
    assert (channel.stats().size, channel.stats().taken, channel.stats().take_successes) == (0, 0, 5)


def test_events_of_both_are_acknowledged_in_one_call(make: Make) -> None:
    """Events of both channels are acknowledged in one call."""
    channel, _, _ = make()
    for number in range(5):
        put(channel, number)
    transaction = opened(channel)
    taken = transaction.take(9) + transaction.take(9)
    for strange in (Event(), Event({}, b"?", 10**6), Event({}, b"?", MEMORY_NUMBERS + 10**6)):
        with pytest.raises(ChannelError):
            transaction.acknowledge([strange])
    transaction.acknowledge([taken[4], taken[0]])
    transaction.rollback()
    assert drained(channel) == ["1", "2", "3"]


def test_a_full_overflow_refuses_and_the_commit_can_be_tried_again(make: Make) -> None:
    """A commit refused by a full overflow can be retried."""
    channel, _, _ = make(capacity=2, transaction_capacity=2)
    for number in range(5):
        put(channel, number)
    transaction = opened(channel)
    transaction.put(Event({}, b"5"))
    with pytest.raises(ChannelFullError):
        transaction.commit(0)
    assert channel.stats().put_errors == 1
    assert transaction.last_sequence is None
    assert [take(channel, 9), take(channel, 1)] == [["0", "1", "2"], ["3"]]
    transaction.commit()
    assert drained(channel) == ["4", "5"]


def test_a_transaction_holds_as_many_puts_as_memory_allows(make: Make) -> None:
    """The memory's transaction capacity limits the puts."""
    channel, _, _ = make()
    transaction = opened(channel)
    transaction.put_many(events("ab"))
    with pytest.raises(TransactionFullError, match="at most 3 puts"):
        transaction.put_many(events("cd"))
    with pytest.raises(InvalidArgumentError):
        transaction.put(None)  # type: ignore[arg-type]
    transaction.commit()
    assert drained(channel) == ["a", "b"]


def test_rolled_back_puts_are_in_neither_channel(make: Make) -> None:
    """Rolled back puts are in neither channel."""
    channel, _, _ = make()
    for end in ("memory", "overflow"):
        transaction = opened(channel)
        transaction.put(Event({}, end.encode()))
        transaction.rollback()
        for number in range(4):
            put(channel, number)
    assert "memory" not in (left := drained(channel))
    assert "overflow" not in left
    assert len(left) == 8


def _of_the_channel(stats: ChannelStats) -> FileStats | None:
    """Return the statistics without the free space, which other programs change."""
    return stats.file and replace(stats.file, free_bytes=0)


def test_the_statistics_are_the_sums(make: Make) -> None:
    """The statistics are the sums of both channels, and a spill does not count as an error."""
    clock = ManualClock()
    channel, memory, overflow = make(clock)
    assert channel.stats().oldest_event_age is None
    for number in range(5):
        put(channel, number)
    clock.advance(4)
    stats = channel.stats()
    assert (stats.name, stats.open) == (f"{memory.name}+{overflow.name}", True)
    assert (stats.size, stats.taken, stats.capacity, stats.fill) == (5, 0, 23, 5 / 23)
    assert stats.bytes == memory.stats().bytes + overflow.stats().bytes > 0
    assert (stats.put_attempts, stats.put_successes, stats.put_errors) == (5, 5, 0)
    assert stats.oldest_event_age == 4
    assert drained(channel) == ["0", "1", "2", "3", "4"]
    stats = channel.stats()
    assert (stats.size, stats.take_successes, stats.take_errors) == (0, 5, 0)
    assert stats.take_attempts == 6
    assert stats.last_take_age is not None
    assert _of_the_channel(stats) == _of_the_channel(overflow.stats())


def test_a_take_waits_for_a_put_into_either(make: Make) -> None:
    """A waiting take is woken by a commit to either channel, and by returned takes."""
    channel, memory, overflow = make()
    call = Call(lambda: take(channel, 5, timeout=math.inf))
    eventually(lambda: len(channel._takers) == 1)
    put(channel, "a")
    assert call.result() == ["a"]
    for number in range(4):
        put(channel, number)
    transaction = opened(channel)
    assert bodies(transaction.take(3) + transaction.take(3)) == ["0", "1", "2", "3"]
    calls = [Call(lambda: take(channel, 1, timeout=math.inf)) for _ in range(2)]
    eventually(lambda: len(channel._takers) == 2)
    put(channel, "b")  # the overflow is not empty while its take is open
    eventually(lambda: sum(call.done for call in calls) == 1)
    assert overflow.stats().taken >= 1
    transaction.rollback()
    assert {one for call in calls for one in call.result()} <= {"0", "b"}
    assert sorted(drained(channel)) == ["1", "2", "3"]
    assert memory.stats().size == 0


def test_a_take_ends_at_its_timeout(make: Make) -> None:
    """A take ends at its timeout."""
    clock = ManualClock()
    channel, _, _ = make(clock)
    call = Call(lambda: take(channel, timeout=5.0))
    eventually(lambda: clock.waiting == 1)
    clock.advance(5.0)
    assert call.result() == []
    assert len(channel._takers) == 0


def test_close_wakes_takers_and_refuses_everything(make: Make) -> None:
    """close() ends waits and closes both channels."""
    channel, memory, overflow = make()
    put(channel, 0)
    putting, taking = opened(channel), opened(channel)
    putting.put(Event())
    taking.take()
    call = Call(lambda: take(channel, timeout=math.inf))
    eventually(lambda: len(channel._takers) == 1)
    channel.close()
    channel.close()
    with pytest.raises(ChannelClosedError):
        call.result()
    for refused in (channel.transaction, channel.sync, putting.commit, taking.commit, taking.take):
        with pytest.raises(ChannelClosedError):
            refused()
    putting.rollback()
    taking.rollback()
    assert (channel.stats().open, memory.stats().open, overflow.stats().open) == (False, False, False)


class _Failing(MemoryChannel):
    """An overflow whose disk fails on request."""

    failing = False

    def _commit_at_once(self, transaction: Any, state: Any) -> bool:
        if self.failing:
            raise ChannelIOError(self.name, "the disk failed")
        return super()._commit_at_once(transaction, state)


def test_a_failing_overflow_leaves_puts_and_takes_unchanged_for_a_retry() -> None:
    """A failing overflow leaves puts and takes unchanged, for a retry."""
    overflow = _Failing(20, 10, keep_alive=0)
    channel = SpillableChannel(MemoryChannel(3, 3, keep_alive=0), overflow)
    for number in range(5):
        put(channel, number)
    putting, taking = opened(channel), opened(channel)
    putting.put(Event({}, b"5"))
    assert bodies(taking.take(9) + taking.take(9)) == ["0", "1", "2", "3", "4"]
    overflow.failing = True
    for transaction in (putting, taking):
        with pytest.raises(ChannelIOError):
            transaction.commit()
    assert (channel.stats().taken, channel.stats().size) == (5, 0)
    overflow.failing = False
    putting.commit()
    taking.commit()
    assert drained(channel) == ["5"]


class _Watched(MemoryChannel):
    """Calls a function once, after its statistics or before a commit."""

    looked: Callable[[], object] | None = None
    commits: Callable[[], object] | None = None

    def stats(self) -> ChannelStats:
        stats = super().stats()
        called, self.looked = self.looked, None
        if called is not None:
            called()
        return stats

    def _commit_at_once(self, *arguments: Any) -> bool:
        called, self.commits = self.commits, None
        if called is not None:
            called()
        return super()._commit_at_once(*arguments)


def _watched() -> tuple[SpillableChannel, _Watched]:
    overflow = _Watched(20, 10, keep_alive=0)
    return SpillableChannel(MemoryChannel(3, 3, keep_alive=0), overflow), overflow


def test_events_spilled_during_a_check_for_an_empty_overflow_come_out_in_order() -> None:
    """Events spilled during a check for an empty overflow come out in order."""
    channel, overflow = _watched()
    put(channel, 0, 1, 2)
    put(channel, 3)
    assert len(drained(channel)) == 4

    def meanwhile() -> None:
        put(channel, "a", "b", "c")
        put(channel, "d")
        assert take(channel) == ["a"]

    overflow.looked = meanwhile
    put(channel, "e")
    assert drained(channel) == ["b", "c", "d", "e"]


def test_events_being_spilled_come_out_even_if_the_overflow_is_still_empty() -> None:
    """Events being spilled come out even if the overflow is still empty."""
    channel, overflow = _watched()
    put(channel, 0, 1, 2)

    def meanwhile() -> None:
        assert take(channel) == ["0"]
        put(channel, 4)

    overflow.commits = meanwhile
    put(channel, 3)
    assert sorted(drained(channel)) == ["1", "2", "3", "4"]


class _Interrupt(ManualClock):
    """A clock whose wait raises KeyboardInterrupt."""

    def wait_for(self, signal: Signal, deadline: Deadline) -> None:
        raise KeyboardInterrupt


def test_an_interrupted_wait_leaves_the_line(make: Make) -> None:
    """An interrupted take no longer waits, so the next event goes to another taker."""
    channel, _, _ = make(_Interrupt())
    with pytest.raises(KeyboardInterrupt):
        take(channel, timeout=math.inf)
    assert (len(channel._takers), channel._lock._is_owned()) == (0, False)
    put(channel, "a")
    assert drained(channel) == ["a"]


def test_in_a_child_it_is_as_after_a_fork_of_its_parts() -> None:
    """In a forked child the memory is empty, and the parent's transactions raise."""
    channel = SpillableChannel(MemoryChannel(3, 3, keep_alive=0), MemoryChannel(20, 10, keep_alive=0))
    for number in range(5):
        put(channel, number)
    taking = opened(channel)
    taking.take()
    for one in (channel._memory, channel._overflow, channel):
        one._renew_in_child()  # type: ignore[attr-defined]
    with pytest.raises(ChannelClosedError, match="before this process was forked"):
        taking.take()
    taking.rollback()
    assert channel.stats().size == 0
    put(channel, "a")
    assert (drained(channel), channel.stats().take_successes) == (["a"], 1)


def test_a_pickled_channel_carries_the_two_below_it() -> None:
    """A pickled channel carries both channels and the name."""
    channel = SpillableChannel(MemoryChannel(3, 3, name="a"), MemoryChannel(9, 9, name="b"))
    twin = pickle.loads(pickle.dumps(channel))
    assert (twin.name, twin.stats().capacity, twin.stats().size) == ("a+b", 12, 0)


def test_six_spilling_sources_and_one_sink_with_rollbacks_lose_nothing_and_keep_the_order(make: Make) -> None:
    """Six spilling sources and one sink with rollbacks lose nothing and keep the order."""
    channel, memory, overflow = make(capacity=1000)
    each, spilled = 60, threading.Event()

    def source(name: int) -> None:
        number, chance = 0, random.Random(name)
        while number < each:
            count = min(each - number, chance.randint(1, 3))
            transaction = opened(channel)
            transaction.put_many(events(f"{name}-{number + i:03}" for i in range(count)))
            transaction.commit(PATIENCE)
            if transaction.last_sequence is not None and transaction.last_sequence < MEMORY_NUMBERS:
                spilled.set()
            number += count

    calls = [Call(lambda name=name: source(name)) for name in range(6)]
    seen: list[str] = []
    chance = random.Random(0)
    while len(seen) < 6 * each:
        transaction = opened(channel)
        got = bodies(transaction.take(5, timeout=PATIENCE))
        if chance.random() < 0.2:
            transaction.rollback()
        else:
            transaction.commit()
            seen += got
    for call in calls:
        call.result()
    assert Counter(seen) == Counter(f"{name}-{i:03}" for name in range(6) for i in range(each))
    for name in range(6):
        own = [one for one in seen if one.startswith(f"{name}-")]
        assert own == sorted(own)
    assert spilled.is_set()
    assert memory.stats().put_successes > 0
    assert (channel.stats().size, channel.stats().taken) == (0, 0)
    assert overflow.stats().put_successes + memory.stats().put_successes == 6 * each


def test_a_rollback_while_another_thread_commits_is_refused(make: Make) -> None:
    """A rollback during a commit in another thread is refused."""
    channel, _memory, overflow = make(capacity=10, keep_alive=30.0)
    put(channel, *range(3))
    for number in range(10):
        put(channel, number + 3)
    transaction = opened(channel)
    transaction.put(Event({}, b"13"))
    commit = Call(transaction.commit)
    eventually(lambda: overflow.stats().waiting, "the commit waits for room")
    with pytest.raises(TransactionStateError, match="another thread"):
        transaction.rollback()
    assert take(channel, 3) + take(channel) == ["0", "1", "2", "3"]
    commit.result()
    assert drained(channel) == [str(number) for number in range(4, 14)]

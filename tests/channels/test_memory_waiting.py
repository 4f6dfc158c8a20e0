"""Waiting on a memory channel: for capacity or events, how long, and in which order.

The file is long because there are three things to wait for, and each wait can end in several ways.
"""

import logging
import math
import threading
from queue import SimpleQueue

import pytest

from producer.channels import Event, MemoryChannel
from producer.model.errors import ChannelClosedError, ChannelFullError, TransactionFullError, TransactionStateError
from producer.runtime.clock import Deadline, Signal, SystemClock
from producer.testing import ManualClock
from tests.support.waiting import Call, eventually, passed

from .helpers import bodies, drained, events, opened, put, take


def full(clock: ManualClock | None = None, **options: object) -> MemoryChannel:
    """Return a full channel of three events, whose calls wait without a limit by default."""
    limits = {"capacity": 3, "transaction_capacity": 3, "keep_alive": math.inf, **options}
    channel = MemoryChannel(clock=clock, **limits)  # type: ignore[arg-type]
    put(channel, 0, 1, 2)
    return channel


def empty(clock: ManualClock | None = None, **options: object) -> MemoryChannel:
    """Return such a channel without events."""
    channel = full(clock, **options)
    assert take(channel, 3) == ["0", "1", "2"]
    return channel


def waiting_takers(channel: MemoryChannel, count: int) -> None:
    eventually(lambda: len(channel._turns.takers) == count)


def waiting_commits(channel: MemoryChannel, count: int) -> None:
    eventually(lambda: channel.stats().waiting == count)


# For room.


def test_a_commit_waits_until_a_take_is_committed() -> None:
    """A waiting commit succeeds when a take is committed, not when it is taken."""
    channel = full()
    call = Call(lambda: put(channel, 3, 4))
    waiting_commits(channel, 1)
    transaction = opened(channel)
    transaction.take(1)
    assert channel.stats().waiting == 1
    transaction.commit()
    assert channel.stats().waiting == 1
    take(channel)
    call.result()
    assert drained(channel) == ["2", "3", "4"]


def test_an_acknowledgement_makes_room_for_a_waiting_commit() -> None:
    """An acknowledgement lets a waiting commit succeed."""
    channel = full()
    call = Call(lambda: put(channel, 3))
    waiting_commits(channel, 1)
    transaction = opened(channel)
    transaction.acknowledge(transaction.take(2)[:1])
    call.result()
    assert channel.stats().taken == 1


def test_a_commit_that_waits_stops_no_taker() -> None:
    """Other calls go on while a commit waits."""
    channel = full()
    call = Call(lambda: put(channel, 3, 4, 5))
    waiting_commits(channel, 1)
    assert take(channel) == ["0"]
    assert take(channel) == ["1"]
    put(channel)
    assert not call.done
    assert take(channel) == ["2"]
    call.result()


def test_a_commit_waits_for_keep_alive_then_raises_and_stays_open() -> None:
    """A commit waits for keep_alive, then raises and stays open."""
    clock = ManualClock()
    channel = full(clock, keep_alive=3.0)
    transaction = opened(channel)
    transaction.put(Event({}, b"3"))
    call = Call(transaction.commit)
    eventually(lambda: clock.waiting == 1)
    clock.advance(2.999)
    eventually(lambda: clock.waiting == 1)
    assert not call.done
    clock.advance(0.001)
    with pytest.raises(ChannelFullError) as caught:
        call.result()
    assert caught.value.waited == pytest.approx(3.0)
    assert "within 3.000 s (keep_alive)" in str(caught.value)
    assert channel.stats().waiting == 0
    take(channel)
    transaction.commit()
    assert drained(channel) == ["1", "2", "3"]


def test_one_wait_is_for_events_and_bytes_together() -> None:
    """One keep_alive covers events and bytes (Flume waits for each)."""
    clock = ManualClock()
    channel = full(clock, keep_alive=3.0, byte_capacity=100)
    call = Call(lambda: put(channel, "x" * 79))
    eventually(lambda: clock.waiting == 1)
    clock.advance(3.0)
    with pytest.raises(ChannelFullError):
        call.result()
    assert clock.monotonic() == 3.0


def test_the_timeout_of_a_commit_overrides_keep_alive() -> None:
    """The timeout of a commit overrides keep_alive."""
    clock = ManualClock()
    channel = full(clock, keep_alive=3.0)
    transaction = opened(channel)
    transaction.put(Event())
    with pytest.raises(ChannelFullError):
        transaction.commit(0)
    call = Call(lambda: transaction.commit(10.0))
    eventually(lambda: clock.waiting == 1)
    clock.advance(9.0)
    eventually(lambda: clock.waiting == 1)
    clock.advance(1.0)
    with pytest.raises(ChannelFullError):
        call.result()
    call = Call(lambda: transaction.commit(math.inf))
    eventually(lambda: clock.waiting == 1)
    clock.advance(1e9)
    eventually(lambda: clock.waiting == 1)
    take(channel)
    call.result()


def test_commits_are_served_first_come_first_served() -> None:
    """Commits are served first come, first served."""
    channel = full()
    large = Call(lambda: put(channel, "a", "b", "c"))
    waiting_commits(channel, 1)
    small = [Call(lambda name=name: put(channel, name)) for name in "d"]
    waiting_commits(channel, 2)
    take(channel, 2)
    assert not large.done
    transaction = opened(channel)
    transaction.put(Event())
    with pytest.raises(ChannelFullError):
        transaction.commit(0)
    take(channel)
    large.result()
    assert not small[0].done
    assert take(channel) == ["a"]
    small[0].result()
    assert drained(channel) == ["b", "c", "d"]


def test_after_a_timeout_the_next_commit_in_line_is_served() -> None:
    """After a timeout the next commit in line is served."""
    clock = ManualClock()
    channel = full(clock)
    large, small = opened(channel), opened(channel)
    large.put_many(events("abc"))
    small.put_many(events("d"))
    first = Call(lambda: large.commit(1.0))
    waiting_commits(channel, 1)
    second = Call(small.commit)
    waiting_commits(channel, 2)
    take(channel)
    eventually(lambda: clock.waiting == 2)
    clock.advance(1.0)
    with pytest.raises(ChannelFullError):
        first.result()
    second.result()
    assert drained(channel) == ["1", "2", "d"]


def test_a_commit_without_net_growth_does_not_queue() -> None:
    """A commit without net growth does not queue."""
    channel = full()
    transaction = opened(channel)
    transaction.take(2)
    transaction.put_many(events("ab"))
    transaction.commit(0)
    assert drained(channel) == ["2", "a", "b"]


# For events.


def test_a_take_waits_until_a_put_is_committed() -> None:
    """A waiting take returns when a put is committed."""
    channel = empty()
    call = Call(lambda: take(channel, 3, timeout=None))
    waiting_takers(channel, 1)
    transaction = opened(channel)
    transaction.put_many(events("ab"))
    assert not call.done
    transaction.commit()
    assert call.result() == ["a", "b"]


@pytest.mark.parametrize("how", ["rollback", "drop"])
def test_a_waiting_take_is_woken_by_a_rollback_or_a_dropped_transaction(how: str) -> None:
    """A waiting take is woken by a rollback or a dropped transaction."""
    channel = full()
    transaction = opened(channel)
    transaction.take(3)
    call = Call(lambda: take(channel, 3, timeout=math.inf))
    waiting_takers(channel, 1)
    if how == "rollback":
        transaction.rollback()
    del transaction
    assert call.result() == ["0", "1", "2"]


def test_a_take_that_finds_nothing_in_time_returns_nothing() -> None:
    """A take without events in time returns nothing."""
    clock = ManualClock()
    channel = empty(clock, keep_alive=3.0)
    transaction = opened(channel)
    for timeout, seconds in ((None, 3.0), (7.0, 7.0)):
        call = Call(lambda timeout=timeout: transaction.take(timeout=timeout))
        eventually(lambda: clock.waiting == 1)
        clock.advance(seconds - 1)
        eventually(lambda: clock.waiting == 1)
        assert not call.done
        clock.advance(1)
        assert call.result() == []
    assert transaction.take(timeout=0) == []
    put(channel, "a")
    assert bodies(transaction.take()) == ["a"]


def test_takes_are_served_first_come_first_served() -> None:
    """Takes are served first come, first served."""
    channel, order = empty(), []
    calls = []
    for number in range(5):
        calls.append(Call(lambda number=number: (number, take(channel, timeout=math.inf))))
        waiting_takers(channel, number + 1)
    for number in range(5):
        put(channel, number)
        order.append(calls[number].result())
        assert take(channel) == []
    assert order == [(number, [str(number)]) for number in range(5)]


def test_one_commit_serves_as_many_takers_as_it_has_events() -> None:
    """One commit serves as many takes as it has events."""
    channel = empty()
    calls = []
    for number in range(3):
        calls.append(Call(lambda: take(channel, 2, timeout=math.inf)))
        waiting_takers(channel, number + 1)
    put(channel, "a", "b", "c")
    assert [calls[0].result(), calls[1].result()] == [["a", "b"], ["c"]]
    assert len(channel._turns.takers) == 1
    put(channel, "d")
    assert calls[2].result() == ["d"]


def test_takes_and_commits_that_wait_for_each_other_all_proceed() -> None:
    """Takes and commits that wait for each other all proceed."""
    channel = full()
    calls = [Call(lambda number=number: put(channel, number)) for number in range(3, 20)]
    got: list[str] = []
    while len(got) < 20:
        got += take(channel, 2, timeout=math.inf)
    for call in calls:
        call.result()
    assert sorted(got, key=int) == [str(number) for number in range(20)]


def test_a_transaction_used_by_two_threads_takes_and_acknowledges() -> None:
    """Two threads may take and acknowledge in one transaction."""
    channel = empty()
    transaction = opened(channel)
    taken: SimpleQueue[list[Event]] = SimpleQueue()
    allowed = threading.Semaphore(2)  # of the three permitted

    def feed() -> int:
        count = 0
        while count < 300:
            allowed.acquire()
            got = transaction.take()
            count += len(got)
            taken.put(got)
        return count

    def settle() -> list[str]:
        seen: list[str] = []
        while len(seen) < 300:
            some = taken.get()
            seen += bodies(some)
            transaction.acknowledge(some)
            allowed.release()
        return seen

    calls = [Call(feed), Call(settle)]
    for number in range(300):
        put(channel, number)
    assert calls[0].result() == 300
    assert calls[1].result() == [str(number) for number in range(300)]
    assert (channel.stats().taken, channel.stats().bytes) == (0, 0)


def test_two_takes_of_one_transaction_share_its_capacity() -> None:
    """Two takes of one transaction share its capacity."""
    channel = empty(capacity=6)
    transaction = opened(channel)
    first = Call(lambda: transaction.take(3))
    waiting_takers(channel, 1)
    second = Call(lambda: transaction.take(3))
    waiting_takers(channel, 2)
    other = Call(lambda: take(channel, timeout=math.inf))
    waiting_takers(channel, 3)
    put(channel, "a", "b", "c")
    assert len(first.result()) == 3
    put(channel, "d")
    with pytest.raises(TransactionFullError):
        second.result()
    assert other.result() == ["d"]


def test_a_transaction_that_is_rolled_back_ends_its_own_waits() -> None:
    """A rollback ends the transaction's waits in other threads."""
    channel = empty()
    transaction = opened(channel)
    call = Call(transaction.take)
    waiting_takers(channel, 1)
    transaction.rollback()
    with pytest.raises(TransactionStateError, match="completed"):
        call.result()
    put(channel, 0, 1, 2)
    transaction = opened(channel)
    transaction.put(Event())
    call = Call(transaction.commit)
    waiting_commits(channel, 1)
    transaction.rollback()
    with pytest.raises(TransactionStateError):
        call.result()
    assert channel.stats().size == 3


# Resize and close.


def test_a_resize_waits_for_takes_and_commits_wait_behind_it() -> None:
    """Commits wait behind a waiting resize."""
    channel = full()
    call = Call(lambda: channel.resize(capacity=1, transaction_capacity=1))
    waiting_commits(channel, 1)
    commit = Call(lambda: put(channel, "a"))
    waiting_commits(channel, 2)
    take(channel, 2)
    assert call.result() is True
    assert not commit.done
    assert take(channel) == ["2"]
    commit.result()
    assert (channel.stats().capacity, drained(channel)) == (1, ["a"])


def test_a_resize_fails_after_keep_alive(caplog: pytest.LogCaptureFixture) -> None:
    """A resize fails after keep_alive, and commits behind it go on."""
    clock = ManualClock()
    channel = full(clock)
    call = Call(lambda: channel.resize(capacity=1, transaction_capacity=1, keep_alive=4.0))
    eventually(lambda: clock.waiting == 1)
    take(channel)
    commit = Call(lambda: put(channel, "a"))
    waiting_commits(channel, 2)
    eventually(lambda: clock.waiting == 2)
    with caplog.at_level(logging.WARNING, "loghub.channels.memory"):
        clock.advance(4.0)
        assert call.result() is False
    assert "after 4.000 s (keep_alive) it still held 2 events" in caplog.text
    commit.result()
    assert (channel.stats().capacity, channel.keep_alive) == (3, math.inf)


def test_a_larger_capacity_serves_waiting_commits() -> None:
    """A larger capacity serves waiting commits."""
    channel = full()
    call = Call(lambda: put(channel, "a"))
    waiting_commits(channel, 1)
    resized = Call(lambda: channel.resize(capacity=4))
    take(channel)
    call.result()
    assert resized.result() is True


def test_a_commit_that_can_no_longer_fit_after_a_resize_is_refused_at_once() -> None:
    """A commit that can no longer fit after a resize is refused at once."""
    channel = full()
    resized = Call(lambda: channel.resize(capacity=2, transaction_capacity=2))
    waiting_commits(channel, 1)
    call = Call(lambda: put(channel, "a", "b", "c"))
    waiting_commits(channel, 2)
    behind = Call(lambda: put(channel, "d"))
    waiting_commits(channel, 3)
    take(channel)
    assert resized.result() is True
    with pytest.raises(ChannelFullError, match="of 2 events"):
        call.result()
    take(channel)
    behind.result()
    assert drained(channel) == ["2", "d"]


def test_close_ends_all_waits_with_channelclosederror() -> None:
    """close() ends all waits with ChannelClosedError."""
    one, two = full(), empty()
    calls = [Call(lambda: put(one, 3)) for _ in range(3)]
    calls.append(Call(lambda: one.resize(capacity=1, transaction_capacity=1)))
    calls += [Call(lambda: take(two, timeout=math.inf)) for _ in range(3)]
    waiting_commits(one, 4)
    waiting_takers(two, 3)
    one.close()
    two.close()
    for call in calls:
        with pytest.raises(ChannelClosedError):
            call.result()
    assert one.stats().waiting == 0


# Interrupts while waiting.


class _Interrupt(ManualClock):
    """A clock whose wait raises KeyboardInterrupt, after ``before`` ran."""

    def __init__(self) -> None:
        super().__init__()
        self.before = lambda: None

    def wait_for(self, signal: Signal, deadline: Deadline) -> None:
        self.before()
        raise KeyboardInterrupt


def test_an_interrupted_wait_leaves_the_line() -> None:
    """An interrupted wait leaves the line, and stores or takes nothing."""
    clock = _Interrupt()
    channel = full(clock)
    transaction = opened(channel)
    transaction.put(Event({}, b"a"))
    with pytest.raises(KeyboardInterrupt):
        transaction.commit()
    assert channel.stats().waiting == 0
    take(channel)
    transaction.commit()
    assert drained(channel) == ["1", "2", "a"]
    with pytest.raises(KeyboardInterrupt):
        take(channel, timeout=math.inf)
    assert len(channel._turns.takers) == 0


def test_an_interrupt_in_the_moment_of_success_loses_nothing() -> None:
    """An interrupt at the moment of success loses nothing."""
    clock = _Interrupt()
    channel = full(clock)
    clock.before = lambda: take(channel)
    transaction = opened(channel)
    transaction.put(Event({}, b"a"))
    with pytest.raises(KeyboardInterrupt):
        transaction.commit()
    with pytest.raises(TransactionStateError, match="was committed"):
        transaction.commit()
    assert drained(channel) == ["1", "2", "a"]
    clock.before = lambda: put(channel, "b")
    with pytest.raises(KeyboardInterrupt):
        take(channel, timeout=math.inf)
    assert (channel.stats().taken, drained(channel)) == (0, ["b"])


class _Gate(SystemClock):
    """A clock on which one thread waits until released, and is then interrupted."""

    def __init__(self) -> None:
        self.gone = threading.Event()
        self.thread: threading.Thread | None = None

    def wait_for(self, signal: Signal, deadline: Deadline) -> None:
        if threading.current_thread() is not self.thread:
            return super().wait_for(signal, deadline)
        passed(self.gone)
        raise KeyboardInterrupt


def test_a_call_that_leaves_the_line_serves_the_next_one() -> None:
    """A call that leaves the line serves the next one."""
    clock = _Gate()
    channel = full(clock)  # type: ignore[arg-type]
    large, small = opened(channel), opened(channel)
    large.put_many(events("abc"))
    small.put_many(events("d"))

    def commit() -> None:
        clock.thread = threading.current_thread()
        large.commit()

    first = Call(commit)
    waiting_commits(channel, 1)
    second = Call(small.commit)
    waiting_commits(channel, 2)
    take(channel)
    assert not second.done
    clock.gone.set()
    with pytest.raises(KeyboardInterrupt):
        first.result()
    second.result()
    assert drained(channel) == ["1", "2", "d"]


def test_no_lock_is_held_during_any_wait() -> None:
    """No lock is held during any wait."""
    clock, states = _Interrupt(), []
    channel = full(clock)
    clock.before = lambda: states.append(channel._lock._is_owned())
    for call in (
        lambda: put(channel, "a"),
        lambda: channel.resize(capacity=1, transaction_capacity=1),
        lambda: (take(channel, 3), take(channel, timeout=math.inf)),
    ):
        with pytest.raises(KeyboardInterrupt):
            call()
    assert states == [False] * 3


def test_idle_waiting_costs_nothing() -> None:
    """A waiting thread checks once a second."""
    channel, looked = empty(ManualClock()), []
    serve = channel._turns.serve

    def counted() -> None:
        looked.append(threading.current_thread())
        serve()

    channel._turns.serve = counted  # type: ignore[method-assign]
    call = Call(lambda: take(channel, timeout=3600.0))
    waiting_takers(channel, 1)
    eventually(lambda: channel._clock.waiting == 1)  # type: ignore[attr-defined]
    assert looked.count(call.thread) <= 3
    looked.clear()
    channel._clock.advance(1.0)  # type: ignore[attr-defined]
    eventually(lambda: looked and channel._clock.waiting == 1)  # type: ignore[attr-defined]
    assert looked == [call.thread]
    put(channel, "a")
    assert call.result() == ["a"]

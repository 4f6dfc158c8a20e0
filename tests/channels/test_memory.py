"""MemoryChannel in one thread: order, limits, rollbacks, acknowledgements, statistics, resizing, closing.

The file is long because it tests the channel call by call; waiting, threads and interrupts have their own files.
"""

import copy
import gc
import logging
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from producer import ConfigError, InvalidArgumentError
from producer.channels import Event, MemoryChannel, Stored
from producer.model.errors import ChannelClosedError, ChannelError, ChannelFullError, TransactionFullError
from producer.model.interfaces import Channel
from producer.testing import ManualClock
from tests.support.garbage import uncollected
from tests.support.living import living

from .helpers import bodies, drained, events, opened, put, take

ROOT = Path(__file__).parents[2]


def small(**options: Any) -> MemoryChannel:
    """Return a channel of five events, three in a transaction, that does not wait."""
    return MemoryChannel(**{"capacity": 5, "transaction_capacity": 3, "keep_alive": 0, **options})


# Puts and takes.


def test_a_committed_event_is_taken_unchanged_with_a_sequence_number() -> None:
    """A committed event is taken unchanged, with a sequence number."""
    channel = MemoryChannel()
    event = Event({"host": "a", "": "x"}, b"\x00\xff body")
    with channel.transaction() as transaction:
        transaction.put(event)
    with channel.transaction() as transaction:
        taken = transaction.take()
    assert taken == [event]
    assert taken[0].sequence == 0
    assert event.sequence is None


def test_a_header_without_a_value_stays_without_one() -> None:
    """A header value of None stays None."""
    channel = MemoryChannel()
    with channel.transaction() as transaction:
        transaction.put(Event({"none": None, "empty": ""}, b"x"))
    with channel.transaction() as transaction:
        assert transaction.take()[0].headers == {"none": None, "empty": ""}


def test_ten_events_are_taken_in_order_then_nothing() -> None:
    """Ten events are taken in order, then nothing."""
    channel = MemoryChannel(keep_alive=0)
    put(channel, *range(10))
    with channel.transaction() as transaction:
        assert [body for _ in range(10) for body in bodies(transaction.take())] == [str(i) for i in range(10)]
        assert transaction.take() == []


def test_a_put_is_invisible_until_it_is_committed() -> None:
    """An uncommitted put is invisible and not counted."""
    channel = small()
    transaction = opened(channel)
    transaction.put_many(events("ab"))
    assert take(channel) == []
    assert transaction.take() == []
    assert channel.stats().size == 0
    transaction.commit()
    assert drained(channel) == ["a", "b"]


def test_the_queue_is_in_the_order_of_commits() -> None:
    """The queue is in commit order."""
    channel = small()
    first, second = opened(channel), opened(channel)
    first.put_many(events("a"))
    second.put_many(events("b"))
    second.commit()
    first.commit()
    assert drained(channel) == ["b", "a"]


def test_rolled_back_puts_are_gone_and_rolled_back_takes_are_back() -> None:
    """Rolled back puts are gone, and rolled back takes are back in order."""
    channel = MemoryChannel(keep_alive=0)
    transaction = opened(channel)
    transaction.put_many(events(range(10)))
    transaction.rollback()
    assert take(channel) == []
    put(channel, *range(10))
    transaction = opened(channel)
    assert len(transaction.take(10)) == 10
    assert take(channel) == []
    transaction.rollback()
    assert drained(channel) == [str(i) for i in range(10)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_rollbacks_in_any_order_restore_the_first_order(order: tuple[int, ...]) -> None:
    """Rollbacks in any order restore the original order."""
    channel = small(capacity=20)
    for start in range(0, 9, 3):
        put(channel, *range(start, start + 3))
    transactions = [opened(channel) for _ in range(3)]
    for _ in range(2):  # each holds two stretches that do not touch
        for transaction in transactions:
            transaction.take()
    for number in order:
        transactions[number].rollback()
    assert drained(channel) == [str(i) for i in range(9)]


def test_rolled_back_events_precede_later_puts() -> None:
    """Rolled back events precede later puts."""
    channel = small(capacity=20)
    put(channel, 0, 1, 2)
    transaction = opened(channel)
    transaction.take(2)
    assert take(channel) == ["2"]
    put(channel, 3, 4)
    transaction.rollback()
    assert drained(channel) == ["0", "1", "3", "4"]


def test_the_order_survives_thousands_of_takes_and_rollbacks() -> None:
    """Thousands of takes and rollbacks lose and move nothing."""
    channel, seen, count = MemoryChannel(keep_alive=0), [], 6000
    for start in range(0, count, 2000):
        put(channel, *range(start, start + 2000))
    while len(seen) < count:
        one, two = opened(channel), opened(channel)
        ahead = bodies(one.take(7, timeout=0)) + bodies(two.take(700, timeout=0))
        one.rollback()
        seen += take(channel, 3)
        two.rollback()
        assert ahead == [str(len(seen) - 3 + i) for i in range(len(ahead))]
        seen += take(channel, 500)
        assert len(channel._queue) <= 2 * channel.stats().size + 1024
    assert seen == [str(i) for i in range(count)]


def test_a_take_waits_only_for_its_first_event() -> None:
    """A take waits only for its first event."""
    channel = small(keep_alive=math.inf)
    put(channel, "a", "b")
    assert take(channel, 3, timeout=math.inf) == ["a", "b"]


def test_a_take_is_bounded_in_bytes_but_never_empty() -> None:
    """A take stays within max_bytes, but returns at least one event."""
    channel = small()
    put(channel, "12345", "123", "1")
    transaction = opened(channel)
    assert bodies(transaction.take(3, max_bytes=1)) == ["12345"]
    transaction.rollback()
    transaction = opened(channel)
    assert bodies(transaction.take(3, max_bytes=8)) == ["12345", "123"]
    assert bodies(transaction.take(3, max_bytes=8)) == ["1"]
    transaction.rollback()
    assert drained(channel) == ["12345", "123", "1"]


def test_sequence_numbers_are_unique_and_increase() -> None:
    """Sequence numbers are unique, increase, and are not used by rollbacks."""
    channel = small()
    assert put(channel, "a", "b") == 1
    transaction = opened(channel)
    transaction.put(Event())
    transaction.rollback()
    assert transaction.last_sequence is None
    assert put(channel, "c") == 2
    assert put(channel) is None
    for _ in range(2):
        transaction = opened(channel)
        assert [event.sequence for event in transaction.take(3)] == [0, 1, 2]
        transaction.rollback()


def test_an_event_may_be_put_into_two_channels() -> None:
    """Putting an event does not change it."""
    one, two = small(), small()
    event = Event({}, b"x")
    for _ in range(2):
        with one.transaction() as transaction:
            transaction.put(event)
    with two.transaction() as transaction:
        transaction.put(event)
    assert [opened(channel).take(2)[-1].sequence for channel in (one, two)] == [1, 0]
    assert event.sequence is None


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        b"bytes",
        Event({}, None),  # type: ignore[arg-type]
        Event({}, "text"),  # type: ignore[arg-type]
        Event({}, bytearray(b"x")),  # type: ignore[arg-type]
        Event({"a": 1}, b""),  # type: ignore[dict-item]
        Event({1: "a"}, b""),  # type: ignore[dict-item]
    ],
    ids=repr,
)
def test_an_invalid_event_is_refused_at_put_and_the_transaction_stays_usable(wrong: Any) -> None:
    """An invalid event is refused at put, and the transaction stays usable."""
    channel = small()
    transaction = opened(channel)
    with pytest.raises(InvalidArgumentError, match="put: "):
        transaction.put_many([Event({}, b"good"), wrong])
    transaction.put(Event({}, b"other"))
    transaction.commit()
    assert drained(channel) == ["other"]


def test_an_empty_body_is_an_event() -> None:
    """An empty body counts as an event of no bytes."""
    channel = small(byte_capacity=1)
    with channel.transaction() as transaction:
        transaction.put_many([Event(), Event({}, b"")])
    assert (channel.stats().size, channel.stats().bytes) == (2, 0)
    assert [event.body for event in opened(channel).take(2)] == [b"", b""]


def test_an_empty_transaction_can_be_committed() -> None:
    """An empty transaction commits without capacity."""
    channel = small()
    put(channel, 1, 2, 3)
    put(channel, 4, 5)
    with channel.transaction():
        pass
    assert channel.stats().size == 5


def test_a_transaction_may_take_and_put() -> None:
    """A transaction may take and put, and needs capacity for the balance only."""
    channel = small(byte_capacity=100, byte_capacity_buffer_percentage=0)
    put(channel, "a" * 10, "b" * 10, "c" * 10)
    put(channel, "d" * 10, "e" * 10)
    with channel.transaction() as transaction:
        assert len(transaction.take(2)) == 2
        transaction.put_many(events(["f" * 35, "g" * 35]))
    stats = channel.stats()
    assert (stats.size, stats.taken, stats.bytes) == (5, 0, 100)
    assert drained(channel) == [letter * 10 for letter in "cde"] + ["f" * 35, "g" * 35]


# Limits.


def test_puts_beyond_the_transactions_capacity_raise_with_advice() -> None:
    """Puts beyond the transaction's capacity raise with advice."""
    channel = small()
    transaction = opened(channel)
    transaction.put_many(events("ab"))
    with pytest.raises(TransactionFullError, match=r"at most 3 puts \(transaction_capacity\): commit more often"):
        transaction.put_many(events("cd"))
    transaction.put(Event({}, b"c"))
    with pytest.raises(TransactionFullError) as caught:
        transaction.put(Event({}, b"d"))
    assert (caught.value.capacity, caught.value.channel) == (3, channel.name)
    transaction.commit()
    assert drained(channel) == ["a", "b", "c"]


def test_takes_beyond_the_transactions_capacity_raise_acknowledged_ones_no_longer_count() -> None:
    """Takes beyond the transaction's capacity raise; acknowledged ones no longer count."""
    channel = small()
    put(channel, 0, 1, 2)
    put(channel, 3, 4)
    transaction = opened(channel)
    taken = transaction.take(100)
    assert bodies(taken) == ["0", "1", "2"]
    with pytest.raises(TransactionFullError, match="at most 3 takes"):
        transaction.take()
    assert channel.stats().take_attempts == 3 + 1
    transaction.acknowledge(taken[:1])
    assert bodies(transaction.take(100)) == ["3"]
    transaction.commit()
    assert drained(channel) == ["4"]


def test_a_full_channel_refuses_a_commit_whole() -> None:
    """A commit that does not fit stores nothing."""
    channel = small()
    put(channel, 0, 1, 2)
    with pytest.raises(ChannelFullError):
        put(channel, 3, 4, 5)
    assert drained(channel) == ["0", "1", "2"]


def test_a_failed_commit_can_be_tried_again() -> None:
    """A failed commit can be retried."""
    channel = small()
    put(channel, 0, 1, 2)
    transaction = opened(channel)
    transaction.put_many(events([3, 4, 5]))
    for _ in range(2):
        with pytest.raises(ChannelFullError):
            transaction.commit()
    assert take(channel) == ["0"]
    assert transaction.commit() is Stored.MEMORY
    assert drained(channel) == ["1", "2", "3", "4", "5"]


def test_after_a_failed_commit_a_rollback_forgets_the_puts() -> None:
    """A rollback after a failed commit leaves the channel unchanged."""
    channel = small()
    put(channel, 0, 1, 2)
    transaction = opened(channel)
    transaction.put_many(events("abc"))
    with pytest.raises(ChannelFullError):
        transaction.commit()
    transaction.rollback()
    transaction.close()
    put(channel, 3, 4)
    assert drained(channel) == ["0", "1", "2", "3", "4"]


def test_only_a_committed_take_frees_capacity() -> None:
    """Only a committed take frees capacity."""
    channel = small(capacity=3)
    put(channel, 0, 1, 2)
    transaction = opened(channel)
    transaction.take(2)
    with pytest.raises(ChannelFullError):
        put(channel, 3)
    transaction.rollback()
    with pytest.raises(ChannelFullError):
        put(channel, 3)
    take(channel, 2)
    put(channel, 3, 4)
    assert drained(channel) == ["2", "3", "4"]


def test_rolled_back_puts_need_no_room() -> None:
    """Rolled back puts use no capacity."""
    channel = small(capacity=3)
    transaction = opened(channel)
    transaction.put_many(events("abc"))
    transaction.rollback()
    put(channel, "d", "e", "f")
    assert drained(channel) == ["d", "e", "f"]


def test_committed_takes_free_their_bytes() -> None:
    """Committed takes free their bytes."""
    channel = small(byte_capacity=2000)
    put(channel, *["x" * 405] * 3)
    transaction = opened(channel)
    transaction.take(2)
    with pytest.raises(ChannelFullError):
        put(channel, "y" * 405)
    transaction.commit()
    put(channel, *["y" * 405] * 2)
    assert drained(channel) == ["x" * 405] + ["y" * 405] * 2


def test_rolled_back_puts_need_no_bytes() -> None:
    """Rolled back puts use no bytes."""
    channel = small(byte_capacity=2000)
    transaction = opened(channel)
    transaction.put_many(events(["x" * 405] * 3))
    transaction.rollback()
    put(channel, *["x" * 405] * 3)
    with pytest.raises(ChannelFullError):
        put(channel, "x" * 405)


def test_channelfullerror_has_name_size_capacity_bytes_the_last_take_and_advice() -> None:
    """ChannelFullError has name, size, capacity, bytes, the last take and advice."""
    clock = ManualClock()
    channel = small(name="clicks", byte_capacity=1000, byte_capacity_buffer_percentage=0, clock=clock)
    put(channel, "aa", "bb", "cc")
    with pytest.raises(ChannelFullError, match="no take was committed yet"):
        put(channel, "dd", "ee", "ff")
    put(channel, "dd")
    take(channel)
    clock.advance(12.5)
    with pytest.raises(ChannelFullError) as caught:
        put(channel, "12345", "123456", "1234567")
    error = caught.value
    assert (error.channel, error.size, error.capacity) == ("clicks", 3, 5)
    assert (error.used_bytes, error.byte_capacity) == (6, 1000)
    assert (error.wanted, error.wanted_bytes) == (3, 18)
    assert (error.last_take_age, error.waited) == (12.5, 0.0)
    for words in ("channel clicks", "3 events of 18 bytes", "3 of 5 events", "12.5 s ago", "Take faster, or raise"):
        assert words in str(error)


def test_bodies_fill_the_byte_capacity_less_the_share_for_headers() -> None:
    """Bodies fill the byte capacity less the share for headers."""
    for percentage, fitting in ((20, 3), (0, 4), (99, 0)):
        channel = small(byte_capacity=2000, byte_capacity_buffer_percentage=percentage)
        for _ in range(fitting):
            put(channel, "x" * 405)
        with pytest.raises(ChannelFullError):
            put(channel, "x" * 405)
        assert channel.stats().size == fitting


def test_an_event_counts_its_headers_and_body_at_least_its_body_plus_the_share() -> None:
    """An event counts its headers and body, at least its body plus the share."""
    channel = small(byte_capacity=10_000)
    for event, size in (
        (Event({}, b"x" * 80), 100),
        (Event({"k" * 10: "v" * 10}, b"x" * 80), 100),
        (Event({"k" * 10: "v" * 11}, b"x" * 80), 101),
        (Event({"k": None, "": ""}, b""), 1),
        (Event({"ü": "€"}, b""), 5),
        (Event({}, b"x"), 2),
    ):
        with channel.transaction() as transaction:
            transaction.put(event)
        assert channel.stats().bytes == size, event
        take(channel)
        assert channel.stats().bytes == 0


def test_shared_headers_count_for_each_event() -> None:
    """Shared headers count for each event."""
    channel, headers = small(byte_capacity_buffer_percentage=0), {"ab": "cd"}
    with channel.transaction() as transaction:
        transaction.put_many([Event(headers, b"x")] * 2 + [Event(dict(headers), b"x")])
    assert channel.stats().bytes == 15


def test_an_event_frees_the_bytes_it_counted_at_its_put() -> None:
    """An event frees the bytes it counted at its put."""
    channel, headers = small(), {"a": "b"}
    with channel.transaction() as transaction:
        transaction.put(Event(headers, b""))
    headers["much"] = "more" * 100
    take(channel)
    assert channel.stats().bytes == 0


def test_rollbacks_leak_no_bytes_flume_2812() -> None:
    """Rollbacks leak no bytes (FLUME-2812)."""
    channel = small(byte_capacity=1000)
    put(channel, "x" * 300)
    before = channel.stats().bytes
    for _ in range(50):
        for action in (lambda tx: tx.put(Event({}, b"y" * 405)), lambda tx: tx.take()):
            transaction = opened(channel)
            action(transaction)
            transaction.rollback()
    assert channel.stats().bytes == before
    put(channel, "x" * 500)
    with pytest.raises(ChannelFullError):
        put(channel, "x")


def test_mixed_transactions_leak_no_bytes() -> None:
    """Mixed transactions leak no capacity (Flume gains eight slots there)."""
    channel = small(byte_capacity=1000, byte_capacity_buffer_percentage=0)
    put(channel, "x" * 100)
    for size in (500, 1000, 10, 999, 100):
        with channel.transaction() as transaction:
            assert len(transaction.take()) == 1
            transaction.put(Event({}, b"y" * size))
        assert channel.stats().bytes == size
    with pytest.raises(ChannelFullError):
        put(channel, "z" * 901)
    put(channel, "z" * 900)


@pytest.mark.parametrize("none", [None, 0])
def test_without_a_byte_capacity_bytes_have_no_limit(none: int | None) -> None:
    """None and 0 mean no byte limit, and bytes are still counted."""
    channel = small(byte_capacity=none, byte_capacity_buffer_percentage=0)
    put(channel, "x" * 10**6)
    assert (channel.stats().byte_capacity, channel.stats().bytes) == (None, 10**6)


def test_a_transaction_larger_than_the_channel_is_refused_at_once() -> None:
    """A transaction larger than the channel is refused at once."""
    channel = MemoryChannel(byte_capacity=100, byte_capacity_buffer_percentage=0, keep_alive=math.inf)
    with pytest.raises(ChannelFullError):
        put(channel, "x" * 101)
    put(channel, "x" * 100)


def test_the_defaults_fit_a_producers_memory() -> None:
    """The defaults fit a producer's memory."""
    stats = MemoryChannel().stats()
    assert (stats.capacity, stats.byte_capacity) == (100_000, 104_857_600)
    channel = MemoryChannel()
    assert (channel.transaction_capacity, channel.keep_alive) == (10_000, 3.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"capacity": 0}, "capacity: must be a whole number of events, at least 1, got 0"),
        ({"capacity": -3}, "capacity: .* got -3"),
        ({"capacity": "5"}, "capacity: .* got '5'"),
        ({"capacity": True}, "capacity: .* got True"),
        ({"capacity": 5.0}, "capacity: .* got 5.0"),
        ({"transaction_capacity": -1}, "transaction_capacity: .* got -1"),
        ({"transaction_capacity": 0}, "transaction_capacity: .* got 0"),
        ({"capacity": 5, "transaction_capacity": 6}, r"transaction_capacity: must not be above capacity \(5\), got 6"),
        ({"byte_capacity": -1}, "byte_capacity: must be None or a whole number of bytes, at least 0, got -1"),
        ({"byte_capacity": 1.5}, "byte_capacity: .* got 1.5"),
        (
            {"byte_capacity_buffer_percentage": -1},
            "byte_capacity_buffer_percentage: must be a whole number from 0 to 99, got -1",
        ),
        ({"byte_capacity_buffer_percentage": 100}, "byte_capacity_buffer_percentage: .* got 100"),
        ({"keep_alive": -1}, "keep_alive: must be a number of seconds, at least 0, got -1"),
        ({"keep_alive": math.nan}, "keep_alive: .* got nan"),
        ({"keep_alive": "3"}, "keep_alive: .* got '3'"),
        ({"keep_alive": None}, "keep_alive: .* got None"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_with_name_rule_and_value(options: dict[str, Any], words: str) -> None:
    """An invalid option raises with name, rule and value."""
    with pytest.raises(ConfigError, match=words):
        MemoryChannel(**options)


# Acknowledgement.


def test_acknowledged_events_free_their_capacity_and_the_rest_stays_taken() -> None:
    """Acknowledged events free their capacity, and the rest stays taken."""
    channel = small(capacity=3)
    put(channel, 0, 1, 2)
    transaction = opened(channel)
    taken = transaction.take(3)
    transaction.acknowledge([taken[1]])
    assert (channel.stats().taken, channel.stats().take_successes, channel.stats().bytes) == (2, 1, 4)
    put(channel, 3)
    with pytest.raises(ChannelFullError):
        put(channel, 4)
    transaction.rollback()
    assert drained(channel) == ["0", "2", "3"]


def test_acknowledge_is_all_or_nothing() -> None:
    """Acknowledging an invalid event acknowledges none."""
    channel, other = small(), small()
    put(channel, 0, 1, 2)
    put(other, 9)
    mine, strange = opened(channel), opened(other)
    taken, foreign = mine.take(2), opened(channel).take(1)
    mine.acknowledge(taken[:1])
    strange.take()
    for wrong in ([Event({}, b"1")], foreign, taken, [taken[1], taken[1]]):
        with pytest.raises(ChannelError, match="none of them was acknowledged"):
            mine.acknowledge([taken[1], *wrong] if wrong[0] not in taken else wrong)
    assert channel.stats().take_successes == 1
    mine.acknowledge([])
    mine.acknowledge(taken[1:])
    assert channel.stats().take_successes == 2


def test_a_commit_after_acknowledgements_counts_only_the_rest() -> None:
    """A commit after acknowledgements counts only the rest."""
    channel = small()
    put(channel, 0, 1, 2)
    with channel.transaction() as transaction:
        transaction.acknowledge(transaction.take(2))
        transaction.take()
    stats = channel.stats()
    assert (stats.size, stats.taken, stats.bytes, stats.take_successes) == (0, 0, 0, 3)


# Statistics.


def test_the_statistics_have_flumes_counters_ages_rates_and_bytes() -> None:
    """The statistics have Flume's counters, ages, rates and bytes."""
    clock = ManualClock()
    channel = MemoryChannel(10, 5, 1000, 0, 0, name="n", clock=clock)
    put(channel, "aa", "bb", "cc")
    clock.advance(10)
    put(channel, "dd")
    transaction = opened(channel)
    transaction.take(2)
    transaction.take(5)
    transaction.acknowledge([])
    clock.advance(5)
    stats = channel.stats()
    assert (stats.name, stats.open, stats.size, stats.taken, stats.capacity, stats.fill) == ("n", True, 0, 4, 10, 0.4)
    assert (stats.bytes, stats.byte_capacity, stats.oldest_event_age) == (8, 1000, None)
    assert (stats.put_attempts, stats.put_successes, stats.put_errors) == (4, 4, 0)
    assert (stats.take_attempts, stats.take_successes, stats.take_errors) == (4, 0, 0)
    transaction.rollback()
    assert channel.stats().oldest_event_age == 15
    take(channel, 3)
    stats = channel.stats()
    assert (stats.oldest_event_age, stats.last_take_age, stats.take_successes) == (5, 0, 3)
    assert (stats.put_rate, stats.take_rate) == (pytest.approx(4 / 15), pytest.approx(3 / 15))
    assert stats.file is None


def test_failed_puts_and_empty_takes_count_as_attempts() -> None:
    """Failed puts and empty takes count as attempts."""
    channel = small()
    transaction = opened(channel)
    with pytest.raises(TransactionFullError):
        transaction.put_many(events(range(4)))
    assert transaction.take() == []
    transaction.put(Event())
    transaction.rollback()
    stats = channel.stats()
    assert (stats.put_attempts, stats.take_attempts) == (5, 1)
    assert (stats.put_successes, stats.take_successes) == (0, 0)


def test_a_refused_commit_is_an_error_that_is_counted() -> None:
    """A refused commit counts as one error."""
    channel = small()
    put(channel, 0, 1, 2)
    for _ in range(2):
        with pytest.raises(ChannelFullError):
            put(channel, 3, 4, 5)
    stats = channel.stats()
    assert (stats.put_errors, stats.put_attempts - stats.put_successes) == (2, 6)


def test_commit_returns_memory_and_nothing_is_ever_synced() -> None:
    """commit() returns MEMORY, and nothing is ever synced."""
    channel: Channel = small()
    transaction = opened(channel)
    transaction.put(Event())
    assert transaction.commit() is Stored.MEMORY
    channel.sync()
    channel.sync(0)
    assert channel.synced_sequence == -1


def test_each_channel_has_a_name() -> None:
    """A channel has the given name, or a numbered one."""
    assert small(name="clicks").name == "clicks"
    assert small().name != small().name
    assert repr(small(name="clicks")) == "<MemoryChannel clicks: 0 of 5 events>"


# Resizing.


def test_a_larger_channel_holds_more_and_a_smaller_one_waits_for_takes() -> None:
    """A channel can grow; it shrinks only when its content fits."""
    channel = small(transaction_capacity=1)
    for i in range(5):
        put(channel, i)
    with pytest.raises(ChannelFullError):
        put(channel, 5)
    assert channel.resize(capacity=6)
    put(channel, 5)
    assert not channel.resize(capacity=2)
    assert channel.stats().capacity == 6
    assert [take(channel)[0] for _ in range(6)] == ["0", "1", "2", "3", "4", "5"]
    assert channel.resize(capacity=2)
    put(channel, 6)
    put(channel, 7)
    with pytest.raises(ChannelFullError):
        put(channel, 8)


def test_a_refused_resize_says_why_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A refused resize changes nothing, and is logged with figures."""
    channel = small(name="clicks")
    put(channel, 0, 1, 2)
    with caplog.at_level(logging.WARNING, "loghub.channels.memory"):
        assert not channel.resize(capacity=2, transaction_capacity=1, keep_alive=0, byte_capacity=7)
    stats = channel.stats()
    assert (stats.capacity, stats.byte_capacity, channel.transaction_capacity) == (5, 104_857_600, 3)
    for words in (
        "channel clicks: not resized to capacity 2",
        "byte_capacity 7",
        "0.000 s",
        "held 3 events of 6 bytes",
    ):
        assert words in caplog.text
    assert drained(channel) == ["0", "1", "2"]


def test_open_takes_count_when_a_channel_shrinks() -> None:
    """Open takes count when a channel shrinks."""
    channel = small()
    put(channel, 0, 1, 2)
    transaction = opened(channel)
    transaction.take(3)
    assert not channel.resize(capacity=2, transaction_capacity=2)
    transaction.rollback()
    assert drained(channel) == ["0", "1", "2"]


def test_the_byte_capacity_changes_up_and_down() -> None:
    """The byte capacity can grow and shrink; 0 removes it."""
    channel = MemoryChannel(100, 100, 2000, keep_alive=0)
    put(channel, "x" * 405)
    assert channel.resize(byte_capacity=1500)
    put(channel, "x" * 405)
    with pytest.raises(ChannelFullError):
        put(channel, "x" * 405)
    assert not channel.resize(byte_capacity=250)
    take(channel)
    put(channel, "x" * 405)
    take(channel, 2)
    assert channel.resize(byte_capacity=300)
    with pytest.raises(ChannelFullError):
        put(channel, "x" * 405)
    for limit, fitting in ((3300, 6), (4000, 7)):
        assert channel.resize(byte_capacity=limit)
        put(channel, *["x" * 405] * fitting)
        with pytest.raises(ChannelFullError):
            put(channel, "x" * 405)
        take(channel, fitting)
    assert channel.resize(byte_capacity=0)
    put(channel, "x" * 10**6)


def test_resizing_to_the_same_limits_changes_nothing() -> None:
    """Resizing to the same limits changes nothing."""
    channel = small(capacity=3)
    put(channel, 0, 1, 2)
    assert channel.resize(capacity=3)
    assert channel.resize()
    assert drained(channel) == ["0", "1", "2"]


def test_a_new_transaction_capacity_holds_from_the_next_call_on() -> None:
    """A new transaction capacity applies to the next call."""
    channel = small()
    put(channel, 0, 1, 2)
    transaction = opened(channel)
    assert len(transaction.take(3)) == 3
    assert channel.resize(transaction_capacity=1)
    with pytest.raises(TransactionFullError, match="at most 1 take "):
        transaction.take()
    transaction.commit()
    with pytest.raises(TransactionFullError, match="at most 1 put "):
        put(channel, 1, 2)
    assert channel.resize(transaction_capacity=5)
    put(channel, *range(5))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"capacity": 2}, "transaction_capacity"),
        ({"transaction_capacity": 6}, "transaction_capacity"),
        ({"capacity": 0}, "capacity"),
        ({"keep_alive": -1}, "keep_alive"),
        ({"byte_capacity": -1}, "byte_capacity"),
    ],
    ids=str,
)
def test_a_resize_to_a_wrong_value_is_refused(options: dict[str, Any], name: str) -> None:
    """A resize to an invalid value is refused."""
    channel = small()
    with pytest.raises(ConfigError) as caught:
        channel.resize(**options)
    assert caught.value.name == name
    assert (channel.stats().capacity, channel.transaction_capacity) == (5, 3)


# The end.


def test_close_says_once_how_many_events_are_lost(caplog: pytest.LogCaptureFixture) -> None:
    """close() logs once how many events are lost."""
    with caplog.at_level(logging.WARNING, "loghub.channels.memory"):
        small().close()
        assert caplog.text == ""
        channel = small(name="clicks")
        put(channel, 0, 1, 2)
        opened(channel).take(2)
        channel.close()
        channel.close()
    assert [record.getMessage() for record in caplog.records] == [
        "channel clicks: closed with 3 events that were not taken: they are lost"
    ]
    stats = channel.stats()
    assert (stats.open, stats.size, stats.taken, stats.bytes) == (False, 0, 0, 0)


def test_a_closed_channel_refuses_everything_but_the_end_of_a_transaction() -> None:
    """A closed channel permits only rollback and close."""
    channel = small()
    put(channel, 0, 1, 2)
    transaction, putting = opened(channel), opened(channel)
    taken = transaction.take(2)
    putting.put(Event())
    channel.close()
    for call in (
        channel.transaction,
        channel.sync,
        lambda: channel.resize(capacity=10),
        lambda: transaction.put(Event()),
        transaction.take,
        lambda: transaction.acknowledge(taken),
        transaction.commit,
        putting.commit,
    ):
        with pytest.raises(ChannelClosedError, match="it is closed"):
            call()
    for one in (transaction, putting):
        one.rollback()
        one.close()


def test_a_dropped_transaction_is_rolled_back_at_the_next_use() -> None:
    """A dropped transaction is rolled back at the next use."""
    channel = small()
    put(channel, 0, 1, 2)
    transaction = opened(channel)
    transaction.take(2)
    transaction.put(Event())
    del transaction
    gc.collect()
    assert (channel.stats().size, channel.stats().taken) == (3, 0)
    assert drained(channel) == ["0", "1", "2"]


def test_a_pickled_channel_is_an_empty_one_of_the_same_configuration() -> None:
    """A pickled channel is empty with the same configuration."""
    channel = MemoryChannel(7, 3, None, 5, 1.5, name="clicks")
    put(channel, 0, 1)
    for twin in (pickle.loads(pickle.dumps(channel)), copy.deepcopy(channel)):
        assert (twin.name, twin.stats().capacity, twin.stats().byte_capacity) == ("clicks", 7, None)
        assert (twin.transaction_capacity, twin.keep_alive, twin._buffer_percentage) == (3, 1.5, 5)
        assert (twin.stats().size, channel.stats().size) == (0, 2)


def test_taken_and_committed_events_are_freed() -> None:
    """Committed takes are freed from memory."""

    class Headers(dict[str, str | None]):
        """A dict that supports weak references."""

    channel = small()
    with channel.transaction() as transaction:
        transaction.put_many([Event(Headers(), b"x") for _ in range(3)])
    alive = lambda: len(living(Headers))  # noqa: E731
    assert alive() == 3
    take(channel, 2)
    assert alive() == 1
    take(channel)
    del transaction
    assert alive() == 0


FORKS = """
import os, sys, threading
from producer.channels import Event, MemoryChannel
from producer.model.errors import ChannelClosedError

channel = MemoryChannel(capacity=10, transaction_capacity=10, keep_alive=0)
with channel.transaction() as tx:
    tx.put_many([Event({}, b"parent")] * 9)
mine = channel.transaction()
mine.begin()
mine.take(2)
held, go = threading.Event(), threading.Event()

def hold():
    with channel._lock:
        held.set()
        go.wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    try:
        assert (channel.stats().size, channel.stats().taken, channel.stats().bytes) == (0, 0, 0)
        for call in (mine.take, mine.commit, lambda: mine.put(Event())):
            try:
                call()
            except ChannelClosedError as error:
                assert "before this process was forked" in str(error)
            else:
                raise AssertionError("a transaction of the parent worked")
        mine.rollback()
        mine.close()
        with channel.transaction() as tx:
            tx.put_many([Event({}, b"child")] * 10)
        with channel.transaction() as tx:
            assert {event.body for event in tx.take(10)} == {b"child"}
        assert channel.stats().put_attempts == 10
        os._exit(0)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)
status = os.waitpid(child, 0)[1]
go.set()
mine.rollback()
with channel.transaction() as tx:
    assert [event.body for event in tx.take(10)] == [b"parent"] * 9
print("status", status)
"""


def test_a_forked_child_starts_empty_and_works() -> None:
    """A forked child starts empty, and waits for no lock of the parent."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout == "status 0\n", ended.stderr


def _calls(operation: Callable[[], object]) -> int:
    """Return the number of Python calls of an operation."""
    calls = [0]

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        calls[0] += event == "call"

    with uncollected():
        sys.setprofile(count)
        try:
            operation()
        finally:
            sys.setprofile(None)
    return calls[0]


def test_an_uncontended_transaction_needs_few_python_calls_and_no_line() -> None:
    """An uncontended transaction needs few Python calls and no line."""
    channel = MemoryChannel(keep_alive=0)
    one = Event({}, b"x")

    def putting() -> None:
        with channel.transaction() as transaction:
            transaction.put(one)

    def taking() -> None:
        with channel.transaction() as transaction:
            assert transaction.take() == [one]

    with channel.transaction() as transaction:
        assert _calls(lambda: transaction.put(one)) <= 5
    assert _calls(putting) <= 30
    assert _calls(taking) <= 42


def test_if_a_signal_handler_raises_once_events_are_in_the_channel_the_statistics_count_them() -> None:
    """If a signal handler raises once events are in the channel, the statistics count them: a close waits for these."""
    channel = MemoryChannel()

    def interrupt_once_put(_frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and channel._queue:
            sys.setprofile(None)
            raise KeyboardInterrupt

    transaction = channel.transaction()
    transaction.begin()
    transaction.put(Event({}, b"x"))
    sys.setprofile(interrupt_once_put)
    try:
        with pytest.raises(KeyboardInterrupt):
            transaction.commit()
    finally:
        sys.setprofile(None)
    assert (channel.stats().size, channel.stats().put_successes) == (1, 1)


def test_an_interrupt_before_a_dropped_transaction_is_rolled_back_leaves_that_to_the_next_call() -> None:
    """If a signal handler raises in a call that returns another transaction's events, they are not lost."""
    channel = MemoryChannel()
    with channel.transaction() as transaction:
        transaction.put(Event({}, b"x"))
    dropped = channel.transaction()
    dropped.begin()
    assert bodies(dropped.take(1)) == ["x"]
    del dropped
    gc.collect()

    def interrupt(frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and frame.f_code is MemoryChannel._roll_back.__code__:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            channel.stats()
    finally:
        sys.setprofile(None)
    assert drained(channel) == ["x"]

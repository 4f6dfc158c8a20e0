"""A signal handler that raises, at every place where one may run: no lock is held, no event and no room is lost."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Collection
from typing import Any

import pytest

from producer.channels import Event, MemoryChannel
from producer.channels.transaction import TransactionState
from producer.model.errors import TransactionStateError
from tests.support.waiting import Call, eventually

from .helpers import drained, events, opened, put, take
from .interrupts import interrupted_everywhere


def whole(channel: MemoryChannel) -> list[str]:
    """What is in the channel, after all that must hold was looked at."""
    gc.collect()  # a transaction that nobody could end is dropped
    assert not channel._lock.locked()
    stats = channel.stats()
    assert stats.taken == 0
    assert stats.bytes == sum(entry[1] for entry in channel._queue[channel._head :])
    assert not channel._turns.takers
    assert not channel._turns.rooms
    assert stats.put_successes - stats.take_successes == stats.size
    content = drained(channel)
    assert (channel.stats().size, channel.stats().bytes) == (0, 0)
    put(channel, *range(10))  # all the room is there
    return content


def fresh(count: int = 3) -> MemoryChannel:
    """A channel of ten with ``count`` events."""
    channel = MemoryChannel(capacity=10, transaction_capacity=10, keep_alive=0)
    put(channel, *range(count))
    return channel


def run(
    operation: Callable[[MemoryChannel], Any],
    *outcomes: list[str],
    at_least: int = 20,
    count: int = 3,
    anywhere: Collection[str] = (),
) -> None:
    """Interrupt ``operation`` everywhere; then one of the outcomes is in the channel, the last one if it ended."""

    def scenario() -> object:
        channel = fresh(count)

        def check(interrupted: bool) -> None:
            content = whole(channel)
            assert content in (outcomes if interrupted else outcomes[-1:])

        return lambda: operation(channel), check

    interrupted_everywhere(scenario, at_least, anywhere)


def test_a_put_and_its_commit() -> None:
    """All of the events are there, once, or none."""
    run(lambda channel: put(channel, "a", "b"), ["0", "1", "2"], ["0", "1", "2", "a", "b"])


def test_a_take_and_its_commit() -> None:
    """All of what was taken is gone, or all of it is back, in order."""
    run(lambda channel: take(channel, 2), ["0", "1", "2"], ["2"])


#: Where events, room and transactions change.
CHANGES = {
    "_attempt_commit",
    "_attempt_take",
    "_roll_back",
    "_remove_empty_places",
    "_merging",
    "do",
    "finish",
    "change",
    "empty",
    "_set_commit",
}


def test_a_change_is_whole_between_whichever_instructions_it_is_interrupted() -> None:
    """Not only where CPython runs signal handlers: a commit of puts and takes, a take, a rollback."""

    def operation(channel: MemoryChannel) -> None:
        with channel.transaction() as transaction:
            transaction.take(2)
            transaction.put_many(events("ab"))
        one = opened(channel)
        one.take(2)
        one.rollback()

    run(operation, ["0", "1", "2"], ["2", "a", "b"], at_least=300, anywhere=CHANGES)


def test_takes_that_remove_empty_places() -> None:
    """The queue is moved while it is interrupted; nothing is lost."""

    def scenario() -> object:
        channel = MemoryChannel(keep_alive=0)
        put(channel, *range(2000))
        take(channel, 1020)

        def check(interrupted: bool) -> None:
            gc.collect()
            assert not channel._lock.locked()
            left = drained(channel)
            assert left == [str(i) for i in range(2000)][-len(left) :]
            assert len(left) in ({980, 970} if interrupted else {970})

        return lambda: take(channel, 10), check

    interrupted_everywhere(scenario, 20)


def test_takes_and_their_rollback() -> None:
    """They are back in order, whatever was interrupted."""

    def operation(channel: MemoryChannel) -> None:
        one, two = opened(channel), opened(channel)
        one.take()
        two.take()
        one.rollback()
        two.rollback()

    run(operation, ["0", "1", "2"])


def test_acknowledgements() -> None:
    """Each event is gone or back: from the front, since they are acknowledged in order."""

    def operation(channel: MemoryChannel) -> None:
        with channel.transaction() as transaction:
            taken = transaction.take(3)
            transaction.acknowledge(taken[:2])
            transaction.rollback()

    run(operation, ["0", "1", "2"], ["1", "2"], ["2"])


def test_a_transaction_that_takes_and_puts() -> None:
    """Both happen or none."""

    def operation(channel: MemoryChannel) -> None:
        with channel.transaction() as transaction:
            transaction.take(2)
            transaction.put_many(events("ab"))

    run(operation, ["0", "1", "2"], ["2", "a", "b"])


def test_a_commit_that_is_tried_again_until_it_is_through() -> None:
    """An interrupted commit, called again, stores once; it never stores twice."""

    def operation(channel: MemoryChannel) -> None:
        transaction = opened(channel)
        transaction.put_many(events("ab"))
        try:
            transaction.commit()
        except KeyboardInterrupt:
            if transaction.state is TransactionState.OPEN:  # type: ignore[attr-defined]
                transaction.commit()
                assert transaction.last_sequence == 4
            raise

    run(operation, ["0", "1", "2"], ["0", "1", "2", "a", "b"])


def test_a_commit_that_finds_no_room() -> None:
    """The refusal can be interrupted too; what is put later has all the room."""

    def operation(channel: MemoryChannel) -> None:
        try:
            put(channel, *range(8))
        except Exception as error:  # noqa: BLE001
            assert "no room" in str(error)  # noqa: PT017

    run(operation, ["0", "1", "2"], at_least=40)


def test_a_resize_and_statistics() -> None:
    """Limits change together or not at all."""

    def scenario() -> object:
        channel = fresh()

        def operation() -> None:
            channel.stats()
            channel.resize(capacity=20, byte_capacity=77)

        def check(interrupted: bool) -> None:
            limits = channel.stats().capacity, channel.stats().byte_capacity
            assert limits in ([(10, 104_857_600), (20, 77)] if interrupted else [(20, 77)])
            assert not channel._lock.locked()
            assert drained(channel) == ["0", "1", "2"]

        return operation, check

    interrupted_everywhere(scenario, 10)


def test_a_close() -> None:
    """Closed or not; called again, it is closed, and the one who waited has heard of it."""

    def scenario() -> object:
        channel = fresh(0)
        waiter = Call(lambda: take(channel, timeout=math.inf))
        eventually(lambda: len(channel._turns.takers) == 1)

        def check(_interrupted: bool) -> None:
            assert not channel._lock.locked()
            channel.close()
            waiter.thread.join(60)
            assert waiter.done
            assert "it is closed" in str(waiter.error)

        return channel.close, check

    interrupted_everywhere(scenario, 5)


@pytest.mark.parametrize("way", ["commit", "rollback"])
def test_who_waits_for_events_is_not_forgotten(way: str) -> None:
    """If the interrupted call made an event takeable, the one who waited for it has it, without any further call."""

    def scenario() -> object:
        channel = fresh(1)
        transaction = opened(channel)
        if way == "rollback":
            transaction.take()
        else:
            take(channel)
            transaction.put(Event({}, b"0"))
        waiter = Call(lambda: take(channel, timeout=math.inf))
        eventually(lambda: len(channel._turns.takers) == 1)

        def check(_interrupted: bool) -> None:
            if transaction.ended or channel._size:  # type: ignore[attr-defined]
                assert waiter.result() == ["0"]
            else:
                channel.close()
                waiter.thread.join(60)
            assert waiter.done

        return getattr(transaction, way), check

    interrupted_everywhere(scenario, 20)


def test_who_waits_for_room_is_not_forgotten() -> None:
    """If an interrupted commit made room, the commit that waited for it is done, without any further call."""

    def scenario() -> object:
        channel = fresh(10)
        transaction = opened(channel)
        transaction.take(2)
        waiter = opened(channel)
        waiter.put_many(events("ab"))
        call = Call(lambda: waiter.commit(math.inf))
        eventually(lambda: len(channel._turns.rooms) == 1)

        def check(_interrupted: bool) -> None:
            if transaction.ended:  # type: ignore[attr-defined]
                call.result()
                assert drained(channel) == [str(i) for i in range(2, 10)] + ["a", "b"]
            else:
                transaction.commit()
                call.result()

        return transaction.commit, check

    interrupted_everywhere(scenario, 20)


def test_a_rollback_after_an_interrupted_rollback_is_not_needed() -> None:
    """It completes the transaction, and what it could not put back comes back when the transaction is dropped."""

    def scenario() -> object:
        channel = fresh()
        holder = [opened(channel)]
        holder[0].take(3)

        def check(_interrupted: bool) -> None:
            transaction = holder.pop()
            if transaction.state.value == "open":  # type: ignore[attr-defined]
                transaction.rollback()
            with pytest.raises(TransactionStateError):
                transaction.rollback()
            del transaction
            assert whole(channel) == ["0", "1", "2"]

        def operation() -> None:
            holder[0].rollback()

        return operation, check

    interrupted_everywhere(scenario, 5)


#: Likewise, and where a take does.
HALF_WAY = CHANGES | {"_set_take", "_put_one"}


@pytest.mark.parametrize("interrupted", ["commit", "take"])
@pytest.mark.parametrize("following", ["take", "put"])
def test_whoever_comes_next_finishes_what_was_interrupted(interrupted: str, following: str) -> None:
    """The very next call is another transaction's, which nobody has looked after: no event is there twice, none is
    gone.
    """

    def scenario() -> object:
        channel = fresh()
        one, other = opened(channel), opened(channel)
        if interrupted == "commit":
            one.put_many(events("ab"))

        def check(_raised: bool) -> None:
            if following == "put":
                other.put(events("c")[0])
            first = other.take(1)
            other.commit()
            one.close() if one.state is not TransactionState.OPEN else one.rollback()
            found = [event.body.decode() for event in first] + whole(channel)
            assert sorted(found, key=found.index) == found, "twice"
            assert set("012") <= set(found)
            assert ("c" in found) == (following == "put")
            assert {"a", "b"} <= set(found) or not {"a", "b"} & set(found)

        return one.commit if interrupted == "commit" else lambda: one.take(2), check

    interrupted_everywhere(scenario, 20, HALF_WAY)


def test_what_is_put_behind_an_interrupted_commit_is_stored_or_refused() -> None:
    """The commit may have happened: then the transaction has ended, and takes nothing more."""

    def scenario() -> object:
        channel = fresh(0)
        one = opened(channel)
        one.put(events("a")[0])

        def check(_raised: bool) -> None:
            refused = False
            try:
                one.put(events("b")[0])
                one.commit()
            except TransactionStateError:
                refused = True
            one.close() if one.state is not TransactionState.OPEN else one.rollback()
            assert whole(channel) == (["a"] if refused else ["a", "b"])

        return one.commit, check

    interrupted_everywhere(scenario, 20, HALF_WAY)

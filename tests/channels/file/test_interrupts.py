"""An exception that a signal handler raises, wherever it comes, leaves a file channel whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from producer.channels.file.log.run import Run
from producer.channels.transaction import TransactionState
from producer.model.errors import ChannelFullError
from producer.testing import ManualClock
from tests.channels.file.opening import contents, opened_channel, segments
from tests.channels.helpers import drained, events, opened, put
from tests.channels.interrupts import interrupted_everywhere
from tests.support.sim_fs import SimFS
from tests.support.waiting import Call, eventually


def test_an_interrupted_commit_of_puts_keeps_no_segment_for_ever() -> None:
    """Whatever became of the puts: once everything is taken, the segment is deleted."""

    def scenario() -> tuple[Callable[[], Any], Callable[[bool], None]]:
        disk = SimFS()
        channel = opened_channel(disk, fsync="os")
        entered = channel.__enter__()
        transaction = opened(entered)
        transaction.put_many(events("ab"))

        def check(_interrupted: bool) -> None:
            put(entered, "c")
            assert drained(entered) in (["a", "b", "c"], ["c"])
            old = segments(disk)
            put(entered, "x" * 4000)
            drained(entered)
            entered.checkpoint()
            assert not set(segments(disk)) & set(old), "a segment that nobody needs"
            channel.__exit__(None, None, None)

        return transaction.commit, check

    interrupted_everywhere(scenario, at_least=80)


@pytest.mark.parametrize("fsync", ["commit", "os"])
def test_an_interrupted_commit_loses_no_room(fsync: str) -> None:
    """Whatever became of the puts: what is in use is what is in the channel, and as much fits in as ever."""

    def scenario() -> tuple[Callable[[], Any], Callable[[bool], None]]:
        channel = opened_channel(SimFS(), fsync=fsync, capacity=3, byte_capacity=400, keep_alive=0)
        entered = channel.__enter__()
        transaction = opened(entered)
        transaction.put_many(events("ab"))

        def check(_interrupted: bool) -> None:
            if transaction.state is TransactionState.OPEN:
                transaction.rollback()
            entered.sync()  # it may be written and not on the disk yet
            assert drained(entered) in ([], ["a", "b"])
            stats = entered.stats()
            assert (stats.size, stats.taken, stats.bytes, stats.waiting) == (0, 0, 0, 0)
            put(entered, *"xyz")
            assert drained(entered) == list("xyz")
            channel.__exit__(None, None, None)

        return transaction.commit, check

    interrupted_everywhere(scenario, at_least=80)


def test_an_interrupted_wait_for_room_leaves_nobody_in_line() -> None:
    """A commit that waits is interrupted anywhere, on its way in and out: those who come later get what is free."""

    def scenario() -> tuple[Callable[[], Any], Callable[[bool], None]]:
        clock = ManualClock()
        channel = opened_channel(SimFS(), fsync="os", capacity=2, keep_alive=5.0, clock=clock)
        entered = channel.__enter__()
        put(entered, *"ab")
        transaction = opened(entered)
        transaction.put_many(events("cd"))

        def commit() -> None:
            ended: list[bool] = []
            helper = Call(lambda: (eventually(lambda: clock.waiting or ended), clock.advance(10.0)))
            try:
                with pytest.raises(ChannelFullError):
                    transaction.commit()
            finally:
                ended.append(True)
                helper.result()

        def check(_interrupted: bool) -> None:
            transaction.rollback()
            assert entered.stats().waiting == 0
            assert drained(entered) == ["a", "b"]
            put(entered, *"ef")
            assert drained(entered) == ["e", "f"]
            channel.__exit__(None, None, None)

        return commit, check

    interrupted_everywhere(scenario, at_least=20)


def test_an_interrupted_take_strands_no_event() -> None:
    """Wherever it comes: after the rollback all events can be taken, once, and none is in a transaction that is not."""

    def scenario() -> tuple[Callable[[], Any], Callable[[bool], None]]:
        channel = opened_channel(SimFS(), fsync="os")
        entered = channel.__enter__()
        put(entered, *"abcd")
        returned = opened(entered)
        returned.take(2)
        returned.rollback()  # a part of what is taken was given back before, a part was not
        transaction = opened(entered)

        def check(_interrupted: bool) -> None:
            transaction.rollback()
            assert drained(entered) == list("abcd")
            stats = entered.stats()
            assert (stats.size, stats.taken, stats.bytes) == (0, 0, 0)
            channel.__exit__(None, None, None)

        return lambda: transaction.take(3), check

    interrupted_everywhere(scenario, at_least=20)


def test_after_an_interrupted_take_the_events_are_there_for_others() -> None:
    """Also while the transaction that was interrupted is still open."""

    def scenario() -> tuple[Callable[[], Any], Callable[[bool], None]]:
        channel = opened_channel(SimFS(), fsync="os")
        entered = channel.__enter__()
        put(entered, *"abc")
        transaction = opened(entered)

        def check(_interrupted: bool) -> None:
            other = drained(entered)
            transaction.rollback()
            assert other + drained(entered) == list("abc")
            assert entered.stats().taken == 0
            channel.__exit__(None, None, None)

        return lambda: transaction.take(3), check

    interrupted_everywhere(scenario, at_least=20)


def test_an_interrupted_rollback_strands_no_event() -> None:
    """When the transaction is dropped at the latest, all that was taken can be taken again, once; also if somebody has
    taken some of it before."""

    def scenario() -> tuple[Callable[[], Any], Callable[[bool], None]]:
        channel = opened_channel(SimFS(), fsync="os")
        entered = channel.__enter__()
        put(entered, *"abc")
        transactions = [opened(entered)]
        transactions[0].take(3)

        def check(_interrupted: bool) -> None:
            other = drained(entered)
            transactions.clear()
            assert sorted(other + drained(entered)) == list("abc")
            stats = entered.stats()
            assert (stats.size, stats.taken, stats.bytes) == (0, 0, 0)
            channel.__exit__(None, None, None)

        return transactions[0].rollback, check

    interrupted_everywhere(scenario, at_least=10)


def test_a_take_that_was_given_back_before_its_commit_is_seen_leaves_the_event() -> None:
    """The commit was interrupted once it was written, and its transaction rolled back: the event is delivered again."""
    with opened_channel(SimFS(), fsync="os") as channel:
        put(channel, "a", "b")
        transaction = opened(channel)
        (event, _) = transaction.take(2)
        transaction.rollback()
        with channel._ledger.lock:
            channel._ledger.publish(Run(takes=[event.sequence or 0]))
        assert drained(channel) == ["a", "b"]


class _Interrupted(BaseException):
    """What the first handler raises, to be told from the second one's."""


@pytest.mark.parametrize("following", ["put", "sync"])
def test_a_commit_that_is_interrupted_again_wherever_it_is_undone_does_not_appear(following: str) -> None:
    """It was written, and nobody has heard of it: what the second interrupt leaves, the next one to write undoes."""

    def scenario() -> tuple[Callable[[], Any], Callable[[bool], None]]:
        disk = SimFS()
        channel = opened_channel(disk, fsync="os")
        entered = channel.__enter__()
        put(entered, "0")
        write, transaction = entered._log._end.write, opened(entered)
        transaction.put_many(events("a"))

        def written(*arguments: Any) -> bool:
            write(*arguments)
            entered._log._end.write = write  # type: ignore[method-assign]
            raise _Interrupted

        def commit() -> None:
            entered._log._end.write = written  # type: ignore[method-assign]
            with contextlib.suppress(_Interrupted):
                transaction.commit()

        def check(_interrupted: bool) -> None:
            entered._log._end.write = write  # type: ignore[method-assign]
            transaction.rollback()
            expected = ["0", "b"] if following == "put" else ["0"]
            put(entered, *expected[1:])
            entered.sync()
            assert contents(disk.after_crash(0)) == expected
            assert drained(entered) == expected
            channel.__exit__(None, None, None)

        return commit, check

    interrupted_everywhere(scenario, at_least=30)

"""The feeder feeds events in order, as memory allows, and ends only when it is stopped."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from producer import (
    ChannelClosedError,
    ChannelIOError,
    ProducerClosedError,
    ResultFailedError,
    TransactionFullError,
)
from producer.channels import MemoryChannel, ProcessFileChannel
from producer.channels.memory import MemoryTransaction
from producer.model.interfaces import Event
from producer.runtime.clock import Deadline
from producer.testing import ManualClock, RecordingSink, ScriptedSink
from tests.durable.kit import (
    LOG,
    KeptChannel,
    by_hand,
    drive,
    durable,
    pipeline_of,
    values,
)
from tests.support.pipelines import KEY, record, step
from tests.support.sinks import GatedSink
from tests.support.waiting import PATIENCE, Call, eventually


def _put(channel: KeptChannel, *events: Event) -> None:
    with channel.transaction() as transaction:
        transaction.put_many(events)


def test_more_events_than_a_transaction_holds_are_in_flight_at_once() -> None:
    """More events than a transaction holds are in flight at once; every transaction ends when its events do."""
    channel = KeptChannel(transaction_capacity=3)
    sink = GatedSink()
    one = by_hand(sink, channel)
    for i in range(10):
        one.admission.accept(KEY, record(str(i)), 1, None)
    for _ in range(10):
        one.feeder.run_once(0)
    assert channel.stats().taken == 10
    assert len(one.feeder.takings) == 4
    sink.gate.set()
    one.pipeline.accumulator.seal_open()
    drive(one)
    assert one.stored == 0
    assert [taking.ended for taking in one.feeder.takings] == [True, True, True, False]


def test_a_transaction_smaller_than_a_block_makes_blocks_smaller() -> None:
    """A channel whose transactions hold one event can be fed from."""
    one = by_hand(RecordingSink(), KeptChannel(transaction_capacity=1))
    for i in range(5):
        one.admission.accept(KEY, record(str(i)), 1, None)
    for _ in range(20):
        drive(one)
    one.pipeline.accumulator.seal_open()
    drive(one)
    assert one.stored == 0


class CountsInAll(KeptChannel):
    """A channel whose transactions take 40 events in all, acknowledged or not, as the interface allows."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def transaction(self) -> MemoryTransaction:
        transaction = super().transaction()
        take, left = transaction.take, 40

        def counting(count: int = 1, **options: Any) -> list[Event]:
            nonlocal left
            self.asked.append(count)
            if count > left:
                raise TransactionFullError(self._name, "takes", 40)
            events = take(count, **options)
            left -= len(events)
            return events

        transaction.take = counting  # type: ignore[method-assign]
        return transaction


def test_a_full_transaction_is_followed_by_another_with_blocks_as_large() -> None:
    """For such a channel of a user another transaction begins, and blocks stay as large as one holds."""
    channel = CountsInAll()
    one = by_hand(RecordingSink(), channel)
    for i in range(10):
        one.admission.accept(KEY, record(str(i)), 1, None)
        while one.feeder.fed <= i:
            one.feeder.run_once(0)
        one.pipeline.accumulator.seal_open()
        while one.stored:
            step(one.pipeline)
            one.acks.run_once()
    assert channel.asked[-1] == 40


@pytest.mark.parametrize("with_dead_letters", [True, False])
def test_an_event_without_a_record_stops_nothing(with_dead_letters: bool, caplog: pytest.LogCaptureFixture) -> None:
    """An event without a record becomes a dead letter with the reason; without dead letters it stays, counted and
    logged.
    """
    channel, dead = KeptChannel(), KeptChannel()
    _put(channel, Event({"mine": "yes"}, b"not a record"))
    sink = RecordingSink()
    one = by_hand(sink, channel, dead if with_dead_letters else None)
    one.admission.accept(KEY, record("behind"), 1, None)
    drive(one)
    one.pipeline.accumulator.seal_open()
    drive(one)
    assert sink.records() == [record("behind")]
    assert "holds no record" in caplog.text
    buried = dead.events()
    if with_dead_letters:
        assert (buried[0].headers["mine"], buried[0].body) == ("yes", b"not a record")
        assert buried[0].headers["error_code"] == "UnreadableEvent"
        assert (one.stored, one.stats().kept_back) == (0, 0)
    else:
        assert (one.stored, one.stats().kept_back) == (1, 1)
        one.give_back()
        assert channel.events()[0].body == b"not a record"


def test_a_log_handler_that_raises_stops_no_feeding(raising_handler: list[str]) -> None:
    """If a log handler raises, an event without a record is a dead letter, and later events are delivered."""
    channel, letters, sink = KeptChannel(), KeptChannel(), RecordingSink()
    _put(channel, Event({}, b"foreign"))
    with durable(sink, channel, dead_letter=letters) as producer:
        assert producer.send("p", "l", LOG).result(PATIENCE)
        eventually(lambda: channel.stats().size + channel.stats().taken == 0)
    assert (values(sink), [each.body for each in letters.events()]) == (["b"], [b"foreign"])
    assert raising_handler


def test_a_bug_with_one_event_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """An event that raises stays in the channel, and its future says so; later events are fed."""
    one = by_hand(RecordingSink(), KeptChannel())
    feed, calls = one.feeder._feed, []

    def broken_once(*arguments: Any) -> object:
        calls.append(1)
        return 1 / 0 if len(calls) == 2 else feed(*arguments)

    one.feeder._feed = broken_once
    told: list[Any] = []
    futures = [one.admission.accept(KEY, record(str(i)), 1, told.append) for i in range(3)]
    drive(one)
    assert [result.error_code for result in told] == ["InternalError"]
    assert isinstance(futures[1].exception(0), ResultFailedError)
    one.pipeline.accumulator.seal_open()
    drive(one)
    assert (one.stats().delivered, one.stored, one.stats().kept_back) == (2, 1, 1)
    assert len(told) == 3
    assert "ZeroDivisionError" in caplog.text


def test_a_record_larger_than_the_present_budget_gets_all_of_it() -> None:
    """A record that was accepted with more memory gets all there is."""
    channel = KeptChannel()
    first = by_hand(ScriptedSink(), channel)
    first.admission.accept(KEY, record("x" * 50_000), 1, None)
    first.admission.accept(KEY, record("small"), 1, None)
    first.give_back()
    sink = RecordingSink()
    with durable(sink, channel, total_size_in_bytes=20_000) as producer:
        producer.flush(PATIENCE)
        assert producer.stats().memory_used == 0
    assert len(sink.records()) == 2


def test_records_of_an_earlier_producer_have_no_future_here() -> None:
    """Equal numbers of two producers are not confused."""
    channel = KeptChannel()
    by_hand(ScriptedSink(), channel).admission.accept(KEY, record("old"), 1, None)
    sink = RecordingSink()
    one = by_hand(sink, channel)
    future = one.admission.accept(KEY, record("new"), 1, None)
    assert one.stats().recovered == 1
    one.feeder._block = 1
    one.feeder.run_once(0)
    one.pipeline.accumulator.seal_open()
    drive_one_batch(one)
    assert sink.records() == [record("old")]
    assert not future.done()
    drive(one)
    one.pipeline.accumulator.seal_open()
    drive(one)
    assert future.result(0).successful


def drive_one_batch(one: Any) -> None:
    """Run the attempt of one batch, and its handler."""
    one.pipeline.io_pool.run_next()
    one.pipeline.settlement.success.run_next()


def test_an_idle_feeder_waits_in_the_channel() -> None:
    """An idle feeder takes once and waits: no second call while no time passes."""
    clock, asked = ManualClock(), []
    channel = KeptChannel(clock=clock)
    producer = durable(RecordingSink(), channel, clock=clock)
    taking = pipeline_of(producer).feeder.takings[0]
    eventually(lambda: clock.waiting >= 1)
    eventually(lambda: channel.stats().take_attempts == 1)
    take = taking.take
    taking.take = lambda *arguments: asked.append(1) or take(*arguments)  # type: ignore[method-assign,func-returns-value]
    future = producer.send("p", "l", LOG)
    eventually(lambda: len(asked) == 1)
    assert channel.stats().take_attempts == 2
    clock.advance(0.2)
    assert future.result(PATIENCE).successful
    closing = Call(producer.close)
    eventually(lambda: clock.advance(0.2) or closing.done)
    closing.result()


def test_events_that_come_one_soon_after_the_other_are_taken_together() -> None:
    """After two takes in quick succession the feeder waits 5 ms, and takes all events at once."""
    clock, channel = ManualClock(), KeptChannel()
    producer = durable(RecordingSink(), channel, clock=clock)
    takes = _two_in_no_time(producer, channel)
    for _ in range(3):
        producer.send("p", "l", LOG)
    assert takes == [1]
    assert channel.stats().size == 3
    clock.advance(0.005)
    eventually(lambda: takes == [1, 3])
    _close(producer, clock)


@pytest.mark.parametrize("end", ["flush", "close"])
def test_a_flush_or_close_does_not_wait_for_gathering_events(end: str) -> None:
    """A flush, and a close, takes gathering events at once."""
    clock, channel = ManualClock(), KeptChannel()
    producer = durable(RecordingSink(), channel, clock=clock)
    takes = _two_in_no_time(producer, channel)
    future = producer.send("p", "l", LOG)
    ending = Call(getattr(producer, end))
    assert future.result(PATIENCE).successful
    assert takes == [1, 1]
    eventually(lambda: clock.advance(0.2) or ending.done)
    ending.result()
    _close(producer, clock)


def _two_in_no_time(producer: Any, channel: KeptChannel) -> list[int]:
    """Send two logs in quick succession; return how many events each take finds, from the second on."""
    takes: list[int] = []
    taking = pipeline_of(producer).feeder.takings[0]
    take = taking.take

    def noted(*arguments: Any) -> list[Event]:
        events = take(*arguments)
        takes.extend([len(events)] if events else [])
        return events

    taking.take = noted  # type: ignore[method-assign]
    for number in (1, 2):
        producer.send("p", "l", LOG)
        eventually(lambda number=number: channel.stats().taken == number)
    eventually(lambda: len(pipeline_of(producer).feeder._pause))
    return takes


def _close(producer: Any, clock: ManualClock) -> None:
    closing = Call(producer.close)
    eventually(lambda: clock.advance(0.2) or closing.done)
    closing.result()


class _Unreadable(KeptChannel):
    """A channel whose disk cannot be read a number of times."""

    failures = 0
    error: type[Exception] = ChannelIOError

    def transaction(self) -> Any:
        transaction = super().transaction()
        take = transaction.take

        def failing(*arguments: Any, **options: Any) -> list[Event]:
            if self.failures:
                self.failures -= 1
                raise self.error(self.name, "no disk today")
            return take(*arguments, **options)

        transaction.take = failing  # type: ignore[method-assign]
        return transaction


@pytest.mark.parametrize("error", [ChannelIOError, ValueError])
def test_the_error_is_logged_once_after_each_pause_the_feeder_tries_again(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """The error is logged once; after each pause the feeder tries again."""
    clock, channel = ManualClock(), _Unreadable()
    channel.failures, channel.error = 3, error
    producer = durable(RecordingSink(), channel, clock=clock, batch_count_threshold=1)
    future = producer.send("p", "l", LOG)
    eventually(lambda: channel.failures == 2)

    def later() -> bool:
        clock.advance(1.1)
        return future.done()

    eventually(later)
    assert caplog.text.count("the channel cannot be read; retrying") == 1
    producer.close()


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_sends_raise_the_channels_error_the_log_reports_the_close(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Sends raise the channel's error, the log reports the close, and statistics, flush and close still work."""
    channel = MemoryChannel() if kind == "memory" else ProcessFileChannel(tmp_path)
    producer = durable(RecordingSink(), channel)
    channel.close()
    eventually(lambda: not pipeline_of(producer).feeder.thread._thread.is_alive())
    with pytest.raises(ChannelClosedError):
        producer.send("p", "l", LOG)
    assert "was closed by other code" in caplog.text
    assert producer.stats().stored == 0
    producer.flush(PATIENCE)
    producer.close(PATIENCE)


def test_wait_fed_ends_when_the_channel_is_empty_whatever_it_had_promised() -> None:
    """A damaged event that the channel dropped does not keep a flush waiting forever."""
    producer = durable(RecordingSink(), KeptChannel())
    assert pipeline_of(producer).feeder.wait_fed(10**9, Deadline(None))
    producer.close()


def test_a_flush_is_not_over_when_a_transaction_is_full() -> None:
    """A full transaction does not mean that the channel is empty."""
    one = by_hand(RecordingSink(), KeptChannel(transaction_capacity=2))
    for i in range(6):
        one.admission.accept(KEY, record(str(i)), 1, None)
    waiting = Call(lambda: (one.feeder.wait_fed(6, Deadline(None)), one.feeder.fed))
    eventually(lambda: len(one.feeder._room) == 1)
    while one.feeder.fed < 6:
        assert not waiting.done
        one.feeder.run_once(0)
        waiting.thread.join(0.01)
    assert waiting.result() == (True, 6)


def test_the_feeder_takes_no_more_than_memory_holds() -> None:
    """While the server hangs, taken events fill the memory and one block; the rest waits in the channel."""
    sink, channel = GatedSink(), KeptChannel()
    producer = durable(sink, channel, total_size_in_bytes=20_000, io_thread_count=1, drain_timeout_ms=0)
    for i in range(100):
        producer.send("p", "l", {"i": str(i), "x": "x" * 1000})
    eventually(lambda: producer.stats().waiting_senders == 0 and pipeline_of(producer).pipeline.budget.waiting)
    stats = producer.stats()
    assert stats.memory_used <= 20_000
    assert stats.channel is not None
    assert stats.channel.taken < 20
    assert stats.stored == 100
    sink.gate.set()
    producer.flush(PATIENCE)
    assert values(sink) == [str(i) for i in range(100)]
    producer.close()
    with pytest.raises(ProducerClosedError):
        producer.send("p", "l", LOG)


def test_recovered_events_are_logged_at_construction(caplog: pytest.LogCaptureFixture) -> None:
    """The log and the statistics have the number of recovered events."""
    channel = KeptChannel(name="mine")
    by_hand(ScriptedSink(), channel).admission.accept(KEY, record(), 1, None)
    with caplog.at_level(logging.INFO), durable(RecordingSink(), channel) as producer:
        assert "1 event recovered from channel mine" in caplog.text
        assert producer.stats().recovered == 1


def test_an_empty_channel_logs_no_recovery(caplog: pytest.LogCaptureFixture) -> None:
    """A start with an empty channel logs nothing about recovered events."""
    with caplog.at_level(logging.INFO), durable(RecordingSink(), KeptChannel(name="mine")):
        assert "recovered" not in caplog.text

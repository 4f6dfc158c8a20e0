"""User channels may raise anything: the producer continues, and closes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from producer import ChannelClosedError, ChannelIOError, RejectedError
from producer.channels import MemoryChannel
from producer.model.interfaces import ChannelStats
from producer.testing import RecordingSink, ScriptedSink
from tests.durable.kit import LOG, KeptChannel, by_hand, drive, durable, pipeline_of, values
from tests.support.pipelines import KEY, record
from tests.support.sinks import GatedSink
from tests.support.waiting import PATIENCE, eventually

BAD = RejectedError("ParameterInvalid", "no good", http_status=400)


class _Speechless(KeptChannel):
    """A channel whose statistics fail once it is sick."""

    sick = False

    def stats(self) -> ChannelStats:
        """Raise, once sick."""
        if self.sick:
            raise OSError("the disk is gone")
        return super().stats()


def test_close_delivers_and_ends_every_thread_the_log_has_the_channels_error(caplog: pytest.LogCaptureFixture) -> None:
    """close() delivers and ends every thread; the log has the channel's error."""
    channel, sink = _Speechless(), RecordingSink()
    producer = durable(sink, channel)
    future = producer.send("p", "l", LOG)
    channel.sick = True
    producer.flush(PATIENCE)
    producer.close(PATIENCE)
    assert future.done()
    assert channel.closes == 1
    assert not pipeline_of(producer).feeder.thread._thread.is_alive()
    assert "failed to return its statistics" in caplog.text
    assert "the disk is gone" in caplog.text


def test_the_close_raises_the_sinks_error_the_channels_are_closed_and_another_producer_may_own_them() -> None:
    """The close raises the sink's error; the channels are closed, and another producer may own them."""

    class _Sink(RecordingSink):
        def close(self) -> None:
            raise OSError("no goodbye")

    channel, dead = KeptChannel(), KeptChannel()
    with pytest.raises(OSError, match="no goodbye"):
        durable(_Sink(), channel, dead_letter=dead).close(PATIENCE)
    assert (channel.closes, dead.closes) == (1, 1)
    durable(RecordingSink(), channel).close(PATIENCE)


@dataclass
class _Wrapped:
    """A channel that compares by its values, and so has no hash."""

    name: str = "mine"
    inner: MemoryChannel = field(default_factory=MemoryChannel, compare=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_two_channels_that_compare_equal_serve_two_producers_at_once_a_channel_need_not_be_hashable() -> None:
    """Two channels that compare equal serve two producers at once; a channel need not be hashable."""
    sink = RecordingSink()
    with durable(sink, _Wrapped()) as one, durable(sink, _Wrapped()) as two:  # type: ignore[arg-type]
        for producer in (one, two):
            producer.send("p", "l", LOG).result(PATIENCE)
    assert values(sink) == ["b", "b"]


def test_acknowledged_events_stay_so_the_log_has_the_channels_error(caplog: pytest.LogCaptureFixture) -> None:
    """Acknowledged events stay so; the log has the channel's error."""

    class _Endless(KeptChannel):
        def transaction(self) -> Any:
            transaction = super().transaction()
            commit = transaction.commit

            def failing(timeout: float | None = None) -> object:
                if not transaction.puts:
                    raise ChannelIOError(self.name, "no disk today")
                return commit(timeout)

            transaction.commit = failing  # type: ignore[method-assign,assignment]
            return transaction

    sink = GatedSink()
    one = by_hand(sink, _Endless(transaction_capacity=2), batch_count_threshold=1)
    for _ in range(4):
        one.admission.accept(KEY, record(), 1, None)
    for _ in range(4):
        one.feeder.run_once(0)
    assert len(one.feeder.takings) == 3
    sink.gate.set()
    for _ in range(3):
        drive(one)
    assert (one.stored, one.stats().kept_back) == (0, 0)
    assert not one.acks._owed
    assert "no disk today" in caplog.text


def test_futures_do_not_wait_for_a_channel_that_was_closed_under_the_producer() -> None:
    """Futures of records in no batch fail at once, not at the close, and their callbacks run."""
    channel, sink, told = MemoryChannel(), GatedSink(), threading.Semaphore(0)
    options: dict[str, Any] = {"total_size_in_bytes": 20_000, "io_thread_count": 1, "batch_count_threshold": 1}
    producer = durable(sink, channel, drain_timeout_ms=0, **options)
    futures = [producer.send("p", "l", {"a": "x" * 1000}, callback=lambda _result: told.release()) for _ in range(100)]
    channel.close()
    sink.gate.set()
    eventually(lambda: all(future.done() for future in futures))
    assert all(told.acquire(timeout=PATIENCE) for _ in futures)
    codes = {error.result.error_code for error in (future.exception(0) for future in futures) if error is not None}
    assert codes == {"LeftInChannel"}
    with pytest.raises(ChannelClosedError):
        producer.send("p", "l", LOG)
    producer.close(PATIENCE)


def test_a_batch_with_a_bug_stays_in_the_channel_counted_the_next_one_is_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch with a bug stays in the channel, counted; the next one is a dead letter; the memory of both is free."""
    one = by_hand(ScriptedSink([BAD, BAD]), KeptChannel(), KeptChannel(), batch_count_threshold=1)
    assert one._dead_letters is not None
    reason_of, calls = one._dead_letters.reason_of, []

    def broken_once(result: Any) -> dict[str, str]:
        calls.append(result)
        if len(calls) == 1:
            raise OverflowError("no such date")
        return reason_of(result)

    monkeypatch.setattr(one._dead_letters, "reason_of", broken_once)
    for topic in "ab":
        one.admission.accept(KEY._replace(topic=topic), record(), 1, None)
    one.feeder.run_once(0)
    while one.pipeline.io_pool.run_next():
        pass
    drive(one)
    assert (one.stored, one.stats().kept_back, one.stats().dead_lettered) == (1, 1, 1)
    assert one.pipeline.budget.used == 0
    assert "no such date" in caplog.text


def test_close_during_resume_leaves_no_future_pending_and_nothing_undone() -> None:
    """Parked events and later ones stay in the channel, and every future ends."""
    channel, sink = KeptChannel(), ScriptedSink([BAD])
    one = by_hand(sink, channel, batch_count_threshold=1)
    stopped = KEY._replace(order="ordered")
    futures = [one.admission.accept(stopped, record(text), 1, None) for text in "abc"]
    drive(one)
    one.resume(stopped)
    futures.append(one.admission.accept(stopped, record("d"), 1, None))
    one.feeder.run_once(0)
    futures.append(one.admission.accept(stopped, record("e"), 1, None))
    one.leave_futures()
    one.give_back()
    assert [future.exception(0).result.error_code for future in futures] == [  # type: ignore[union-attr]
        "ParameterInvalid",
        "StreamStopped",
        "StreamStopped",
        "LeftInChannel",
        "LeftInChannel",
    ]
    assert [event.body[20:] for event in channel.events()] == [record(text) for text in "bcde"]

"""Acknowledgements: once for each event, in one call, and the dead letters first."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from producer import (
    BodyTooLargeError,
    ChannelIOError,
    NetworkError,
    RejectedError,
)
from producer.durable.event_format import read_event
from producer.durable.event_ref import tickets_of
from producer.durable.pipeline import DurablePipeline
from producer.durable.take_lease import Taking
from producer.model.interfaces import Event
from producer.testing import ManualClock, RecordingSink, ScriptedSink
from tests.channels.file.opening import open_channel
from tests.durable.kit import (
    KeptChannel,
    by_hand,
    drive,
    durable,
)
from tests.support.clocks import JumpingClock
from tests.support.pipelines import KEY, record
from tests.support.sim_fs import SimFS
from tests.support.sinks import DeadSink
from tests.support.waiting import PATIENCE, eventually

REJECTED = RejectedError("ParameterInvalid", "no such field", http_status=400, request_id="r-7")


def _accept(one: DurablePipeline, *texts: str, key: Any = KEY) -> list[Any]:
    return [one.admission.accept(key, record(text), 1, None) for text in texts]


def _settled(one: DurablePipeline) -> None:
    drive(one)
    one.pipeline.accumulator.seal_open()
    drive(one)


def test_all_that_was_settled_is_acknowledged_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred streams delivered between two checks need one call of the channel."""
    calls: list[int] = []
    acknowledge = Taking.acknowledge

    def counted(self: Taking, sequences: Sequence[int]) -> None:
        calls.append(len(sequences))
        acknowledge(self, sequences)

    monkeypatch.setattr(Taking, "acknowledge", counted)
    one = by_hand(RecordingSink(), KeptChannel())
    for i in range(100):
        _accept(one, "a", "b", key=KEY._replace(topic=str(i)))
    one.feeder.run_once(0)
    one.pipeline.accumulator.seal_open()
    while one.pipeline.io_pool.run_next():
        pass
    one.acks.run_once()
    assert calls == [200]
    assert one.stored == 0


def test_nothing_is_acknowledged_before_it_is_delivered() -> None:
    """While attempts fail, the channel keeps every event."""
    one = by_hand(DeadSink(), KeptChannel())
    _accept(one, "a", "b")
    _settled(one)
    assert one.stored == 2
    assert one.pipeline.counters["attempts"]


def test_a_dead_letter_is_stored_before_the_event_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the event is acknowledged, the dead letter channel already has it."""
    dead, known = KeptChannel(), []
    acknowledge = Taking.acknowledge

    def watched(self: Taking, sequences: Sequence[int]) -> None:
        if sequences:
            known.append([read_event(event).record for event in dead.events()])
        acknowledge(self, sequences)

    monkeypatch.setattr(Taking, "acknowledge", watched)
    one = by_hand(ScriptedSink([REJECTED]), KeptChannel(), dead)
    _accept(one, "a", "b")
    _settled(one)
    assert known == [[record("a"), record("b")]]
    assert (one.stored, one.stats().dead_lettered) == (0, 2)


def test_a_dead_letter_says_why_and_when_and_can_be_delivered_later() -> None:
    """The headers of a dead letter have the stream and the reason; a producer on that channel delivers the body
    unchanged.
    """
    dead = KeptChannel()
    script = [NetworkError("RequestError", "x"), REJECTED]
    with durable(ScriptedSink(script), KeptChannel(), dead_letter=dead, clock=None) as producer:
        future = producer.stream("p", "l", topic="t", tags={"k": "v"}).send({"a": "b"})
        assert future.exception(PATIENCE) is not None
    event = dead.events()[0]
    assert {name: value for name, value in event.headers.items() if name != "failed_at"} == {
        "project": "p",
        "logstore": "l",
        "topic": "t",
        "source": "here",
        "shard_hash": None,
        "tags": '[["k","v"]]',
        "error_code": "ParameterInvalid",
        "error_message": "no such field",
        "request_id": "r-7",
        "attempts": "2",
    }
    assert str(event.headers["failed_at"])[:2] == "20"
    sink = RecordingSink()
    with durable(sink, dead) as second:
        second.flush(PATIENCE)
    assert sink.deliveries[0].key.tags == (("k", "v"),)
    assert dead.events() == []


@pytest.mark.parametrize(
    ("code", "status", "message", "kept"),
    [
        ("ParameterInvalid", 400, "field x: bad", "field x: bad"),
        ("InvalidAccessKeyId", 403, "no such key: KEY", "no such key"),
        ("Unauthorized", 401, "KEY is not known", "see the log"),
        ("BadResponse", 502, "HTTP 502 without a LogHub error: 'HOST'", "HTTP 502 without a LogHub error"),
        ("RequestError", None, "no connection: refused by HOST", "no connection"),
        ("InternalError", None, "KeyError: SECRET", "KeyError"),
        ("ProjectConfigNotExist", None, "no ProjectConfig for 'p': pass one", "no ProjectConfig for 'p': pass one"),
    ],
)
def test_a_dead_letter_says_nothing_of_credentials_and_endpoints(
    code: str, status: int | None, message: str, kept: str
) -> None:
    """Of messages that may name a key or a host only the beginning is written; the server's own are complete."""
    dead = KeptChannel()
    one = by_hand(ScriptedSink([RejectedError(code, message, http_status=status)]), KeptChannel(), dead)
    _accept(one, "a")
    _settled(one)
    assert dead.events()[0].headers["error_message"] == kept


def test_events_that_a_full_dead_letter_channel_refuses_are_counted_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Events that a full dead letter channel refuses are counted, logged, and kept for the next producer."""
    channel, dead = KeptChannel(), KeptChannel(capacity=2, transaction_capacity=1, keep_alive=0)
    one = by_hand(ScriptedSink([REJECTED]), channel, dead)
    futures = _accept(one, "a", "b", "c")
    _settled(one)
    assert all(future.done() for future in futures)
    stats = one.stats()
    assert (stats.dead_lettered, stats.kept_back, stats.stored) == (2, 1, 1)
    assert stats.memory_used == 0
    assert "refused 1 event, which is kept in the channel" in caplog.text
    one.give_back()
    assert [read_event(event).record for event in channel.events()] == [record("c")]


def test_a_full_dead_letter_channel_is_waited_for_once() -> None:
    """A full dead letter channel delays the acknowledgements once, not for each failed batch; with room again, it takes
    later failures.
    """
    clock = JumpingClock()
    dead = KeptChannel(capacity=1, transaction_capacity=1, keep_alive=3.0, clock=clock)
    one = by_hand(ScriptedSink([REJECTED] * 11), KeptChannel(), dead, batch_count_threshold=1)
    before = clock.monotonic()
    _accept(one, *map(str, range(10)))
    _settled(one)
    assert (one.stats().dead_lettered, one.stats().kept_back) == (1, 9)
    assert clock.monotonic() - before == 3.0
    with dead.transaction() as transaction:
        assert transaction.take(timeout=0)
    _accept(one, "more")
    _settled(one)
    assert one.stats().dead_lettered == 2


def test_if_both_channels_share_a_full_disk_nothing_is_lost_the_memory_is_returned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """If both channels share a full disk, nothing is lost, the memory is returned, and delivered events are
    acknowledged.
    """
    disk = SimFS()
    paths = "/channel", "/dead"
    channel, dead = (open_channel(disk, directory=path, reserve=2000) for path in paths)
    one = by_hand(ScriptedSink([REJECTED, None]), channel, dead, batch_count_threshold=1)
    _accept(one, "bad", "good")
    disk.capacity = disk.used
    _settled(one)
    stats = one.stats()
    assert (stats.dead_lettered, stats.kept_back, stats.stored, stats.delivered) == (0, 1, 1, 1)
    assert stats.memory_used == 0
    assert "0 bytes free" in caplog.text
    one.give_back()
    disk.capacity = None
    channel, dead = (open_channel(disk, directory=path) for path in paths)
    second = by_hand(ScriptedSink([REJECTED]), channel, dead, batch_count_threshold=1)
    _settled(second)
    assert [read_event(event).record for event in dead.peek()] == [record("bad")]
    assert second.stored == 0
    second.give_back()


def test_a_dead_letter_channel_that_breaks_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Any error of the dead letter channel is a refusal; later records are delivered and acknowledged."""
    dead = KeptChannel()
    dead.transaction = lambda: 1 / 0  # type: ignore[method-assign,assignment]
    one = by_hand(ScriptedSink([REJECTED]), KeptChannel(), dead)
    _accept(one, "bad")
    _settled(one)
    _accept(one, "good")
    _settled(one)
    assert (one.stats().kept_back, one.stored, one.stats().delivered) == (1, 1, 1)
    assert "ZeroDivisionError" in caplog.text


def test_without_dead_letters_a_failure_is_reported_counted_logged_and_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The callback and the counter get the failure, the log has the reason, and the channel drops the event."""
    told: list[Any] = []
    one = by_hand(ScriptedSink([REJECTED]), KeptChannel())
    one.admission.accept(KEY, record(), 1, told.append)
    with caplog.at_level(logging.WARNING):
        _settled(one)
    assert [result.error_code for result in told] == ["ParameterInvalid"]
    assert (one.stored, one.stats().failed, one.stats().kept_back) == (0, 1, 0)
    assert "no such field" in caplog.text


def test_only_the_part_of_a_list_that_failed_becomes_a_dead_letter() -> None:
    """If one half of a split list is refused, that half becomes a dead letter, and the event is acknowledged once."""
    dead = KeptChannel()
    one = by_hand(ScriptedSink([BodyTooLargeError("PostBodyTooLarge", "x"), None, REJECTED]), KeptChannel(), dead)
    future = one.admission.accept(KEY, record("a") + record("b"), 2, None)
    _settled(one)
    assert future.exception(0) is not None
    assert [(read_event(e).logs, read_event(e).record) for e in dead.events()] == [(1, record("b"))]
    assert (one.stored, one.stats().kept_back) == (0, 0)


def test_the_memory_of_a_failed_record_is_in_use_until_it_is_buried() -> None:
    """Bytes that wait for the dead letters are accounted; afterwards none are."""
    one = by_hand(ScriptedSink([REJECTED]), KeptChannel(), KeptChannel())
    _accept(one, "x" * 5000)
    one.feeder.run_once(0)
    one.pipeline.accumulator.seal_open()
    one.pipeline.io_pool.run_next()
    one.pipeline.settlement.failure.run_next()
    assert one.pipeline.budget.used > 5000
    one.acks.run_once()
    assert one.pipeline.budget.used == 0


class _Ailing(KeptChannel):
    """A channel whose disk refuses a number of acknowledgements."""

    refusals = 0

    def transaction(self) -> Any:
        transaction = super().transaction()
        acknowledge = transaction.acknowledge

        def ailing(events: Sequence[Event]) -> None:
            if self.refusals:
                self.refusals -= 1
                raise ChannelIOError(self.name, "no disk today")
            acknowledge(events)

        transaction.acknowledge = ailing  # type: ignore[method-assign]
        return transaction


def test_the_acks_thread_retries_after_a_pause_without_any_new_event_the_log_reports_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The acks thread retries after a pause, without any new event; the log reports it once."""
    clock, channel = ManualClock(), _Ailing()
    channel.refusals = 3
    producer = durable(RecordingSink(), channel, clock=clock, batch_count_threshold=1)
    producer.send("p", "l", {"a": "b"}).result(PATIENCE)
    eventually(lambda: channel.refusals == 2)
    assert producer.stats().stored == 1

    def later() -> bool:
        clock.advance(1.1)
        return producer.stats().stored == 0

    eventually(later)
    assert channel.refusals == 0
    assert caplog.text.count("no disk today") == 1
    producer.close()


def test_flush_waits_for_an_acknowledgement_that_the_disk_refused() -> None:
    """flush waits for the acknowledgement; resume, which needs none, does not."""
    channel = _Ailing()
    one = by_hand(RecordingSink(), channel, batch_count_threshold=1)
    _accept(one, "a")
    one.feeder.run_once(0)
    one.pipeline.io_pool.run_next()
    channel.refusals = 1
    flushed, handled = one.acks.barrier(), one.acks.handled()
    one.acks.run_once()
    assert (flushed.is_set(), handled.is_set(), one.stored) == (False, True, 1)
    one.acks.run_once()
    assert (flushed.is_set(), one.stored) == (True, 0)


def test_an_event_that_the_channel_does_not_know_holds_up_no_other() -> None:
    """Of a hundred acknowledgements, an invalid one does not block the others."""
    one = by_hand(RecordingSink(), KeptChannel())
    _accept(one, *map(str, range(100)))
    one.feeder.run_once(0)
    tickets_of(one.pipeline.accumulator.incomplete()[0])[37].sequence = 10**9
    _settled(one)
    assert (one.stored, one.stats().kept_back) == (1, 1)

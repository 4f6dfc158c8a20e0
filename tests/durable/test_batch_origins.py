"""Batches of records from a channel."""

from __future__ import annotations

from producer import BodyTooLargeError, NetworkError
from producer.durable.event_ref import tickets_of
from producer.testing import ManualClock, ScriptedSink
from tests.durable.kit import KeptChannel, by_hand, drive
from tests.support.pipelines import KEY, record


def test_memory_holds_a_waiting_batch_once() -> None:
    """Between two attempts a batch has its records and no body; the next attempt has an equal body."""
    clock = ManualClock()
    sink = ScriptedSink([NetworkError("RequestError", "x")])
    one = by_hand(sink, KeptChannel(), None, clock, max_retry_backoff_ms=1000)
    one.admission.accept(KEY, record("a"), 1, None)
    drive(one)
    one.pipeline.accumulator.seal_open()
    drive(one)
    (batch,) = one.pipeline.accumulator.incomplete()
    assert batch.payload is None
    assert batch.records == [record("a")]
    clock.advance(10)
    drive(one)
    assert [delivery.payload for delivery in sink.attempts] == [sink.deliveries[0].payload] * 2


def test_tickets_go_where_their_records_go() -> None:
    """A batch split between sends divides its tickets; one split inside a send has the ticket in both halves."""
    sink = ScriptedSink([BodyTooLargeError("PostBodyTooLarge", "x")])
    one = by_hand(sink, KeptChannel())
    for text in "abcd":
        one.admission.accept(KEY, record(text), 1, None)
    one.admission.accept(KEY._replace(topic="alone"), record("e") + record("f"), 2, None)
    one.feeder.run_once(0)
    one.pipeline.accumulator.seal_open()
    one.pipeline.io_pool.run_next()
    sink.script.append(BodyTooLargeError("PostBodyTooLarge", "x"))
    one.pipeline.io_pool.run_next()
    batches = one.pipeline.accumulator.incomplete()
    tickets = {}
    for batch in batches:
        tickets[batch.key.topic, b"".join(batch.records)] = tickets_of(batch)
    assert [len(found) for found in tickets.values()] == [2, 2, 1, 1]
    assert tickets["alone", record("e")] == tickets["alone", record("f")]
    assert tickets["alone", record("e")][0].shares == 2
    drive(one)
    assert (one.stored, one.pipeline.budget.used) == (0, 0)

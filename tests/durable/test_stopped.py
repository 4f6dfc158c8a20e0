"""Streams with a channel that stop and resume: nothing is lost, and nothing is out of order."""

from __future__ import annotations

from typing import Any

import pytest

from producer import BodyTooLargeError, ChannelIOError, NetworkError, RejectedError
from producer.model.interfaces import Delivery, Event, Receipt
from producer.pipeline.batching.batch import ProducerBatch
from producer.testing import RecordingSink, ScriptedSink
from tests.durable.kit import KeptChannel, by_hand, drive, values
from tests.support.pipelines import KEY, record

ORDERED = KEY._replace(topic="ordered", order="ordered")
OTHER = KEY._replace(topic="other")
BAD = RejectedError("ParameterInvalid", "no good", http_status=400)
TOO_LARGE = BodyTooLargeError("PostBodyTooLarge", "too large")


class _OtherIsDown(ScriptedSink):
    """Follows the script for the ordered stream; the stream OTHER cannot be delivered."""

    def write(self, delivery: Delivery) -> Receipt:
        """Answer one attempt."""
        if delivery.key.topic == OTHER.topic:
            raise NetworkError("RequestError", "no route to host")
        return super().write(delivery) if delivery.key.order else RecordingSink.write(self, delivery)


def _full() -> KeptChannel:
    """Return a channel that is full."""
    channel = KeptChannel(capacity=1, transaction_capacity=1, keep_alive=0)
    with channel.transaction() as transaction:
        transaction.put(Event(body=b"x"))
    return channel


def _topics(channel: KeptChannel) -> list[Any]:
    return [event.headers["topic"] for event in channel.events()]


def test_a_list_with_both_halves_refused_is_parked_once() -> None:
    """If both halves of a split list fail and the dead letters are full, resume returns one event to the channel.

    An event of another stream, taken in the same transaction, is not acknowledged undelivered.
    """
    channel = KeptChannel(transaction_capacity=3)
    sink = _OtherIsDown([TOO_LARGE, BAD])
    one = by_hand(sink, channel, _full(), batch_count_threshold=1)
    one.admission.accept(ORDERED, record("a") + record("b"), 2, None)
    one.admission.accept(ORDERED, record("c"), 1, None)
    one.admission.accept(OTHER, record("d"), 1, None)
    one.admission.accept(
        KEY, record("e"), 1, None
    )  # more than the transaction holds: it takes no more, and waits for its events
    drive(one)
    assert one.stats().kept_back == 2
    one.resume(ORDERED)
    drive(one)
    assert values(sink, ORDERED.topic) == ["a", "b", "c"]
    assert (one.stored, one.stats().kept_back) == (1, 0)
    one.give_back()
    assert _topics(channel) == ["other"]


def test_an_event_with_two_failed_halves_is_kept_back_once() -> None:
    """The counter counts events, also for a stream without order."""
    one = by_hand(ScriptedSink([TOO_LARGE, BAD, BAD]), KeptChannel(), _full(), batch_count_threshold=1)
    one.admission.accept(KEY, record("a") + record("b"), 2, None)
    drive(one)
    assert (one.stored, one.stats().kept_back) == (1, 1)


def test_the_stream_resumes_only_when_all_events_behind_the_failure_are_parked_so_that_none_overtakes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stream resumes only when all events behind the failure are parked, so that none overtakes."""
    sink = ScriptedSink([BAD])
    one = by_hand(sink, KeptChannel(), batch_count_threshold=1)
    for text in "abcd":
        one.admission.accept(ORDERED, record(text), 1, None)
    one.feeder.run_once(0)
    parked, seen = one.acks.parked, list[ProducerBatch]()

    def interrupted(batch: ProducerBatch) -> None:
        if not seen:  # the other threads are faster than the one that completes batches
            one.resume(ORDERED)
            one.admission.accept(ORDERED, record("e"), 1, None)
            for _ in range(3):
                one.acks.run_once()
                one.feeder.run_once(0)
        seen.append(batch)
        parked(batch)

    monkeypatch.setattr(one.acks, "parked", interrupted)
    drive(one)
    assert len(seen) == 3
    assert values(sink) == ["b", "c", "d", "e"]
    assert (one.stored, one.stats().kept_back) == (0, 0)


class _GivesNothingBack(KeptChannel):
    """A channel whose ``give_back`` fails a number of times."""

    failures = 0

    def transaction(self) -> Any:
        transaction = super().transaction()
        give_back = transaction.give_back

        def failing(events: list[Event]) -> None:
            if self.failures:
                self.failures -= 1
                raise ChannelIOError(self.name, "no disk today")
            give_back(events)

        transaction.give_back = failing  # type: ignore[method-assign]
        return transaction


def test_if_the_channel_refuses_the_parked_events_once_the_stream_stays_stopped_until_it_has_them() -> None:
    """If the channel refuses the parked events once, the stream stays stopped until it has them."""
    channel, sink = _GivesNothingBack(), ScriptedSink([BAD])
    one = by_hand(sink, channel, batch_count_threshold=1)
    for text in "abc":
        one.admission.accept(ORDERED, record(text), 1, None)
    drive(one)
    channel.failures = 1
    one.resume(ORDERED)
    one.admission.accept(ORDERED, record("d"), 1, None)
    with pytest.raises(ChannelIOError):
        drive(one)
    drive(one)
    assert values(sink) == ["b", "c", "d"]
    assert (one.stored, one.stats().kept_back) == (0, 0)

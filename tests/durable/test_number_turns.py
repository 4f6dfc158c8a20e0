"""Senders on one numbered stream store one after the other, and none waits longer than its limit."""

from __future__ import annotations

import pytest

from producer import SendTimeoutError, SequenceKey
from producer.durable.number_turns import NumberTurns
from producer.model.sequence import Numbering
from producer.runtime.clock import Deadline
from producer.testing import ManualClock
from tests.durable.kit import LOG, KeptChannel, durable, pipeline_of
from tests.support.sinks import GatedSink
from tests.support.waiting import Call, eventually


def test_a_turn_excludes_other_senders_of_the_same_stream_only_it_ends_with_the_block() -> None:
    """A turn excludes other senders of the same stream only; it ends with the block, also by an exception."""
    turns, clock = NumberTurns(ManualClock()), ManualClock()
    now = Deadline.after(clock, 0)
    one, other = Numbering(SequenceKey("ab" * 16)), Numbering(SequenceKey("ab" * 16))
    with turns.turn(one, now) as mine, turns.turn(one, now) as again, turns.turn(other, now) as others:
        assert (mine, again, others) == (True, False, True)
        with turns.turn(one, now) as still:
            assert not still
    with pytest.raises(KeyError), turns.turn(one, now):
        raise KeyError
    with turns.turn(one, now) as mine:
        assert mine


def test_a_send_behind_another_one_waits_no_longer_than_max_block_ms() -> None:
    """Two sends that wait for room in a full channel both fail after max_block_ms, and their numbers are used again."""
    clock = ManualClock()
    channel = KeptChannel(capacity=1, transaction_capacity=1, clock=clock)
    sink = GatedSink()
    producer = durable(sink, channel, clock=clock, max_block_ms=1000, drain_timeout_ms=0)
    stream = producer.stream("p", "l", idempotent=SequenceKey("ab" * 16))
    stream.send(LOG)
    calls = [Call(lambda: stream.send(LOG)) for _ in range(2)]
    eventually(lambda: channel.stats().waiting == 1 and len(pipeline_of(producer).admission._turns._room) == 1)
    clock.advance(1.0)
    for call in calls:
        with pytest.raises(SendTimeoutError, match="max_block_ms"):
            call.result()
    sink.gate.set()
    later = Call(lambda: stream.send(LOG))
    eventually(lambda: clock.advance(0.2) or later.done)
    later.result()
    producer.flush(None)
    assert [delivery.sequence.number for delivery in sink.deliveries if delivery.sequence] == [1, 2]
    closing = Call(producer.close)
    eventually(lambda: clock.advance(1) or closing.done)

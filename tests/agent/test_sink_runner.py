"""A take is committed only when the destination has acknowledged it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from producer.agent.batch import EventBatch
from producer.agent.channel import BatchChannel
from producer.agent.counters import Counters
from producer.agent.interfaces import RefusedError, SinkError
from producer.agent.sink_runner import SinkRunner

from .doubles import RecordingSink, file_channel, taken


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[BatchChannel]:
    made = file_channel(tmp_path)
    for number in range(4):
        made.put(EventBatch.of_lines(b"%d\n" % number))
    yield made
    made.close()


@pytest.fixture
def letters(tmp_path: Path) -> Iterator[BatchChannel]:
    made = file_channel(tmp_path, "letters", capacity=10)
    yield made
    made.close()


def _runner(channel: BatchChannel, sink: RecordingSink, letters: BatchChannel | None = None) -> SinkRunner:
    return SinkRunner("k", channel, sink, Counters(), dead_letters=letters, most_events=100, most_bytes=1 << 20)


def test_what_was_delivered_leaves_the_channel(channel: BatchChannel) -> None:
    """And is counted as Flume counts it."""
    sink = RecordingSink()
    runner = _runner(channel, sink)
    assert runner.deliver(0)
    assert (sink.bodies, channel.held) == ([b"0", b"1", b"2", b"3"], 0)
    assert runner._counters.snapshot() == {
        "EventDrainAttemptCount": 4,
        "BatchUnderflowCount": 1,
        "EventDrainSuccessCount": 4,
    }


def test_what_failed_stays_in_the_channel(channel: BatchChannel) -> None:
    """In its order, whatever the sink raised; why is told."""

    def fail(_batches: Sequence[EventBatch]) -> None:
        raise ZeroDivisionError("a bug")

    runner = _runner(channel, RecordingSink(fail))
    assert not runner.deliver(0)
    assert runner._counters.last_error == "ZeroDivisionError: a bug"
    assert taken(channel) == [b"0", b"1", b"2", b"3"]


def test_what_was_acknowledged_before_a_failure_is_not_delivered_again(channel: BatchChannel) -> None:
    """A sink that can tell says which batches failed; the others leave the channel."""

    def fail(batches: Sequence[EventBatch]) -> None:
        raise SinkError("cut", batches[2:])

    runner = _runner(channel, RecordingSink(fail))
    assert not runner.deliver(0)
    assert runner._counters.get("EventDrainSuccessCount") == 2
    assert taken(channel) == [b"2", b"3"]


def _refusing(places: Sequence[int], later: Sequence[int] = ()) -> RecordingSink:
    def refuse(batches: Sequence[EventBatch]) -> None:
        if len(batches) > 1:
            raise RefusedError("bad", [batches[place] for place in places], [batches[place] for place in later])

    return RecordingSink(refuse)


def test_what_is_refused_for_good_goes_to_the_dead_letters(channel: BatchChannel, letters: BatchChannel) -> None:
    """With the reason; the rest counts as delivered, and what comes behind is taken again."""
    sink = _refusing([1], later=[3])
    runner = _runner(channel, sink, letters)
    assert runner.deliver(0)
    assert (channel.held, letters.held) == (1, 1)
    taking = letters.take(10, 1000, 0)
    assert taking is not None
    reason = {"dead_letter_reason": "bad", "dead_letter_sink": "k"}
    assert list(taking.batches[0].events()) == [(reason, b"1")]
    taking.commit()
    assert runner.deliver(0)
    assert sink.bodies == [b"3"]
    assert runner._counters.get("EventRefusedCount") == 1


def test_without_dead_letters_nothing_is_dropped(channel: BatchChannel) -> None:
    """What is refused is tried again for ever: nobody said that it may go."""
    assert not _runner(channel, _refusing([1])).deliver(0)
    assert taken(channel) == [b"0", b"1", b"2", b"3"]


def test_dead_letters_that_are_full_lose_nothing(channel: BatchChannel, letters: BatchChannel) -> None:
    """The refused batch stays where it was."""
    letters.put(EventBatch.of_lines(b"\n" * 10))
    letters.keep_alive = 0
    assert not _runner(channel, _refusing([1]), letters).deliver(0)
    assert taken(channel) == [b"0", b"1", b"2", b"3"]

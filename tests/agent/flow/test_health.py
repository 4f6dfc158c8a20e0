"""Health of sinks and sources, for operators."""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from producer.agent.events.batch import EventBatch
from producer.agent.events.counters import Counters
from producer.agent.events.interfaces import RefusedError, SinkError
from producer.agent.flow.counted_sink import CountedSink
from producer.agent.flow.health import FAILING, FORGOTTEN, HANGING, Health
from producer.agent.flow.sink_runner import SinkRunner
from producer.agent.processors import FailoverProcessor
from producer.testing import ManualClock

from ..doubles import RecordingSink, context, memory_channel, opened


def _made() -> tuple[ManualClock, Counters, Health]:
    health = Health(clock := ManualClock())
    return clock, health.counters, health


def test_failures_alone_are_trouble_after_a_while_and_a_delivery_ends_it() -> None:
    """Continued failures are trouble, with the last error, since the first attempt; a delivery ends it."""
    clock, _, health = _made()
    health.begun()
    clock.advance(FAILING / 2)
    health.failed(OSError("first"))
    assert health.trouble() is None
    health.begun()
    clock.advance(FAILING / 2)
    health.failed(OSError("last"))
    assert health.trouble() == "has delivered nothing for 10 s: OSError: last"
    health.worked()
    assert health.trouble() is None


def test_a_failed_put_that_is_not_retried_is_forgotten() -> None:
    """A failed put that is not retried is forgotten after a while."""
    health = Health(clock := ManualClock(), "has put nothing", FORGOTTEN)
    health.failed(OSError("first"))
    clock.advance(FAILING)
    assert health.trouble() == "has put nothing for 10 s: OSError: first"
    clock.advance(FORGOTTEN - FAILING)
    assert health.trouble() is None
    health.failed(OSError("much later"))
    assert health.trouble() is None
    clock.advance(FAILING)
    assert health.trouble() == "has put nothing for 10 s: OSError: much later"


def test_a_delivery_that_does_not_end_is_trouble() -> None:
    """A delivery without an answer for a minute is trouble."""
    clock, _, health = _made()
    health.begun()
    clock.advance(HANGING - 1)
    assert health.trouble() is None
    clock.advance(1)
    assert health.trouble() == "has been at one delivery for 60 s"
    health.worked()
    assert health.trouble() is None


@pytest.mark.parametrize(("delivered", "trouble"), [(0, True), (1, False)])
def test_a_sink_that_delivers_a_part_is_well(tmp_path: Path, delivered: int, trouble: bool) -> None:
    """A sink that delivers a part works, also in a group, and the part is counted under its name."""
    clock, counters, health = _made()

    def fail(batches: Sequence[EventBatch]) -> None:
        clock.advance(FAILING)
        raise SinkError("cut", batches[delivered:])

    with opened(memory_channel(tmp_path, clock=clock)) as channel:
        for number in range(2):
            channel.put(EventBatch.of_lines(b"%d\n" % number))
        sink = CountedSink(partial(RecordingSink, fail), own := Health(clock))
        runner = SinkRunner("k", channel, sink, health, dead_letters=None, most_events=9, most_bytes=99)
        assert not runner.deliver(0)
    assert [each.trouble() is not None for each in (health, own)] == [trouble, trouble]
    assert own.counters.get("EventDrainSuccessCount") == counters.get("EventDrainSuccessCount") == delivered


def test_how_long_deliveries_take_is_counted_also_of_one_that_fails(tmp_path: Path) -> None:
    """The time of deliveries, failed ones included, counts for the group and for the sink."""
    clock, counters, health = _made()
    own, away = Health(clock), [SinkError("away")]

    def slow(_batches: Sequence[EventBatch]) -> None:
        clock.advance(1.5)
        if away:
            raise away.pop()

    with opened(memory_channel(tmp_path, clock=clock)) as channel:
        channel.put(EventBatch.of_lines(b"a\n"))
        sink = CountedSink(partial(RecordingSink, slow), own)
        runner = SinkRunner("k", channel, sink, health, dead_letters=None, most_events=9, most_bytes=99)
        assert [runner.deliver(0), runner.deliver(0)] == [False, True]
    assert own.counters.get("DeliveryMicroseconds") == counters.get("DeliveryMicroseconds") == 3_000_000


def test_a_sink_whose_destination_refuses_events_works() -> None:
    """A sink whose destination refuses events works."""
    clock, _, health = _made()

    def refuse(batches: Sequence[EventBatch]) -> None:
        clock.advance(FAILING)
        raise RefusedError("bad", batches)

    with pytest.raises(RefusedError):
        CountedSink(partial(RecordingSink, refuse), health).write([EventBatch.of_lines(b"a\n")])
    assert health.trouble() is None


def test_a_failed_delivery_has_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A failed delivery of a group logs one line with each sink's reason, and its recovery logs one."""
    clock = ManualClock()
    away = [True, True]

    def made(number: int) -> RecordingSink:
        def write(_batches: Sequence[EventBatch]) -> None:
            if away[number]:
                raise SinkError(f"{number} is away")

        return RecordingSink(write)

    group = FailoverProcessor(FailoverProcessor.Options(), context(tmp_path, "g", clock), {"a": made(0), "b": made(1)})
    with caplog.at_level(logging.INFO), opened(memory_channel(tmp_path, clock=clock)) as channel:
        channel.put(EventBatch.of_lines(b"x\n"))
        runner = SinkRunner("g", channel, group, Health(), dead_letters=None, most_events=9, most_bytes=99)
        assert not runner.deliver(0)
        away[1] = False
        clock.advance(60)
        assert runner.deliver(0)
    assert [record.message for record in caplog.records] == [
        (
            f"sink g: 1 event returned to channel {channel.name}: no sink of the group could deliver:"
            " a: 0 is away; b: 1 is away"
        ),
        "sink a failed: 0 is away",
        "sink g delivers again",
    ]

"""Sink processors choose as Flume's do."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from producer.agent.config.options import AgentConfigError
from producer.agent.config.registry import canonical
from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import RefusedError, SinkError
from producer.agent.processors import DefaultProcessor, FailoverProcessor, LoadBalancingProcessor
from producer.runtime.clock import Deadline
from producer.testing import ManualClock

from .doubles import RecordingSink, context

_BATCHES = [EventBatch.of_lines(b"a\n")]


class _Broken(RecordingSink):
    def __init__(self) -> None:
        super().__init__(self._look)
        self.down, self.tries = True, 0

    def _look(self, _batches: Sequence[EventBatch]) -> None:
        self.tries += 1
        if self.down:
            raise OSError("down")


def _made(processor: Any, sinks: dict[str, RecordingSink], clock: ManualClock | None = None, **options: Any) -> Any:
    return processor(processor.Options(**options), context(Path("unused"), "g", clock), sinks)


def test_the_default_takes_one_sink() -> None:
    """The default processor accepts exactly one sink."""
    with pytest.raises(AgentConfigError, match="default takes one sink, got a, b"):
        _made(DefaultProcessor, {"a": RecordingSink(), "b": RecordingSink()})


def test_a_sinks_recovery_in_a_group_is_logged_once_after_its_failure(caplog: pytest.LogCaptureFixture) -> None:
    """A sink's recovery in a group is logged once, after its failure."""
    clock, broken = ManualClock(), _Broken()
    processor = _made(FailoverProcessor, {"a": broken, "b": RecordingSink()}, clock, priority={"a": 2, "b": 1})
    processor.write(_BATCHES)
    broken.down = False
    for _ in range(3):
        clock.advance(10)
        processor.write(_BATCHES)
    assert [record.getMessage() for record in caplog.records] == ["sink a failed: down", "sink a works again"]


def test_failover_prefers_the_highest_priority() -> None:
    """While the sink of the highest priority works, no other one delivers."""
    sinks = {name: RecordingSink() for name in ("low", "high")}
    processor = _made(FailoverProcessor, sinks, priority={"low": 1, "high": 9})
    processor.write(_BATCHES)
    assert {name: len(sink.batches) for name, sink in sinks.items()} == {"low": 0, "high": 1}


def test_failover_leaves_a_failed_sink_alone_for_longer_each_time() -> None:
    """A failed sink backs off for 2, 4, 8 … seconds, at most ``maxpenalty``, and is then tried first."""
    clock, broken, other = ManualClock(), _Broken(), RecordingSink()
    processor = _made(FailoverProcessor, {"a": broken, "b": other}, clock, priority={"a": 2, "b": 1}, maxpenalty=5.0)
    for pause, tries in ((2.0, 1), (4.0, 2), (5.0, 3)):
        processor.write(_BATCHES)
        assert broken.tries == tries
        clock.advance(pause - 0.1)
        processor.write(_BATCHES)
        assert broken.tries == tries
        clock.advance(0.1)
    broken.down = False
    processor.write(_BATCHES)
    assert (broken.tries, len(broken.batches), len(other.batches)) == (4, 1, 6)


def test_a_sink_that_delivered_is_left_alone_as_briefly_as_the_first_time() -> None:
    """A delivery resets a sink's backoff."""
    clock, broken = ManualClock(), _Broken()
    processor = _made(FailoverProcessor, {"a": broken, "b": RecordingSink()}, clock)
    for pause in (2.0, 4.0):
        processor.write(_BATCHES)
        clock.advance(pause)
    broken.down = False
    processor.write(_BATCHES)
    broken.down = True
    processor.write(_BATCHES)
    clock.advance(2.0)
    processor.write(_BATCHES)
    assert broken.tries == 5


def test_failures_of_more_than_an_hour_ago_are_forgotten() -> None:
    """Failures more than an hour ago no longer count for the backoff."""
    for since, tries in ((3600.1, 4), (3599.9, 3)):
        clock, broken = ManualClock(), _Broken()
        processor = _made(FailoverProcessor, {"a": broken, "b": RecordingSink()}, clock)
        processor.write(_BATCHES)
        clock.advance(2.0)
        processor.write(_BATCHES)
        clock.advance(4.0 + since)
        processor.write(_BATCHES)
        clock.advance(2.0)
        processor.write(_BATCHES)
        assert broken.tries == tries


def test_a_sink_that_has_failed_thousands_of_times_is_left_alone_as_long_as_it_may() -> None:
    """After thousands of failures the backoff is the longest one, and does not overflow."""
    clock, broken = ManualClock(), _Broken()
    processor = _made(FailoverProcessor, {"a": broken, "b": RecordingSink()}, clock)
    for _ in range(2000):
        processor.write(_BATCHES)
        clock.advance(30.0)
    assert broken.tries == 2000


@pytest.mark.parametrize("processor", [FailoverProcessor, LoadBalancingProcessor])
def test_a_refused_event_goes_to_the_dead_letters_at_once_and_to_no_other_sink(processor: Any) -> None:
    """A refused event goes to the dead letters at once, and to no other sink."""

    def refuse(batches: Sequence[EventBatch]) -> None:
        raise RefusedError("no", batches)

    other = RecordingSink()
    made = _made(processor, {"a": RecordingSink(refuse), "b": other}, ManualClock())
    with pytest.raises(RefusedError, match="no"):
        made.write(_BATCHES)
    assert not other.batches


def test_if_all_sinks_fail_the_group_raises_and_the_events_stay() -> None:
    """If all sinks fail, the group raises, and the events stay."""
    processor = _made(FailoverProcessor, {"a": _Broken(), "b": _Broken()}, ManualClock())
    with pytest.raises(SinkError, match="a: down; b: down"):
        processor.write(_BATCHES)


def test_failover_asks_the_first_alone_while_all_are_left_alone() -> None:
    """While all sinks back off, only the first one is tried."""
    clock, sinks = ManualClock(), {name: _Broken() for name in "ab"}
    processor = _made(FailoverProcessor, sinks, clock)
    for _ in range(3):
        with pytest.raises(SinkError):
            processor.write(_BATCHES)
    assert {name: sink.tries for name, sink in sinks.items()} == {"a": 3, "b": 1}
    clock.advance(2.0)
    sinks["b"].down = False
    processor.write(_BATCHES)
    assert {name: sink.tries for name, sink in sinks.items()} == {"a": 3, "b": 2}


def test_the_next_sink_gets_only_batches_that_the_first_one_did_not_deliver() -> None:
    """The next sink gets only batches that the first one did not deliver."""

    def cut(batches: Sequence[EventBatch]) -> None:
        raise SinkError("cut", batches[1:])

    other = RecordingSink()
    processor = _made(FailoverProcessor, {"a": RecordingSink(cut), "b": other}, ManualClock())
    processor.write([EventBatch.of_lines(b"1"), EventBatch.of_lines(b"2")])
    assert other.bodies == [b"2"]


@pytest.mark.parametrize("processor", [FailoverProcessor, LoadBalancingProcessor])
def test_if_all_sinks_fail_the_error_names_only_the_undelivered_batches(processor: Any) -> None:
    """If all sinks fail, the error names only the undelivered batches."""

    def cut(batches: Sequence[EventBatch]) -> None:
        raise SinkError("cut", batches[1:])

    made = _made(processor, {"a": RecordingSink(cut), "b": _Broken()}, ManualClock())
    batches = [EventBatch.of_lines(b"1"), EventBatch.of_lines(b"2")]
    with pytest.raises(SinkError) as raised:
        made.write(batches)
    assert raised.value.later == batches[1:]


@pytest.mark.parametrize("selector", ["round_robin", "random"])
def test_load_balancing_tries_all_while_all_are_left_alone(selector: str) -> None:
    """While all sinks back off, all are tried, and the error has all their reasons."""
    sinks = {name: _Broken() for name in "ab"}
    processor = _made(LoadBalancingProcessor, sinks, ManualClock(), selector=selector, backoff=True)
    for tries in (1, 2):
        with pytest.raises(SinkError, match=r"could deliver: .*: down; .*: down"):
            processor.write(_BATCHES)
        assert {sink.tries for sink in sinks.values()} == {tries}


@pytest.mark.parametrize(
    ("priority", "message"),
    [({"x": 1}, "priority.x: the group has no such sink"), ({"a": 1, "b": 1}, "is another sink's priority too")],
)
def test_failover_checks_its_priorities(priority: dict[str, int], message: str) -> None:
    """Wrong or equal priorities are refused, where Flume drops a sink with a log line."""
    with pytest.raises(AgentConfigError, match=message):
        _made(FailoverProcessor, {"a": RecordingSink(), "b": RecordingSink()}, priority=priority)


def test_load_balancing_takes_turns() -> None:
    """Each sink gets its share, as in Flume's ``testRoundRobinOneActiveSink``."""
    sinks = {name: RecordingSink() for name in "abc"}
    processor = _made(LoadBalancingProcessor, sinks)
    for _ in range(9):
        processor.write(_BATCHES)
    assert [len(sink.batches) for sink in sinks.values()] == [3, 3, 3]


def test_random_load_balancing_reaches_every_sink() -> None:
    """Random load balancing reaches every sink."""
    sinks = {name: RecordingSink() for name in "abc"}
    processor = _made(LoadBalancingProcessor, sinks, selector="random")
    for _ in range(300):
        processor.write(_BATCHES)
    shares = Counter({name: len(sink.batches) for name, sink in sinks.items()})
    assert shares.total() == 300
    assert min(shares.values()) > 50


def test_if_a_sink_fails_the_next_one_delivers_without_backoff_it_is_tried_each_time_as_in_flume() -> None:
    """If a sink fails, the next one delivers; without backoff it is tried each time, as in Flume."""
    broken, other = _Broken(), RecordingSink()
    processor = _made(LoadBalancingProcessor, {"a": broken, "b": other})
    for _ in range(4):
        processor.write(_BATCHES)
    assert (broken.tries, len(other.batches)) == (2, 4)


def test_load_balancing_with_backoff_leaves_a_failed_sink_alone() -> None:
    """With backoff a failed sink is skipped, as in Flume's ``testRoundRobinBackoffIncreasingBackoffs``."""
    clock, broken, other = ManualClock(), _Broken(), RecordingSink()
    processor = _made(LoadBalancingProcessor, {"a": broken, "b": other}, clock, backoff=True)
    for _ in range(4):
        processor.write(_BATCHES)
    assert broken.tries == 1
    clock.advance(2.0)
    for _ in range(4):
        processor.write(_BATCHES)
    assert broken.tries == 2
    clock.advance(3.9)
    for _ in range(4):
        processor.write(_BATCHES)
    assert broken.tries == 2


def test_random_load_balancing_delivers_by_a_working_sink_and_raises_if_all_fail_as_in_flume() -> None:
    """Random load balancing delivers by a working sink, and raises if all fail, as in Flume."""
    broken, other = _Broken(), RecordingSink()
    processor = _made(LoadBalancingProcessor, {"a": broken, "b": other, "c": _Broken()}, selector="random")
    for _ in range(20):
        processor.write(_BATCHES)
    assert (len(broken.batches), len(other.batches)) == (0, 20)
    with pytest.raises(SinkError, match="down"):
        _made(LoadBalancingProcessor, {"a": broken, "c": _Broken()}, selector="random").write(_BATCHES)


@pytest.mark.parametrize("selector", ["round_robin", "random"])
def test_load_balancing_with_backoff_tries_a_sink_again_that_works_again(selector: str) -> None:
    """With backoff a recovered sink is tried again after its time, as in Flume."""
    clock, ill, well = ManualClock(), _Broken(), RecordingSink()
    processor = _made(LoadBalancingProcessor, {"a": ill, "b": well}, clock, selector=selector, backoff=True)
    for _ in range(50):
        processor.write(_BATCHES)
    ill.down = False
    for _ in range(10):
        processor.write(_BATCHES)
    assert (ill.tries, len(ill.batches), len(well.batches)) == (1, 0, 60)
    clock.advance(2.1)
    for _ in range(50):
        processor.write(_BATCHES)
    assert len(ill.batches) > 0
    assert len(ill.batches) + len(well.batches) == 110


@pytest.mark.parametrize(
    ("processor", "names"), [(DefaultProcessor, "a"), (FailoverProcessor, "ab"), (LoadBalancingProcessor, "ab")]
)
def test_all_sinks_of_a_group_are_asked_to_abandon_deliveries_those_without_the_method_are_skipped(
    processor: Any, names: str
) -> None:
    """All sinks of a group are asked to abandon deliveries; those without the method are skipped."""
    told: list[tuple[str, Deadline]] = []

    class Slow(RecordingSink):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def give_up(self, deadline: Deadline) -> None:
            told.append((self.name, deadline))

    deadline = Deadline(7.0)
    _made(processor, {name: Slow(name) for name in names}).give_up(deadline)
    assert told == [(name, deadline) for name in names]
    _made(processor, {name: RecordingSink() for name in names}).give_up(deadline)


def test_all_sinks_of_a_group_are_closed() -> None:
    """Each sink of a group is closed once."""
    sinks = {name: RecordingSink() for name in "ab"}
    _made(LoadBalancingProcessor, sinks).close()
    assert [sink.closed for sink in sinks.values()] == [1, 1]


@pytest.mark.parametrize(
    ("kind", "name", "ours"),
    [
        ("processors", "sink.FailoverSinkProcessor", "failover"),
        ("processors", "sink.LoadBalancingSinkProcessor", "load_balance"),
        ("processors", "sink.DefaultSinkProcessor", "default"),
        ("selectors", "channel.ReplicatingChannelSelector", "replicating"),
        ("selectors", "channel.MultiplexingChannelSelector", "multiplexing"),
        ("selectors", "channel.LoadBalancingChannelSelector", "load_balancing"),
    ],
)
def test_flumes_classes_are_our_types(kind: str, name: str, ours: str) -> None:
    """Flume's classes and aliases are our types, as in its ``SinkProcessorFactoryTest``."""
    assert canonical(kind, f"org.apache.flume.{name}") == ours

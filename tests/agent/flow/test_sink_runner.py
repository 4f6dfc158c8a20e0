"""A take is committed only after the destination has acknowledged it."""

import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from producer.agent import Agent, AgentConfig, ComponentConfig, SinkConfig, SourceConfig
from producer.agent.events.batch import EventBatch, Position
from producer.agent.events.interfaces import Patience, RefusedError, SinkError
from producer.agent.flow.channel import BatchChannel
from producer.agent.flow.counted_sink import CountedSink
from producer.agent.flow.health import Health
from producer.agent.flow.sink_runner import SinkRunner
from producer.agent.run.agent import _patience
from producer.runtime.clock import Stop
from producer.testing import ManualClock
from tests.support.waiting import Call, eventually

from ..doubles import RecordingSink, file_channel, ledger_in, memory_channel, opened, taken
from ..parts import KeepSink, plug_in


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[BatchChannel]:
    made = file_channel(tmp_path)
    for number in range(4):
        made.put(EventBatch.of_lines(b"%d\n" % number, position=Position("s/f", number + 1)))
    yield made
    made.close()


@pytest.fixture
def letters(tmp_path: Path) -> Iterator[BatchChannel]:
    made = file_channel(tmp_path, "letters", capacity=10)
    yield made
    made.close()


def _runner(channel: BatchChannel, sink: RecordingSink, letters: BatchChannel | None = None) -> SinkRunner:
    return SinkRunner("k", channel, sink, Health(), dead_letters=letters, most_events=100, most_bytes=1 << 20)


def test_delivered_events_leave_the_channel_and_are_counted_as_in_flume(channel: BatchChannel) -> None:
    """Delivered events leave the channel, and are counted as in Flume."""
    sink = RecordingSink()
    runner = _runner(channel, sink)
    assert runner.deliver(0)
    assert (sink.bodies, channel.held) == ([b"0", b"1", b"2", b"3"], 0)
    counted = runner._counters.snapshot()
    assert counted.pop("DeliveryMicroseconds") >= 0
    assert counted == {
        "EventDrainAttemptCount": 4,
        "BatchUnderflowCount": 1,
        "EventDrainSuccessCount": 4,
    }


@pytest.mark.parametrize("make", [memory_channel, file_channel])
def test_ranges_without_events_are_noted_while_the_channel_is_empty(make: Any, tmp_path: Path) -> None:
    """Ranges without events are noted while the channel is empty, so that a crash does not have them read again."""
    with opened(make(tmp_path / "alive")) as channel:
        ledger_in(channel).pass_over(Position("s/f", 9))
        assert _runner(channel, RecordingSink()).deliver(0)
        shutil.copytree(tmp_path / "alive", tmp_path / "killed")
    with opened(make(tmp_path / "killed")) as channel:
        assert ledger_in(channel).ends("s/f") == [9]


def test_after_any_exception_of_the_sink_the_events_stay_in_order_and_the_reason_is_logged(
    channel: BatchChannel,
) -> None:
    """After any exception of the sink, the events stay in order, and the reason is logged."""

    def fail(_batches: Sequence[EventBatch]) -> None:
        raise ZeroDivisionError("a bug")

    runner = _runner(channel, RecordingSink(fail))
    assert not runner.deliver(0)
    assert runner._counters.last_error == "ZeroDivisionError: a bug"
    assert taken(channel) == [b"0", b"1", b"2", b"3"]


def test_if_a_log_handler_raises_failed_events_stay_in_the_channel(
    channel: BatchChannel, letters: BatchChannel, raising_handler: list[str]
) -> None:
    """If a log handler raises, failed events stay in the channel, and refused ones in the dead letters."""
    errors = iter([SinkError("cut"), None])

    def fail(batches: Sequence[EventBatch]) -> None:
        raise next(errors) or RefusedError("no", batches)

    runner = _runner(channel, RecordingSink(fail), letters)
    assert not runner.deliver(0)
    assert runner.deliver(0)
    assert (channel.held, taken(channel), taken(letters)) == (0, [], [b"0", b"1", b"2", b"3"])
    assert len(raising_handler) == 2


def test_only_the_batches_that_the_sinks_error_names_are_delivered_again(channel: BatchChannel) -> None:
    """Only the batches that the sink's error names are delivered again."""

    def fail(batches: Sequence[EventBatch]) -> None:
        raise SinkError("cut", batches[2:])

    runner = _runner(channel, RecordingSink(fail))
    assert not runner.deliver(0)
    assert runner._counters.get("EventDrainSuccessCount") == 2
    assert taken(channel) == [b"2", b"3"]


@pytest.mark.parametrize(("delivered", "pauses"), [(0, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]), (1, [0.1, 0.1, 0.1])])
def test_pauses_grow_only_while_nothing_is_delivered(
    channel: BatchChannel, delivered: int, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pauses do not grow while a part of each delivery succeeds."""

    def fail(batches: Sequence[EventBatch]) -> None:
        raise SinkError("cut", batches[delivered:])

    stop, waited = Stop(ManualClock()), []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        if len(waited) == len(pauses):
            stop.set()
        return stop.is_set()

    monkeypatch.setattr(stop, "wait", wait)
    _runner(channel, RecordingSink(fail)).run(stop)
    assert waited == pauses


def test_a_delivery_makes_the_next_pause_short_again(channel: BatchChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery resets the pause before the next retry."""
    answers = iter([False, False, True, False, False])

    def fail(_batches: Sequence[EventBatch]) -> None:
        if not next(answers):
            raise SinkError("away")
        channel.put(EventBatch.of_lines(b"more\n"))

    stop, waited = Stop(ManualClock()), []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        if len(waited) == 4:
            stop.set()
        return stop.is_set()

    monkeypatch.setattr(stop, "wait", wait)
    _runner(channel, RecordingSink(fail)).run(stop)
    assert waited == [0.1, 0.2, 0.1, 0.2]


@pytest.mark.parametrize("where", ["_collect", "write"])
def test_a_delivery_that_is_ended_by_force_leaves_everything_in_the_channel(
    channel: BatchChannel, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that calls ``sys.exit`` leaves its events in the channel, in order."""

    def end(*_: object) -> None:
        raise SystemExit(3)

    sink = RecordingSink()
    runner = _runner(channel, sink)
    monkeypatch.setattr(runner if where == "_collect" else sink, where, end)
    with pytest.raises(SystemExit) as raised:
        runner.deliver(0)
    assert taken(channel) == [b"0", b"1", b"2", b"3"]
    del raised  # it kept the take from garbage collection


def test_if_the_channel_is_closed_during_a_delivery_the_runner_ends_without_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the channel is closed during a delivery, the runner ends without an error."""
    channel = file_channel(tmp_path)
    channel.put(EventBatch.of_lines(b"1\n"))

    def end(_batches: Sequence[EventBatch]) -> None:
        channel.close()
        raise SinkError("cut", [])

    with caplog.at_level(logging.INFO):
        assert not _runner(channel, RecordingSink(end)).deliver(0)
    assert "sink k: channel c was closed meanwhile" in caplog.messages


def _refusing(places: Sequence[int], later: Sequence[int] = ()) -> RecordingSink:
    def refuse(batches: Sequence[EventBatch]) -> None:
        if len(batches) > 1:
            raise RefusedError("bad", [batches[place] for place in places], [batches[place] for place in later])

    return RecordingSink(refuse)


def test_refused_events_go_to_the_dead_letters_with_the_reason_the_rest_counts_as_delivered(
    channel: BatchChannel, letters: BatchChannel
) -> None:
    """Refused events go to the dead letters with the reason; the rest counts as delivered, and later batches return."""
    sink = _refusing([1], later=[3])
    runner = _runner(channel, sink, letters)
    assert runner.deliver(0)
    assert (channel.held, letters.held) == (1, 1)
    assert runner._counters.get("EventDrainSuccessCount") == 2
    taking = letters.take(10, 1000, 0)
    assert taking is not None
    ((headers, body),) = taking.batches[0].events()
    assert (body, headers["dead_letter_reason"], headers["dead_letter_sink"]) == (b"1", "bad", "k")
    assert taking.batches[0].position is None
    taking.commit()
    assert runner.deliver(0)
    assert sink.bodies == [b"3"]
    assert runner._counters.get("EventRefusedCount") == 1


def test_a_sink_of_a_group_is_made_to_see_that_it_can_be_and_closed() -> None:
    """A trial build of a sink is closed, so that its file or port is free for the group's restart."""
    sink, again = RecordingSink(), list[None]()
    ready = iter([False, False, True])

    def make() -> RecordingSink:
        if not next(ready):
            raise FileNotFoundError("not there")
        return sink

    clock = ManualClock()
    counted = CountedSink(make, Health(clock), lambda: again.append(None))
    assert isinstance(counted.failure, FileNotFoundError)
    batches = [EventBatch.of_lines(b"1\n")]
    with pytest.raises(FileNotFoundError):
        counted.write(batches)
    with pytest.raises(SinkError, match="the sink can be built again"):
        counted.write(batches)
    assert (sink.closed, len(again), sink.batches) == (1, 1, [])


def test_without_dead_letters_nothing_is_dropped(channel: BatchChannel) -> None:
    """Without dead letters refused events are retried for ever, and delivered ones are not repeated."""
    runner = _runner(channel, _refusing([1]))
    assert runner.deliver(0)
    runner.give_back()
    assert taken(channel) == [b"1"]


def test_dead_letters_that_are_full_lose_nothing(channel: BatchChannel, letters: BatchChannel) -> None:
    """With full dead letters the refused batch and later ones stay, and delivered ones are not repeated."""
    letters.put(EventBatch.of_lines(b"\n" * 10))
    letters.keep_alive = 0
    runner = _runner(channel, _refusing([1], later=[3]), letters)
    assert runner.deliver(0)
    counted = runner._counters
    assert (counted.get("EventDrainSuccessCount"), counted.get("EventRefusedCount")) == (2, 0)
    runner.give_back()
    assert taken(channel) == [b"1", b"3"]


def test_dead_letters_that_become_full_have_each_once(channel: BatchChannel, letters: BatchChannel) -> None:
    """If the dead letters have room for one of two refused batches, the other one stays."""
    letters.put(EventBatch.of_lines(b"\n" * 9))
    letters.keep_alive = 0
    runner = _runner(channel, _refusing([0, 2]), letters)
    assert runner.deliver(0)
    counted = runner._counters
    assert (counted.get("EventDrainSuccessCount"), counted.get("EventRefusedCount")) == (2, 1)
    assert taken(letters) == [b""] * 9 + [b"0"]
    runner.give_back()
    assert taken(channel) == [b"2"]


def test_if_a_sink_refuses_batches_that_are_not_of_the_delivery_the_whole_delivery_returns(
    channel: BatchChannel, letters: BatchChannel
) -> None:
    """If a sink refuses batches that are not of the delivery, the whole delivery returns."""

    def refuse(_batches: Sequence[EventBatch]) -> None:
        raise RefusedError("bad", [EventBatch.of_lines(b"1\n")])

    letters.put(EventBatch.of_lines(b"\n" * 10))
    letters.keep_alive = 0
    assert not _runner(channel, RecordingSink(refuse), letters).deliver(0)
    assert taken(channel) == [b"0", b"1", b"2", b"3"]


def test_dead_letters_that_fail_for_any_reason_lose_nothing(
    channel: BatchChannel, letters: BatchChannel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the dead letters raise anything, the batch can be taken again at once, and the reason is logged."""

    def fail(*_arguments: object, **_options: object) -> None:
        raise PermissionError("no key")

    monkeypatch.setattr(letters, "put", fail)
    runner = _runner(channel, _refusing([1]), letters)
    assert runner.deliver(0)
    runner.give_back()
    assert taken(channel) == [b"1"]
    assert "sink k: 1 event refused permanently; held back while others are delivered: no key" in caplog.messages


def test_a_stop_ends_the_wait_for_room_in_the_dead_letters(channel: BatchChannel, letters: BatchChannel) -> None:
    """A stop ends the wait for room in the dead letters."""
    letters.put(EventBatch.of_lines(b"\n" * 10))
    letters.keep_alive = 3600
    runner = _runner(channel, _refusing([1]), letters)
    assert runner.deliver(0, _stopped())
    runner.give_back()
    assert taken(channel) == [b"1"]


def _patient(channel: BatchChannel, sink: RecordingSink, clock: ManualClock, **options: Any) -> SinkRunner:
    rest = {"dead_letters": None, "most_events": 10, "most_bytes": 1 << 20, "patience": Patience(60, 20)} | options
    return SinkRunner("k", channel, sink, Health(clock), **rest)


def _numbers(channel: BatchChannel, *numbers: int) -> None:
    for number in numbers:
        channel.put(EventBatch.of_lines(b"%d\n" % number))


def test_a_patient_sink_gets_much_at_a_time(tmp_path: Path) -> None:
    """Batches that arrive while a patient sink waits are delivered together, as soon as there are enough."""
    clock, sink = ManualClock(), RecordingSink()
    with opened(memory_channel(tmp_path, clock=clock)) as channel:
        _numbers(channel, 0, 1)
        call = Call(lambda: _patient(channel, sink, clock).deliver(0))
        eventually(lambda: clock.waiting)
        _numbers(channel, *range(2, 12))
        assert call.result()
        assert [len(batch.bodies()) for batch in sink.batches] == [1] * 10
        assert taken(channel) == [b"10", b"11"]


@pytest.mark.parametrize("steps", [(20,), (15, 15, 15, 15)], ids=["idle", "seconds"])
def test_a_patient_sink_waits_so_long(steps: Sequence[int], tmp_path: Path) -> None:
    """A patient sink waits for its time since the first and since the last batch."""
    clock, sink = ManualClock(), RecordingSink()
    with opened(memory_channel(tmp_path, clock=clock)) as channel:
        _numbers(channel, 0)
        call = Call(lambda: _patient(channel, sink, clock).deliver(0))
        for number, step in enumerate(steps):
            if number:
                _numbers(channel, number)
                eventually(lambda: not channel.stats().size)
            eventually(lambda: clock.waiting)
            assert not sink.batches
            clock.advance(step)
        assert call.result()
        assert sink.bodies == [b"%d" % number for number in range(len(steps))]


def _stopped() -> Stop:
    stop = Stop()
    stop.set()
    return stop


@pytest.mark.parametrize(
    ("hurry", "options", "stop"),
    [
        (lambda channel: setattr(channel, "hurried", True), {}, None),
        (lambda channel: setattr(channel, "capacity", 4), {}, None),
        (lambda channel: None, {"hurried": lambda: True}, None),
        (lambda channel: None, {}, _stopped()),
    ],
    ids=["to be emptied", "half full", "nothing more comes", "told to end"],
)
def test_a_patient_sink_delivers_at_once_if_nothing_more_will_come_or_the_channel_fills(
    hurry: Callable[[BatchChannel], None], options: dict[str, Any], stop: Stop | None, tmp_path: Path
) -> None:
    """A patient sink delivers at once if nothing more will come, or the channel fills."""
    clock, sink = ManualClock(), RecordingSink()
    with opened(memory_channel(tmp_path, clock=clock)) as channel:
        _numbers(channel, 0, 1)
        hurry(channel)
        assert _patient(channel, sink, clock, **options).deliver(0, stop)
        assert sink.bodies == [b"0", b"1"]


def test_an_agent_that_stops_does_not_wait_for_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that stops delivers a memory channel at once, though its sink would wait for an hour."""
    (hub,) = plug_in(monkeypatch, "patient")
    monkeypatch.setattr(KeepSink, "patience", Patience(3600, 3600), raising=False)
    feed, keep = {"hub": "patient"}, {"hub": "patient"}
    config = AgentConfig(
        "a1",
        {"s": SourceConfig("s", "feed", feed, channels=("c",))},
        {"c": ComponentConfig("c", "memory")},
        {"k": SinkConfig("k", "keep", keep, channel="c")},
        state=tmp_path,
    )
    agent = Agent(config)
    agent.start()
    hub.lines.put(b"one\n")
    eventually(lambda: agent.channels["c"].held)
    assert agent.stop(60)
    assert hub.delivered == [b"one"]


def test_a_stop_ends_the_wait_for_events(tmp_path: Path) -> None:
    """A stop ends a sink's wait for events."""
    clock, stop = ManualClock(), Stop()
    with opened(memory_channel(tmp_path, clock=clock)) as channel:
        call = Call(lambda: _runner(channel, RecordingSink()).run(stop))
        eventually(lambda: clock.waiting, "the sink's wait")
        stop.set()
        call.thread.join(60)
        assert not call.thread.is_alive()


def test_a_new_or_returned_batch_ends_a_sinks_wait_at_once(tmp_path: Path) -> None:
    """A new or returned batch ends a sink's wait at once."""
    clock, stop, sink = ManualClock(), Stop(), RecordingSink()
    with opened(memory_channel(tmp_path, clock=clock)) as channel:
        call = Call(lambda: _runner(channel, sink).run(stop))
        eventually(lambda: clock.waiting, "the sink's wait")
        channel.put(EventBatch.of_lines(b"new\n"))
        eventually(lambda: sink.bodies == [b"new"] and clock.waiting, "the delivery")
        stop.set()
        call.thread.join(60)


def test_a_batch_that_one_of_two_sinks_returns_is_taken_by_the_other_at_once(tmp_path: Path) -> None:
    """A batch that one of two sinks returns is taken by the other at once."""
    clock, stop, sink = ManualClock(), Stop(), RecordingSink()
    with opened(memory_channel(tmp_path, clock=clock)) as channel:
        channel.put(EventBatch.of_lines(b"back\n"))
        taking = channel.take(10, 100, 0)
        assert taking is not None
        call = Call(lambda: _runner(channel, sink).run(stop))
        eventually(lambda: clock.waiting, "the sink's wait")
        taking.rollback()
        eventually(lambda: sink.bodies == [b"back"], "the delivery")
        stop.set()
        call.thread.join(60)


def test_a_missing_sink_sets_no_limits_for_its_group() -> None:
    """A missing sink sets no limits for its group."""
    patience = Patience(3.0, 1.0)
    sink = RecordingSink()
    sink.patience, sink.most_events, sink.most_bytes = patience, 7, 70  # type: ignore[attr-defined]

    def absent() -> Any:
        raise FileNotFoundError("its directory is not there")

    group = [CountedSink(make, Health(ManualClock())) for make in (absent, lambda: sink)]
    assert [min(each.most_events for each in group), min(each.most_bytes for each in group)] == [7, 70]
    assert _patience(group) == patience

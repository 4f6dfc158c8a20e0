"""Refused events that no dead letters take are held back without blocking others, and never lost."""

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import Refusal, RefusedError, SinkError
from producer.agent.flow import held_back
from producer.agent.flow.channel import BatchChannel
from producer.agent.flow.health import Health
from producer.agent.flow.letters import REASON
from producer.agent.flow.sink_runner import SinkRunner
from producer.runtime.clock import Stop
from producer.testing import ManualClock
from tests.support.waiting import Call, eventually

from ..doubles import RecordingSink, file_channel, memory_channel, opened, spillable_channel, taken

_BAD = b"bad"


@pytest.fixture(params=[memory_channel, file_channel, spillable_channel], ids=["memory", "file", "spillable"])
def channel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BatchChannel]:
    with opened(request.param(tmp_path)) as made:
        yield made


@pytest.fixture
def letters(tmp_path: Path) -> Iterator[BatchChannel]:
    with opened(file_channel(tmp_path, "letters", capacity=2, keep_alive=3600)) as made:
        made.put(EventBatch.of_lines(b"full\n" * 2))
        yield made


class _Refusing(RecordingSink):
    """A sink that refuses each event that begins with ``refuses``, and delivers the rest of its batch."""

    refuses = _BAD

    def __init__(self) -> None:
        super().__init__()
        self.attempts: list[int] = []

    def write(self, batches: Sequence[EventBatch]) -> None:
        refused = []
        self.attempts.append(sum(batch.count for batch in batches))
        for batch in batches:
            bad = [body.startswith(self.refuses) for body in batch.bodies()]
            self.batches.append(batch.select([not each for each in bad]))
            if any(bad):
                refused.append(batch.part(bad))
        if refused:
            raise RefusedError("no such thing", refused)


def _runner(
    channel: BatchChannel,
    sink: RecordingSink,
    letters: BatchChannel | None = None,
    most_events: int = 2,
    clock: ManualClock | None = None,
) -> SinkRunner:
    return SinkRunner(
        "k",
        channel,
        sink,
        Health(clock or ManualClock()),
        dead_letters=letters,
        most_events=most_events,
        most_bytes=1 << 20,
    )


def _put(channel: BatchChannel, *batches: bytes) -> None:
    for batch in batches:
        channel.put(EventBatch.of_lines(batch))


def _deliver_all(runner: SinkRunner, sink: RecordingSink, wanted: Sequence[bytes]) -> None:
    for _ in range(100):
        if len(sink.bodies) >= len(wanted):
            break
        runner.deliver(0)
    assert sink.bodies == list(wanted)


@pytest.mark.parametrize("dead_letters", [True, False], ids=["full dead letters", "no dead letters"])
def test_refused_events_hold_up_no_others(
    channel: BatchChannel, letters: BatchChannel, dead_letters: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Events after more refused ones than one delivery has are delivered once, and the refused ones stay."""
    _put(channel, b"bad 1\n", b"1\nbad 2\n2\n", b"bad 3\n", b"3\n", b"bad 4\n", b"4\n")
    sink = _Refusing()
    runner = _runner(channel, sink, letters if dead_letters else None)
    with caplog.at_level(logging.WARNING):
        _deliver_all(runner, sink, [b"1", b"2", b"3", b"4"])
        runner.deliver(0)
    assert channel.held == 6  # the events of their batches
    runner.give_back()
    left = [body for body in taken(channel) if body.startswith(_BAD)]
    assert sorted(left) == [b"bad 1", b"bad 2", b"bad 3", b"bad 4"]
    (text,) = caplog.messages[:1]
    assert text.startswith("sink k: 1 event refused permanently; held back while others are delivered: ")


def test_held_events_are_dead_letters_once_these_have_room(
    channel: BatchChannel, letters: BatchChannel, caplog: pytest.LogCaptureFixture
) -> None:
    """Held-back events become dead letters once there is room, each once, with the reason, without their batches."""
    _put(channel, b"1\nbad 1\n", b"bad 2\n", b"2\n")
    sink, clock = _Refusing(), ManualClock()
    runner = _runner(channel, sink, letters, clock=clock)
    _deliver_all(runner, sink, [b"1", b"2"])
    assert (channel.held, runner._counters.get("EventRefusedCount")) == (3, 0)
    assert taken(letters) == [b"full"] * 2
    clock.advance(60)
    with caplog.at_level(logging.INFO):
        assert runner.deliver(0)
    taking = letters.take(10, 1000, 0)
    assert taking is not None
    marks = {
        "dead_letter_reason": "no such thing",
        "dead_letter_sink": "k",
        "failed_at": "2023-11-14T22:13:20.000+00:00",
        "attempts": "1",
        "request_id": "",
    }
    assert [list(batch.events()) for batch in taking.batches] == [[(marks, b"bad %d" % n)] for n in (1, 2)]
    taking.commit()
    assert (channel.held, sink.bodies) == (0, [b"1", b"2"])
    counted = [runner._counters.get(f"Event{name}") for name in ("DrainSuccessCount", "RefusedCount")]
    assert counted == [2, 2]
    assert caplog.messages[-1] == "sink k: no held-back events remain"


def test_without_dead_letters_only_the_refused_event_is_retried_until_the_destination_accepts_it(
    channel: BatchChannel,
) -> None:
    """Without dead letters only the refused event is retried, until the destination accepts it."""
    _put(channel, b"1\nbad 1\nbad 2\n", b"2\n")
    sink, clock = _Refusing(), ManualClock()
    runner = _runner(channel, sink, clock=clock)
    _deliver_all(runner, sink, [b"1", b"2"])
    clock.advance(60)
    assert runner.deliver(0)
    sink.refuses = b"bad 2"
    clock.advance(60)
    assert runner.deliver(0)
    sink.refuses = b"nothing"
    clock.advance(60)
    assert runner.deliver(0)
    assert (sink.bodies, channel.held) == ([b"1", b"2", b"bad 1", b"bad 2"], 0)
    assert sink.attempts[-3:] == [2, 2, 1]


def test_each_refused_part_of_a_batch_becomes_a_dead_letter_once_there_is_room(
    channel: BatchChannel, letters: BatchChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refused part of a batch becomes a dead letter once there is room, and the batch leaves with the last one."""

    def refuse(batches: Sequence[EventBatch]) -> None:
        raise RefusedError("no", [batches[0].part([1, 0, 0]), batches[0].part([0, 0, 1])])

    _put(channel, b"bad 1\n1\nbad 2\n")
    clock = ManualClock()
    runner = _runner(channel, RecordingSink(refuse), letters, clock=clock)
    with monkeypatch.context() as patch:
        patch.setattr(held_back.HeldBack, "has_room", lambda *_: False)
        assert not runner.deliver(0)
    assert runner.deliver(0)
    taken(letters)
    letters.capacity = 1
    clock.advance(60)
    runner.deliver(0)
    assert (channel.held, taken(letters)) == (3, [b"bad 1"])
    clock.advance(60)
    runner.deliver(0)
    assert (channel.held, taken(letters)) == (0, [b"bad 2"])


def _refuse_for_two_reasons(batches: Sequence[EventBatch]) -> None:
    parts = [batches[0].part([n == place for n in range(3)]) for place in (0, 2)]
    raise RefusedError.of([Refusal(parts[0], "not now"), Refusal(parts[1], "never", undeliverable=True)])


def test_each_refused_event_is_a_dead_letter_for_its_own_reason(channel: BatchChannel, letters: BatchChannel) -> None:
    """Each refused event keeps its own reason, even if it had to wait for room."""
    _put(channel, b"bad 1\n1\nbad 2\n")
    clock = ManualClock()
    runner = _runner(channel, RecordingSink(_refuse_for_two_reasons), letters, most_events=3, clock=clock)
    assert runner.deliver(0)
    taken(letters)
    clock.advance(60)
    runner.deliver(0)
    taking = letters.take(10, 1000, 0)
    assert (channel.held, taking is not None) == (0, True)
    found = [(body, headers[REASON]) for batch in taking.batches for headers, body in batch.events()]  # type: ignore[union-attr]
    taking.rollback()  # type: ignore[union-attr]
    assert found == [(b"bad 1", "not now"), (b"bad 2", "never")]


def test_without_dead_letters_undeliverable_events_are_dropped_others_wait_and_the_batch_leaves(
    channel: BatchChannel,
) -> None:
    """Without dead letters undeliverable events are dropped; others wait, and the batch leaves with them."""
    _put(channel, b"bad 1\n1\nbad 2\n")
    runner = _runner(channel, RecordingSink(_refuse_for_two_reasons), most_events=3)
    assert runner.deliver(0)
    assert (len(runner._held_back), runner._counters.get("EventDroppedCount")) == (1, 1)
    assert runner._held_back._waiting[0].parts[0].bodies() == [b"bad 1"]


def test_held_back_events_are_retried_after_growing_pauses_not_with_each_delivery(channel: BatchChannel) -> None:
    """Held-back events are retried after growing pauses, not with each delivery."""
    _put(channel, b"bad\n")
    sink, clock = _Refusing(), ManualClock()
    runner = _runner(channel, sink, clock=clock)
    for _ in range(3000):
        runner.deliver(0)
        clock.advance(0.01)
    assert len(sink.attempts) == 1 + 11  # at 0.1, 0.2, 0.4 … 6.4, then every 5 seconds


def test_beyond_a_limit_of_held_back_events_the_channel_is_blocked_without_loss(
    channel: BatchChannel, letters: BatchChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond a limit of held-back events the channel is blocked, without loss."""
    monkeypatch.setattr(held_back, "HELD_BYTES", 10)
    _put(channel, *[b"bad %d\n" % number for number in range(4)], b"1\n")
    sink = _Refusing()
    runner = _runner(channel, sink, letters, most_events=1)
    assert [runner.deliver(0) for _ in range(3)] == [True, False, False]
    assert (sink.bodies, len(runner._held_back)) == ([], 1)
    runner.give_back()
    assert taken(channel) == [b"bad 0", b"bad 1", b"bad 2", b"bad 3", b"1"]


def test_one_large_refused_batch_may_always_be_held(
    channel: BatchChannel, letters: BatchChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single refused batch may be held back whatever its size, since it was in memory anyway."""
    monkeypatch.setattr(held_back, "HELD_BYTES", 1)
    _put(channel, b"bad and large\n", b"1\n")
    sink = _Refusing()
    _deliver_all(_runner(channel, sink, letters, most_events=1), sink, [b"1"])


def test_a_runner_that_ends_returns_held_back_events_to_their_place_for_the_next_runner(channel: BatchChannel) -> None:
    """A runner that ends returns held-back events to their place for the next runner."""
    _put(channel, b"bad\n", b"1\n")
    sink, stop = _Refusing(), Stop()
    call = Call(lambda: _runner(channel, sink).run(stop))
    eventually(lambda: sink.bodies == [b"1"], "the delivery behind it")
    stop.set()
    call.thread.join(60)
    assert taken(channel) == [b"bad"]


def test_if_the_sink_requires_the_order_no_later_batch_is_delivered_before_a_refused_one(
    tmp_path: Path, letters: BatchChannel
) -> None:
    """If the sink requires the order, no later batch is delivered before a refused one."""

    def refuse(batches: Sequence[EventBatch]) -> None:
        if batches[0].block.startswith(_BAD):
            raise RefusedError("no", batches[:1], batches[1:], in_order=True)

    letters.keep_alive = 0
    with opened(file_channel(tmp_path)) as channel:
        _put(channel, b"bad\n", b"1\n")
        sink = RecordingSink(refuse)
        runner = _runner(channel, sink, letters)
        assert [runner.deliver(0) for _ in range(2)] == [False, False]
        assert (sink.bodies, taken(channel)) == ([], [b"bad", b"1"])


def test_a_restarted_sink_gets_only_the_refused_events_of_a_batch_if_the_channel_keeps_its_events(
    tmp_path: Path,
) -> None:
    """A restarted sink gets only the refused events of a batch, if the channel keeps its events."""
    with opened(file_channel(tmp_path, capacity=3)) as channel:
        _put(channel, b"1\nbad 1\n2\n")
        first = _runner(channel, _Refusing())
        assert first.deliver(0)
        first.give_back()  # the channel has no room for a part
        assert taken(channel) == [b"1", b"bad 1", b"2"]
    with opened(file_channel(tmp_path)) as channel:
        _put(channel, b"1\nbad 1\n2\n", b"bad 2\n")
        second = _runner(channel, _Refusing(), most_events=9)
        assert second.deliver(0)
        second.give_back()
        assert (channel.held, taken(channel)) == (2, [b"bad 2", b"bad 1"])


@pytest.mark.parametrize("numbered", [False, True])
def test_a_batch_delivered_after_later_ones_has_no_number_even_after_a_crash(tmp_path: Path, numbered: bool) -> None:
    """A batch delivered after later ones has no number, even after a crash: it could be taken for stored."""

    def refuse(batches: Sequence[EventBatch]) -> None:
        bad = [batch for batch in batches if batch.block.startswith(_BAD)]
        if bad:
            raise RefusedError("no", bad, numbered=numbered)

    with opened(file_channel(tmp_path)) as channel:
        _put(channel, b"bad\n", b"1\n")
        runner = _runner(channel, RecordingSink(refuse))
        assert runner.deliver(0)
        runner.give_back()
        assert _origins(channel) == [numbered]
    with opened(file_channel(tmp_path)) as channel:
        _put(channel, b"2\n")
        assert _origins(channel) == [numbered, True]


def _origins(channel: BatchChannel) -> list[bool]:
    taking = channel.take(10, 100, 0)
    assert taking is not None
    known = [batch.origin is not None for batch in taking.batches]
    taking.rollback()
    return known


def test_if_the_destination_refuses_an_event_and_then_fails_later_batches_are_retried_in_order(
    channel: BatchChannel,
) -> None:
    """If the destination refuses an event and then fails, later batches are retried in order, without duplicates."""
    _put(channel, b"1\n", b"bad\n", b"2\n", b"3\n")
    answers: Iterator[Callable[[Sequence[EventBatch]], None]] = iter([_refuse_second, _fail, _take])

    def answer(batches: Sequence[EventBatch]) -> None:
        next(answers)(batches)

    sink = RecordingSink(answer)
    runner = _runner(channel, sink, most_events=9)
    assert [runner.deliver(0) for _ in range(3)] == [True, False, True]
    assert sink.bodies == [b"2", b"3"]
    runner.give_back()
    assert taken(channel) == [_BAD]


def _refuse_second(batches: Sequence[EventBatch]) -> None:
    raise RefusedError("no", batches[1:2], batches[2:])


def _fail(_batches: Sequence[EventBatch]) -> None:
    raise SinkError("away")


def _take(_batches: Sequence[EventBatch]) -> None:
    pass

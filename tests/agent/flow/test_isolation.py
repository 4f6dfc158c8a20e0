"""A sink that fails for one event delivers all others; an outage is not an event's fault."""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import RefusedError, SinkError
from producer.agent.flow.channel import BatchChannel
from producer.agent.flow.health import Health
from producer.agent.flow.sink_runner import SinkRunner
from producer.agent.processors import FailoverProcessor
from producer.testing import ManualClock

from ..components import made
from ..doubles import RecordingSink, context, file_channel, memory_channel, opened, taken
from ..sources.listeners import serving

_BAD = b"bad"
_ERRORS: list[Callable[[], Exception]] = [
    lambda: "\ud800".encode() and ValueError(),  # type: ignore[return-value]
    lambda: TypeError("not a text"),
    lambda: KeyError("host"),
    lambda: OverflowError("too large"),
    lambda: RecursionError("too deep"),
    lambda: OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), "h" * 300),
    lambda: OSError(errno.EILSEQ, os.strerror(errno.EILSEQ)),
]


@pytest.fixture(params=[memory_channel, file_channel], ids=["memory", "file"])
def channel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BatchChannel]:
    with opened(request.param(tmp_path)) as made:
        yield made


@pytest.fixture
def letters(tmp_path: Path) -> Iterator[BatchChannel]:
    with opened(memory_channel(tmp_path, "letters")) as made:
        yield made


class _Failing(RecordingSink):
    """A sink that fails for deliveries with a certain event, and for all while ``away`` is set."""

    def __init__(self, error: Callable[[], Exception] = lambda: ValueError("odd")) -> None:
        super().__init__(self._check)
        self._error = error
        self.away: Exception | None = None

    def _check(self, batches: Sequence[EventBatch]) -> None:
        if self.away is not None:
            raise self.away
        if any(body.startswith(_BAD) for batch in batches for body in batch.bodies()):
            raise self._error()


def _runner(
    channel: BatchChannel, sink: RecordingSink, letters: BatchChannel | None = None, most_events: int = 1000
) -> SinkRunner:
    return SinkRunner("k", channel, sink, Health(), dead_letters=letters, most_events=most_events, most_bytes=1 << 20)


def _put(channel: BatchChannel, *blocks: bytes) -> None:
    for block in blocks:
        channel.put(EventBatch.of_lines(block))


@pytest.mark.parametrize("error", _ERRORS)
def test_an_event_that_alone_makes_a_sink_fail_is_a_dead_letter(
    channel: BatchChannel, letters: BatchChannel, error: Callable[[], Exception]
) -> None:
    """An event whose value makes the sink fail becomes a dead letter; all others are delivered once."""
    _put(channel, b"1\nbad 1\n2\n", b"3\n", b"bad 2\n", b"4\n")
    sink = _Failing(error)
    assert _runner(channel, sink, letters).deliver(0)
    assert (sorted(sink.bodies), channel.held) == ([b"1", b"2", b"3", b"4"], 0)
    assert taken(letters) == [b"bad 1", b"bad 2"]


def test_without_dead_letters_it_is_dropped_and_counted(channel: BatchChannel) -> None:
    """Without dead letters such an event is dropped, counted and logged."""
    _put(channel, b"1\nbad\n2\n")
    sink = _Failing()
    runner = _runner(channel, sink)
    assert runner.deliver(0)
    assert (sink.bodies, channel.held) == ([b"1", b"2"], 0)
    assert runner._counters.get("EventDroppedCount") == 1


def test_one_that_comes_alone_is_blamed_once_another_was_delivered(
    channel: BatchChannel, letters: BatchChannel
) -> None:
    """An event delivered alone is to blame once another one was delivered, even by a sink that takes single events."""
    _put(channel, b"bad\n")
    sink = _Failing()
    runner = _runner(channel, sink, letters, most_events=1)
    assert not runner.deliver(0)
    assert not runner.deliver(0)
    assert (channel.held, letters.held) == (1, 0)
    _put(channel, b"1\n", b"2\n")
    while channel.held:
        assert runner.deliver(0)
    assert (sink.bodies, taken(letters)) == ([b"1", b"2"], [b"bad"])


@pytest.mark.parametrize("error", [ValueError("a bug in every delivery"), SinkError("away"), ConnectionError("away")])
def test_a_sink_that_fails_for_all_events_blames_none(
    channel: BatchChannel, letters: BatchChannel, error: Exception
) -> None:
    """If the sink fails for all events, they stay in the channel, in order."""
    _put(channel, b"1\nbad\n2\n", b"3\n")
    sink = _Failing()
    sink.away = error
    runner = _runner(channel, sink, letters)
    assert not runner.deliver(0)
    assert (taken(letters), taken(channel)) == ([], [b"1", b"bad", b"2", b"3"])


def test_an_outage_during_the_search_returns_undelivered_events_to_the_channel(
    channel: BatchChannel, letters: BatchChannel
) -> None:
    """An outage during the search returns undelivered events to the channel."""
    _put(channel, b"1\n", b"bad\n", b"2\n")
    sink = _Failing()
    check = sink._fail

    def fail(batches: Sequence[EventBatch]) -> None:
        check(batches)
        sink.away = SinkError("away")

    sink._fail = fail
    runner = _runner(channel, sink, letters)
    assert not runner.deliver(0)
    assert (sink.bodies, channel.held, letters.held) == ([b"1"], 2, 0)
    sink.away, sink._fail = None, check
    assert runner.deliver(0)
    assert (sink.bodies, taken(letters)) == ([b"1", b"2"], [b"bad"])


def test_events_refused_by_the_destination_and_those_that_cannot_be_written_all_become_dead_letters(
    channel: BatchChannel, letters: BatchChannel
) -> None:
    """Events refused by the destination, and those that cannot be written, all become dead letters."""
    _put(channel, b"1\n", b"bad\n", b"no\n")
    sink = _Failing()
    check = sink._fail

    def fail(batches: Sequence[EventBatch]) -> None:
        check(batches)
        if any(b"no" in batch.bodies() for batch in batches):
            raise RefusedError("no such thing", batches)

    sink._fail = fail
    assert _runner(channel, sink, letters).deliver(0)
    assert (sink.bodies, channel.held, sorted(taken(letters))) == ([b"1"], 0, [b"bad", b"no"])


def test_a_group_of_sinks_that_all_fail_for_one_event_delivers_the_others(
    channel: BatchChannel, letters: BatchChannel, tmp_path: Path
) -> None:
    """A group whose sinks all fail for one event delivers the others by its first sink."""
    _put(channel, b"1\nbad\n2\n")
    first, second = _Failing(), _Failing()
    given = context(tmp_path, "g", ManualClock())
    group = FailoverProcessor(FailoverProcessor.Options(maxpenalty=0), given, {"a": first, "b": second})
    assert _runner(channel, group, letters).deliver(0)  # type: ignore[arg-type]
    assert (first.bodies, second.bodies, taken(letters)) == ([b"1", b"2"], [], [b"bad"])


@pytest.mark.parametrize("kind", ["avro", "thrift", "forward"])
def test_an_event_for_which_the_receiver_closes_the_connection_does_not_block_others(
    kind: str, letters: BatchChannel, tmp_path: Path
) -> None:
    """An event for which the receiver closes the connection does not block others; large headers alone fit."""
    option = "host" if kind == "forward" else "hostname"
    with serving(kind) as served, opened(memory_channel(tmp_path)) as channel:
        made_sink = made("sinks", kind, **{option: "127.0.0.1", "port": served.address[1]})
        channel.put(EventBatch.of_bodies([b"x" * (17 << 20)]))
        channel.put(EventBatch.of_bodies([b"%d" % n for n in range(20)], {"h": "x" * (1 << 20)}))
        runner = _runner(channel, made_sink, letters)
        assert not runner.deliver(0)  # taken alone: no other delivery has shown yet that the receiver works
        while channel.held:
            assert runner.deliver(0)
        made_sink.close()
        assert (letters.held, len(served.outlet.bodies)) == (1, 20)

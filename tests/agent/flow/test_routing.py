"""A source's batches arrive once in each of their channels."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producer.agent.config.options import AgentConfigError
from producer.agent.events.batch import EventBatch, Position
from producer.agent.events.interfaces import Routes, UnfitError
from producer.agent.flow.channel import BatchChannel
from producer.agent.flow.health import Health
from producer.agent.flow.outlet import SourceOutlet
from producer.agent.selectors.load_balancing import LoadBalancingSelector
from producer.agent.selectors.multiplexing import MultiplexingSelector
from producer.agent.selectors.replicating import ReplicatingSelector
from producer.model.errors import ChannelFullError
from producer.runtime.clock import Stop
from producer.testing import ManualClock

from ...support.waiting import Call, eventually
from ..doubles import context, file_channel, ledger_of, memory_channel, opened, taken

_LINES = EventBatch.of_lines(b"a\nb\n")


class _Only:
    def __init__(self, wanted: bytes) -> None:
        self._wanted = wanted

    def intercept(self, batch: EventBatch) -> EventBatch:
        return batch.select([body == self._wanted for body in batch.bodies()])


@pytest.fixture
def channels(tmp_path: Path) -> Iterator[dict[str, BatchChannel]]:
    made = {name: memory_channel(tmp_path, name, capacity=4, keep_alive=0.0) for name in ("c1", "c2", "c3")}
    yield made
    for channel in made.values():
        channel.close()


def _outlet(
    channels: dict[str, BatchChannel], selector: Any = ReplicatingSelector, *interceptors: Any, **options: Any
) -> SourceOutlet:
    made = selector(selector.Options(**options), context(Path("unused"), "s"), channels)
    return SourceOutlet("s", interceptors, made, channels, ledger_of("s", channels, made), Health())


def _all(channels: dict[str, BatchChannel]) -> dict[str, list[bytes]]:
    return {name: taken(channel) for name, channel in channels.items()}


def test_every_channel_gets_every_event(channels: dict[str, BatchChannel]) -> None:
    """The replicating selector puts every event into every channel, as in Flume's ``testReplicatingSelector``."""
    _outlet(channels).put(_LINES)
    assert _all(channels) == {name: [b"a", b"b"] for name in channels}


def test_a_channel_that_had_a_batch_does_not_get_it_again(channels: dict[str, BatchChannel]) -> None:
    """While one channel is full, retries put the batch only into that one; Flume repeats it to all."""
    channels["c2"].put(EventBatch.of_lines(b"1\n2\n3\n"))
    stop = Stop()

    class Emptied:
        """A stop that empties the full channel when the source begins to wait."""

        def wait(self, _seconds: float) -> bool:
            assert taken(channels["c2"]) == [b"1", b"2", b"3"]
            return False

        is_set, waking = stop.is_set, stop.waking

    assert _outlet(channels).put_until(_LINES, Emptied())  # type: ignore[arg-type]
    assert _all(channels) == {name: [b"a", b"b"] for name in channels}


def test_a_source_that_must_stop_waits_no_longer(channels: dict[str, BatchChannel]) -> None:
    """A source that stops learns that its batch is not committed everywhere."""
    channels["c2"].put(EventBatch.of_lines(b"1\n2\n3\n"))
    stop = Stop()
    stop.set()
    assert not _outlet(channels).put_until(_LINES, stop)


@pytest.mark.parametrize(
    "limits",
    [{"capacity": 4}, {"byte_capacity": 1000, "byte_capacity_buffer_percentage": 0}],
    ids=["events", "bytes"],
)
def test_a_stop_is_seen_at_once_while_a_channel_is_full(tmp_path: Path, limits: dict[str, Any]) -> None:
    """A stop ends a wait for room at once, and nothing is put."""
    channel, stop = memory_channel(tmp_path, keep_alive=3600, **limits), Stop()
    with opened(channel):
        channel.put(EventBatch.of_lines(b"x" * 200 + b"\n1\n2\n"))
        waiting = Call(lambda: _outlet({"c": channel}).put_until(EventBatch.of_lines(b"y" * 900 + b"\nz\n"), stop))
        eventually(lambda: len(channel._room) == 1)
        stop.set()
        assert waiting.result() is False
        assert len(taken(channel)) == 3


@pytest.mark.parametrize("limits", [{"capacity": 2}, {"byte_capacity": 1000, "byte_capacity_buffer_percentage": 0}])
def test_a_waiting_put_continues_as_soon_as_there_is_room_in_events_or_in_bytes(
    tmp_path: Path, limits: dict[str, Any]
) -> None:
    """A waiting put continues as soon as there is room, in events or in bytes."""
    channel, begun = memory_channel(tmp_path, keep_alive=3600, **limits), time.monotonic()
    with opened(channel):
        channel.put(EventBatch.of_lines(b"x" * 200 + b"\n"))
        wanted = b"y" * 900, b"z"
        waiting = Call(lambda: _outlet({"c": channel}).put_until(EventBatch.of_lines(b"\n".join(wanted)), Stop()))
        eventually(lambda: len(channel._room) == 1)
        assert len(taken(channel)) == 1
        assert waiting.result()
        assert time.monotonic() - begun < 60
        assert taken(channel) == list(wanted)


def test_the_error_of_a_channel_with_too_many_bytes_has_the_whole_wait_over_all_attempts(tmp_path: Path) -> None:
    """The error of a channel with too many bytes has the whole wait, over all attempts."""
    channel = memory_channel(tmp_path, keep_alive=0.02, byte_capacity=1000, byte_capacity_buffer_percentage=0)
    with opened(channel):
        channel.put(EventBatch.of_lines(b"x" * 200))
        with pytest.raises(ChannelFullError, match="no room within") as full:
            channel.put(EventBatch.of_lines(b"y" * 900), stop=Stop())
        assert full.value.waited >= 0.02
        assert (full.value.byte_capacity, full.value.never) == (1000, False)


def test_a_full_optional_channel_blocks_nothing_and_is_counted_as_in_flumes_testoptionalchannels(
    channels: dict[str, BatchChannel],
) -> None:
    """A full optional channel blocks nothing, and is counted, as in Flume's ``testOptionalChannels``."""
    channels["c2"].put(EventBatch.of_lines(b"1\n2\n3\n"))
    outlet = _outlet(channels, optional=("c2",))
    outlet.put(_LINES)
    assert outlet._counters.get("OptionalChannelWriteFail") == 1
    assert outlet._counters.get("OptionalChannelEventFailCount") == 2
    assert _all(channels) == {"c1": [b"a", b"b"], "c2": [b"1", b"2", b"3"], "c3": [b"a", b"b"]}


def test_a_put_does_not_wait_for_room_in_an_optional_channel_whatever_its_keep_alive(tmp_path: Path) -> None:
    """A put does not wait for room in an optional channel, whatever its ``keep_alive``."""
    clock = ManualClock()
    options: dict[str, Any] = {"capacity": 1, "keep_alive": 60.0, "clock": clock}
    with (
        opened(memory_channel(tmp_path, "c1", **options)) as c1,
        opened(memory_channel(tmp_path, "c2", **options)) as c2,
    ):
        c2.put(_LINES)
        outlet = _outlet({"c1": c1, "c2": c2}, optional=("c2",))
        Call(lambda: outlet.put(_LINES)).result()
        assert taken(c1) == [b"a", b"b"]


def test_how_long_interceptors_take_is_counted(channels: dict[str, BatchChannel]) -> None:
    """The time of all interceptors together is counted for each batch."""
    health = Health(clock := ManualClock())

    class Slow:
        def intercept(self, batch: EventBatch) -> EventBatch:
            clock.advance(0.25)
            return batch

    selector = ReplicatingSelector(ReplicatingSelector.Options(), context(Path("unused"), "s"), channels)
    SourceOutlet("s", [Slow(), Slow()], selector, channels, ledger_of("s", channels, selector), health).put(_LINES)
    assert health.counters.get("InterceptionMicroseconds") == 500_000


def test_a_source_that_ends_while_a_channel_is_full_has_not_failed(
    channels: dict[str, BatchChannel], caplog: pytest.LogCaptureFixture
) -> None:
    """A stop while a channel is full is neither counted nor logged as a failure."""
    channels["c2"].put(EventBatch.of_lines(b"1\n2\n3\n"))
    outlet, stop = _outlet(channels), Stop()
    stop.set()
    assert not outlet.put_until(_LINES, stop)
    assert (outlet._counters.get("ChannelWriteFail"), caplog.messages) == (0, [])


def test_a_channel_that_a_selector_names_twice_gets_a_batch_once(channels: dict[str, BatchChannel]) -> None:
    """A channel that is both required and optional gets a batch once, as a required one."""

    class Both:
        exclusive = False

        def select(self, batch: EventBatch) -> Routes:
            return Routes({"c1": batch}, {"c1": batch, "c2": batch})

    SourceOutlet("s", [], Both(), channels, ledger_of("s", channels, Both), Health()).put(_LINES)
    assert _all(channels) == {"c1": [b"a", b"b"], "c2": [b"a", b"b"], "c3": []}


def test_a_full_required_channel_raises_so_that_a_source_can_tell_its_sender(channels: dict[str, BatchChannel]) -> None:
    """A put into a full required channel raises, so that a source can answer its sender with an error."""
    channels["c2"].put(EventBatch.of_lines(b"1\n2\n3\n"))
    with pytest.raises(ChannelFullError, match="c2"):
        _outlet(channels).put(_LINES)


def test_interceptors_see_a_batch_once_in_order_although_a_channel_is_retried(
    channels: dict[str, BatchChannel],
) -> None:
    """Interceptors see a batch once, in order, although a channel is retried; dropped events go nowhere."""
    seen: list[str] = []

    class Seen:
        def __init__(self, name: str) -> None:
            self._name = name

        def intercept(self, batch: EventBatch) -> EventBatch:
            seen.append(self._name)
            return batch

    _outlet(channels, ReplicatingSelector, Seen("first"), _Only(b"b"), Seen("last")).put(_LINES)
    assert (seen, _all(channels)) == (["first", "last"], {name: [b"b"] for name in channels})


def _multiplexing(channels: dict[str, BatchChannel], **more: Any) -> SourceOutlet:
    options = {"header": "type", "mapping": {"x": ("c1",), "y": ("c1", "c2")}, "default": ("c3",), **more}
    return _outlet(channels, MultiplexingSelector, **options)


def test_a_header_chooses_the_channels(channels: dict[str, BatchChannel]) -> None:
    """A header's value selects the channels, else the default; a blank value counts as missing, as in Flume."""
    kinds = [("x", b"1"), ("y", b"2"), ("z", b"3"), (" ", b"4")]
    events = [({"type": kind}, body) for kind, body in kinds]
    _multiplexing(channels).put(EventBatch.of_events([*events, ({}, b"5")]))
    assert _all(channels) == {"c1": [b"1", b"2"], "c2": [b"2"], "c3": [b"3", b"4", b"5"]}


def test_without_a_default_unmapped_events_are_dropped_and_counted_as_in_flumes_testnodefault(
    channels: dict[str, BatchChannel],
) -> None:
    """Without a default, unmapped events are dropped and counted, as in Flume's ``testNoDefault``."""
    outlet = _multiplexing(channels, default=())
    outlet.put(EventBatch.of_events([({"type": "z"}, b"1"), ({"type": "x"}, b"2"), ({}, b"3")]))
    assert _all(channels) == {"c1": [b"2"], "c2": [], "c3": []}
    assert outlet._counters.get("EventDroppedCount") == 2
    outlet.put(EventBatch.of_lines(b"4\n5\n"))
    assert outlet._counters.get("EventDroppedCount") == 4


def test_optional_channels_of_a_value_that_are_already_required_for_it_do_not_get_the_event_twice(
    channels: dict[str, BatchChannel],
) -> None:
    """Optional channels of a value that are already required for it do not get the event twice."""
    outlet = _multiplexing(channels, optional={"x": ("c1", "c2")})
    outlet.put(EventBatch.of_events([({"type": "x"}, b"1")]))
    assert _all(channels) == {"c1": [b"1"], "c2": [b"1"], "c3": []}


@pytest.mark.parametrize(
    ("default", "wanted"),
    [(("c1", "c3"), "c1 c2 c3"), (("c3",), "c1 c2 c3"), ((), "c1 c2")],
    ids=["one is default, too", "further ones", "only optional"],
)
def test_optional_channels_of_a_value_without_a_mapping(
    channels: dict[str, BatchChannel], default: tuple[str, ...], wanted: str
) -> None:
    """Optional channels of an unmapped value get events besides the default channels, as in Flume's tests."""
    outlet = _multiplexing(channels, default=default, optional={"zebra": ("c1", "c2")})
    outlet.put(EventBatch.of_events([({"type": "zebra"}, b"1")]))
    assert _all(channels) == {name: [b"1"] if name in wanted else [] for name in channels}


def test_an_optional_channel_that_is_named_twice_gets_a_batch_once(channels: dict[str, BatchChannel]) -> None:
    """An optional channel named twice gets a batch once, as in Flume's test of that case."""
    _outlet(channels, optional=("c1", "c3", "c1")).put(_LINES)
    assert _all(channels) == {name: [b"a", b"b"] for name in channels}


def test_load_balancing_takes_turns(channels: dict[str, BatchChannel]) -> None:
    """Each batch goes to one channel, in turn, as in Flume's ``testLoadBalancingSelector``."""
    outlet = _outlet(channels, LoadBalancingSelector)
    for number in range(3):
        outlet.put(EventBatch.of_lines(b"%d" % number))
    assert list(_all(channels).values()) == [[b"0"], [b"1"], [b"2"]]


def test_a_mapping_to_an_unknown_channel_is_reported_with_its_value_and_the_nearest_name(
    channels: dict[str, BatchChannel],
) -> None:
    """A mapping to an unknown channel is reported with its value and the nearest name."""
    with pytest.raises(AgentConfigError, match=r"mapping.x: the source has no channel 'c9'; there are c1, c2, c3"):
        _multiplexing(channels, mapping={"x": ("c9",)})


def test_load_balancing_passes_over_a_full_channel(channels: dict[str, BatchChannel]) -> None:
    """Load balancing skips a full channel, where Flume fails the batch."""
    outlet = _outlet(channels, LoadBalancingSelector)
    channels["c2"].put(EventBatch.of_lines(b"full\n\n\n\n"))
    for number in range(4):
        outlet.put(EventBatch.of_lines(b"%d" % number))
    got = _all(channels)
    assert got["c2"] == [b"full", b"", b"", b""]
    assert sorted(got["c1"] + got["c3"]) == [b"0", b"1", b"2", b"3"]
    assert len(got["c1"]) == len(got["c3"]) == 2


def test_load_balancing_can_choose_the_emptiest(channels: dict[str, BatchChannel]) -> None:
    """Load balancing can choose the channel with the lowest fill level."""
    outlet = _outlet(channels, LoadBalancingSelector, policy="least_full")
    channels["c1"].put(EventBatch.of_lines(b"1\n2\n"))
    channels["c3"].put(EventBatch.of_lines(b"3\n"))
    outlet.put(EventBatch.of_lines(b"new"))
    assert taken(channels["c2"]) == [b"new"]


def _at(end: int) -> EventBatch:
    return _LINES.at(Position("f", end))


def test_after_a_crash_between_two_commits_the_source_reads_the_batch_again(tmp_path: Path) -> None:
    """After a crash between two commits, the source reads the batch again, for the other channel only."""
    first = {name: file_channel(tmp_path, name) for name in ("c1", "c2")}
    full = _outlet(first)
    full.put(_at(4))
    first["c1"].put(_LINES.at(Position("s/f", 8, "", 4)))  # the process crashes before c2 has it
    for channel in first.values():
        channel.close()

    again = {name: file_channel(tmp_path, name) for name in ("c1", "c2")}
    outlet = _outlet(again)
    assert outlet.ends("f") == [4, 8]
    outlet.put(_at(8))
    assert {name: len(taken(channel)) for name, channel in again.items()} == {"c1": 4, "c2": 4}
    assert outlet.ends("f") == [8]
    for channel in again.values():
        channel.close()


def test_with_load_balancing_a_batch_that_one_channel_has_is_not_put_into_another_after_a_crash(
    channels: dict[str, BatchChannel],
) -> None:
    """With load balancing, a batch that one channel has is not put into another after a crash."""
    outlet = _outlet(channels, LoadBalancingSelector)
    outlet.put(_at(4))
    assert outlet.ends("f") == [4]
    outlet.put(_at(4))
    assert sum(len(bodies) for bodies in _all(channels).values()) == 2


@pytest.mark.parametrize("kinds", ["mm", "mf", "fm", "ff"])
def test_of_two_channels_in_turn_only_batches_lost_by_the_one_in_memory_are_put_again(
    tmp_path: Path, kinds: str
) -> None:
    """Of two channels in turn, only batches lost by the one in memory are put again."""

    def make() -> dict[str, BatchChannel]:
        makers = {"m": memory_channel, "f": file_channel}
        return {f"c{number}": makers[kind](tmp_path, f"c{number}") for number, kind in enumerate(kinds)}

    def put(channels: dict[str, BatchChannel]) -> None:
        outlet = _outlet(channels, LoadBalancingSelector)
        for end in range(outlet.ends("f")[0] + 2, 22, 2):
            outlet.put(EventBatch.of_lines(b"%d" % end, position=Position("f", end)))

    channels = make()
    put(channels)
    found = taken(channels["c1"])
    for channel in channels.values():
        channel.close()
    channels = make()
    put(channels)
    for channel in channels.values():
        found += taken(channel)
        channel.close()

    assert set(found) == {b"%d" % end for end in range(2, 22, 2)}
    assert kinds != "ff" or len(found) == 10


def test_a_batch_that_is_dropped_moves_the_position_on(channels: dict[str, BatchChannel]) -> None:
    """A dropped batch advances the position, or it would be read again after each restart."""
    outlet = _outlet(channels, ReplicatingSelector, _Only(b"none"))
    outlet.put(_at(4))
    assert (outlet.ends("f"), outlet.names()) == ([4], {"f"})
    outlet.pass_over(Position("f", 9))
    assert outlet.ends("f") == [9]
    outlet.forget("f")
    assert (outlet.ends("f"), outlet.names()) == ([0], set())


def test_a_range_is_safe_once_memory_channels_have_delivered_it_and_file_channels_have_it(
    channels: dict[str, BatchChannel], tmp_path: Path
) -> None:
    """A range is safe once memory channels have delivered it and file channels have it."""
    outlet = _outlet(channels)
    outlet.put(_LINES.at(Position("f", 4)))
    for channel in channels.values():
        assert not outlet.is_safe("f")
        taken(channel)
    assert outlet.is_safe("f")
    assert outlet.is_safe("never put")

    kept = {"k": file_channel(tmp_path)}
    try:
        outlet = _outlet(kept)
        outlet.put(_LINES.at(Position("f", 4)))
        assert outlet.is_safe("f")
    finally:
        kept["k"].close()


_LONG = "n" * 70_000


@pytest.mark.parametrize("make", [memory_channel, file_channel])
def test_an_event_that_no_channel_can_take_is_refused_or_dropped_alone(tmp_path: Path, make: Any) -> None:
    """An event that fits into no channel is refused before any commit, or dropped alone and counted."""
    batch = EventBatch.of_events([({}, b"0"), ({_LONG: "x", "m": "y"}, b"1"), ({"m": "z"}, b"2")], Position("f", 9))
    with opened(make(tmp_path)) as channel:
        outlet = _outlet({"c": channel})
        with pytest.raises(UnfitError, match="at most 65000 fit"):
            outlet.put(batch)
        assert channel.held == 0
        assert outlet.put_until(batch, Stop())
        assert outlet.put_until(EventBatch.of_bodies([b"alone"], {_LONG: "x"}, position=Position("f", 10)), Stop())
        outlet.put(EventBatch.of_bodies([b"alone"], {_LONG: "x"}), refuse=False)
        assert list(outlet.ends("f")) == [10]
        assert (taken(channel), outlet._counters.get("EventDroppedCount")) == ([b"0", b"2"], 3)


class _Choosy:
    """An interceptor that fails for some events, and for all while its service is away."""

    error: Exception = ValueError("odd")
    away: Exception | None = None

    def intercept(self, batch: EventBatch) -> EventBatch:
        if self.away is not None:
            raise self.away
        if any(body.startswith(b"bad") for body in batch.bodies()):
            raise self.error
        return batch.with_shared({"seen": "yes"})


@pytest.mark.parametrize("error", [ValueError("odd"), KeyError("host"), UnicodeDecodeError("utf-8", b"", 0, 1, "odd")])
def test_an_event_for_which_an_interceptor_fails_is_dropped_alone(tmp_path: Path, error: Exception) -> None:
    """An event for which an interceptor fails is dropped alone and counted, once the interceptor has passed others."""
    choosy = _Choosy()
    choosy.error = error
    with opened(memory_channel(tmp_path)) as channel:
        outlet = _outlet({"c": channel}, ReplicatingSelector, choosy)
        with pytest.raises(type(error)):  # it has not passed any event yet
            outlet.put(EventBatch.of_bodies([b"bad"]))
        assert outlet.put_until(EventBatch.of_lines(b"1\nbad\n2\n").at(Position("f", 9)), Stop())
        assert outlet.put_until(EventBatch.of_lines(b"3\n"), Stop())
        assert outlet.put_until(EventBatch.of_lines(b"bad\n").at(Position("f", 13)), Stop())
        assert list(outlet.ends("f")) == [13]
        assert outlet._counters.get("EventDroppedCount") == 2
        taking = channel.take(100, 1000, 0)
        assert taking is not None
        events = [event for batch in taking.batches for event in batch.events()]
        taking.commit()
    assert events == [({"seen": "yes"}, body) for body in (b"1", b"2", b"3")]


@pytest.mark.parametrize("away", [ConnectionError("away"), KeyError("nothing is found while the table is away")])
def test_an_interceptor_that_fails_for_all_events_drops_none(tmp_path: Path, away: Exception) -> None:
    """An interceptor that fails for all events drops none; the source can put them again."""
    choosy = _Choosy()
    with opened(memory_channel(tmp_path)) as channel:
        outlet = _outlet({"c": channel}, ReplicatingSelector, choosy)
        outlet.put(EventBatch.of_lines(b"0\n"))
        choosy.away = away
        for block in (b"1\n2\n", b"3\n"):
            with pytest.raises(type(away)):
                outlet.put(EventBatch.of_lines(block))
        assert (taken(channel), outlet._counters.get("EventDroppedCount")) == ([b"0"], 0)

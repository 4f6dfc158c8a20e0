"""After a restart no event is duplicated that was delivered, or is in a channel on the disk."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from producer.agent import Agent
from producer.agent.config import parse_toml
from producer.agent.events.batch import EventBatch, Position
from producer.agent.events.interfaces import Context
from producer.agent.flow.channel import BatchChannel
from producer.agent.flow.delivery import Delivery
from producer.agent.flow.health import Health
from producer.agent.flow.outlet import SourceOutlet
from producer.agent.selectors.load_balancing import LoadBalancingSelector
from producer.testing import ManualClock
from tests.support.waiting import eventually

from ..doubles import ledger_in, ledger_of, memory_channel, opened, spillable_channel, taken
from ..parts import Hub, plug_in

LINES = 100
_AGENT = """
[agent]
state = "{state}"
[sources.s]
type = "taildir"
paths = ["{path}"]
channels = ["c"]
[channels.c]
type = "spillable"
memory_bytes = 5000
minimum_free_space = 0
[sinks.k]
type = "keep"
hub = "a"
channel = "c"
"""


def _block(number: int) -> bytes:
    return b"".join(b"block %02d line %02d\n" % (number, line) for line in range(LINES))


def _lines(blocks: range) -> Counter[bytes]:
    return Counter(b"".join(map(_block, blocks)).splitlines())


def _agent(state: Path, path: Path) -> Agent:
    return Agent(parse_toml(_AGENT.format(state=state, path=path)))


def _grow(agent: Agent, path: Path, blocks: range) -> None:
    """Append blocks to a file, each of which becomes a batch; nothing is delivered meanwhile."""
    for number in blocks:
        wanted = _committed(agent) + LINES
        with path.open("ab") as file:
            file.write(_block(number))
        eventually(lambda wanted=wanted: _committed(agent) == wanted)


def _committed(agent: Agent) -> int:
    return agent.channels["c"].counters.get("EventPutSuccessCount")


def _parts(channel: BatchChannel) -> tuple[int, int]:
    spilling: Any = channel.channel
    memory, disk = (part.stats() for part in (spilling._memory, spilling._overflow))
    return memory.size + memory.taken, disk.size + disk.taken


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    (made,) = plug_in(monkeypatch, "a")
    made.failing = True
    return made


def test_after_three_stops_spilled_events_remain_and_others_are_read_again_once(tmp_path: Path, hub: Hub) -> None:
    """After three stops with the destination away, spilled events remain, and the others are read again once."""
    path, state = tmp_path / "app.log", tmp_path / "state"
    for life in range(3):
        agent = _agent(state, path)
        agent.start()
        found = agent.channels["c"].held
        again = 6 * LINES * life - found  # the events in memory
        eventually(lambda agent=agent, again=again: _committed(agent) == again)
        _grow(agent, path, range(6 * life, 6 * life + 6))
        memory = _parts(agent.channels["c"])[0]
        assert memory if life == 0 else found
        assert agent.stop(1)
        assert agent.remaining == {"c": 6 * LINES * (life + 1) - memory * LINES}
    hub.failing = False
    agent = _agent(state, path)
    agent.start()
    try:
        eventually(lambda: len(hub.delivered) >= 18 * LINES and agent.delivered())
        ledger = ledger_in(agent.channels["c"])
        (name,) = ledger.names()
        assert ledger.safe_end(name) == path.stat().st_size
        received = agent.health_of("sources.s").counters.get("EventReceivedCount")
    finally:
        agent.stop(60)
    assert Counter(hub.delivered) == _lines(range(18))
    assert received < 18 * LINES  # events found in the channel were not read again


def test_a_stop_between_spilled_events_and_those_in_memory_duplicates_nothing(tmp_path: Path, hub: Hub) -> None:
    """A stop between spilled events and those in memory duplicates nothing."""
    path, state = tmp_path / "app.log", tmp_path / "killed"
    agent = _agent(tmp_path / "state", path)
    agent.start()
    try:
        _grow(agent, path, range(8))
        memory, disk = _parts(agent.channels["c"])
        assert memory
        shutil.copytree(tmp_path / "state", state)
    finally:
        agent.stop(0)
    with opened(spillable_channel(state / "channels")) as channel:  # nothing was read again
        assert channel.held == disk * LINES
        spilled = Counter(taken(channel))
    assert spilled == _lines(range(memory, 8))
    hub.failing = False
    agent = _agent(state, path)
    agent.start()
    try:
        eventually(lambda: len(hub.delivered) >= memory * LINES and agent.delivered())
        with path.open("ab") as file:
            file.write(_block(8))
        eventually(lambda: len(hub.delivered) >= (memory + 1) * LINES and agent.delivered())
    finally:
        agent.stop(60)
    assert spilled + Counter(hub.delivered) == _lines(range(9))


def test_after_kill_9_spilled_events_of_a_source_that_cannot_read_again_are_delivered(tmp_path: Path) -> None:
    """After kill -9, spilled events of a source that cannot read again are delivered."""
    with opened(spillable_channel(tmp_path / "state", memory_bytes=1000)) as channel:
        for number in range(40):
            channel.put(EventBatch.of_lines(b"%02d %s\n" % (number, b"x" * 50)))
        memory, disk = _parts(channel)
        assert memory
        assert disk
        shutil.copytree(tmp_path / "state", tmp_path / "killed")
        channel.discard()
    with opened(spillable_channel(tmp_path / "killed")) as channel:
        assert channel.held == disk
        assert [int(body[:2]) for body in taken(channel)] == list(range(memory, 40))


def test_after_kill_9_with_the_destination_away_each_line_arrives_once_spilled_ones_first(
    tmp_path: Path, hub: Hub
) -> None:
    """After kill -9 with the destination away, each line arrives once, spilled ones first."""
    path = tmp_path / "app.log"
    agent = _agent(tmp_path / "state", path)
    agent.start()
    try:
        _grow(agent, path, range(8))
        memory, _ = _parts(agent.channels["c"])
        assert memory
        shutil.copytree(tmp_path / "state", tmp_path / "killed")
    finally:
        agent.stop(0)
    hub.failing = False
    agent = _agent(tmp_path / "killed", path)
    agent.start()
    try:
        eventually(lambda: len(hub.delivered) >= 8 * LINES and agent.delivered())
    finally:
        agent.stop(60)
    assert hub.delivered == [*_lines(range(memory, 8)), *_lines(range(memory))]


def _put(channel: BatchChannel, *ends: int) -> None:
    for end in ends:
        channel.put(EventBatch.of_lines(b"%d\n" % end, position=Position("s/f", end, "", end - 2)))


def _take(channel: BatchChannel) -> Delivery:
    taking = channel.take(1, 1 << 20, 0)
    assert taking is not None
    return taking


def test_of_two_sinks_only_the_events_that_the_other_one_did_not_deliver_are_read_again(tmp_path: Path) -> None:
    """Of two sinks, only the events that the other one did not deliver are read again."""
    with opened(memory_channel(tmp_path)) as channel:
        _put(channel, 2, 4, 6)
        first, second, third = _take(channel), _take(channel), _take(channel)
        first.commit()
        third.commit()
        second.rollback()
        channel.discard()
    with opened(memory_channel(tmp_path)) as channel:
        ledger = ledger_in(channel)
        assert (ledger.ends("s/f"), ledger.safe_end("s/f")) == ([2, 4, 6], 2)
        _put(channel, 4)
        assert (ledger.ends("s/f"), ledger.safe_end("s/f")) == ([6], 2)
        _take(channel).commit()
        assert ledger.safe_end("s/f") == 6


class _Outlet(SourceOutlet):
    def __init__(self, channels: dict[str, BatchChannel]) -> None:
        selector = LoadBalancingSelector(LoadBalancingSelector.Options(), Context("a", "s", Path()), channels)
        ledger = ledger_of("s", channels, selector)
        super().__init__("s", [], selector, channels, ledger, Health(ManualClock()))

    def read(self, ends: Sequence[int]) -> None:
        for end in ends:
            if end > self.ends("f")[0]:
                self.put(EventBatch.of_lines(b"%d\n" % end, position=Position("f", end)))


@contextmanager
def _turns(folder: Path, make: Callable[[Path, str], BatchChannel]) -> Iterator[dict[str, BatchChannel]]:
    with ExitStack() as ends:
        yield {name: ends.enter_context(opened(make(folder, name))) for name in "ab"}


def _killed(channels: Mapping[str, BatchChannel], folder: Path) -> Path:
    """Copy the disk of this instant to a folder beside it."""
    ledger_in(channels["a"]).flush()
    shutil.copytree(folder, folder.with_name(f"{folder.name}-killed"))
    for channel in channels.values():
        channel.discard()
    return folder.with_name(f"{folder.name}-killed")


def test_events_that_change_between_two_memory_channels_in_turn_through_two_crashes_are_not_counted(
    tmp_path: Path,
) -> None:
    """Events that change between two memory channels in turn, through two crashes, are not counted as delivered."""
    with _turns(tmp_path / "s", memory_channel) as channels:
        _Outlet(channels).read([1, 2])  # 1 is in a, 2 in b
        _take(channels["a"]).commit()
        killed = _killed(channels, tmp_path / "s")
    with _turns(killed, memory_channel) as channels:
        outlet = _Outlet(channels)
        assert outlet.ends("f")[0] == 1
        outlet.read([2])
        assert {name: channel.held for name, channel in channels.items()} == {"a": 1, "b": 0}
        killed = _killed(channels, killed)
    with _turns(killed, memory_channel) as channels:
        outlet = _Outlet(channels)
        assert (outlet.ends("f")[0], outlet.safe_end("f")) == (1, 1)


def test_after_a_crash_only_events_in_memory_are_put_again_and_not_spilled_ones(tmp_path: Path) -> None:
    """With two channels in turn, a crash has only the events in memory put again, not the spilled ones."""
    ends = range(1, 41)
    with _turns(tmp_path / "s", spillable_channel) as channels:
        _Outlet(channels).read(ends)
        kept = {name: _parts(channel)[1] for name, channel in channels.items()}
        assert all(_parts(channel)[0] for channel in channels.values())
        killed = _killed(channels, tmp_path / "s")
    with _turns(killed, spillable_channel) as channels:
        outlet = _Outlet(channels)
        assert {name: channel.held for name, channel in channels.items()} == kept
        outlet.read(ends)
        found = Counter(int(body) for channel in channels.values() for body in taken(channel))
        assert found == Counter(ends)
        assert outlet.safe_end("f") == 40


def _balanced(state: Path, path: Path, *channels: str, selector: str = "load_balancing") -> str:
    """Return an agent with one source, these memory channels, and a sink for each."""
    listed = ", ".join(f'"{name}"' for name in channels)
    source = f'[sources.s]\ntype = "taildir"\npaths = ["{path}"]\nchannels = [{listed}]\n'
    parts = [f'[channels.{name}]\ntype = "memory"\n' for name in channels]
    parts += [f'[sinks.of_{name}]\ntype = "keep"\nhub = "a"\nchannel = "{name}"\n' for name in channels]
    chosen = f'[sources.s.selector]\ntype = "{selector}"\n'
    return "".join((f'[agent]\nstate = "{state}"\n', source, chosen, *parts))


@pytest.mark.parametrize("reloads", [True, False])
def test_channels_of_load_balancing_come_and_go_and_nothing_comes_twice(
    tmp_path: Path, hub: Hub, reloads: bool
) -> None:
    """Channels of load balancing are added, renamed and removed without duplicates, by reload or restart."""
    sets = [("c0", "c1"), ("c0", "c1", "c2"), ("c0", "other", "c2"), ("new",), ("new", "c0")]
    path = tmp_path / "app.log"
    _go_through([_balanced(tmp_path / "state", path, *names) for names in sets], path, hub, reloads=reloads)


@pytest.mark.parametrize("reloads", [True, False])
def test_the_selector_is_another_one_and_nothing_comes_twice(tmp_path: Path, hub: Hub, reloads: bool) -> None:
    """The selector changes between replicating and load balancing, with other channels, without duplicates."""
    sets = [("c0",), ("c0", "c1"), ("c1",), ("c1", "c2"), ("c2",), ("renamed",)]
    path = tmp_path / "app.log"
    selectors = ["replicating" if len(names) == 1 else "load_balancing" for names in sets]
    texts = [
        _balanced(tmp_path / "state", path, *names, selector=selector)
        for names, selector in zip(sets, selectors, strict=True)
    ]
    _go_through(texts, path, hub, reloads=reloads)


_MAPPED = """
[agent]
state = "{state}"
[sources.s]
type = "taildir"
paths = ["{path}"]
channels = ["m", "f"]
[[sources.s.interceptors]]
type = "regex_extractor"
regex = "^(?<kind>[a-z])"
[sources.s.selector]
type = "multiplexing"
header = "kind"
default = ["f"]
mapping.{kind} = ["m"]
[channels.m]
type = "memory"
[channels.f]
type = "file"
minimum_free_space = 0
[sinks.away]
type = "keep"
hub = "a"
channel = "m"
[sinks.here]
type = "keep"
hub = "b"
channel = "f"
"""


def test_an_event_that_is_another_channels_now_is_put_there_though_that_came_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the mapping of a selector changed during a crash, a lost event goes to its new channel."""
    away, here = plug_in(monkeypatch, "a", "b")
    away.failing = True
    path, state = tmp_path / "app.log", tmp_path / "state"
    path.write_bytes(b"a 1\nb 2\n")
    agent = Agent(parse_toml(_MAPPED.format(state=state, path=path, kind="a")))
    agent.start()
    eventually(lambda: here.delivered == [b"b 2"] and not agent.channels["f"].held)
    agent.stop(0.1)
    agent = Agent(parse_toml(_MAPPED.format(state=state, path=path, kind="c")))
    agent.start()
    try:
        eventually(lambda: b"a 1" in here.delivered)
    finally:
        agent.stop(60)


def _go_through(texts: list[str], path: Path, hub: Hub, *, reloads: bool) -> None:
    """Apply each configuration, feed some lines, and check that all arrive once."""
    hub.failing, count = False, 0
    agent = Agent(parse_toml(texts[0]))
    agent.start()
    try:
        for text in [*texts[1:], texts[-1]]:
            for _ in range(3):
                with path.open("ab") as file:
                    file.write(_block(count))
                count += 1
                eventually(lambda count=count: len(hub.delivered) >= count * LINES)
            config = parse_toml(text)
            if reloads:
                agent.reload(config)
            else:
                assert agent.stop(60)
                agent = Agent(config)
                agent.start()
    finally:
        assert agent.stop(60)
    assert Counter(hub.delivered) == _lines(range(count))

"""File and memory channels of one source, of which each batch goes to one, through crashes."""

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from producer.agent.events.batch import EventBatch, Position
from producer.agent.events.interfaces import Routes
from producer.agent.flow.channel import BatchChannel
from producer.agent.flow.health import Health
from producer.agent.flow.outlet import SourceOutlet
from producer.agent.selectors.load_balancing import LoadBalancingSelector
from producer.agent.selectors.replicating import ReplicatingSelector
from producer.runtime.clock import Clock
from producer.testing import ManualClock

from ..doubles import context, die, file_channel, ledger_of, memory_channel, spillable_channel

_MAKERS: dict[str, Callable[..., BatchChannel]] = {"f": file_channel, "m": memory_channel, "s": spillable_channel}
#: Bytes of a batch. Its single event is its end offset.
_STEP = 10


class _ByNumber:
    """A selector that sends each batch to one channel, always the same one."""

    Options, exclusive, first = ReplicatingSelector.Options, False, 0

    def __init__(self, _options: Any, _context: Any, channels: Mapping[str, BatchChannel]) -> None:
        self._names = list(channels)

    def select(self, batch: EventBatch) -> Routes:
        (body,) = batch.bodies()
        return Routes({self._names[(int(body) // _STEP + self.first) % len(self._names)]: batch})


class _ByNumberToOthers(_ByNumber):
    first = 1


_TAKEN = "rename", "remove"
_SELECTORS = {"one": LoadBalancingSelector, "all": ReplicatingSelector, "some": _ByNumber, "others": _ByNumberToOthers}


class _Agent:
    """A source that reads in order, and its channels. It can crash, and restart with other channels.

    :param kinds: the kinds of the channels, which are c0, c1 and so on.
    :ivar selector: the selector of the next start.
    :ivar delivered: the events taken of memory channels, and of file channels.
    """

    def __init__(
        self, state: Path, kinds: str, clock: Clock | None = None, selector: Any = LoadBalancingSelector
    ) -> None:
        self._state, self._clock, self.selector = state, clock, selector
        self._count = itertools.count()
        self.kinds = {self.new_name(): kind for kind in kinds}
        self._left: dict[str, str] = {}
        self.delivered: dict[bool, Counter[bytes]] = {keeps: Counter() for keeps in (True, False)}
        self.begin()

    def new_name(self) -> str:
        return f"c{next(self._count)}"

    def begin(self) -> None:
        self.channels = {name: self._open(name, kind) for name, kind in self.kinds.items()}
        self.others: dict[str, BatchChannel] = {}
        self._begin_source()

    def _begin_source(self) -> None:
        selector = self.selector(self.selector.Options(), context(self._state, "s"), self.channels)
        self.ledger = ledger_of("s", self.channels, selector, self.selector.__name__)
        self._outlet = SourceOutlet("s", (), selector, self.channels, self.ledger, Health())
        self._ends = self._outlet.ends("f")
        self.place = self._ends[0]

    def _open(self, name: str, kind: str) -> BatchChannel:
        options = {} if self._clock is None else {"clock": self._clock}
        return _MAKERS[kind](self._state, name, **(options if kind == "m" else {"fsync": "os"}))

    def change(self, what: str, number: int) -> None:
        """Change the channels or the selector of the next start.

        :param what: "add-" and a kind, "rename" or "remove"; or one of the selectors.
        :param number: selects the channel. The last one is not removed. A last file channel, which has all positions,
            is not renamed.
        """
        name = list(self.kinds)[number % len(self.kinds)]
        if what in _SELECTORS:
            self.selector = _SELECTORS[what]
        elif what.startswith("add-"):
            self.kinds[self.new_name()] = what[-1]
        elif what in _TAKEN and (len(self.kinds) > 1 or (what == "rename" and self.kinds[name] != "f")):
            kind = self._left[name] = self.kinds.pop(name)
            if what == "rename":
                self.kinds[self.new_name()] = kind

    def leave(self, name: str) -> None:
        """Remove an open channel from the source."""
        self.kinds.pop(name)
        self.others[name] = self.channels.pop(name)
        self._begin_source()

    def read(self) -> None:
        """Put a batch, or the missing range before one that a channel has."""
        end = min([self.place // _STEP * _STEP + _STEP, *(each for each in self._ends if each > self.place)])
        self._outlet.put(EventBatch.of_lines(b"%d\n" % end, position=Position("f", end)))
        self.place = end

    def read_all(self, end: int) -> None:
        while self.place < end:
            self.read()

    def take(self, name: str) -> None:
        self._deliver(self.channels[name], 1)

    def _deliver(self, channel: BatchChannel, most: int) -> None:
        taking = channel.take(most, most << 10, 0)
        if taking is not None:
            bodies = [body for batch in taking.batches for body in batch.bodies()]
            taking.commit()
            self.delivered[channel.keeps].update(bodies)

    def die(self) -> None:
        die(*self.channels.values(), *self.others.values())

    def stop(self) -> None:
        """Stop in order, whatever the channels hold."""
        for channel in self.channels.values():
            channel.close()

    def drain_former(self) -> None:
        """Deliver the events of channels that the source no longer uses."""
        for name, kind in self._left.items():
            if kind != "m":
                channel = self._open(name, kind)
                while channel.held:
                    self._deliver(channel, 100)
                channel.close()

    def drain(self) -> None:
        for channel in self.channels.values():
            while channel.held:
                self._deliver(channel, 100)


_KINDS = st.sampled_from(["fm", "mf", "fs", "sf", "ff", "mm", "ffm", "fmm", "fms"])
_WORK = st.sampled_from([("read", 1), ("read", 3), ("take", 0), ("take", 1), ("take", 2)])
_CHANGED = st.sampled_from(["add-m", "add-f", "add-s", "rename", "remove"])
_CHANGES = st.tuples(_CHANGED, st.integers(0, 2), st.sampled_from(["die", "stop"]))
_ENDS = st.one_of(_CHANGES, st.just(("nothing", 0, "die")))


def _run(agent: _Agent, actions: Iterable[tuple[Any, ...]], *, drained: bool) -> set[bytes]:
    """Perform the actions, then deliver everything, and return all events that were read."""
    furthest = 0
    for what, number, *how in actions:
        if what == "read":
            for _ in range(number):
                agent.read()
            furthest = max(furthest, agent.place)
        elif what == "take":
            agent.take(list(agent.channels)[number % len(agent.channels)])
        else:
            if drained:
                agent.drain()
            (agent.stop if drained or "stop" in how else agent.die)()
            for change in (what, *how):
                agent.change(change, number)
            agent.begin()
    while agent.place < furthest:
        agent.read()
    agent.drain()
    agent.die()
    agent.drain_former()
    return {b"%d" % end for end in range(_STEP, furthest + 1, _STEP)}


_RESTARTS = st.tuples(st.just("nothing"), st.just(0), st.sampled_from(["die", "stop"]))


@settings(max_examples=40)
@given(_KINDS, st.sampled_from([*_SELECTORS]), st.lists(st.one_of(*[_WORK] * 5, _RESTARTS), max_size=60))
def test_no_order_of_batches_deliveries_and_crashes_loses_or_duplicates_an_event(
    kinds: str, selector: str, actions: list[tuple[Any, ...]]
) -> None:
    """With one configuration, no order of batches, deliveries and crashes loses an event or duplicates it in a channel.

    Only an event that a memory channel has delivered may reach it once more.
    """
    with tempfile.TemporaryDirectory() as state:
        agent = _Agent(Path(state), kinds, selector=_SELECTORS[selector])
        wanted = _run(agent, [*actions, ("nothing", 0, "die")], drained=False)
    kept, forgotten = agent.delivered[True], agent.delivered[False]
    assert kept.keys() | forgotten.keys() == wanted
    assert all(count <= (kinds.count("f") if selector == "all" else 1) for count in kept.values())
    if selector == "all":
        assert all(count == kinds.count("f") for count in kept.values())


@settings(max_examples=15)
@given(_KINDS, st.lists(st.one_of(*[_WORK] * 4, _CHANGES), max_size=40))
def test_channels_are_added_renamed_and_removed_without_duplicates(kinds: str, actions: list[tuple[Any, ...]]) -> None:
    """Channels are added, renamed and removed without duplicates while the memory channels are empty."""
    with tempfile.TemporaryDirectory() as state:
        agent = _Agent(Path(state), kinds)
        wanted = _run(agent, actions, drained=True)
    assert dict(agent.delivered[True] + agent.delivered[False]) == dict.fromkeys(wanted, 1)


_BOTH = st.tuples(_CHANGED, st.integers(0, 2), st.sampled_from(list(_SELECTORS)), st.sampled_from(["die", "stop"]))


@settings(max_examples=40)
@given(_KINDS, st.lists(st.one_of(*[_WORK] * 5, _ENDS, _BOTH), max_size=60))
@example("fm", [("read", 9), ("add-m", 0, "some", "die")])
@example("mf", [("nothing", 0, "some", "stop"), ("read", 9), ("nothing", 0, "others", "die")])
def test_nothing_is_lost_whichever_selector_is_chosen(kinds: str, actions: list[tuple[Any, ...]]) -> None:
    """Other selectors and channels, at a start or after a crash, lose nothing."""
    with tempfile.TemporaryDirectory() as state:
        agent = _Agent(Path(state), kinds)
        wanted = _run(agent, [*actions, ("nothing", 0, "die")], drained=False)
    assert (agent.delivered[True] + agent.delivered[False]).keys() == wanted


def test_after_a_crash_and_the_removal_of_a_memory_channel_its_undelivered_events_are_read_again(
    tmp_path: Path,
) -> None:
    """After a crash and the removal of a memory channel, its undelivered events are read again."""
    agent = _Agent(tmp_path, "mm")
    for _ in range(4):
        agent.read()
    agent.take("c0")
    agent.take("c0")
    agent.ledger.flush()
    agent.die()
    agent.change("remove", 1)
    agent.begin()
    while agent.place < 4 * _STEP:
        agent.read()
    agent.drain()
    agent.die()
    assert agent.delivered[False] == {b"%d" % (number * _STEP): 1 for number in range(1, 5)}


def test_a_source_that_no_longer_uses_a_channel_continues_after_its_events(tmp_path: Path) -> None:
    """A source that no longer uses a channel continues after its events; after a crash, after delivered ones."""
    agent = _Agent(tmp_path, "mm")
    for _ in range(4):
        agent.read()
    agent.drain()
    agent.read()
    agent.leave("c0")
    assert agent.place == 5 * _STEP
    agent.read()
    agent.drain()
    agent.ledger.flush()
    agent.die()
    agent.begin()
    while agent.place < 6 * _STEP:
        agent.read()
    agent.drain()
    agent.die()
    assert agent.delivered[False] == {b"%d" % (number * _STEP): 1 for number in range(1, 7)}


@pytest.mark.parametrize(("before", "new"), [("mm", "m"), ("m", "f"), ("fm", "m"), ("ff", "m"), ("ff", "s")])
def test_with_a_new_channel_nothing_is_read_again(tmp_path: Path, before: str, new: str) -> None:
    """An added channel does not have events of the others read again."""
    agent = _Agent(tmp_path, before)
    for _ in range(9):
        agent.read()
    agent.drain()
    agent.stop()
    agent.change(f"add-{new}", 0)
    agent.begin()
    assert agent.place == 9 * _STEP
    agent.read()
    agent.drain()
    agent.die()
    assert all(count == 1 for delivered in agent.delivered.values() for count in delivered.values())


def test_deliveries_of_one_memory_channel_are_noted_although_the_other_one_is_stuck(tmp_path: Path) -> None:
    """Deliveries of one memory channel are noted, although the other one is stuck."""
    clock = ManualClock()
    agent = _Agent(tmp_path, "mm", clock)
    for _ in range(9):
        agent.read()
        agent.take("c1")
        clock.advance(1.0)
    agent.take("c1")
    agent.die()
    agent.begin()
    while agent.place < 9 * _STEP:
        agent.read()
    agent.drain()
    agent.die()
    assert sum(agent.delivered[False].values()) - len(agent.delivered[False]) <= 1


@pytest.mark.parametrize("kinds", ["fm", "ff"])
def test_a_note_has_only_ranges_beyond_the_safe_offset(tmp_path: Path, kinds: str) -> None:
    """A note has only ranges beyond the safe offset, and none with file channels only."""
    agent = _Agent(tmp_path, kinds)
    for _ in range(200):
        agent.read()
        agent.take("c0")
        agent.take("c1")
    note = agent.ledger._notes.read("position:0:s/f")
    assert note is not None
    agent.drain()
    agent.die()
    assert len(note) < 40, note


@pytest.mark.parametrize("kinds", ["fm", "mm", "sm"])
def test_events_of_a_memory_channel_that_is_removed_after_a_crash_are_read_again(tmp_path: Path, kinds: str) -> None:
    """If a memory channel is removed after a crash, and batches then go to all channels, its events are read again,
    also after a second crash.
    """
    agent = _Agent(tmp_path, kinds)
    for _ in range(6):
        agent.read()
    agent.take("c1")
    agent.ledger.flush()
    agent.die()
    agent.change("remove", 1)
    agent.selector = ReplicatingSelector
    agent.begin()
    agent.read_all(4 * _STEP)
    agent.take("c0")
    agent.die()
    agent.begin()
    agent.read_all(7 * _STEP)
    agent.drain()
    agent.die()
    assert agent.delivered[True] + agent.delivered[False] >= Counter(b"%d" % (n * _STEP) for n in range(1, 8))


def test_nothing_is_read_again_if_a_memory_channel_is_removed_after_it_delivered(tmp_path: Path) -> None:
    """If a memory channel is removed after it delivered, and batches then go to all others, nothing is read again."""
    agent = _Agent(tmp_path, "fm")
    for _ in range(6):
        agent.read()
    agent.drain()
    agent.stop()
    agent.change("remove", 1)
    agent.selector = ReplicatingSelector
    agent.begin()
    assert agent.place == 6 * _STEP
    agent.die()


@pytest.mark.parametrize("kinds", ["f", "m", "ff", "fm"])
def test_nothing_is_read_again_if_a_channel_is_added(tmp_path: Path, kinds: str) -> None:
    """If a channel is added, and batches then go to one channel instead of all, nothing is read again."""
    agent = _Agent(tmp_path, kinds, selector=ReplicatingSelector)
    for _ in range(9):
        agent.read()
    agent.drain()
    agent.stop()
    agent.change("add-m", 0)
    for selector in (ReplicatingSelector, LoadBalancingSelector):
        agent.selector = selector
        agent.begin()
        assert agent.place == 9 * _STEP
        agent.stop()
    agent.begin()
    agent.read_all(11 * _STEP)
    agent.drain()
    agent.die()
    agent.begin()
    assert agent.place >= 9 * _STEP
    agent.die()

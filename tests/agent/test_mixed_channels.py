"""Channels that keep their events and channels that forget, of which each batch goes to one, under deaths."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.agent.batch import EventBatch, Position
from producer.agent.channel import BatchChannel
from producer.agent.counters import Counters
from producer.agent.routing import SourceOutlet
from producer.agent.selectors.load_balancing import LoadBalancingSelector
from producer.clock import Clock, SystemClock
from producer.testing import ManualClock

from .doubles import context, file_channel, memory_channel, spillable_channel

_MAKERS: dict[str, Callable[..., BatchChannel]] = {"f": file_channel, "m": memory_channel, "s": spillable_channel}
#: Bytes of a batch: its one event is where it ends.
_STEP = 10


class _Agent:
    """A source that reads one thing in order, and its channels; it can die.

    :ivar delivered: what was taken of channels that forget, and of those that keep.
    """

    def __init__(self, state: Path, kinds: str, clock: Clock | None = None) -> None:
        self._state, self._kinds, self._clock = state, kinds, clock
        self.delivered: dict[bool, Counter[bytes]] = {keeps: Counter() for keeps in (True, False)}
        self.begin()

    def begin(self) -> None:
        """Start the process."""
        options = {} if self._clock is None else {"clock": self._clock}
        self.channels = {
            f"c{number}": _MAKERS[kind](self._state, f"c{number}", **(options if kind == "m" else {"fsync": "os"}))
            for number, kind in enumerate(self._kinds)
        }
        selector = LoadBalancingSelector(LoadBalancingSelector.Options(), context(self._state, "s"), self.channels)
        self._outlet = SourceOutlet("s", (), selector, self.channels, Counters(), SystemClock())
        self._outlet.begin()
        self._ends = self._outlet.ends("f")
        self.place = self._ends[0]

    def read(self) -> None:
        """Put a batch, or what is missing up to where a channel has more."""
        end = min([self.place // _STEP * _STEP + _STEP, *(each for each in self._ends if each > self.place)])
        self._outlet.put(EventBatch.of_lines(b"%d\n" % end, position=Position("f", end)))
        self.place = end

    def take(self, name: str) -> None:
        """Deliver one batch of a channel."""
        channel = self.channels[name]
        taking = channel.take(1, 1, 0)
        if taking is not None:
            bodies = [body for batch in taking.batches for body in batch.bodies()]
            taking.commit()
            self.delivered[channel.positions.keeps].update(bodies)

    def die(self) -> None:
        """Nothing more is noted."""
        for channel in self.channels.values():
            channel.channel.close()
            channel.positions._notes.close()  # type: ignore[attr-defined]

    def drain(self) -> None:
        """Deliver all."""
        for name, channel in self.channels.items():
            while channel.held:
                self.take(name)


_ACTIONS = st.lists(st.sampled_from(["read", "read", "read", "c0", "c1", "c2", "die"]), max_size=60)


@settings(max_examples=40)
@given(st.sampled_from(["fm", "mf", "fs", "sf", "ffm", "fmm", "fms"]), _ACTIONS)
def test_what_a_channel_keeps_does_not_come_twice(kinds: str, actions: list[str]) -> None:
    """Whatever the order of batches, deliveries and deaths: nothing is lost, and only what a channel that forgets has
    delivered may come once more.
    """
    with tempfile.TemporaryDirectory() as state:
        agent, furthest = _Agent(Path(state), kinds), 0
        for action in [*actions, "die"]:
            if action == "read":
                agent.read()
                furthest = max(furthest, agent.place)
            elif action in agent.channels:
                agent.take(action)
            elif action == "die":
                agent.die()
                agent.begin()
        while agent.place < furthest:
            agent.read()
        agent.drain()
        agent.die()
    kept, forgotten = agent.delivered[True], agent.delivered[False]
    assert kept.keys() | forgotten.keys() == {b"%d" % end for end in range(_STEP, furthest + 1, _STEP)}
    twice = {body for body, count in (kept + forgotten).items() if count > 1}
    assert not {body for body in twice if body not in forgotten}
    assert all(count == 1 for count in kept.values())


def test_what_others_had_is_noted_while_a_sink_delivers_nothing(tmp_path: Path) -> None:
    """One of two channels that forget is stuck: what the other one delivers for hours does not come once more."""
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
def test_a_note_does_not_grow_with_what_was_read(tmp_path: Path, kinds: str) -> None:
    """It has the stretches behind what is safe, and none where nobody forgets."""
    agent = _Agent(tmp_path, kinds)
    for _ in range(200):
        agent.read()
        agent.take("c0")
        agent.take("c1")
    note = agent.channels["c0"].channel.notes.read("position:s/f")  # type: ignore[attr-defined]
    agent.drain()
    agent.die()
    assert len(note) < 40, note

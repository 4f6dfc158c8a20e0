"""dedupe."""

from __future__ import annotations

import pytest

from producer.agent.events.counters import Counters
from producer.agent.events.interfaces import Routes
from producer.agent.flow.outlet import SourceOutlet
from producer.agent.ledger.ledger import Ledger
from producer.model.errors import ChannelError
from producer.runtime.clock import SystemClock
from producer.testing import ManualClock
from tests.agent.components import interceptor, lines


def _passed(made, *bodies, **shared):
    after = made.intercept(lines(*bodies, **shared))
    made.committed(after)
    return [body.decode() for body in after.bodies()]


def test_what_was_seen_within_the_window_is_dropped():
    """Of equal bodies the first passes, in one batch or in several, until the window since then is over."""
    clock = ManualClock()
    made = interceptor("dedupe", clock, seconds=10)
    assert _passed(made, "a", "b", "a") == ["a", "b"]
    clock.advance(9)
    assert _passed(made, "a", "c") == ["c"]
    clock.advance(1)
    assert _passed(made, "a", "c") == ["a"]


def test_the_window_of_what_passed_twice_is_since_the_first():
    """Two connections may both pass one at the same time: the second does not make the window longer."""
    clock = ManualClock()
    made = interceptor("dedupe", clock, seconds=10)
    first, second = made.intercept(lines("a")), made.intercept(lines("a"))
    made.committed(first)
    clock.advance(6)
    made.committed(second)
    clock.advance(4)
    assert _passed(made, "a") == ["a"]


def test_the_oldest_are_forgotten_first():
    """No more than the given number is remembered."""
    made = interceptor("dedupe", most=2)
    _passed(made, "a", "b", "c")
    assert _passed(made, "a", "b", "c") == ["a"]


def test_a_header_may_say_what_is_the_same():
    """By a header, events of one value are the same; those without it are like no others."""
    made = interceptor("dedupe", by="id")
    assert _passed(made, "a", "b", id="1") == ["a"]
    assert _passed(made, "c", "d") == ["c", "d"]


class _Channel:
    """Takes batches, or fails."""

    positions = None  # which batches without one do not ask for

    def __init__(self):
        self.fails, self.taken = True, []

    def put(self, batch, timeout, stop):
        if self.fails:
            raise ChannelError("c", "no")
        self.taken += batch.bodies()


class _All:
    exclusive = False

    def select(self, batch):
        return Routes({"c": batch})


def test_what_was_not_committed_is_not_seen(tmp_path):
    """A sender that repeats what no channel took is heard: nothing is dropped that nobody has."""
    channel, ledger = _Channel(), Ledger(tmp_path / "s", SystemClock())
    outlet = SourceOutlet("s", [interceptor("dedupe")], _All(), {"c": channel}, ledger, Counters(), SystemClock())
    with pytest.raises(ChannelError):
        outlet.put(lines("a"))
    channel.fails = False
    outlet.put(lines("a"))
    outlet.put(lines("a"))
    assert channel.taken == [b"a"]

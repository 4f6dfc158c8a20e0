"""dedupe."""

from __future__ import annotations

import pytest

from producer.agent.events.interfaces import Routes
from producer.agent.flow.health import Health
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


def test_of_equal_bodies_only_the_first_passes_in_one_batch_or_in_several_until_the_window_is_over():
    """Of equal bodies only the first passes, in one batch or in several, until the window is over."""
    clock = ManualClock()
    made = interceptor("dedupe", clock, seconds=10)
    assert _passed(made, "a", "b", "a") == ["a", "b"]
    clock.advance(9)
    assert _passed(made, "a", "c") == ["c"]
    clock.advance(1)
    assert _passed(made, "a", "c") == ["a"]


def test_a_repeat_that_passed_on_another_connection_does_not_extend_the_window():
    """A repeat that passed on another connection does not extend the window."""
    clock = ManualClock()
    made = interceptor("dedupe", clock, seconds=10)
    first, second = made.intercept(lines("a")), made.intercept(lines("a"))
    made.committed(first)
    clock.advance(6)
    made.committed(second)
    clock.advance(4)
    assert _passed(made, "a") == ["a"]


def test_the_oldest_are_forgotten_first():
    """At most the given number of events is remembered; the oldest are forgotten first."""
    made = interceptor("dedupe", most=2)
    _passed(made, "a", "b", "c")
    assert _passed(made, "a", "b", "c") == ["a"]


def test_with_by_events_with_the_same_header_value_are_equal():
    """With by, events with the same header value are equal; an event without the header equals no other."""
    made = interceptor("dedupe", by="id")
    assert _passed(made, "a", "b", id="1") == ["a"]
    assert _passed(made, "c", "d") == ["c", "d"]


class _Channel:
    """Channel that accepts batches, or fails."""

    positions = None  # batches without a position do not ask for it

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


def test_an_event_that_was_not_committed_does_not_count_as_seen_so_its_repeat_is_not_dropped(tmp_path):
    """An event that was not committed does not count as seen, so its repeat is not dropped."""
    channel, ledger = _Channel(), Ledger(tmp_path / "s", SystemClock())
    outlet = SourceOutlet("s", [interceptor("dedupe")], _All(), {"c": channel}, ledger, Health())
    with pytest.raises(ChannelError):
        outlet.put(lines("a"))
    channel.fails = False
    outlet.put(lines("a"))
    outlet.put(lines("a"))
    assert channel.taken == [b"a"]

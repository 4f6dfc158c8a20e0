"""Refused events are counted by reason, and the last ones copied."""

from __future__ import annotations

from producer.agent import EventBatch
from producer.agent.flow.refused import MOST_REASON, Refused
from producer.testing import ManualClock


def test_the_last_reasons_and_events_are_kept() -> None:
    """Each of the last 20 reasons has a count, all older ones share one; copies of the last 5 events are kept."""
    refused, clock = Refused(), ManualClock()
    for number in range(30):
        refused.add(EventBatch.of_lines(b"a\nb\n"), f"reason {number}", clock)
    refused.add(EventBatch.of_lines(b"x\n" * 100), "reason 15", clock)
    reasons, older = refused.reasons()
    assert list(reasons.items())[:3] == [("reason 15", 102), ("reason 29", 2), ("reason 28", 2)]
    assert (len(reasons), older) == (20, 20)
    assert [each.event.body for each in refused.events()] == [b"x"] * 5
    refused.add(EventBatch.of_lines(b"x\n"), "r" * 9999, clock)
    assert len(next(iter(refused.reasons()[0]))) == MOST_REASON

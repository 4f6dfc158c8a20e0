"""rate_limit."""

from __future__ import annotations

from producer.agent import EventBatch
from producer.testing import ManualClock
from tests.agent.components import interceptor, lines


def test_after_a_burst_events_pass_at_the_rate_and_never_more_than_a_burst_at_once():
    """After a burst, events pass at the rate, and never more than a burst at once."""
    clock = ManualClock()
    made = interceptor("rate_limit", clock, events_per_second=10, burst=3)
    batch = lines(*"abcde")
    assert made.intercept(batch).bodies() == [b"a", b"b", b"c"]
    assert made.intercept(batch).count == 0
    clock.advance(0.2)
    assert made.intercept(batch).count == 2
    clock.advance(100)
    assert made.intercept(batch).count == 3


def test_each_value_has_a_limit_of_its_own():
    """With by, a frequent value does not use the limit of the others."""
    made = interceptor("rate_limit", ManualClock(), events_per_second=1, by="app")
    batch = EventBatch.of_events([({"app": app}, app.encode()) for app in ("loud", "loud", "loud", "quiet")])
    assert made.intercept(batch).bodies() == [b"loud", b"quiet"]


def test_values_without_end_need_no_memory_without_end():
    """The number of remembered values is limited."""
    made = interceptor("rate_limit", ManualClock(), events_per_second=1, by="app")
    made.intercept(EventBatch.of_events([({"app": str(number)}, b"") for number in range(10_100)]))
    assert len(made._buckets) == 10_000

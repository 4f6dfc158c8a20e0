"""Counters: growing sums, rates over about a minute, and the age of the last take."""

import pytest

from producer.channels.counters import LEAST_SPAN, RATE_SPAN, ChannelCounters, Rate
from producer.testing import ManualClock


def test_a_commit_counts_its_puts_and_its_takes() -> None:
    """A commit counts its puts and takes as successes."""
    counters = ChannelCounters(ManualClock())
    counters.committed(3, 0)
    counters.committed(0, 2)
    counters.committed(1, 1)
    counters.committed(0, 0)
    assert (counters.put_successes, counters.take_successes) == (4, 3)
    assert (counters.put_attempts, counters.take_attempts, counters.put_errors, counters.take_errors) == (0, 0, 0, 0)


def test_the_last_take_is_aged_by_committed_takes_alone() -> None:
    """Only committed takes reset the age of the last take."""
    clock = ManualClock()
    counters = ChannelCounters(clock)
    counters.committed(5, 0)
    assert counters.last_take_age is None
    counters.committed(0, 1)
    clock.advance(7.5)
    counters.committed(5, 0)
    assert counters.last_take_age == 7.5


def test_a_young_rate_is_over_its_whole_life_but_at_least_a_second() -> None:
    """A young rate covers its whole life, at least one second."""
    clock = ManualClock()
    rate = Rate(clock)
    assert rate.per_second() == 0.0
    rate.add(10, clock.monotonic())
    assert rate.per_second() == 10 / LEAST_SPAN
    clock.advance(5)
    assert rate.per_second() == 2.0


def test_a_steady_rate_is_reported_exactly() -> None:
    """A steady rate is reported exactly."""
    clock = ManualClock()
    rate = Rate(clock)
    for _ in range(300):
        rate.add(10, clock.monotonic())
        clock.advance(1)
        assert rate.per_second() == pytest.approx(10, rel=0.02)


def test_a_rate_forgets_after_two_spans() -> None:
    """A rate forgets events after two spans."""
    clock = ManualClock()
    rate = Rate(clock)
    rate.add(6000, clock.monotonic())
    clock.advance(1.5 * RATE_SPAN)
    assert 0 < rate.per_second() <= 6000 / RATE_SPAN
    clock.advance(RATE_SPAN)
    assert rate.per_second() == 0.0
    clock.advance(100 * RATE_SPAN)
    rate.add(60, clock.monotonic())
    assert rate.per_second() == pytest.approx(60 / RATE_SPAN)


def test_a_rate_covers_at_most_two_spans() -> None:
    """A rate covers at most two spans."""
    clock = ManualClock()
    rate = Rate(clock)
    clock.advance(1.9 * RATE_SPAN)
    rate.add(1, clock.monotonic())
    clock.advance(0.99 * RATE_SPAN)
    rate.add(60, clock.monotonic())
    assert rate.per_second() >= 60 / (2 * RATE_SPAN)

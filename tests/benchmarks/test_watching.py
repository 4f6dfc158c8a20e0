"""Figures are computed from the samples of a process."""

import pytest

from .watching import Series, recovery

OUTAGE, RATE, COUNT = (2.0, 6.0), 100, 1000


def samples(after: float) -> Series:
    """Return a sample per second: no log arrives from 2 s to 6 s, then ``after`` logs per second arrive."""
    logs = [0.0, 100, 200, 200, 200, 200, 200]
    while logs[-1] < COUNT:
        logs.append(min(COUNT, logs[-1] + after))
    return [(float(at), 1.0, at / 4, got * 10) for at, got in enumerate(logs)]


@pytest.mark.parametrize(("after", "seconds"), [(200, 4), (300, 2.0), (800, 1)])
def test_the_rate_of_catching_up_is_taken_until_as_few_logs_wait_as_before_the_outage(
    after: float, seconds: float
) -> None:
    """The rate is taken from the end of the outage until the number of waiting logs is that from before it."""
    found = recovery(samples(after), OUTAGE, RATE, COUNT)
    assert found == {
        "catch_up_seconds": pytest.approx(seconds),
        "catch_up_rate": pytest.approx(min(after, 800 / seconds)),
        "catch_up_cpu": pytest.approx(seconds / 4),
    }


def test_there_are_no_figures_without_samples_or_after_an_early_end() -> None:
    """There are no figures without samples, or if the run ended before the outage did."""
    assert recovery([], OUTAGE, RATE, COUNT) == {}
    assert recovery(samples(800)[:2], OUTAGE, RATE, COUNT) == {}

"""The samples of a process give its figures."""

import pytest

from .watching import Series, recovery

OUTAGE, RATE, COUNT = (2.0, 6.0), 100, 1000


def samples(after: float) -> Series:
    """Ten bytes a log, a sample a second, no answer from 2 s to 6 s, then so many logs a second until all are there."""
    logs = [0.0, 100, 200, 200, 200, 200, 200]
    while logs[-1] < COUNT:
        logs.append(min(COUNT, logs[-1] + after))
    return [(float(at), 1.0, at / 4, got * 10) for at, got in enumerate(logs)]


@pytest.mark.parametrize(("after", "seconds"), [(200, 4), (300, 2.0), (800, 1)])
def test_the_rate_of_catching_up_is_that_until_nothing_is_late(after: float, seconds: float) -> None:
    """From the end of the outage until no more logs wait than before it; what is sent meanwhile is due as well."""
    found = recovery(samples(after), OUTAGE, RATE, COUNT)
    assert found == {
        "catch_up_seconds": pytest.approx(seconds),
        "catch_up_rate": pytest.approx(min(after, 800 / seconds)),
        "catch_up_cpu": pytest.approx(seconds / 4),
    }


def test_without_samples_the_report_has_no_figure() -> None:
    """As where there is no /proc, or the run was over before the outage was."""
    assert recovery([], OUTAGE, RATE, COUNT) == {}
    assert recovery(samples(800)[:2], OUTAGE, RATE, COUNT) == {}

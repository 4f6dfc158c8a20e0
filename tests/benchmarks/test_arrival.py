"""The report of line delays has the right figures."""

import pytest

from .arrival import Arrivals, arrivals, measure


def test_only_the_spread_of_the_delay_distinguishes_a_steady_run() -> None:
    """Only the spread of the delay distinguishes an even run from an uneven one with the same mean and rate."""
    written = [float(number) for number in range(100)]
    even = arrivals(written, [each + 0.5 for each in written])
    uneven = arrivals(written, [each + (0.0 if each % 2 else 1.0) for each in written])
    assert (even.mean, uneven.mean) == (0.5, 0.5)
    assert (even.spread, uneven.spread) == (0.0, 0.5)
    assert even.rate == pytest.approx(100 / 99.5)
    assert (even.median, uneven.median, uneven.late) == (0.5, 0.5, 1.0)
    assert Arrivals(1234.4, 0.5, 0.25, 0.125, 1).row("file") == (
        "| taildir → file → LogHub | 1,234 | 500 | 250 | 125 | 1000 |"
    )


def test_in_a_measured_run_each_line_arrives_after_its_write() -> None:
    """In a measured run, each line arrives after its write."""
    found = measure("file", rate=100, count=30)
    assert 0 < found.mean <= found.late
    assert found.rate > 0

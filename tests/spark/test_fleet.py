"""A fleet of Spark executors that is throttled loses nothing, as the documents say."""

import os

import pytest

from producer.spark.writing.options import ACK_TIMEOUT
from tests.spark.fleet import HASTY, ROWS, simulate

_SOAK = bool(os.environ.get("PRODUCER_SOAK"))
_QUICK = 2


@pytest.mark.parametrize(("processes", "quota", "options"), ROWS if _SOAK else ROWS[:_QUICK])
def test_a_throttled_fleet_loses_nothing(processes: int, quota: int, options: dict[str, int]) -> None:
    """No batch of a task fails for a quota; ``make soak`` simulates the large fleets, and the options of no task."""
    found = simulate(processes, quota, options)
    assert (found.failed > 0) == (options is HASTY)
    assert found.quiet < ACK_TIMEOUT / 2


def test_a_fleet_that_writes_for_longer_than_all_backoffs_loses_nothing() -> None:
    """A fleet that writes for longer than all backoffs loses nothing; outside of a task half of it would fail."""
    hasty, patient = simulate(100, 6, HASTY), simulate(100, 6, {})
    assert hasty.failed > 500
    assert hasty.retries == 10
    assert patient.failed == 0
    assert patient.quiet < ACK_TIMEOUT / 2
    assert patient.seconds < 1.15 * patient.least


def test_gates_keep_a_fleet_from_hammering_the_endpoint() -> None:
    """Gates limit the refused requests of a fleet."""
    found = simulate(100, 32, {})
    assert found.failed == 0
    assert found.refused < 0.75
    assert found.connections < 200

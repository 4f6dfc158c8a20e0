"""The figures of a thousand executors in ``MEASURED.md`` are those of the simulation."""

import os
from pathlib import Path

import pytest

from producer.spark.writing.options import ACK_TIMEOUT
from tests.spark.fleet import HASTY, ROWS, row, simulate

_DOCUMENT = Path(__file__).parents[1] / "benchmarks" / "MEASURED.md"
_SOAK = bool(os.environ.get("PRODUCER_SOAK"))
_QUICK = 2


@pytest.mark.parametrize("number", range(len(ROWS) if _SOAK else _QUICK))
def test_the_table_is_what_the_simulation_says(number: int) -> None:
    """Each line of the table is the simulation's; ``make soak`` checks the slow ones."""
    assert f"\n{row(*ROWS[number])}\n" in _DOCUMENT.read_text()


def test_the_table_has_each_row_of_the_simulation() -> None:
    """The table has each row of the simulation, with processes, quota and options."""
    lines = [line.split("|")[1:4] for line in _DOCUMENT.read_text().splitlines()]
    for processes, quota, options in ROWS:
        told = ", ".join(f"`{name}={value}`" for name, value in options.items()) or "defaults"
        assert [f" {processes:,} ", f" {quota} ", f" {told} "] in lines


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

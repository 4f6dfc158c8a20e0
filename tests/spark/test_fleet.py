"""What ``MEASURED.md`` says of a thousand executors before one endpoint is what the simulation says."""

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
    """Line by line; the later ones take half a minute each, and are looked at by ``make soak``."""
    assert f"\n{row(*ROWS[number])}\n" in _DOCUMENT.read_text()


def test_the_table_has_each_row_of_the_simulation() -> None:
    """With the number of processes, the quota and the options of each."""
    lines = [line.split("|")[1:4] for line in _DOCUMENT.read_text().splitlines()]
    for processes, quota, options in ROWS:
        told = ", ".join(f"`{name}={value}`" for name, value in options.items()) or "defaults"
        assert [f" {processes:,} ", f" {quota} ", f" {told} "] in lines


def test_a_fleet_that_writes_for_longer_than_all_backoffs_loses_nothing() -> None:
    """In five minutes of quota each process waits for its share; a producer outside of a task fails half of them."""
    hasty, patient = simulate(100, 6, HASTY), simulate(100, 6, {})
    assert hasty.failed > 500
    assert hasty.retries == 10
    assert patient.failed == 0
    assert patient.quiet < ACK_TIMEOUT / 2
    assert patient.seconds < 1.15 * patient.least


def test_gates_keep_a_fleet_from_hammering_the_endpoint() -> None:
    """Each process has four threads and twenty batches, and could ask forty times a second for what is refused."""
    found = simulate(100, 32, {})
    assert found.failed == 0
    assert found.refused < 0.75
    assert found.connections < 200

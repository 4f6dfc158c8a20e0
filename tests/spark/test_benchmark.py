"""The benchmark of Spark runs, and no way through it is fast by sending nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks.spark import TITLES, WAYS, measure, report

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession


def test_every_way_of_the_benchmark_delivers_its_bytes_and_has_a_line(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every way of the benchmark delivers the bytes that it is measured for, and has a line in the table."""
    found = measure(spark, 2000, 1, WAYS)
    assert [line.split()[0] for line in capsys.readouterr().err.splitlines() if line.endswith("rows/s")] == list(WAYS)
    table = report(2000, found)
    assert all(f"| {name} | " in table for name in TITLES.values())

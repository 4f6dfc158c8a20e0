"""The benchmark of Spark runs, and no way through it is fast by sending nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks.spark import WAYS, measure, report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_way_delivers_what_it_is_measured_for(spark: SparkSession) -> None:
    """With a few rows every way ends, the server has got the bytes, and the table has a line for each."""
    found = measure(spark, 2000, 1, WAYS)
    table = report(2000, found)
    assert all(f"| {name} | " in table for name in WAYS)

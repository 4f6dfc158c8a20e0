"""A process of Spark's imports what it does, no more: Spark starts one for each core, and anew after each error."""

import pytest

from tests.test_imports import imported

#: What sends, stores or shows, and costs a process the more time to start the less it does.
HEAVY = {
    "numpy",
    "pandas",
    "producer.channels",
    "producer.client.producer",
    "pyarrow",
    "pyarrow.fs",
    "pyarrow.parquet",
    "requests",
    "rich",
}


@pytest.mark.parametrize(
    ("statement", "needed"),
    [
        pytest.param("import producer.spark.writing.writers", set(), id="plans a write, and commits it"),
        pytest.param(
            "import producer.spark.writing.task",
            {"numpy", "producer.client.producer", "pyarrow", "requests"},
            id="writes columns",
        ),
        pytest.param("import producer.spark.executor", {"producer.client.producer", "requests"}, id="sends"),
        pytest.param("import producer.ship.spark_engine", {"producer.client.producer", "requests"}, id="ships files"),
    ],
)
def test_what_a_process_does_not_do_is_not_imported(statement: str, needed: set[str]) -> None:
    """To plan needs no sender, to send no channel, to write no dead letters, to ship no progress bar."""
    assert imported(statement) & HEAVY <= needed

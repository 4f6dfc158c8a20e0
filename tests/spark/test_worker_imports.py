"""A process of Spark imports only what it uses, because Spark starts many of them."""

import pytest

from tests.test_imports import imported

#: Modules that send, store or print, and that slow down the start of a process that needs none of them.
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
def test_each_kind_of_process_imports_only_the_modules_of_its_work(statement: str, needed: set[str]) -> None:
    """Each kind of process imports only the modules of its work."""
    assert imported(statement) & HEAVY <= needed

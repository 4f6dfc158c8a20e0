"""Provide one Spark session for all tests that need it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.spark_classes import MAKING_SECONDS, QUICK, lean_home, sharing_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The variable that makes coverage measure the processes that a test starts.
MEASURED = "COVERAGE_PROCESS_CONFIG"

#: Seconds for a test that may wait for the class archive and then for Spark.
_TIMEOUT_WITH_ARCHIVE = 2 * MAKING_SECONDS


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test that may be the first to need Spark a timeout that covers its start."""
    for item in items:
        if "quick_java" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT_WITH_ARCHIVE))


@pytest.fixture(scope="session")
def quick_java(pytestconfig: pytest.Config) -> Iterator[str]:
    """Set the JVM options and the Spark home that shorten Spark's start."""
    assert pytestconfig.cache is not None
    folder = pytestconfig.cache.mkdir("spark-classes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(lean_home(folder)))
        options = f"{sharing_options(folder)} {QUICK}".strip()
        patch.setenv("SPARK_SUBMIT_OPTS", options)
        yield options


@pytest.fixture(scope="session")
def spark(quick_java: str) -> Iterator[SparkSession]:
    """Yield a session with two cores, in which a task has four attempts, as on a cluster."""
    from pyspark.sql import SparkSession

    from producer.ship.session import build_context

    environment = dict(os.environ)
    os.environ.pop(MEASURED, None)
    build_context(master="local[2,4]")
    session = SparkSession.builder.getOrCreate()
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(environment)

"""One Spark session for all tests that need one, and what its JVM starts with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.spark_classes import MAKING_SECONDS, lean_home, sharing_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: By this coverage measures the processes that a test starts.
MEASURED = "COVERAGE_PROCESS_CONFIG"

#: For a test that may have to wait until Spark's classes are in an archive, and then for Spark, seconds.
_TIMEOUT_WITH_ARCHIVE = 2 * MAKING_SECONDS


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that needs the session or the cluster makes what they start with."""
    for item in items:
        if "quick_java" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT_WITH_ARCHIVE))


@pytest.fixture(scope="session")
def quick_java(pytestconfig: pytest.Config) -> Iterator[str]:
    """Use JVM options and a home of Spark's from here on with which Spark starts sooner."""
    assert pytestconfig.cache is not None
    folder = pytestconfig.cache.mkdir("spark-classes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(lean_home(folder)))
        options = sharing_options(folder)
        patch.setenv("SPARK_SUBMIT_OPTS", options)
        yield options


@pytest.fixture(scope="session")
def spark(quick_java: str) -> Iterator[SparkSession]:
    """A session of two cores in which a task has four attempts, as on a cluster."""
    from producer.ship.session import build_session

    environment = dict(os.environ)
    os.environ.pop(MEASURED, None)
    session = build_session(master="local[2,4]", app_name="tests")
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(environment)

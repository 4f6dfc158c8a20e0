"""A cluster for the tests in this folder, started once, and repaired after a test that broke it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .cluster import Cluster
from .environments import bare_python, environment_archive
from .kit import sdk_zip


@pytest.fixture(scope="package")
def standing_cluster(tmp_path_factory: pytest.TempPathFactory, quick_java: str) -> Iterator[Cluster]:
    """Start the cluster, whose Pythons lack the SDK."""
    python = bare_python(tmp_path_factory.mktemp("bare") / "environment")
    with Cluster(tmp_path_factory.mktemp("cluster"), python, quick_java) as cluster:
        yield cluster


@pytest.fixture
def cluster(standing_cluster: Cluster) -> Iterator[Cluster]:
    """Return the cluster without jobs, with two workers."""
    standing_cluster.heal()
    try:
        yield standing_cluster
    finally:
        print(standing_cluster.logs())  # pytest shows it if the test failed
        standing_cluster.end_jobs()


@pytest.fixture(scope="package")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sdk_zip(tmp_path_factory.mktemp("sdk"))


@pytest.fixture(scope="package")
def packed_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack a Python with the SDK for ``--archives``."""
    return environment_archive(tmp_path_factory.mktemp("packed"))

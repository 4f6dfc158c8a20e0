"""One Spark session and helpers for the tests of the Spark side."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from producer import ProjectConfig
from producer.clock import SystemClock
from producer.errors import CloseTimeoutError
from producer.server import LogHubServer
from producer.spark import executor
from producer.spark.counts import Counts
from producer.spark.job import ShipJob
from producer.spark.parsers import make_parser
from producer.spark.plan import Split
from producer.spark.portions import Portion, read_portion
from producer.spark.writing.metrics import WriteMetrics
from producer.spark.writing.options import WriteOptions
from producer.spark.writing.task import write_rows
from tests.support.spark_classes import sharing_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT, LOGSTORE = "test-project", "test-logstore"

#: By this coverage measures the processes that a test starts.
MEASURED = "COVERAGE_PROCESS_CONFIG"
#: How long a test waits for what another process does, seconds.
PATIENCE = 60.0

#: For a test that may have to wait until Spark's classes are in an archive, seconds.
_TIMEOUT_WITH_ARCHIVE = 300


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that needs the session or the cluster makes what they start with."""
    for item in items:
        if "quick_java" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT_WITH_ARCHIVE))


@pytest.fixture(scope="session")
def quick_java(pytestconfig: pytest.Config) -> Iterator[str]:
    """Options with which JVMs of Spark's start sooner; from here on this process and its children use them."""
    assert pytestconfig.cache is not None
    options = sharing_options(pytestconfig.cache.mkdir("spark-classes"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", options)
        yield options


@pytest.fixture(autouse=True)
def _unmeasured_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark and its programs run in processes of their own is not measured: that would take half as long again."""
    monkeypatch.delenv(MEASURED, raising=False)


@pytest.fixture(scope="session")
def spark(quick_java: str) -> Iterator[SparkSession]:
    """A session of two cores in which a task has four attempts, as on a cluster."""
    from producer.spark.session import build_session

    environment = dict(os.environ)
    os.environ.pop(MEASURED, None)
    session = build_session(master="local[2,4]", app_name="tests")
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(environment)


@pytest.fixture(autouse=True)
def _own_producers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Producers of this process end with their test."""
    monkeypatch.setattr(executor, "_producers", executor.WorkerProducers(SystemClock()))
    yield
    close_producers()


@pytest.fixture
def server() -> Iterator[LogHubServer]:
    """An embedded LogHub of its own for each test."""
    with LogHubServer() as server:
        yield server
        server.faults.clear()
        close_producers()


def close_producers() -> None:
    """Close what get_producer made; what a test left behind on purpose is failed."""
    for producer in executor._producers.producers:
        with contextlib.suppress(CloseTimeoutError):
            producer.close(timeout=1)


@pytest.fixture
def make_job(server: LogHubServer) -> Callable[..., ShipJob]:
    """Makes jobs that ship into the server."""

    def make(*, producer: dict[str, object] | None = None, **options: object) -> ShipJob:
        given = {"linger_ms": 100, "base_retry_backoff_ms": 10, **(producer or {})}
        texts = {name: str(value) for name, value in given.items()}
        return ShipJob(project=project_of(server), logstore=LOGSTORE, producer=texts, **options)  # type: ignore[arg-type]

    return make


def ship_splits(splits: Iterable[Split], job: ShipJob) -> tuple[Counts, WriteMetrics]:
    """What the workers do for one partition, in this process: read, then write."""
    counts = Counts()
    parser = make_parser(job.parser, job.pattern)
    rows = read_portion(Portion(tuple(splits)), parser, job.max_line_bytes, counts)
    written = write_rows(rows, WriteOptions.from_mapping(job.write_options()), None)
    return counts, written


def project_of(server: LogHubServer) -> ProjectConfig:
    """The configuration of a project on the server."""
    return ProjectConfig(
        PROJECT,
        endpoint=server.endpoint,
        access_key_id=server.access_key_id,
        access_key_secret=server.access_key_secret,
    )


def held(server: LogHubServer) -> list[dict[str, str]]:
    """The fields of every log that the server holds, by file and offset."""
    logs = [dict(log.contents) for log in server.logs(PROJECT, LOGSTORE)]
    return sorted(logs, key=lambda log: (log["file_path"], int(log["file_offset"]), int(log.get("line_part", 0))))


def contents(server: LogHubServer, path: Path | str | None = None) -> list[str]:
    """The lines that the server holds, of one file or of all."""
    return [log["content"] for log in held(server) if path is None or log["file_path"] == str(path)]


def ship_arguments(server: LogHubServer, *arguments: object) -> list[str]:
    """The command line of ``producer ship`` into the server, without the command."""
    return [
        *map(str, arguments),
        f"--endpoint={server.endpoint}",
        f"--project={PROJECT}",
        f"--logstore={LOGSTORE}",
        f"--access-key-id={server.access_key_id}",
        f"--access-key-secret={server.access_key_secret}",
        "--producer-option=linger_ms=100",
    ]


def parse_ship(arguments: list[str]) -> argparse.Namespace:
    """The parsed command line of ``producer ship``."""
    from producer.spark.ship import add_arguments

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)


def start_ship(*arguments: str) -> subprocess.Popen[str]:
    """``producer ship`` in a process of its own, on one core."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    command = [sys.executable, "-m", "producer", "ship", *arguments, "--master=local[1,4]"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait until something is so, as long as the process that is to bring it about lives."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)

"""Helpers for the tests of the Spark connector: LogGroups in an embedded LogHub, and options of reads."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql.types import StructType

from producer import ProjectConfig
from producer.model.errors import CloseTimeoutError
from producer.runtime.clock import SystemClock
from producer.server import LogHubServer
from producer.spark import executor
from producer.spark.logstore import LogstoreClient
from producer.spark.options import Target
from producer.spark.reading.plan import ReadPlan
from producer.spark.reading.schema import default_schema
from tests.server.client import Client, log_group
from tests.support.spark_session import MEASURED

PROJECT, LOGSTORE = "test-project", "test-logstore"

# A key in the first of two shards, and one in the second.
KEY_OF_SHARD = {"0": "00", "1": "ff"}

Put = Callable[..., None]


@pytest.fixture(autouse=True)
def _unmeasured_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn off coverage in Spark's own processes, which would take half as long again."""
    monkeypatch.delenv(MEASURED, raising=False)


@pytest.fixture(autouse=True)
def _own_producers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the producers of this process after each test."""
    monkeypatch.setattr(executor, "_producers", executor.WorkerProducers(SystemClock()))
    yield
    close_producers()


@pytest.fixture
def server() -> Iterator[LogHubServer]:
    """Start an embedded LogHub for each test."""
    with LogHubServer() as server:
        yield server
        server.faults.clear()
        close_producers()


def close_producers() -> None:
    """Close the producers of get_producer, and fail what a test left undelivered."""
    for producer in executor._producers.producers:
        with contextlib.suppress(CloseTimeoutError):
            producer.close(timeout=1)


def project_of(server: LogHubServer) -> ProjectConfig:
    """Return the configuration of a project on the server."""
    return ProjectConfig(
        PROJECT,
        endpoint=server.endpoint,
        access_key_id=server.access_key_id,
        access_key_secret=server.access_key_secret,
    )


@pytest.fixture
def put(server: LogHubServer) -> Iterator[Put]:
    """Return a function that puts one LogGroup of messages, or an encoded one, into a shard."""
    with Client(server, project=PROJECT) as client:

        def put(*messages: str, shard: str = "0", raw: bytes | None = None, logstore: str = LOGSTORE) -> None:
            body = log_group(*messages) if raw is None else raw
            params = {"key": KEY_OF_SHARD[shard]}
            answer = client.put(body, logstore=logstore, path="/shards/route", params=params)
            assert answer.status_code == 200, answer.text

        yield put


@pytest.fixture
def client(server: LogHubServer) -> Iterator[LogstoreClient]:
    """Make a client of the tests' logstore with short backoffs."""
    with plan_of(server).client() as client:
        yield client


def options_of(server: LogHubServer, **options: str) -> dict[str, str]:
    """Return the options of a read as Spark passes them, in lower case."""
    given = {
        "endpoint": server.endpoint,
        "project": PROJECT,
        "logstore": LOGSTORE,
        "accessKeyId": server.access_key_id,
        "accessKeySecret": server.access_key_secret,
        "base_retry_backoff_ms": "1",
        "max_retry_backoff_ms": "10",
        **options,
    }
    return {name.lower(): value for name, value in given.items()}


def plan_of(server: LogHubServer, schema: StructType | None = None, **options: str) -> ReadPlan:
    return ReadPlan.of(options_of(server, **options), default_schema() if schema is None else schema)


def target_in(server: LogHubServer, logstore: str = LOGSTORE) -> Target:
    return Target(project_of(server), logstore)

"""LogGroups put into shards of an embedded LogHub, and plans of reading them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql.types import StructType

from producer.server import LogHubServer
from producer.spark.options import Target
from producer.spark.reading.client import LogstoreClient
from producer.spark.reading.plan import ReadPlan
from producer.spark.reading.schema import default_schema
from tests.server.client import Client, log_group

from ..conftest import LOGSTORE, PROJECT, project_of

# A key in the first and one in the second of two shards.
KEY_OF_SHARD = {"0": "00", "1": "ff"}

Put = Callable[..., None]


@pytest.fixture
def put(server: LogHubServer) -> Iterator[Put]:
    """Puts one LogGroup of messages, or an encoded one, into a shard."""
    with Client(server, project=PROJECT) as client:

        def put(*messages: str, shard: str = "0", raw: bytes | None = None, logstore: str = LOGSTORE) -> None:
            body = log_group(*messages) if raw is None else raw
            params = {"key": KEY_OF_SHARD[shard]}
            answer = client.put(body, logstore=logstore, path="/shards/route", params=params)
            assert answer.status_code == 200, answer.text

        yield put


@pytest.fixture
def client(server: LogHubServer) -> Iterator[LogstoreClient]:
    """A client of the tests' logstore that does not wait long."""
    with plan_of(server).client() as client:
        yield client


def options_of(server: LogHubServer, **options: str) -> dict[str, str]:
    """The options of a read, as Spark hands them over: in lower case."""
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
    """The plan of a read."""
    return ReadPlan.of(options_of(server, **options), default_schema() if schema is None else schema)


def target_in(server: LogHubServer, logstore: str = LOGSTORE) -> Target:
    """A logstore of the tests' project."""
    return Target(project_of(server), logstore)


def rows_of(reader: Any, partitions: Sequence[Any]) -> list[dict[str, Any]]:
    """Every row of the partitions, in order."""
    return [row for part in partitions for batch in reader.read(part) for row in batch.to_pylist()]


def messages_of(reader: Any, partitions: Sequence[Any]) -> list[str]:
    """The field ``message`` of every row."""
    return [dict(row["contents"])["message"] for row in rows_of(reader, partitions)]

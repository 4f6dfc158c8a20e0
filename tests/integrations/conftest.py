"""An embedded LogHub for all integrations, with a producer and its stored logs."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from producer import Producer, ProducerConfig, ProjectConfig
from producer.server import LogHubServer
from producer.server.store.log_groups import StoredLog
from tests.support.waiting import PATIENCE

PROJECT = "my-project"
_numbers = itertools.count()


@pytest.fixture(scope="session")
def loghub() -> Iterator[LogHubServer]:
    with LogHubServer(shards=1) as server:
        yield server


@pytest.fixture
def reach(loghub: LogHubServer) -> dict[str, Any]:
    return {
        "endpoint": loghub.endpoint,
        "access_key_id": loghub.access_key_id,
        "access_key_secret": loghub.access_key_secret,
    }


@pytest.fixture
def producer(reach: dict[str, Any]) -> Iterator[Producer]:
    """Make a producer whose batches arrive in order."""
    config = ProducerConfig(linger_ms=100, io_thread_count=1)
    with Producer(ProjectConfig(PROJECT, **reach), config=config) as producer:
        yield producer


@pytest.fixture
def logstore() -> str:
    return f"store-{next(_numbers)}"


@pytest.fixture
def arrived(loghub: LogHubServer, producer: Producer, logstore: str) -> Callable[[], list[StoredLog]]:
    """Return a function that flushes the producer, and returns the logs in the test's logstore."""

    def look() -> list[StoredLog]:
        producer.flush(PATIENCE)
        return loghub.logs(PROJECT, logstore)

    return look

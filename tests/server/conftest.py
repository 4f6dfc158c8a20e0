from collections.abc import Iterator

import pytest

from producer.server import LogHubServer

from .client import Client


@pytest.fixture
def server() -> Iterator[LogHubServer]:
    with LogHubServer() as server:
        yield server


@pytest.fixture
def own_key(server: LogHubServer) -> None:
    """Give the server a key of its own, so that it answers under any host name."""
    server.access_keys.clear()
    server.access_keys["me"] = "mine"


@pytest.fixture
def client(server: LogHubServer) -> Iterator[Client]:
    with Client(server) as client:
        yield client

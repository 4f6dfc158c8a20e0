"""A server that refuses the poisoned rows of ``kit``."""

from collections.abc import Iterator

import pytest

from producer.server import LogHubServer
from tests.spark.conftest import close_producers
from tests.spark.writing.kit import LIMITS


@pytest.fixture
def strict() -> Iterator[LogHubServer]:
    """Start an embedded LogHub with a low limit of a request's size."""
    with LogHubServer(limits=LIMITS) as server:
        yield server
        server.faults.clear()
        close_producers()

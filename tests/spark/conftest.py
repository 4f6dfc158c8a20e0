"""Helpers for the tests of the Spark side."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from producer import ProjectConfig
from producer.clock import SystemClock
from producer.errors import CloseTimeoutError
from producer.server import LogHubServer
from producer.spark import executor
from tests.support.spark_session import MEASURED

PROJECT, LOGSTORE = "test-project", "test-logstore"


@pytest.fixture(autouse=True)
def _unmeasured_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark and its programs run in processes of their own is not measured: that would take half as long again."""
    monkeypatch.delenv(MEASURED, raising=False)


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


def project_of(server: LogHubServer) -> ProjectConfig:
    """The configuration of a project on the server."""
    return ProjectConfig(
        PROJECT,
        endpoint=server.endpoint,
        access_key_id=server.access_key_id,
        access_key_secret=server.access_key_secret,
    )

"""Readers with several endpoints of a project, over real sockets: they leave, probe and return as producers do."""

import os
import signal
from collections.abc import Iterator

import pytest

from producer import Producer, ProducerConfig, ProjectConfig
from producer.reading.errors import LogHubReadError
from producer.reading.logstore import LogstoreReader
from producer.reading.signed_client import SignedClient
from producer.server import LogHubServer
from producer.sinks.loghub import endpoint_choice
from tests.support.relay import relay
from tests.support.waiting import eventually

DEAD = "http://127.0.0.1:1"
CONFIG = ProducerConfig(failover_ms=400, retries=0, base_retry_backoff_ms=1)


@pytest.fixture(scope="module")
def server() -> Iterator[LogHubServer]:
    with LogHubServer() as server:
        with Producer(project_of(server, server.endpoint)) as producer:
            producer.send("p", "l", {"a": "b"})
        yield server


def project_of(server: LogHubServer, *endpoints: str | ProjectConfig, name: str = "p") -> ProjectConfig:
    key = {name: value for name, value in server.connection.items() if name != "endpoint"}
    return ProjectConfig(name, endpoints=endpoints, **key)


def test_a_request_moves_on_to_an_endpoint_that_answers(server: LogHubServer) -> None:
    """Even without retries, a request leaves an unreachable endpoint; later ones begin at the other."""
    with SignedClient(project_of(server, DEAD, server.endpoint), "p/l", names={}, config=CONFIG) as client:
        reader = LogstoreReader(client, "l")
        assert reader.shards()
        assert reader.pull("0", reader.cursor("0", "begin"), len).at_end is False
        assert client._endpoints.current.config.endpoint == server.endpoint


def test_a_frozen_endpoint_is_left_and_returned_to(
    server: LogHubServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader leaves an endpoint after ``failover_ms`` of silence, and returns after good probes."""
    monkeypatch.setattr(endpoint_choice, "FIRST_PAUSE", 0.1)
    caplog.set_level("INFO", "loghub.endpoints")
    with (
        relay(server) as (process, first),
        SignedClient(project_of(server, first, server.endpoint), "p/l", names={}, config=CONFIG) as client,
    ):
        reader = LogstoreReader(client, "l")
        shards = reader.shards()
        os.kill(process.pid, signal.SIGSTOP)
        assert reader.shards() == shards
        assert f"p: left {first} (SocketTimeout: " in caplog.text
        os.kill(process.pid, signal.SIGCONT)
        eventually(lambda: reader.shards() and client._endpoints.current.config.endpoint == first)
    assert "answers probes again" in caplog.text


def test_no_endpoint_of_another_project_is_read(server: LogHubServer) -> None:
    """Another project has other logs and cursors, so reading fails instead; the error names the last endpoint."""
    other = project_of(server, server.endpoint, name="q")
    project = project_of(server, DEAD, "http://127.0.0.1:2", other)
    before = server.requests[-1]
    with (
        SignedClient(project, "p/l", names={"endpoint": "it"}, config=CONFIG) as client,
        pytest.raises(LogHubReadError, match=r"ListShards of p/l at http://127.0.0.1:2: .* after 6 attempts"),
    ):
        LogstoreReader(client, "l").shards()
    assert server.requests[-1] is before

"""Producers with two endpoints of a project, over real sockets: each log is stored once whatever the first one does.

Both endpoints lead to one server, as those of the service do: by an address and by ``localhost``, or through a relay in
a process of its own that a test kills or stops. Another region is a server of its own.
"""

import contextlib
import dataclasses
import os
import re
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from producer import FileChannel, Producer, ProducerConfig, ProjectConfig, TargetError
from producer.server import LogHubServer, faults
from producer.server.messages import ApiRequest
from producer.sinks.loghub import endpoint_choice
from producer.sinks.loghub.sink import LogHubSink
from tests.support.relay import relay
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def server() -> Iterator[LogHubServer]:
    # With a key of its own the server accepts any Host, such as moves.test below.
    with LogHubServer(access_keys={"failover-id": "failover-secret"}) as server:
        yield server


@pytest.fixture(autouse=True)
def _clean(server: LogHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.faults.clear()
    monkeypatch.setattr(endpoint_choice, "FIRST_PAUSE", 0.2)
    monkeypatch.setattr(endpoint_choice, "LONGEST_PAUSE", 0.4)


def project_of(server: LogHubServer, *endpoints: str | ProjectConfig) -> ProjectConfig:
    key = {name: value for name, value in server.connection.items() if name != "endpoint"}
    return ProjectConfig("p", endpoints=endpoints, **key)


CONFIG = ProducerConfig(linger_ms=20, failover_ms=400, io_thread_count=2, batch_count_threshold=4)


def stored(server: LogHubServer, logstore: str, project: str = "p") -> Counter[str]:
    return Counter(dict(log.contents)["n"] for log in server.logs(project, logstore))


def send_and_signal(
    producer: Producer, server: LogHubServer, logstore: str, process: subprocess.Popen[str], number: signal.Signals
) -> None:
    """Send 400 logs on an idempotent stream, and signal the process in the midst, once logs are stored."""
    stream = producer.stream("p", logstore, idempotent=True)
    for n in range(400):
        stream.send({"n": str(n)})
        if n == 200:
            eventually(lambda: stored(server, logstore))
            os.kill(process.pid, number)
    producer.flush(60)


def localhost(server: LogHubServer) -> str:
    return f"http://localhost:{server.port}"


def only_localhost(fault: faults.Fault) -> faults.Fault:
    """Return the fault for requests to ``localhost`` alone, which is an endpoint of its own."""

    def found(request: ApiRequest) -> faults.Action | None:
        return fault(request) if "localhost" in request.headers["host"] else None

    return found


@pytest.mark.parametrize("channel", [False, True], ids=["memory", "channel"])
@pytest.mark.parametrize("with_signal", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_an_endpoint_whose_process_is_killed_or_frozen_loses_and_repeats_nothing(
    server: LogHubServer, tmp_path: Path, with_signal: signal.Signals, *, channel: bool
) -> None:
    """An idempotent stream is stored exactly once, although a frozen endpoint passes on its requests later."""
    logstore = f"signal-{with_signal.name}-{channel}".lower()
    with relay(server) as (process, first):
        kept = FileChannel(tmp_path / "channel") if channel else None
        producer = Producer(project_of(server, first, server.endpoint), config=CONFIG, channel=kept)
        with producer:
            send_and_signal(producer, server, logstore, process, with_signal)
            (found,) = producer.stats().endpoints
            assert (found.endpoint, found.left, found.changes) == (server.endpoint, (first,), 1)
            assert found.reason.startswith(f"left {first} (")
            assert all(one.held is None for one in producer.stats().destinations), "the destination is not paused"
            if with_signal is signal.SIGSTOP:
                os.kill(process.pid, signal.SIGCONT)
                send_until_it_uses(producer, logstore, first)
        if channel:
            assert kept is not None
            kept.close()
    counts = stored(server, logstore)
    assert {str(n) for n in range(400)} <= counts.keys()
    assert set(counts.values()) == {1}


@pytest.mark.parametrize(
    ("with_signal", "channel"), [(signal.SIGKILL, True), (signal.SIGSTOP, False)], ids=["killed", "frozen"]
)
def test_another_region_takes_over_with_its_own_project_and_key(
    server: LogHubServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    with_signal: signal.Signals,
    *,
    channel: bool,
) -> None:
    """Of a region that is killed or frozen, no log is lost, and each is stored at most once in each project."""
    caplog.set_level("INFO", "loghub.endpoints")
    logstore = f"region-{with_signal.name}".lower()
    there = LogHubServer(access_keys={"id-there": "secret-there"}, region="there")
    with there, relay(server) as (process, first), contextlib.ExitStack() as ends:
        second = ProjectConfig(
            "q",
            endpoint=there.endpoint,
            region="there",
            access_key_id="id-there",
            access_key_secret="secret-there",
        )
        config = dataclasses.replace(CONFIG, sign_version="v4", region="here")
        kept = ends.enter_context(contextlib.closing(FileChannel(tmp_path / "channel"))) if channel else None
        with Producer(project_of(server, first, second), config=config, channel=kept) as producer:
            send_and_signal(producer, server, logstore, process, with_signal)
            name = f"q at {there.endpoint}"
            (found,) = producer.stats().endpoints
            assert (found.project, found.endpoint, found.endpoints, found.left) == ("p", name, (first, name), (first,))
            assert [one.name for one in producer.stats().destinations] == [f"p {first}, {name}"]
            assert there.requests[-1].headers["x-producer-endpoint"].startswith(f"{name}; left {first} (")
            if with_signal is signal.SIGSTOP:
                os.kill(process.pid, signal.SIGCONT)
                send_until_it_uses(producer, logstore, first)
                assert f"q/{logstore} at {there.endpoint} (" in producer.check("p", logstore)
        here, elsewhere = stored(server, logstore), stored(there, logstore, "q")
    assert {str(n) for n in range(400)} <= (here + elsewhere).keys()
    assert set(here.values()) == {1} == set(elsewhere.values())
    assert f"; using {name}, another project: a batch may be stored in both" in caplog.text


def test_another_project_that_refuses_its_key_fails_no_record(server: LogHubServer) -> None:
    """A wrong key of another project counts as an outage there: records wait until an endpoint takes them."""
    wrong = ProjectConfig("q", endpoint=server.endpoint, access_key_id="failover-id", access_key_secret="wrong")
    with (
        relay(server) as (process, first),
        Producer(project_of(server, first, wrong), config=CONFIG) as producer,
    ):
        os.kill(process.pid, signal.SIGSTOP)
        future = producer.send("p", "wrong-key", {"n": "1"})
        eventually(lambda: len(producer.stats().endpoints[0].left) == 2)
        os.kill(process.pid, signal.SIGCONT)
        assert "SignatureNotMatch" in {attempt.error_code for attempt in future.result(30).attempts}
    assert "1" in stored(server, "wrong-key")


def send_until_it_uses(producer: Producer, logstore: str, endpoint: str) -> None:
    """Send logs until the producer uses the endpoint."""
    sent = iter(range(10_000, 20_000))

    def uses() -> bool:
        producer.send("p", logstore, {"n": str(next(sent))}).result(20)
        return producer.stats().endpoints[0].endpoint == endpoint

    eventually(uses)


FAULTS = {
    "busy": faults.answer(503, "ServerBusy"),
    "gateway": faults.answer(502, "", body=b"<html>Bad Gateway</html>"),
    "slow": faults.delay(2.0, stored=True),
    "closes": faults.drop_answer(),
    "half": faults.half_answer(),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_an_endpoint_that_answers_badly_is_left_and_returned_to(
    server: LogHubServer, fault: faults.Fault, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """With 5xx, slow, cut or missing answers at the first endpoint, an idempotent stream is stored exactly once."""
    caplog.set_level("INFO", "loghub.endpoints")
    logstore = f"fault-{request.node.callspec.id}"
    server.faults.add(only_localhost(fault))
    with Producer(project_of(server, localhost(server), server.endpoint), config=CONFIG) as producer:
        stream = producer.stream("p", logstore, idempotent=True)
        for n in range(100):
            stream.send({"n": str(n)})
        producer.flush(60)
        assert producer.stats().endpoints[0].endpoint == server.endpoint
        assert stored(server, logstore) == Counter(str(n) for n in range(100))
        server.faults.clear()
        send_until_it_uses(producer, logstore, localhost(server))
        assert producer.stats().endpoints[0].reason == ""
    changes = [record.message for record in caplog.records if record.name == "loghub.endpoints"]
    assert len(changes) == 2
    assert changes[0].startswith(f"p: left {localhost(server)} (")
    assert changes[0].endswith(f"; using {server.endpoint}")
    assert "answers probes again (3 in a row)" in changes[1]


@pytest.mark.parametrize("first", ["http://127.0.0.1:1", "http://name.invalid", "https://127.0.0.1:{port}"])
def test_an_endpoint_without_a_connection_a_name_or_tls_is_left_within_a_second(
    server: LogHubServer, first: str
) -> None:
    """A refused connection, an unknown name and a failed handshake cost the first batch three attempts at most."""
    with Producer(project_of(server, first.format(port=server.port), server.endpoint), config=CONFIG) as producer:
        result = producer.send("p", "unreachable", {"n": "1"}).result(30)
        assert 1 < result.attempt_count <= 4
        assert producer.send("p", "unreachable", {"n": "2"}).result(30).attempt_count == 1
        told = server.requests[-1].headers["x-producer-endpoint"]
        assert told.startswith(f"{server.endpoint}; left {first.format(port=server.port)} (RequestError: ")
        assert [one.name for one in producer.stats().destinations] == [
            f"p {first.format(port=server.port)}, {server.endpoint}"
        ]
        cast("LogHubSink", producer._sink).ask_for_shards("p", "unreachable")
        cast("LogHubSink", producer._sink)._renew_in_child()
        assert producer.stats().endpoints[0].endpoint == first.format(port=server.port), "a child begins anew"
        with pytest.raises(TargetError, match=re.escape(first.format(port=server.port))):
            producer.check("p", "unreachable")


def test_an_endpoint_whose_name_gets_another_address_is_returned_to(
    server: LogHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads to a dead address is left, and used again once it leads to a living one."""
    resolve, leads_to = socket.getaddrinfo, ["127.0.0.2"]

    def found(host: str, *rest: object, **more: object) -> list[tuple[object, ...]]:
        return resolve(leads_to[0] if host == "p.moves.test" else host, *rest, **more)  # type: ignore[arg-type, return-value]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    moves = f"http://moves.test:{server.port}"
    with Producer(project_of(server, moves, server.endpoint), config=CONFIG) as producer:
        assert producer.send("p", "moves", {"n": "1"}).result(30).attempt_count > 1
        assert producer.stats().endpoints[0].endpoint == server.endpoint
        leads_to[0] = "127.0.0.1"
        send_until_it_uses(producer, "moves", moves)
    assert set(stored(server, "moves").values()) == {1}

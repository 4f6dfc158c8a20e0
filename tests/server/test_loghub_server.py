import gc
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import requests

import producer.server
from producer.server import AccessKey, LogHubServer, ServerStartError, faults

from ..support.threads import named
from ..support.waiting import Call, allowed, eventually
from .client import LOGSTORE, PROJECT, Client, error_of, log_group

TEST_SECRET = "test-access-key-secret"


def test_start_returns_when_the_port_accepts(server: LogHubServer) -> None:
    """After start() the endpoint's port is the bound one, and accepts connections."""
    assert f"http://127.0.0.1:{server.port}" == server.endpoint == server.url
    socket.create_connection((server.host, server.port), timeout=60).close()


def test_the_applications_log_has_no_line_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    """Starting and stopping write nothing to the application's log."""
    with caplog.at_level("INFO"):
        LogHubServer().start().close()
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


def test_start_and_stop_are_fast() -> None:
    """Starting takes under 0.3 s, and so does stopping, with an open keep-alive connection."""

    def seconds() -> tuple[float, float]:
        server = LogHubServer()
        began = time.monotonic()
        server.start()
        started = time.monotonic()
        with Client(server) as client:
            client.put(log_group("x"))
            stopped = time.monotonic()
            server.close()
            return started - began, time.monotonic() - stopped

    eventually(lambda: max(seconds()) < 0.3, "a start and a stop within 0.3 s")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        *(("port", port, "it must be an integer from 0 to 65535") for port in ("9170", 65_536, -1, True)),
        *(("shards", shards, f"shards is {shards}") for shards in (0, 257)),
    ],
)
def test_an_option_out_of_range_is_refused_at_once(option: str, value: Any, words: str) -> None:
    """An option out of range is refused before anything is opened, with the rule and the value."""
    with pytest.raises(ValueError, match=words):
        LogHubServer(**{option: value})


def test_after_stop_connections_are_refused_after_start_the_same_port_serves_the_same_data(
    server: LogHubServer, client: Client
) -> None:
    """After stop() connections are refused; after start() the same port serves the same data."""
    client.put(log_group("before"))
    port = server.port
    server.stop()
    with pytest.raises(requests.ConnectionError):
        client.put(log_group("lost"))
    server.start()
    assert port == server.port
    assert client.put(log_group("after")).status_code == 200
    assert [log.fields["message"] for log in server.logs(PROJECT, LOGSTORE)] == ["before", "after"]


def test_stop_does_not_wait_for_a_delayed_answer(server: LogHubServer, client: Client) -> None:
    """A delayed request is cut when its grace is over, and its client sees the end of the connection."""
    server.faults.add(faults.delay(60))

    def seconds() -> float:
        server.start()
        server.clear_requests()
        waiting = Call(lambda: client.put(log_group("x")))
        eventually(lambda: server._runner._server.server_state.tasks)
        began = time.monotonic()
        server.stop()
        took = time.monotonic() - began
        with pytest.raises(requests.ConnectionError):
            waiting.result()
        assert [record.status for record in server.requests] == [None]
        return took

    server.stop()
    eventually(lambda: seconds() < 1, "a stop within a second")


def test_a_server_has_no_address_before_it_starts() -> None:
    """The address of a server that was never started is refused, since a client would use port 80."""
    server = LogHubServer()
    with pytest.raises(ServerStartError, match="no port before it is started"):
        _ = server.endpoint
    with pytest.raises(ServerStartError, match="no port before it is started"):
        _ = server.connection
    server.close()


def test_a_server_starts_once(server: LogHubServer) -> None:
    """A listening server refuses a second start().

    stop() and close() may be called repeatedly, also before the first start. After close() a start is refused.
    """
    with pytest.raises(ServerStartError, match="already"):
        server.start()
    for closed in (LogHubServer(), LogHubServer().start()):
        closed.stop()
        closed.close()
        closed.close()
        with pytest.raises(RuntimeError, match="closed"):
            closed.count(PROJECT, LOGSTORE)
        with pytest.raises(ServerStartError, match="closed"):
            closed.start()


def test_a_taken_port_is_an_error_with_its_number(server: LogHubServer) -> None:
    """The message names address and port, and no thread is left behind."""
    before = named("loghub-server")
    with pytest.raises(ServerStartError, match=f"port {server.port}"), LogHubServer(port=server.port):
        pass
    assert before == named("loghub-server")


_LEAVING = """
import gc, os, threading
from producer.server import LogHubServer
from tests.server.client import Client, log_group
gc.collect()
threads, descriptors = threading.active_count(), len(os.listdir("/dev/fd"))
with LogHubServer() as server, Client(server) as client:
    client.put(log_group("x"))
    assert threading.active_count() > threads
    assert len(os.listdir("/dev/fd")) > descriptors
assert (threads, descriptors) == (threading.active_count(), len(os.listdir("/dev/fd")))
"""


def test_a_server_leaves_no_thread_and_no_descriptor() -> None:
    """After the block the server's threads have ended and its sockets are closed."""
    subprocess.run([sys.executable, "-c", _LEAVING], cwd=Path(__file__).parents[2], check=True)


def test_stopping_while_clients_connect_leaks_no_socket() -> None:
    """A connection accepted while the server stops is closed like the others."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(30):
            server = LogHubServer().start()
            clients = [socket.create_connection((server.host, server.port)) for _ in range(3)]
            server.close()
            for client in clients:
                client.close()
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


def has_ipv6() -> bool:
    """Return True if this machine has the address ::1."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_an_ipv6_server_has_a_bracketed_endpoint() -> None:
    """On ::1 the endpoint is a URL that clients can use."""
    with LogHubServer("::1" if has_ipv6() else "127.0.0.1") as server:
        assert f"http://{'[::1]' if has_ipv6() else '127.0.0.1'}:{server.port}" == server.endpoint
        assert "errorCode" in requests.get(f"{server.endpoint}/logstores", timeout=60).json()


@pytest.mark.parametrize(
    ("key", "token"),
    [("a-secret", {}), (AccessKey(secret="a-secret", security_token="token-1"), {"security_token": "token-1"})],
)
def test_projectconfig_name_server_connection_reaches_the_server_and_signs_with_a_token_if_needed(
    key: AccessKey | str, token: dict[str, str]
) -> None:
    """``ProjectConfig(name, **server.connection)`` reaches the server and signs, with a token if needed."""
    with LogHubServer(access_keys={"an-id": key}) as server:
        assert server.connection == {
            "endpoint": server.endpoint,
            "access_key_id": "an-id",
            "access_key_secret": "a-secret",
            **token,
        }
        with producer.Producer(producer.ProjectConfig(PROJECT, **server.connection)) as sender:
            sender.send(PROJECT, LOGSTORE, {"n": "1"}).result(timeout=60)
        assert server.count(PROJECT, LOGSTORE) == 1


def test_each_request_is_recorded_with_time_operation_place(server: LogHubServer, client: Client) -> None:
    """Each request is recorded with time, operation, place, status and sizes before its answer is read."""
    raw = log_group("a", "b")
    before = time.monotonic()
    answer = client.put(raw, params={"processor": "p"})
    client.get("/nowhere")
    first, second = server.requests
    assert before < first.when <= first.finished <= second.when < time.monotonic()
    assert (1, "PutLogs", "POST", f"/logstores/{LOGSTORE}/shards/lb") == (
        *(first.number, first.operation, first.method, first.path),
    )
    assert (first.query, first.project, first.logstore) == ({"processor": "p"}, PROJECT, LOGSTORE)
    assert (200, None, len(raw), 2) == (first.status, first.error_code, first.raw_size, first.logs)
    assert answer.headers["x-log-requestid"] == first.request_id
    assert first.headers["x-log-compresstype"] == "lz4"
    assert (second.operation, second.status, second.error_code) == ("Unknown", 400, "ParameterInvalid")
    server.clear_requests()
    assert server.requests == []


def test_count_logs_and_log_groups_of_a_missing_logstore_are_empty(server: LogHubServer) -> None:
    """count, logs and log_groups of a missing logstore are empty."""
    assert (server.count("p", "l"), server.logs("p", "l"), server.log_groups("p", "l")) == (0, [], [])


def test_a_failure_of_the_server_is_an_internal_error_and_ends_nothing(
    server: LogHubServer, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unexpected failure is a 500 with its reason, which is logged; the next request works."""
    with monkeypatch.context() as patched:
        error = sqlite3.OperationalError("database or disk is full")
        patched.setattr("producer.server.store.store._insert_groups", mock.Mock(side_effect=error))
        answer = client.put(log_group("x"))
    assert error_of(answer) == (500, "InternalServerError")
    assert "disk is full" in answer.text
    assert "disk is full" in caplog.text
    assert client.put(log_group("x")).status_code == 200
    assert server.count(PROJECT, LOGSTORE) == 1


def test_many_log_groups_are_all_seen(server: LogHubServer, client: Client) -> None:
    """Inspection reads many LogGroups in pages and misses none."""
    for number in range(300):
        client.put(log_group(str(number)))
    assert [str(number) for number in range(300)] == [log.fields["message"] for log in server.logs(PROJECT, LOGSTORE)]
    assert server.count(PROJECT, LOGSTORE) == 300


def test_a_small_request_is_answered_promptly_while_10_mib_requests_are_decoded(
    server: LogHubServer, client: Client
) -> None:
    """A small request is answered promptly while 10 MiB requests are decoded."""
    large = log_group(*["x" * 200] * 40_000)
    stop = threading.Event()

    def put_large() -> None:
        with Client(server) as other:
            while not stop.is_set():
                other.put(large, logstore="large")

    busy = threading.Thread(target=put_large)
    busy.start()
    try:
        for _ in range(20):
            started = time.monotonic()
            assert client.put(log_group("small")).status_code == 200
            assert time.monotonic() - started < allowed(2)
    finally:
        stop.set()
        busy.join()


CHILD = """
import os, sys
sys.path.insert(0, {root!r})
from producer.server import LogHubServer
server = LogHubServer(data={data!r}).start()
print(server.port, flush=True)
sys.stdin.read()
"""


def test_a_restarted_server_has_every_loggroup_acknowledged_before_its_sigkill(tmp_path: Path) -> None:
    """A restarted server has every LogGroup acknowledged before its SIGKILL."""
    root = str(Path(__file__).parents[2])
    for round_number in range(3):
        code = CHILD.format(root=root, data=str(tmp_path))
        with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as child:
            port = int(child.stdout.readline())
            acknowledged = write_until_killed(
                port, f"{round_number}", lambda child=child: child.send_signal(signal.SIGKILL)
            )
            child.wait()
        assert acknowledged
        with LogHubServer(data=tmp_path) as server:
            found = [str(log.fields["message"]) for log in server.logs(PROJECT, LOGSTORE)]
        assert set(acknowledged) <= set(found)
        assert len(found) == len(set(found))


def write_until_killed(port: int, name: str, kill: Callable[[], None]) -> list[str]:
    """Write from four threads, kill the server after 40 acknowledgements, and return the acknowledged messages."""
    acknowledged: list[str] = []
    remote = LogHubServer()
    remote._port = port

    def write(writer: int) -> None:
        with Client(remote) as client:
            for number in range(10_000):
                message = f"{name}-{writer}-{number}"
                try:
                    assert client.put(log_group(message)).status_code == 200
                except requests.ConnectionError:
                    return
                acknowledged.append(message)
                if len(acknowledged) == 40:
                    kill()

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    remote.close()
    return acknowledged


def test_a_second_server_on_the_same_data_is_refused(tmp_path: Path) -> None:
    """A second server on the same data directory refuses to start."""
    with LogHubServer(data=tmp_path), pytest.raises(ServerStartError, match="in use by another server"):
        LogHubServer(data=tmp_path)


def test_data_that_cannot_be_used_is_refused_in_words(tmp_path: Path) -> None:
    """A file in place of the directory, and an invalid database, are named in the error."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "loghub.sqlite3").write_bytes(b"this is not a database " * 100)
    for name in ("file", "broken"):
        with pytest.raises(ServerStartError, match=f"{name}.* cannot be used"):
            LogHubServer(data=tmp_path / name)


def test_a_fork_does_not_keep_connections_or_the_port(server: LogHubServer, client: Client) -> None:
    """Closed connections end for their clients while a forked child lives, and the port can be reused."""
    client.put(log_group("x"))
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    try:
        server.faults.add(faults.drop_answer(reset=False), times=1)
        started = time.monotonic()
        with pytest.raises(requests.ConnectionError):
            client.put(log_group("x"), timeout=10)
        server.stop()
        server.start()
        assert client.put(log_group("x")).status_code == 200
        assert time.monotonic() - started < allowed(5)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("module", "package"), [("google", "protobuf"), ("google.protobuf", "protobuf"), ("h11", "h11")]
)
def test_a_missing_extra_is_named_as_it_is_installed(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the package and the extra instead of the missing module."""

    def missing(*_: str) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr("producer.server.importlib.import_module", missing)
    with pytest.raises(ImportError, match=rf"needs {package}, .*\[server\]"):
        producer.server.__getattr__("LogHubServer")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "0", "192.0.2.1"])
def test_the_default_key_is_not_offered_to_other_machines(host: str, tmp_path: Path) -> None:
    """A host beyond this machine with the public default key is refused before anything is opened."""
    for keys in (None, {"mine": "mine", "test": "test-access-key-secret"}, {"t": AccessKey(secret=TEST_SECRET)}):
        with pytest.raises(ServerStartError, match=r"other machines.*access keys of your own"):
            LogHubServer(host, data=tmp_path / "data", access_keys=keys)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.8.8.8"])
def test_the_default_key_is_good_on_this_machine(host: str) -> None:
    """With the default key every loopback address can be listened on, by name too."""
    with LogHubServer(host) as server:
        socket.create_connection((host, server.port), timeout=60).close()


def test_a_server_with_its_own_keys_listens_on_all_addresses() -> None:
    """With its own keys a server listens on all addresses; with the default key it does not start again."""
    with LogHubServer("0.0.0.0", access_keys={"mine": "secret"}) as server:
        server.stop()
        server.access_keys["test"] = TEST_SECRET
        with pytest.raises(ServerStartError, match="other machines"):
            server.start()


@pytest.mark.parametrize("host", ["x" * 300, "a..b"])
def test_the_message_names_an_unknown_host_with_default_and_own_keys(host: str) -> None:
    """The message names an unknown host, with default and own keys."""
    for keys in (None, {"mine": "secret"}):
        with pytest.raises(ServerStartError, match="cannot listen on"), LogHubServer(host, access_keys=keys):
            pass

"""Bounds on the memory that all connections together can take."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from producer.server import Limits, LogHubServer
from tests.support.waiting import allowed

from ..client import LOGSTORE, PROJECT, Client, error_of, log_group
from ..process import MIB, ServerProcess, request_bytes, whole_put

LARGE = log_group(os.urandom(10 * MIB - 100))


def connect(server: LogHubServer | ServerProcess) -> socket.socket:
    return socket.create_connection((server.host, server.port), timeout=60)


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while part := connection.recv(MIB):
        data += part
    return data


def status_of(connection: socket.socket) -> bytes:
    """Return the status of the next answer, whose body is short."""
    return connection.recv(65536).split(b" ")[1]


@contextmanager
def sending(server: ServerProcess, count: int, data: bytes) -> Iterator[list[bytes]]:
    """Send ``data`` over ``count`` concurrent connections; yield the list that has all statuses when the block ends."""
    statuses: list[bytes] = []

    def send() -> None:
        with closing(connect(server)) as connection:
            connection.sendall(data)
            statuses.append(status_of(connection))

    threads = [threading.Thread(target=send) for _ in range(count)]
    for thread in threads:
        thread.start()
    yield statuses
    for thread in threads:
        thread.join()


UNSIGNED = {"without": ("Authorization",)}


@pytest.mark.parametrize("wrong", [UNSIGNED, {"Authorization": "LOG test-access-key-id:Zm9yZ2Vk"}, {"Date": "now"}])
def test_50_connections_of_10_mib_with_an_invalid_signature_or_time_are_answered(wrong: dict[str, object]) -> None:
    """50 connections of 10 MiB with an invalid signature or time are answered, and memory does not grow by them."""
    with ServerProcess() as server, Client(server) as client:
        client.put(log_group("x"))
        before = server.peak()
        changed = {**wrong, "x_log_date": "now"} if "Date" in wrong else wrong
        with sending(server, 50, whole_put(client, LARGE, **changed)) as statuses:
            pass
        assert set(statuses) <= {b"400", b"401"}
        assert len(statuses) == 50
        assert server.peak() - before < 50 * MIB


def test_all_bodies_together_have_a_bound() -> None:
    """24 concurrent, delayed writes of 10 MiB all arrive, and the server never holds more than the bound."""
    raw = log_group(bytes(10 * MIB - 100))  # compresses well, so that the store takes little
    with ServerProcess(delay=0.2) as server, Client(server) as client:
        client.put(raw, compression="none")
        before = server.resident()
        with sending(server, 24, whole_put(client, raw)) as statuses:
            pass
        assert statuses == [b"200"] * 24
        assert server.peak() - before < 160 * MIB


def test_small_requests_do_not_wait_for_memory() -> None:
    """A small write and a small read are answered while unfinished writes hold all memory."""
    limits = {"held_bytes": 4 * len(LARGE), "receive_seconds": 20}
    with ServerProcess(limits) as server, Client(server) as client, ExitStack() as opened:
        for _ in range(3):
            connection = opened.enter_context(closing(connect(server)))
            # The part after the first 2 MiB comes later, or never.
            connection.sendall(whole_put(client, LARGE)[: 2 * MIB if _ == 0 else 100_000])
        started = time.monotonic()
        assert client.put(log_group("small")).status_code == 200
        assert client.get(f"/logstores/{LOGSTORE}").status_code == 200
        assert time.monotonic() - started < allowed(2)


def test_a_large_request_that_waits_too_long_for_memory_is_503_serverbusy_and_a_later_one_succeeds() -> None:
    """A large request that waits too long for memory is 503 ServerBusy, and a later one succeeds."""
    limits = Limits(held_bytes=2 * MIB, receive_seconds=0.6)
    raw = log_group("x" * MIB)
    with LogHubServer(limits=limits) as server, Client(server) as client, closing(connect(server)) as slow:
        slow.sendall(whole_put(client, raw)[:300_000])
        wait_until(lambda: server._service.memory.free == 0)
        second = connect(server)
        second.sendall(whole_put(client, raw))
        statuses = {status_of(slow), status_of(second)}
        second.close()
        assert statuses in ({b"500", b"503"}, {b"500", b"200"})
        assert client.put(raw).status_code == 200
        wait_until(lambda: server._service.memory.free == 2 * MIB)


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def fill(client: Client, megabytes: int) -> None:
    """Put so many LogGroups of 1 MiB into shard 0."""
    for _ in range(megabytes):
        raw = log_group(os.urandom(MIB))
        assert client.put(raw, path="/shards/route", params={"key": "00"}).status_code == 200


def ask_for_everything(server: LogHubServer | ServerProcess, client: Client) -> socket.socket:
    """Return a connection that requested shard 0 and does not read the answer."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((server.host, server.port))
    connection.settimeout(60)
    params = {"type": "log", "cursor": "MA==", "count": "1000"}
    connection.sendall(request_bytes(client, "GET", f"/logstores/{LOGSTORE}/shards/0", params=params))
    return connection


def test_a_client_that_does_not_read_is_dropped() -> None:
    """A connection that does not read is reset and frees its memory; a slow reader within the time gets all."""
    with LogHubServer(limits=Limits(send_seconds=0.5)) as server, Client(server) as client:
        fill(client, 8)
        total = server._service.memory.total
        with closing(ask_for_everything(server, client)) as silent:
            wait_until(lambda: server._service.memory.free < total)
            wait_until(lambda: server._service.memory.free == total)
            with pytest.raises(ConnectionResetError):
                read_all(silent)
        groups, _ = client.pull(0, client.cursor(0, "begin"))
        assert len(groups) == 8
        assert client.put(log_group("next")).status_code == 200


def test_a_client_that_reads_in_time_is_not_dropped() -> None:
    """The time to read is per answer: a slow reader of many answers is not dropped."""
    with LogHubServer(limits=Limits(send_seconds=1.0)) as server, Client(server) as client:
        fill(client, 8)
        with closing(ask_for_everything(server, client)) as slow:
            started = time.monotonic()
            while time.monotonic() - started < 2.0:
                size, seen = 1, 0
                while seen < 8 * MIB and size:
                    size = len(slow.recv(MIB))
                    seen += size
                    time.sleep(0.0005)
                assert seen >= 8 * MIB
                params = {"type": "log", "cursor": "MA==", "count": "1000"}
                slow.sendall(request_bytes(client, "GET", f"/logstores/{LOGSTORE}/shards/0", params=params))


def test_clients_that_do_not_read_hold_no_more_than_the_bound() -> None:
    """40 connections that request 10 MiB each and read nothing hold no more than the bound."""
    with ServerProcess({"send_seconds": 2}) as server, Client(server) as client, ExitStack() as opened:
        fill(client, 10)
        client.pull(0, client.cursor(0, "begin"), encoding="")
        before = server.resident()
        for _ in range(40):
            opened.enter_context(closing(ask_for_everything(server, client)))
        started = time.monotonic()
        for _ in range(20):
            assert client.put(log_group("small")).status_code == 200
        assert time.monotonic() - started < allowed(4)
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            assert server.resident() - before < 190 * MIB
            assert client.put(log_group("small")).status_code == 200
        assert server.alive


def test_a_connection_beyond_the_limit_gets_503_serverbusy_and_is_closed() -> None:
    """A connection beyond the limit gets 503 ServerBusy and is closed; closing another one makes room."""
    with LogHubServer(limits=Limits(connections=3)) as server, Client(server) as client, ExitStack() as opened:
        held = [opened.enter_context(closing(connect(server))) for _ in range(3)]
        wait_until(lambda: len(server._runner._server.server_state.connections) == 3)
        assert error_of(client.put(log_group("x"))) == (503, "ServerBusy")
        held[0].close()
        wait_until(lambda: len(server._runner._server.server_state.connections) < 3)
        assert client.put(log_group("x")).status_code == 200
        assert server.count(PROJECT, LOGSTORE) == 1


def test_without_a_valid_signature_a_client_that_waits_for_100_continue_gets_the_refusal(server: LogHubServer) -> None:
    """Without a valid signature, a client that waits for 100 Continue gets the refusal, and is disconnected."""
    with Client(server) as client, closing(connect(server)) as connection:
        whole = whole_put(client, log_group("x"), without=("Authorization",), Expect="100-continue")
        connection.sendall(whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 401")
    assert b"connection: close" in answer.lower()

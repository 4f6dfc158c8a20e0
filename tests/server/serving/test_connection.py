"""Misbehaving clients on raw sockets, beside a healthy client."""

import json
import logging
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from producer.server import Limits, LogHubServer, faults
from producer.server.errors import ClientGoneError
from producer.server.operations import sql
from producer.server.serving import plain
from tests.support.waiting import allowed

from ..client import LOGSTORE, PROJECT, Client, log_group


@pytest.fixture
def server() -> Iterator[LogHubServer]:
    with LogHubServer(limits=Limits(receive_seconds=0.5)) as server:
        yield server


@pytest.fixture
def wire(server: LogHubServer) -> Iterator[Callable[[bytes], socket.socket]]:
    opened: list[socket.socket] = []

    def connect(data: bytes) -> socket.socket:
        connection = socket.create_connection((server.host, server.port), timeout=60)
        opened.append(connection)
        connection.sendall(data)
        return connection

    yield connect
    for connection in opened:
        connection.close()


Connect = Callable[[bytes], socket.socket]


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while part := connection.recv(65536):
        data += part
    return data


def refusal(data: bytes) -> tuple[int, str]:
    """Return status and error code of one whole HTTP answer in LogHub's JSON form."""
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    assert len(body) == int(headers["content-length"])
    assert headers["x-log-requestid"]
    return int(lines[0].split()[1]), json.loads(body)["errorCode"]


def whole_put(client: Client, raw: bytes, **changed: str) -> bytes:
    """Return the bytes of a valid PutLogs, with headers changed after signing."""
    path = f"/logstores/{LOGSTORE}/shards/lb"
    headers = client.sign("POST", path, {}, {"Content-Type": "application/x-protobuf"}, raw)
    headers |= {"Content-Length": str(len(raw)), **{name.replace("_", "-"): value for name, value in changed.items()}}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + raw


def assert_healthy(server: LogHubServer, client: Client) -> None:
    """Assert that another client's write is answered promptly."""
    before = server.count(PROJECT, "healthy")
    started = time.monotonic()
    assert client.put(log_group("well"), logstore="healthy").status_code == 200
    assert time.monotonic() - started < allowed(2)
    assert before + 1 == server.count(PROJECT, "healthy")


@pytest.mark.parametrize(
    "garbage",
    [
        b"hello server\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x99" * 200,
        b"\x00" * 1000,
        b"POST / HTTP/1.1\r\nHost: a.b\r\nContent-Length: many\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST / HTTP/1.1\r\n\r\n",
        b"GET /" + b"x" * 100_000,
        b"POST / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\nnot a chunk\r\n",
    ],
)
def test_bytes_that_are_not_http_such_as_a_tls_hello_get_400_in_json_and_the_connection_is_closed(
    server: LogHubServer, client: Client, wire: Connect, garbage: bytes
) -> None:
    """Bytes that are not HTTP, such as a TLS hello, get 400 in JSON, and the connection is closed."""
    assert refusal(read_all(wire(garbage))) == (400, "ParameterInvalid")
    assert_healthy(server, client)


def test_a_client_that_says_nothing_is_let_go(server: LogHubServer, client: Client, wire: Connect) -> None:
    """A connection without a byte is closed without an answer when the time to receive is over."""
    silent = wire(b"")
    assert_healthy(server, client)
    assert read_all(silent) == b""


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_request_that_arrives_byte_by_byte_is_requesttimeout_after_the_total_limit(
    server: LogHubServer, client: Client, wire: Connect, part: str
) -> None:
    """A request that arrives byte by byte is RequestTimeout after the total limit."""
    whole = whole_put(client, log_group("slow"))
    sent = 30 if part == "head" else len(whole) - 100
    slow = wire(whole[:sent])
    slow.settimeout(0.05)
    answer, started = b"", time.monotonic()
    while not answer:
        assert time.monotonic() - started < allowed(5)
        try:
            answer = slow.recv(65536)
        except TimeoutError:
            slow.send(whole[sent : sent + 1])
            sent += 1
    assert time.monotonic() - started > 0.4
    assert refusal(answer) == (500, "RequestTimeout")
    assert_healthy(server, client)
    assert server.count(PROJECT, LOGSTORE) == 0


def test_a_hundred_unfinished_requests_do_not_slow_another_client_and_all_are_ended(
    server: LogHubServer, client: Client, wire: Connect
) -> None:
    """A hundred unfinished requests do not slow another client, and all are ended."""
    whole = whole_put(client, log_group("slow"))
    slow = [wire(whole[:-1]) for _ in range(100)]
    assert_healthy(server, client)
    assert {(500, "RequestTimeout")} == {refusal(read_all(connection)) for connection in slow}
    assert_healthy(server, client)


def test_a_slow_second_request_on_a_connection_is_refused_like_a_first_one(
    server: LogHubServer, client: Client, wire: Connect
) -> None:
    """A slow second request on a connection is refused like a first one."""
    whole = whole_put(client, log_group("x"))
    connection = wire(whole)
    first = connection.recv(65536)
    assert first.startswith(b"HTTP/1.1 200")
    connection.sendall(whole[:40])
    assert refusal(read_all(connection)) == (500, "RequestTimeout")


def test_answers_are_not_held_back_in_the_socket(server: LogHubServer, wire: Connect) -> None:
    """Nagle's algorithm is off: with it, an answer in two writes takes 40 ms more."""
    wire(b"GET / HTTP/1.1\r\nHost: a.b\r\n\r\n").recv(65536)
    (connection,) = server._runner._server.server_state.connections
    sock = connection.transport.get_extra_info("socket")
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_time_to_receive_is_of_one_request(server: LogHubServer, client: Client) -> None:
    """The time to receive is per request: a reused connection outlives it, and idle time does not count."""
    started = time.monotonic()
    while time.monotonic() - started < 0.8:
        assert client.put(log_group("x")).status_code == 200
    assert len({record.headers["connection"] for record in server.requests}) == 1


def test_a_body_shorter_than_its_content_length_is_refused(server: LogHubServer, client: Client, wire: Connect) -> None:
    """A client that half-closes before its whole body gets a refusal, and nothing is stored."""
    short = wire(whole_put(client, log_group("short"), Content_Length="9999"))
    short.shutdown(socket.SHUT_WR)
    assert refusal(read_all(short)) == (400, "PostBodyInvalid")
    assert_healthy(server, client)
    assert server.count(PROJECT, LOGSTORE) == 0


def test_a_body_longer_than_its_content_length_is_refused(server: LogHubServer, client: Client, wire: Connect) -> None:
    """A body longer than its content length is refused: its declared part has another digest than the signed one."""
    raw = log_group("long")
    answers = read_all(wire(whole_put(client, raw, Content_Length=str(len(raw) - 3))))
    first, _, second = answers.rpartition(b"HTTP/1.1 ")
    assert first.startswith(b"HTTP/1.1 400")
    assert b"PostBodyInvalid" in first
    assert b"RequestTimeout" in second
    assert_healthy(server, client)


def test_a_client_that_half_closes_after_a_whole_request_reads_the_answer_then_the_end(
    server: LogHubServer, client: Client, wire: Connect
) -> None:
    """A client that half-closes after a whole request reads the answer, then the end."""
    half = wire(whole_put(client, log_group("half closed")))
    half.shutdown(socket.SHUT_WR)
    assert read_all(half).startswith(b"HTTP/1.1 200")
    assert server.count(PROJECT, LOGSTORE) == 1


def test_a_half_closed_client_gets_an_answer_that_takes_long(
    server: LogHubServer, client: Client, wire: Connect
) -> None:
    """A half-closed client gets one "100 Continue" and a late answer; a client that has left is dropped."""
    server.faults.add(faults.delay(0.7))
    half = wire(whole_put(client, log_group("half closed")))
    half.shutdown(socket.SHUT_WR)
    assert read_all(half).startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.99])
def test_a_connection_that_ends_anywhere_in_a_request_affects_no_other(
    server: LogHubServer, client: Client, wire: Connect, share: float
) -> None:
    """A connection that ends anywhere in a request affects no other."""
    whole = whole_put(client, log_group("gone" * 1000))
    wire(whole[: int(len(whole) * share)]).close()
    assert_healthy(server, client)
    assert server.count(PROJECT, LOGSTORE) == 0


def test_pipelined_requests_are_all_answered_in_order(server: LogHubServer, client: Client, wire: Connect) -> None:
    """Pipelined requests are all answered, in order."""
    connection = wire(b"".join(whole_put(client, log_group(str(number))) for number in range(5)))
    connection.shutdown(socket.SHUT_WR)
    assert read_all(connection).count(b"HTTP/1.1 200") == 5
    assert server.count(PROJECT, LOGSTORE) == 5


def test_a_chunked_body_is_a_body(server: LogHubServer, client: Client, wire: Connect) -> None:
    """A chunked body is read like any other."""
    raw = log_group("chunked")
    head, _, _ = whole_put(client, raw).partition(b"\r\n\r\n")
    head = b"\r\n".join(line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length"))
    chunks = b"".join(b"%x\r\n%s\r\n" % (1, raw[i : i + 1]) for i in range(len(raw))) + b"0\r\n\r\n"
    connection = wire(head + b"\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunks)
    assert read_all(connection).startswith(b"HTTP/1.1 200")
    assert server.count(PROJECT, LOGSTORE) == 1


def test_expect_100_continue_is_answered_before_the_body_is_sent(
    server: LogHubServer, client: Client, wire: Connect
) -> None:
    """Expect: 100-continue is answered before the body is sent."""
    whole = whole_put(client, log_group("polite"), Expect="100-continue", Connection="close")
    head, _, body = whole.partition(b"\r\n\r\n")
    connection = wire(head + b"\r\n\r\n")
    assert connection.recv(65536).startswith(b"HTTP/1.1 100")
    connection.sendall(body)
    assert read_all(connection).startswith(b"HTTP/1.1 200")


def test_an_endless_body_is_cut_off(server: LogHubServer, client: Client, wire: Connect) -> None:
    """An endless body is read no longer than the time limit, and then gets an answer or an end."""
    whole = whole_put(client, b"", Content_Length=str(10**12))
    connection = wire(whole)
    deadline = time.monotonic() + 10
    with pytest.raises(OSError):  # noqa: PT012 - the send that meets the closed connection is not known before
        while time.monotonic() < deadline:
            connection.sendall(b"\x00" * 1_000_000)
    assert time.monotonic() < deadline
    assert_healthy(server, client)


def test_a_refused_head_has_no_body(client: Client, wire: Connect) -> None:
    """The refusal of an incomplete HEAD request has the headers of a GET's, and no body."""
    path = f"/logstores/{LOGSTORE}"
    headers = client.sign("HEAD", path, {}, {}, b"") | {"Content-Length": "5"}
    lines = [f"HEAD {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    short = wire("\r\n".join(lines).encode() + b"\r\n\r\nabc")
    short.shutdown(socket.SHUT_WR)
    head, _, body = read_all(short).partition(b"\r\n\r\n")
    assert (head.split(b" ")[1], body) == (b"400", b"")
    assert b"content-length: 0" not in head.lower()


def test_a_refused_connection_is_refused_once(
    server: LogHubServer, client: Client, wire: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """A request that stops being HTTP in its body gets exactly one answer."""
    head, _, _ = whole_put(client, log_group("x")).partition(b"\r\n\r\n")
    head = b"\r\n".join(line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length"))
    broken = wire(head + b"\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcdenot a chunk\r\n")
    assert refusal(read_all(broken)) == (400, "ParameterInvalid")
    deadline = time.monotonic() + 10
    while server._runner._server.server_state.connections:
        assert time.monotonic() < deadline
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_an_idle_connection_is_closed_after_its_time(client: Client) -> None:
    """An idle connection is closed after keep_alive_seconds, which may be a fraction."""
    with LogHubServer(limits=Limits(keep_alive_seconds=0.5)) as server:
        client.server = server
        with socket.create_connection((server.host, server.port), timeout=60) as idle:
            started = time.monotonic()
            idle.sendall(whole_put(client, log_group("x")))
            assert idle.recv(65536).startswith(b"HTTP/1.1 200")
            assert idle.recv(65536) == b""
            assert 0.5 <= time.monotonic() - started < allowed(10)


@pytest.mark.parametrize("protocol", ["websocket", "h2c", "TLS/1.0"])
def test_an_upgrade_that_is_not_spoken_is_passed_over(
    client: Client, wire: Connect, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    """A request to upgrade is answered in HTTP/1.1, and not logged."""
    whole = whole_put(client, log_group("x"), Connection="upgrade", Upgrade=protocol)
    assert wire(whole).recv(65536).startswith(b"HTTP/1.1 200")
    assert [record.getMessage() for record in caplog.records] == []


def _cut(is_gone: Any) -> None:
    """End the connection of a request; uvicorn notices in the next round of its loop."""
    is_gone.__self__.abort()
    raise ClientGoneError


@pytest.mark.parametrize("of_loghub", [True, False], ids=["LogHub", "console"])
def test_an_operation_that_notices_the_end_of_its_connection_before_uvicorn_does_logs_no_failure(
    of_loghub: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An operation that notices the end of its connection before uvicorn does logs no failure."""

    async def look(call: Any, work: Any) -> None:
        work.close()
        _cut(call.is_gone)

    monkeypatch.setattr(sql, "while_connected", look)
    monkeypatch.setattr(plain, "check_console", lambda _keys, request: _cut(request.is_gone))
    with LogHubServer() as server, Client(server) as client:
        client.put(log_group("x"))
        asked = "/console/api/logstores"
        query = {"type": "log", "query": "* | select 1", "from": "1700000000", "to": "1700000009"}
        with pytest.raises(OSError, match=r"closed|reset|aborted"):
            client.get(f"/logstores/{LOGSTORE}", **query) if of_loghub else client.get(asked)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []

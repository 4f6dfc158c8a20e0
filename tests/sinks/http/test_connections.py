"""Connections: how a request is written to one, and which ones are used again."""

from __future__ import annotations

import gc
import itertools
import socket
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from producer import HttpConfig
from producer.model.errors import MisconfiguredError
from producer.runtime.clock import SystemClock
from producer.server import LogHubServer
from producer.sinks.http import connections
from producer.sinks.http.attempts import Attempt, Attempts
from producer.sinks.http.connections import Idle, exchange
from producer.sinks.http.raw_exchange import exchange_at_once
from producer.sinks.http.transport import Transport
from producer.testing import ManualClock
from tests.support.waiting import PATIENCE, eventually

_BEGIN = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def transport_of(name: str, clock: Any = None) -> Iterator[Transport]:
    transport = Transport(HttpConfig(proxies={}), 1, clock or SystemClock(), name)
    try:
        yield transport
    finally:
        transport.close()


@pytest.mark.parametrize("value", ["a\nb", "a\r\nAuthorization: b", "\u4e2d"])
def test_a_header_cannot_contain_another_header(value: str) -> None:
    """A header cannot contain another header."""
    with transport_of("header") as transport, pytest.raises(MisconfiguredError, match=r"could not be sent.*User-Agent"):
        transport.request("POST", "http://127.0.0.1:9", "/", {}, {"Host": "h", "User-Agent": value}, b"", {})


def test_a_request_line_cannot_contain_a_header() -> None:
    """A request line cannot contain a header."""
    with transport_of("path") as transport, pytest.raises(MisconfiguredError, match="nothing that can be asked for"):
        transport.request("GET", "http://127.0.0.1:9", "/a\r\nb", {}, {"Host": "h"}, b"", {})


def test_a_connection_over_which_a_request_did_not_leave_completely_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server may respond before it has read everything: the rest would pass for the next request."""
    accepted: list[socket.socket] = []

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                accepted.append(connection)
                threading.Thread(target=_answer_each, args=(connection,), daemon=True).start()

    left = iter([False])

    def exchange(*given: Any) -> tuple[bool, OSError | None, bytes]:
        whole, error, answer = exchange_at_once(*given)
        return next(left, whole), error, answer

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        monkeypatch.setattr(connections, "exchange_at_once", exchange)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with transport_of("broken") as transport:
            proxies: dict[str, str] = {}
            for _ in range(3):
                answer, _ = transport.request("POST", url, "/", {}, {"Host": "h"}, b"x" * 10, proxies)
                assert answer.status == 200
        for connection in accepted:
            connection.close()
    assert len(accepted) == 2


def _answer_each(connection: socket.socket) -> None:
    with suppress(OSError):
        while connection.recv(65536):
            connection.sendall(_ANSWER)


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"]
)
def test_the_silence_is_limited_before_the_response_within_its_head_and_its_body(answer: bytes) -> None:
    """The silence is limited before the response, within its head and its body, also on a used connection."""
    here, there = socket.socketpair()
    with here, there, Attempt(Attempts(600, SystemClock(), "silent")) as attempt:
        there.sendall(_ANSWER)
        exchange(here, attempt, 600, _BEGIN, b"", 100)
        there.sendall(answer)
        with pytest.raises(TimeoutError, match="timed out"):
            exchange(here, attempt, 0.02, _BEGIN, b"", 100)


def test_a_connection_over_which_something_came_unasked_is_none_any_more() -> None:
    """A connection that received unexpected bytes, or its end, is closed, and another one is used."""
    idle, pairs = Idle(9), [socket.socketpair() for _ in range(3)]
    for here, _ in pairs:
        idle.put(here)
    pairs[1][1].close()
    pairs[2][1].sendall(b"x")
    assert idle.get() is pairs[0][0]
    assert idle.get() is None
    assert [here.fileno() < 0 for here, _ in pairs] == [False, True, True]
    for sock in itertools.chain(*pairs):
        sock.close()


def test_of_idle_connections_the_last_one_is_used_first_and_no_more_are_kept_than_wanted() -> None:
    """The last used connection is reused first; further ones are closed, all after the close of the pool."""
    idle, pairs = Idle(2), [socket.socketpair() for _ in range(3)]
    first, last, more = (here for here, _ in pairs)
    for sock in (first, last, more):
        idle.put(sock)
    assert more.fileno() < 0
    assert [idle.get(), idle.get()] == [last, first]
    idle.put(first)
    idle.close()
    idle.put(last)
    assert [first.fileno(), last.fileno(), idle.get()] == [-1, -1, None]
    for sock in itertools.chain(*pairs):
        sock.close()


def test_the_connections_of_a_client_that_is_not_closed_are_closed_with_it() -> None:
    """A client in a cycle of references that is collected closes its idle sockets, without a ResourceWarning."""
    ours, theirs = socket.socketpair()
    idle = Idle(1)
    idle.put(ours)
    idle.cycle = idle  # type: ignore[attr-defined]
    del ours, idle
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
    with theirs:
        assert theirs.recv(1) == b""


def test_an_interrupt_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt within an exchange closes the connection: its response would pass for the next one."""
    used: list[socket.socket] = []

    def interrupted(sock: socket.socket, *_: object) -> None:
        used.append(sock)
        raise KeyboardInterrupt

    monkeypatch.setattr("producer.sinks.http.transport.exchange", interrupted)
    with LogHubServer() as server, transport_of("interrupted") as transport:
        with pytest.raises(KeyboardInterrupt):
            transport.request("GET", server.endpoint, "/logstores", {}, {"Host": "h"}, b"", {})
        assert [sock.fileno() for sock in used] == [-1]


def test_a_transport_that_is_closed_has_no_connection_left() -> None:
    """A closed transport has no connections, even while a program still refers to it."""
    with LogHubServer() as server, transport_of("closed") as transport:
        proxies: dict[str, str] = {}
        transport.request("GET", server.endpoint, "/", {}, {"Host": "h"}, b"", proxies)
        (sock,) = transport._route(server.endpoint, proxies).idle._sockets
        transport.close()
        assert sock.fileno() < 0


def test_the_warning_comes_once_without_the_user_and_password_of_the_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The warning comes once, without the user and password of the address, and again at the first response."""
    caplog.set_level("INFO", "loghub.http")
    clock = ManualClock()
    with (
        transport_of("patient", clock) as transport,
        socket.create_server(("127.0.0.1", 0)) as server,
        ThreadPoolExecutor(1) as caller,
    ):
        place = f"127.0.0.1:{server.getsockname()[1]}"
        arguments = f"http://user:secret@{place}", "/", {}, {"Host": "h"}, b"", {}
        answer = caller.submit(transport.request, "GET", *arguments)
        connection = server.accept()[0]
        with connection:
            assert connection.recv(1000)
            eventually(lambda: clock.waiting == 1)
            clock.advance(2.5)
            silent = "connected, but no answer for 2 s; the attempt may take 70 s (http.attempt_timeout_ms)"
            eventually(lambda: caplog.messages == [f"http://{place}: {silent}"], caplog.text)
            connection.sendall(_ANSWER)
            assert answer.result(PATIENCE)[0].status == 200
        assert caplog.messages[1:] == [f"http://{place}: answers now"]

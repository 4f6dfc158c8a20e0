"""How a request is written to its connection."""

from __future__ import annotations

import http.client
import itertools
import queue
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import requests
import urllib3.connection

from producer import HttpConfig
from producer.model.errors import MisconfiguredError
from producer.runtime.clock import SystemClock
from producer.server import LogHubServer
from producer.sinks.http import connections
from producer.sinks.http.connections import Followed, FollowedAdapter, Idle, Outgoing
from producer.sinks.http.raw_exchange import exchange_at_once
from producer.sinks.http.transport import Transport
from producer.sinks.http.watchdog import Watchdog
from producer.testing import ManualClock
from tests.support.waiting import PATIENCE, eventually


class Pair(Followed, http.client.HTTPConnection):
    """One end of a pair of sockets; notes what it is given."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__("h")
        self.sock = sock


@pytest.mark.parametrize("value", ["a\nb", "a\r\nAuthorization: b", "\u4e2d"])
def test_a_header_that_cannot_be_sent_is_told_before_anything_leaves(value: str) -> None:
    """No header can bring another one with it."""
    transport = Transport(HttpConfig(proxies={}), 1, SystemClock(), "header")
    try:
        with pytest.raises(MisconfiguredError, match=r"could not be made.*User-Agent"):
            transport.request(
                "POST",
                "http://127.0.0.1:9",
                "/",
                {},
                {"Host": "h", "User-Agent": value},
                b"",
                transport.proxies_for(""),
            )
    finally:
        transport.close()


def test_a_connection_over_which_a_request_did_not_leave_completely_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server may answer before it has read all: what is still to come of the request would be taken for the next."""
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
        transport, proxies = Transport(HttpConfig(proxies={}), 1, SystemClock(), "broken"), {}
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            for _ in range(3):
                answer, _ = transport.request("POST", url, "/", {}, {"Host": "h"}, b"x" * 10, proxies)
                assert answer.status == 200
        finally:
            transport.close()
            for connection in accepted:
                connection.close()
    assert len(accepted) == 2


def _answer_each(connection: socket.socket) -> None:
    with suppress(OSError):
        while connection.recv(65536):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"]
)
def test_the_other_end_may_be_silent_as_long_as_the_timeout_and_no_longer(answer: bytes) -> None:
    """Before the answer, within its head and within its body; also on a connection that had another timeout before."""
    here, there = socket.socketpair()
    with here, there:
        connection = Pair(here)
        there.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        connection.exchange("POST", "/", b"Host: h", b"", 600)
        there.sendall(answer)
        with pytest.raises(TimeoutError, match="timed out"):
            connection.exchange("POST", "/", b"Host: h", b"", 0.02)


def test_a_request_that_nobody_reads_is_given_up_after_the_timeout() -> None:
    """Writing ends as reading does."""
    here, there = socket.socketpair()
    with here, there, pytest.raises(TimeoutError, match="timed out"):
        Pair(here).exchange("POST", "/", b"Host: h", b"x" * 2**24, 0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Python keeps the time")
def test_the_kernel_keeps_the_time_of_a_plain_socket_and_python_that_of_others() -> None:
    """Each step over a plain socket is one call of the kernel; another kind, such as that of TLS, is told the time."""

    class Other(socket.socket):
        pass

    for kind, expected in ((socket.socket, None), (Other, 20)):
        here, there = socket.socketpair()
        with kind(fileno=here.detach()) as ours, there:
            there.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            Pair(ours).exchange("POST", "/", b"Host: h", b"", 20)
            assert ours.gettimeout() == expected


def test_a_connection_over_which_something_came_unasked_is_none_any_more() -> None:
    """Bytes behind the last answer, or its end; of the socket that it has now, and of none it is not asked."""
    connection = urllib3_pair()
    assert not connection.is_connected
    pairs = [socket.socketpair() for _ in range(2)]
    for (here, there), end in zip(pairs, (lambda there: there.sendall(b"x"), socket.socket.close), strict=True):
        connection.sock = here
        assert connection.is_connected
        end(there)
        assert not connection.is_connected
    connection.close()
    assert not connection.is_connected
    for sock in itertools.chain(*pairs):
        sock.close()


def test_a_connection_is_out_of_the_watchdogs_hands_before_it_is_closed() -> None:
    """Its number may be another connection's right after that."""
    watchdog = Watchdog(10, ManualClock(), "taken-back")
    here, there = socket.socketpair()
    with there, watchdog.watch() as watch:
        connection = Pair(here)
        there.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        connection.exchange("POST", "/", b"Host: h", b"", 20)
        assert watch.descriptor == here.fileno()
        connection.close()
        assert watch.descriptor is None
    watchdog.close()


def test_a_connection_is_back_in_its_pool_only_when_the_watchdog_has_let_go_of_it() -> None:
    """Any thread may take it there and close it: its number would be another's, which the watchdog then shuts down."""

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            _answer_each(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        transport, proxies = Transport(HttpConfig(proxies={}), 1, SystemClock(), "let-go"), {}
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        pool = transport._route(url, proxies).pool
        put, watched = pool._put_conn, []

        def put_conn(connection: Any) -> None:
            watched.append(list(transport._watchdog._watches))
            put(connection)

        pool._put_conn = put_conn
        try:
            for _ in range(2):  # its first request, and one over a connection that is there
                transport.request("POST", url, "/", {}, {"Host": "h"}, b"x", proxies)
        finally:
            transport.close()
    assert watched == [[], []]


def urllib3_pair() -> Any:
    """A connection as pools make them, without a socket."""
    return type("Both", (Followed, urllib3.connection.HTTPConnection), {})("h")


def test_an_interrupt_closes_the_connection_that_a_request_was_made_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only an answer that nobody gets holds it: between urllib3 and ``requests``."""
    answers: list[Any] = []

    def interrupted(_adapter: object, _request: object, answer: Any) -> Any:
        answers.append(answer)  # held, or its end would close the connection
        raise KeyboardInterrupt

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "build_response", interrupted)
    session = requests.Session()
    session.mount("http://", FollowedAdapter())
    with LogHubServer() as server, session:
        with pytest.raises(KeyboardInterrupt), Outgoing() as request:
            session.get(f"{server.endpoint}/logstores")
        assert (request.connection is answers[0].connection, answers[0].connection.sock) == (True, None)


def test_an_interrupt_closes_the_connection_that_a_pool_was_giving_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the pool looks whether the other end has closed it: the pool has it no more, and nobody has it yet."""

    def interrupted(_descriptor: int) -> bool:
        raise KeyboardInterrupt

    made: list[Any] = []
    monkeypatch.setattr(Followed, "_new_conn", noting(made, Followed._new_conn))
    session = requests.Session()
    session.mount("http://", FollowedAdapter())
    with LogHubServer() as server, session:
        session.get(f"{server.endpoint}/logstores")
        monkeypatch.setattr(connections, "looks_quiet", interrupted)
        with pytest.raises(KeyboardInterrupt), Outgoing():
            session.get(f"{server.endpoint}/logstores")
        assert [sock.fileno() for sock in made] == [-1]


def noting(made: list[Any], make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``make``, which notes in ``made`` what it has made."""

    def note(connection: Any) -> Any:
        made.append(make(connection))
        return made[-1]

    return note


def test_a_transport_that_is_closed_has_no_connection_left() -> None:
    """Also while somebody holds it still, as many a program does its producer."""
    with LogHubServer() as server:
        transport = Transport(HttpConfig(proxies={}), 1, SystemClock(), "closed")
        proxies = transport.proxies_for(server.endpoint)
        transport.request("GET", server.endpoint, "/", {}, {"Host": "h"}, b"", proxies)
        pool = transport._route(server.endpoint, proxies).pool
        (connection,) = pool.pool._connections
        transport.close()
        assert connection.sock is None


def test_a_server_that_takes_a_request_and_says_nothing_is_told_of_before_its_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once, without the user and the password of its address; and when it answers."""
    caplog.set_level("INFO", "producer.http")
    clock = ManualClock()
    transport = Transport(HttpConfig(proxies={}), 1, clock, "patient")
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as caller:
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
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            assert answer.result(PATIENCE)[0].status == 200
        assert caplog.messages[1:] == [f"http://{place}: answers now"]
    transport.close()


def test_of_idle_connections_the_last_one_is_used_first_and_no_more_are_kept_than_wanted() -> None:
    """As a queue of the standard library: who comes to one that is empty or full is told."""
    idle = Idle(2)
    for connection in ("first", "last"):
        idle.put(connection)
    with pytest.raises(queue.Full):
        idle.put("one more", block=False)
    assert idle.qsize() == 2
    assert [idle.get(), idle.get(block=False)] == ["last", "first"]
    with pytest.raises(queue.Empty):
        idle.get(block=False, timeout=1)

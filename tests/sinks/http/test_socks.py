"""Requests through SOCKS proxies."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from producer import HttpConfig
from producer.model.errors import UnreachableError
from producer.runtime.clock import SystemClock
from producer.server import LogHubServer
from producer.sinks.http.transport import Transport

from . import hostile_server as hostile
from .hostile_server import Behaviour, serve


@contextmanager
def transport_of(**limits: int) -> Iterator[Transport]:
    transport = Transport(HttpConfig(proxies={}, **limits), 1, SystemClock(), "socks")
    try:
        yield transport
    finally:
        transport.close()


def _proxy(port: int, asked: list[bytes]) -> Behaviour:
    """Act as a SOCKS 5 proxy that knows a user, and connects every request to one port of this machine."""

    def lead(connection: socket.socket, _stop: threading.Event) -> None:
        connection.recv(1000)
        connection.sendall(b"\5\2")
        asked.append(connection.recv(1000))
        connection.sendall(b"\1\0")
        asked.append(connection.recv(1000))
        connection.sendall(b"\5\0\0\1\0\0\0\0\0\0")
        hostile.relay(connection, port)

    return lead


@pytest.mark.parametrize(("scheme", "place"), [("socks5h", b"\3\x08far.test"), ("socks5", b"\1\x7f\0\0\1")])
def test_a_request_goes_through_a_proxy_of_socks(scheme: str, place: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy gets user and password; the name is resolved by the proxy, or on this machine."""
    asked: list[bytes] = []
    resolve = socket.getaddrinfo

    def resolved(host: object, *given: object, **options: object) -> object:
        return resolve("127.0.0.1" if host == "far.test" else host, *given, **options)  # type: ignore[arg-type, call-overload]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with LogHubServer() as server, serve(_proxy(server.port, asked)) as port, transport_of() as transport:
        proxies = {"http": f"{scheme}://me:h%40dden@127.0.0.1:{port}"}
        for _ in range(2):  # over one connection
            assert transport.request("GET", "http://far.test", "/", {}, {"Host": "h"}, b"", proxies)[0].status == 200
    assert asked == [b"\1\2me\6h@dden", b"\5\1\0" + place + b"\0\x50"]


def test_the_limit_of_an_attempt_holds_for_a_proxy_of_socks_that_drips() -> None:
    """The limit holds although each byte comes in time."""

    def drip(connection: socket.socket, stop: threading.Event) -> None:
        connection.recv(1000)
        connection.sendall(b"\5\0")
        connection.recv(1000)
        connection.sendall(b"\5\0\0\3\xff")
        while not stop.wait(hostile.PACE):
            connection.sendall(b"x")

    with serve(drip) as port, transport_of(attempt_timeout_ms=300) as transport:
        proxies = {"all": f"socks5h://127.0.0.1:{port}"}
        with pytest.raises(UnreachableError, match=r"no connection within 0\.3 s"):
            transport.request("GET", "http://far.test", "/", {}, {"Host": "h"}, b"", proxies)


def test_a_socks_proxy_that_does_not_listen_is_named_and_nothing_was_sent() -> None:
    """A SOCKS proxy that does not listen is named, and nothing was sent."""
    with serve(hostile.hang) as port:
        pass  # the port is free again
    proxies = {"all": f"socks5h://127.0.0.1:{port}"}
    with transport_of() as transport, pytest.raises(UnreachableError, match=rf"proxy \(.*:{port}\): .*refused"):
        transport.request("GET", "http://far.test", "/", {}, {"Host": "h"}, b"", proxies)

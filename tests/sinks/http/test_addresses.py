"""Connections are opened to the first of several addresses that answers, within the time limit."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from producer import HttpConfig
from producer.model.errors import UnreachableError
from producer.runtime.clock import SystemClock
from producer.server import LogHubServer
from producer.sinks.http.opening import Opening
from producer.sinks.http.transport import Transport
from producer.testing import ManualClock

from .hostile_server import answer, serve

_ASKED = "/", {}, {"Host": "h"}, b"", {}  # type: ignore[var-annotated]


@pytest.mark.parametrize("silent", [1, 2, 9])
def test_addresses_that_do_not_answer_take_no_longer_together_than_a_connection_may(
    silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each address gets its share of the time, and the last one, which answers, is used."""
    clock, asked = ManualClock(), list[str]()
    addresses = [*(f"192.0.2.{number}" for number in range(silent)), "127.0.0.1"]
    connect, resolve = Opening._connected_to, socket.getaddrinfo

    def connected(self: Opening, address: str, port: int, seconds: float) -> socket.socket:
        asked.append(address)
        if address != "127.0.0.1":
            clock.advance(seconds)
            raise TimeoutError("timed out")
        return connect(self, address, port, seconds)

    def resolved(host: str, *arguments: Any, **options: Any) -> Any:
        hosts = addresses if host == "p.far.test" else [host]
        return [place for each in hosts for place in resolve(each, *arguments, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(Opening, "_connected_to", connected)
    transport, began = Transport(HttpConfig(proxies={}, connect_timeout_ms=6000), 1, clock, "shared"), clock.monotonic()
    with LogHubServer() as server:
        assert transport.request("GET", f"http://p.far.test:{server.port}", *_ASKED)[0].status == 200
        transport.close()
    assert asked == addresses
    assert clock.monotonic() - began == pytest.approx(6 * silent / (silent + 1))


def test_of_an_address_that_does_not_answer_in_time_an_error_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the address and the time."""

    class Late(socket.socket):
        def connect(self, _place: Any) -> None:
            raise TimeoutError("timed out")

    transport = Transport(HttpConfig(proxies={}), 1, SystemClock(), "late")
    monkeypatch.setattr(socket, "socket", Late)
    said = r"no connection in time: TimeoutError: connection to 127\.0\.0\.1 timed out \(10\.0 s\)"
    with pytest.raises(UnreachableError, match=said):
        transport.request("GET", "http://127.0.0.1:9", *_ASKED)
    transport.close()


def test_a_bundle_may_be_missing_or_empty_during_its_renewal_which_fails_no_request(
    tmp_path: Path,
) -> None:
    """A bundle may be missing or empty during its renewal, which fails no request."""
    first, second, bundle, proxies = trustme.CA(), trustme.CA(), tmp_path / "ca.pem", dict[str, str]()

    def asked(transport: Transport, authority: trustme.CA) -> int:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        with serve(answer, context) as port:
            try:
                return transport.request("GET", f"https://127.0.0.1:{port}", *_ASKED[:4], proxies)[0].status
            finally:
                transport.close()  # otherwise the server waits for the end of the connection

    first.cert_pem.write_to_path(str(bundle))
    transport = Transport(HttpConfig(proxies={}, ca_bundle=str(bundle)), 1, SystemClock(), "renewed")
    assert asked(transport, first) == 200
    bundle.unlink()
    assert asked(transport, first) == 200
    bundle.write_text("no certificate yet")
    assert asked(transport, first) == 200
    second.cert_pem.write_to_path(str(bundle))
    assert asked(transport, second) == 200
    with pytest.raises(UnreachableError, match="certificate"):
        asked(transport, first)

"""How a connection is opened: to several addresses, in time; and what is said where there is none."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import trustme

from producer import HttpConfig
from producer.model.errors import UnreachableError
from producer.runtime.clock import SystemClock
from producer.server import LogHubServer
from producer.sinks.http import connections
from producer.sinks.http.transport import Transport

from .hostile_server import hang, serve

_ASKED = "/", {}, {"Host": "h"}, b"", {}  # type: ignore[var-annotated]


@pytest.mark.parametrize("silent", [1, 2, 9])
def test_addresses_that_do_not_answer_take_no_longer_together_than_a_connection_may(
    silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each gets its share of the time, and the last one, which answers, is used, under the name that was asked for."""
    now, asked = [1000.0], list[str]()
    addresses = [*(f"192.0.2.{number}" for number in range(silent)), "127.0.0.1"]
    create, resolve = connections.Followed._connected_to, socket.getaddrinfo

    def connect(self: connections.Followed, address: str, timeout: float) -> socket.socket:
        asked.append(address)
        if address != "127.0.0.1":
            now[0] += timeout
            raise TimeoutError("timed out")
        return create(self, address, timeout)

    def resolved(host: str, *arguments: Any, **options: Any) -> Any:
        hosts = addresses if host == "p.far.test" else [host]
        return [place for each in hosts for place in resolve(each, *arguments, **options)]

    monkeypatch.setattr(connections, "monotonic", lambda: now[0])
    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(connections.Followed, "_connected_to", connect)
    transport = Transport(HttpConfig(proxies={}, connect_timeout_ms=6000), 1, SystemClock(), "shared")
    with LogHubServer() as server:
        base, proxies = f"http://p.far.test:{server.port}", dict[str, str]()
        assert transport.request("GET", base, *_ASKED[:4], proxies)[0].status == 200
        (connection,) = transport._route(base, proxies).pool.pool._connections
        assert connection.host == "p.far.test"
        transport.close()
    assert asked == addresses
    assert now[0] - 1000 == pytest.approx(6 * silent / (silent + 1))


def test_of_an_address_that_does_not_answer_in_time_an_error_says_so_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Python's words for a connection."""

    def late(*_: Any, **__: Any) -> socket.socket:
        raise TimeoutError("timed out")

    monkeypatch.setattr(connections.Followed, "_connected_to", late)
    transport = Transport(HttpConfig(proxies={}), 1, SystemClock(), "late")
    with pytest.raises(
        UnreachableError, match="no connection in time: ConnectTimeoutError: Connection to 127"
    ) as caught:
        transport.request("GET", "http://127.0.0.1:9", *_ASKED)
    assert " at 0x" not in caught.value.message
    transport.close()


def test_a_file_of_certificates_that_is_gone_is_named_by_its_option(tmp_path: Path) -> None:
    """It was there when the producer was made, and may come back: the server is not what is missing."""
    authority, bundle, proxies = trustme.CA(), tmp_path / "ca.pem", dict[str, str]()
    authority.cert_pem.write_to_path(str(bundle))
    transport = Transport(HttpConfig(proxies={}, ca_bundle=str(bundle)), 1, SystemClock(), "gone")
    with serve(hang) as port:
        base = f"https://127.0.0.1:{port}"
        transport._route(base, proxies)
        bundle.unlink()
        with pytest.raises(UnreachableError, match=r"the certificates of http\.ca_bundle, or of .* cannot be read"):
            transport.request("GET", base, *_ASKED[:4], proxies)
    transport.close()

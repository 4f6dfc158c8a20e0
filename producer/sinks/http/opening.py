"""Opening of connections: to the first address of a host that answers, through proxies, within TLS.

Every socket is registered with its attempt as soon as it exists, so that another thread can shut it down.
"""

from __future__ import annotations

import base64
import http.client
import importlib
import math
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit

from ...runtime.tls import closed_if_it_fails
from ...text.addresses import is_address
from .answers import read_tunnel_answer
from .attempts import Attempt
from .dns import addresses_of
from .raw_exchange import TimedSocket
from .tls_within_tls import TlsWithinTls

_PORTS = {"http": 80, "https": 443, "socks4": 1080, "socks4a": 1080, "socks5": 1080, "socks5h": 1080}
# The minimum time to connect to each of several addresses, seconds.
_LEAST_TO_CONNECT = 0.1


class ProxyError(Exception):
    """Raised when no connection through a proxy could be opened.

    :ivar cause: the error.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class TunnelError(OSError):
    """Raised when a proxy refuses to open a tunnel.

    :ivar status: the status of its response.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"Tunnel connection failed: {status} {reason}".rstrip())
        self.status = status


@dataclass(frozen=True, slots=True)
class Place:
    """A server or a proxy.

    :ivar port: the port of the URL, or the default of its scheme.
    :ivar user: not percent-encoded; None without one.
    """

    scheme: str
    host: str
    port: int
    user: str | None
    password: str

    @classmethod
    def of(cls, url: str) -> Place:
        """Return the place of a URL.

        :raises ValueError: the URL cannot be used.
        """
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError(f"not a URL of HTTP: {parts.scheme}://{parts.netloc.rpartition('@')[2]}")
        user = None if parts.username is None else unquote(parts.username)
        return cls(
            parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme], user, unquote(parts.password or "")
        )

    @property
    def authorization(self) -> bytes:
        """The header with the user and password for a proxy, including the line end; empty without a user."""
        if self.user is None:
            return b""
        pair = f"{self.user}:{self.password}".encode("latin-1")
        return b"Proxy-Authorization: Basic " + base64.b64encode(pair) + b"\r\n"


class Opening:
    """A connection that is being opened.

    :param proxy: the proxy on the way; None without one.
    :param seconds: the time limit of the whole opening.
    :param context: returns the TLS context for the server.
    :param context_of_proxy: returns the TLS context for the proxy.
    """

    def __init__(
        self,
        target: Place,
        proxy: Place | None,
        attempt: Attempt,
        seconds: float,
        context: Callable[[], ssl.SSLContext],
        context_of_proxy: Callable[[], ssl.SSLContext],
    ) -> None:
        self._target, self._proxy, self._attempt = target, proxy, attempt
        self._end = attempt.now() + seconds
        self._context, self._context_of_proxy = context, context_of_proxy

    def open(self) -> Any:
        """Open the connection, and return its socket, which the attempt holds.

        :raises ProxyError: the proxy refused, or the connection to it failed.
        :raises OSError: the connection failed.
        :raises ValueError: the host name is invalid, or the certificates cannot be used.
        """
        sock = self._connect()
        return self._secured(sock, self._context, self._target) if self._target.scheme == "https" else sock

    def _left(self) -> float:
        left = self._rest()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def _rest(self) -> float:
        return min(self._end, self._attempt.end) - self._attempt.now()

    def _connect(self) -> Any:
        """Connect to the server, or to the proxy that forwards to it."""
        proxy, target = self._proxy, self._target
        if proxy is None:
            return self._connected(target)
        try:
            if proxy.scheme.startswith("socks"):
                return self._through_socks(proxy)
            sock = self._connected(proxy)
            if proxy.scheme == "https":
                sock = self._secured(sock, self._context_of_proxy, proxy)
            if target.scheme == "https":
                self._open_tunnel(sock, proxy)
        except (OSError, http.client.HTTPException) as error:
            raise ProxyError(error) from error
        return sock

    def _addresses(self, place: Place) -> list[str]:
        return [place.host] if is_address(place.host) else addresses_of(place.host, place.port, self._left)

    def _connected(self, place: Place) -> socket.socket:
        """Connect to the first address that answers; all addresses share the time."""
        addresses = self._addresses(place)
        while True:
            address = addresses.pop(0)
            try:
                return self._connected_to(address, place.port, self._left() / (1 + len(addresses)))
            except OSError:
                self._attempt.close()
                if not addresses or self._rest() <= 0:
                    raise

    def _connected_to(self, address: str, port: int, seconds: float) -> socket.socket:
        family, kind, protocol, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
        self._attempt.hold(sock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(max(_LEAST_TO_CONNECT, seconds))
        try:
            sock.connect(place)
        except TimeoutError as error:
            raise TimeoutError(f"connection to {address} timed out ({seconds:.1f} s)") from error
        except OSError as error:
            error.filename = f"{address}:{port}"  # shown in the text of the error
            raise
        return sock

    def _secured(self, sock: Any, context: Callable[[], ssl.SSLContext], place: Place) -> Any:
        name = place.host.rstrip(".")
        secured: Any
        if isinstance(sock, ssl.SSLSocket):
            secured = TlsWithinTls(sock, context(), name)
        else:
            with closed_if_it_fails():
                secured = context().wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
        self._attempt.hold(secured)
        secured.settimeout(self._left())
        secured.do_handshake()
        return secured

    def _open_tunnel(self, sock: Any, proxy: Place) -> None:
        host, line = self._target.host, TimedSocket(sock, self._left, math.inf)
        name = b"[%b]" % host.encode() if ":" in host else host.encode("idna")
        place = b"%b:%d" % (name, self._target.port)
        line.sendall(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (place, place, proxy.authorization))
        status, reason = read_tunnel_answer(line)
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            raise TunnelError(status, reason)

    def _through_socks(self, proxy: Place) -> Any:
        socks: Any = importlib.import_module("socks")  # PySocks; without it, the configuration refuses such a proxy
        kind = socks.SOCKS4 if proxy.scheme.startswith("socks4") else socks.SOCKS5
        resolves, target = proxy.scheme in ("socks4a", "socks5h"), self._target
        host, proxy_address = target.host if resolves else self._addresses(target)[0], self._addresses(proxy)[0]
        sock = socks.socksocket(socket.AF_INET6 if ":" in proxy_address else socket.AF_INET)
        self._attempt.hold(sock)
        self._attempt.guard()  # PySocks gives each call the whole timeout
        sock.set_proxy(kind, proxy_address, proxy.port, rdns=resolves, username=proxy.user, password=proxy.password)
        sock.settimeout(self._left())
        sock.connect((host, target.port))
        return sock

"""HTTP: one request for each attempt, over kept connections; without retries or redirects.

It does not use urllib3 or ``requests``. Over urllib3's public interface (``urlopen`` with ``preload_content=False``) a
request costs 165 microseconds of CPU instead of 18. A client that sends one log in each request needs twice the CPU:
506 microseconds instead of 255 with one thread, 482 instead of 230 with ten. Moreover, urllib3 does not tell which
bytes were sent, and has no single deadline for name resolution, proxies, TLS and responses.

An attempt ends within its limit (``http.attempt_timeout_ms``), from its first step to the last byte of the response.
"""

from __future__ import annotations

import http.client
import math
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from ...runtime.clock import Clock, Deadline
from ...text.addresses import is_address
from ...wire.prepared import request_target
from .answers import MOST_OF_AN_ANSWER, Received
from .attempts import Attempt, Attempts, Sent, is_monkey_patched
from .ca_bundle import Trust
from .connections import Idle, begin_of, exchange
from .failures import error_of_exception, error_of_limit, request_id_of
from .opening import Opening, Place, ProxyError
from .proxies import place_of, proxies_for, proxy_of, through
from .slow_connect_warning import Silence

if TYPE_CHECKING:
    from ...model.config import HttpConfig

#: Destinations whose connections are kept.
_MOST_ROUTES = 32
#: Expected errors of a request; any other is a bug.
_OF_THE_NETWORK = (ProxyError, http.client.HTTPException, OSError, ValueError)


class Answer(NamedTuple):
    """An HTTP response, read completely.

    :ivar status: the HTTP status.
    :ivar request_id: ``x-log-requestid``, or empty.
    :ivar body: the first bytes of the body.
    """

    status: int
    request_id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of a project's requests.

    :ivar base_url: scheme, host and port.
    :ivar host: the ``Host`` header, which always names the project.
    """

    base_url: str
    host: str


def target_of(project: str, endpoint: str) -> Target:
    """Return the target of a project: its name precedes a host name; with an address or localhost, only ``Host`` has
    it.
    """
    parts = urlsplit(endpoint)
    host = f"{project}.{parts.netloc}"
    name = parts.hostname or ""
    if name == "localhost" or is_address(name):
        return Target(endpoint, host)
    return Target(f"{parts.scheme}://{host}", host)


@dataclass(frozen=True, slots=True)
class _Route:
    """The way to a destination.

    :ivar proxy: the proxy on it; None without one.
    :ivar idle: its kept connections.
    :ivar prefix: the text before a path in the request line: empty, or the base URL for a proxy that forwards.
    :ivar head: the headers for a proxy that forwards, each with its end of line.
    :ivar silence: the warning about the destination, until it has responded.
    """

    target: Place
    proxy: Place | None
    idle: Idle
    prefix: str
    head: bytes
    silence: Silence


class Transport:
    """Makes requests; thread-safe.

    :param pool_size: the number of connections kept open for each host.
    :param name: the prefix of its threads' names.
    :param tls: makes the context of each new connection to a server; None for the configured one. TLS with a proxy
        always uses the configured one.
    :param most: the maximum bytes of a response to read.
    :param warns: True to warn about a silent destination that has never responded.
    """

    def __init__(
        self,
        config: HttpConfig,
        pool_size: int,
        clock: Clock,
        name: str,
        *,
        tls: Callable[[], ssl.SSLContext | None] | None = None,
        most: int = MOST_OF_AN_ANSWER,
        warns: bool = True,
    ) -> None:
        self._config, self._pool_size, self._clock, self._most_bytes, self._warns = (
            config,
            pool_size,
            clock,
            most,
            warns,
        )
        self._tls, self._trust = tls, Trust(config)
        self._connect_timeout, self._read_timeout = config.connect_timeout_ms / 1000, config.read_timeout_ms / 1000
        self._most = (config.attempt_timeout_ms or config.connect_timeout_ms + config.read_timeout_ms) / 1000
        self._attempts = Attempts(self._most, clock, f"{name}-deadline")
        self._limit = f"{self._most:g} s, the most that an attempt may take (http.attempt_timeout_ms)"
        self._routes: dict[tuple[str, int], tuple[Mapping[str, str], _Route]] = {}

    def proxies_for(self, base_url: str) -> Mapping[str, str]:
        """Return the proxies of requests to ``base_url``, by scheme."""
        return proxies_for(self._config, base_url)

    def hurry(self, end: Deadline, limit: str = "the time that was left to end in") -> None:
        """End all requests by this deadline, current and later ones.

        :param limit: the limit, in words.
        """
        self._limit = limit
        self._attempts.hurry(end)

    def request(
        self,
        method: str,
        base_url: str,
        path: str,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
        proxies: Mapping[str, str],
        *,
        patience: float = math.inf,
    ) -> tuple[Answer, Mapping[str, str]]:
        """Send one request, and read its response.

        :param method: ``POST`` or ``GET``.
        :param path: percent-encoded.
        :param proxies: the result of :meth:`proxies_for`, the same object for each request.
        :param patience: as in :meth:`send`.
        :returns: the response, and its headers.
        :raises NetworkError: there was no response, or none in time.
        :raises MisconfiguredError: the request cannot be sent.
        """
        return self.send(method, base_url, request_target(path, params), head_of(headers), body, proxies, patience)

    def send(
        self,
        method: str,
        base_url: str,
        target: str,
        head: bytes,
        body: bytes,
        proxies: Mapping[str, str],
        patience: float = math.inf,
    ) -> tuple[Answer, Mapping[str, str]]:
        """Send one prepared request, and read its response.

        :param target: the target in the request line.
        :param head: the result of :func:`head_of`.
        :param patience: a limit on connecting, and on the server's silence, below the configured ones, seconds.
        """
        with Attempt(self._attempts) as attempt:
            if is_monkey_patched():
                attempt.guard()
            try:
                route = self._route(base_url, proxies)
                if self._warns and not route.silence.answered:
                    route.silence.listen(self._attempts, attempt, self._clock)
                sock, received = self._exchange(route, attempt, method, target, head, body, patience)
            except BaseException as error:
                attempt.close()
                if not isinstance(error, _OF_THE_NETWORK):
                    raise
                way = through(base_url, proxies)
                if attempt.is_over:
                    raise error_of_limit(self._limit, attempt.sent, way, error) from error
                raise error_of_exception(error, attempt.sent, way) from error
        # A connection that was shut down looks like one that the server closed after a complete response.
        if received.last or attempt.cut:
            sock.close()
        else:
            route.idle.put(sock)
        if attempt.cut:
            raise error_of_limit(self._limit, attempt.sent, through(base_url, proxies))
        if not route.silence.answered:
            route.silence.end()
        return Answer(received.status, request_id_of(received.headers), received.body), received.headers

    def _route(self, base_url: str, proxies: Mapping[str, str]) -> _Route:
        key = base_url, id(proxies)
        known = self._routes.get(key)
        if known is None or known[0] is not proxies or known[1].idle.is_closed:
            if len(self._routes) >= _MOST_ROUTES:
                self._close_routes()
            known = self._routes[key] = proxies, self._find_route(base_url, proxies)
        return known[1]

    def _find_route(self, base_url: str, proxies: Mapping[str, str]) -> _Route:
        """Return the way to a destination.

        :raises ValueError: a URL that cannot be used.
        """
        target, url = Place.of(base_url), proxy_of(base_url, proxies)
        proxy = Place.of(url) if url else None
        forwards = proxy is not None and proxy.scheme in ("http", "https") and target.scheme == "http"
        return _Route(
            target,
            proxy,
            Idle(self._pool_size),
            prefix=base_url if forwards else "",
            head=proxy.authorization if proxy is not None and forwards else b"",
            silence=Silence(f"{place_of(base_url)}{through(base_url, proxies)}", self._most),
        )

    def _exchange(
        self, route: _Route, attempt: Attempt, method: str, target: str, head: bytes, body: bytes, patience: float
    ) -> tuple[Any, Received]:
        whole = b"%b%b\r\nContent-Length: %d" % (route.head, head, len(body))
        begin = begin_of(method, route.prefix + target, whole)
        sock = route.idle.get()
        if sock is None:
            sock = self._opened(route, attempt, patience)
        else:
            attempt.hold(sock)
        return sock, exchange(sock, attempt, min(self._read_timeout, patience), begin, body, self._most_bytes)

    def _opened(self, route: _Route, attempt: Attempt, patience: float) -> Any:
        trusted = self._trust.context
        own = self._tls
        tls = trusted if own is None else lambda: own() or trusted()
        seconds = min(self._connect_timeout, patience)
        return Opening(route.target, route.proxy, attempt, seconds, tls, trusted).open()

    def close(self) -> None:
        """Close the kept connections; current attempts still end within their limit."""
        self._close_routes()

    def _close_routes(self) -> None:
        routes, self._routes = self._routes, {}
        for _, route in routes.values():
            route.idle.close()


def head_of(headers: Mapping[str, str]) -> bytes:
    """Return the header lines of a request, as they were signed, without the last end of line.

    :raises MisconfiguredError: a header that cannot be sent.
    """
    try:
        head = "\r\n".join([f"{name}: {value}" for name, value in headers.items()]).encode("latin-1")
    except UnicodeEncodeError:
        head = b"\0"
    ends = len(headers) - 1
    if head.count(b"\n") != ends or head.count(b"\r") != ends or b"\0" in head:
        wrong = [name for name, value in headers.items() if not value.isascii() or {"\r", "\n", "\0"} & set(value)]
        error = ValueError(f"not to be sent as a header, for an end of line or characters beyond latin-1: {wrong}")
        raise error_of_exception(error, Sent.NOTHING) from None
    return head

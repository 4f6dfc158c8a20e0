"""HTTP: one request an attempt over connections that are kept; nothing is retried or redirected here.

Neither urllib3 nor ``requests`` is under it. Over urllib3's public interface (``urlopen`` with
``preload_content=False``) a request costs 165 microseconds of CPU in place of 18, and a client that sends one log a
request twice its CPU: 506 microseconds in place of 255 with one thread, 482 in place of 230 with ten. Besides, it does
not tell which bytes have left, nor has it one deadline for names, proxies, TLS and answers.

An attempt ends within its limit (``http.attempt_timeout_ms``) from its first step to the last byte of the answer.
"""

from __future__ import annotations

import http.client
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
#: What may come from below when a request is made; anything else is a bug.
_OF_THE_NETWORK = (ProxyError, http.client.HTTPException, OSError, ValueError)


class Answer(NamedTuple):
    """An HTTP answer, read completely.

    :ivar status: the HTTP status.
    :ivar request_id: ``x-log-requestid``, or empty.
    :ivar body: its first bytes.
    """

    status: int
    request_id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Target:
    """Where a project's requests go.

    :ivar base_url: scheme, host and port.
    :ivar host: the ``Host`` header, which always names the project.
    """

    base_url: str
    host: str


def target_of(project: str, endpoint: str) -> Target:
    """A host name gets the project in front; with an address, or localhost, only the ``Host`` header has it."""
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
    :ivar idle: its connections.
    :ivar prefix: what stands before a path in the request line: nothing, or, for a proxy that forwards, the base URL.
    :ivar head: the headers for a proxy that forwards, each with the end of its line.
    :ivar silence: that of the destination, until it has answered.
    """

    target: Place
    proxy: Place | None
    idle: Idle
    prefix: str
    head: bytes
    silence: Silence


class Transport:
    """Makes requests; safe to use from many threads.

    :param pool_size: connections kept open for each host.
    :param name: prefix of the names of its threads.
    :param tls: makes the context of each new connection to a server; None for one of the options. TLS with a proxy is
        that of the options.
    :param most: bytes of an answer that are read.
    :param tells: whether the silence of a destination is told of that has never answered.
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
        tells: bool = True,
    ) -> None:
        self._config, self._pool_size, self._clock, self._most_bytes, self._tells = (
            config,
            pool_size,
            clock,
            most,
            tells,
        )
        self._tls, self._trust = tls, Trust(config)
        self._connect_timeout, self._read_timeout = config.connect_timeout_ms / 1000, config.read_timeout_ms / 1000
        self._most = (config.attempt_timeout_ms or config.connect_timeout_ms + config.read_timeout_ms) / 1000
        self._attempts = Attempts(self._most, clock, f"{name}-deadline")
        self._limit = f"{self._most:g} s, the most that an attempt may take (http.attempt_timeout_ms)"
        self._routes: dict[tuple[str, int], tuple[Mapping[str, str], _Route]] = {}

    def proxies_for(self, base_url: str) -> Mapping[str, str]:
        """See :func:`.proxies.proxies_for`."""
        return proxies_for(self._config, base_url)

    def hurry(self, end: Deadline, limit: str = "the time that was left to end in") -> None:
        """No request goes on beyond this, whatever the server does.

        :param limit: the limit in words.
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
    ) -> tuple[Answer, Mapping[str, str]]:
        """Send one request and read its answer.

        :param method: ``POST`` or ``GET``.
        :param path: percent-encoded.
        :param proxies: of :meth:`proxies_for`, the same object for each request.
        :returns: the answer, and its headers.
        :raises NetworkError: there was none, or not in time.
        :raises MisconfiguredError: it cannot be sent.
        """
        return self.send(method, base_url, request_target(path, params), head_of(headers), body, proxies)

    def send(
        self, method: str, base_url: str, target: str, head: bytes, body: bytes, proxies: Mapping[str, str]
    ) -> tuple[Answer, Mapping[str, str]]:
        """As :meth:`request`.

        :param target: what is asked for, as the request line has it.
        :param head: of :func:`head_of`.
        """
        with Attempt(self._attempts) as attempt:
            if is_monkey_patched():
                attempt.guard()
            try:
                route = self._route(base_url, proxies)
                if self._tells and not route.silence.answered:
                    route.silence.listen(self._attempts, attempt, self._clock)
                sock, received = self._exchange(route, attempt, method, target, head, body)
            except BaseException as error:
                attempt.close()
                if not isinstance(error, _OF_THE_NETWORK):
                    raise
                way = through(base_url, proxies)
                if attempt.is_over:
                    raise error_of_limit(self._limit, attempt.sent, way, error) from error
                raise error_of_exception(error, attempt.sent, way) from error
        # A connection that is shut down also looks like one that the server closed after a complete answer.
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
        """
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
        self, route: _Route, attempt: Attempt, method: str, target: str, head: bytes, body: bytes
    ) -> tuple[Any, Received]:
        whole = b"%b%b\r\nContent-Length: %d" % (route.head, head, len(body))
        begin = begin_of(method, route.prefix + target, whole)
        sock = route.idle.get()
        if sock is None:
            sock = self._opened(route, attempt)
        else:
            attempt.hold(sock)
        return sock, exchange(sock, attempt, self._read_timeout, begin, body, self._most_bytes)

    def _opened(self, route: _Route, attempt: Attempt) -> Any:
        trusted = self._trust.context
        own = self._tls
        tls = trusted if own is None else lambda: own() or trusted()
        return Opening(route.target, route.proxy, attempt, self._connect_timeout, tls, trusted).open()

    def close(self) -> None:
        """Close the kept connections; attempts that go on all the same still end within their limit."""
        self._close_routes()

    def _close_routes(self) -> None:
        routes, self._routes = self._routes, {}
        for _, route in routes.values():
            route.idle.close()


def head_of(headers: Mapping[str, str]) -> bytes:
    """The lines of a request's headers, which travel as they were signed; without the last line's end.

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

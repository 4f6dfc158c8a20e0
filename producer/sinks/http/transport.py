"""HTTP: one request an attempt over urllib3's pooled connections; nothing is retried or redirected here.

``requests`` chooses the proxy and the certificates, once for a destination, so that its settings and those of the
environment mean what they mean elsewhere. Its sessions are not used: cookies, redirects, and passwords out of ~/.netrc
in place of our signature are not wanted, and what it does for each request costs more than the request.

An attempt ends within its limit (``http.attempt_timeout_ms``) from its first step to the last byte of the answer.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import requests
import urllib3.exceptions

from ...runtime.clock import Clock, Deadline
from ...text.addresses import is_address
from ...wire.prepared import request_target
from .answers import MOST_OF_AN_ANSWER, Received
from .ca_bundle import authorities_of
from .connections import FollowedAdapter, Outgoing, Sent
from .failures import error_of_exception, error_of_limit, request_id_of
from .proxies import place_of, proxies_for, through
from .slow_connect_warning import Silence
from .watchdog import Watchdog, unwatched

if TYPE_CHECKING:
    from ...model.config import HttpConfig

#: Destinations whose connections are kept.
_POOLS = 32
#: What may come from below when a request is made; anything else is a bug.
_OF_THE_NETWORK = (
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    OSError,
    ValueError,
)


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

    :ivar pool: its connections.
    :ivar prefix: what stands before a path in the request line: nothing, or, for a proxy that forwards, the base URL.
    :ivar tunnel: a proxy is to open a tunnel first.
    :ivar head: the headers for the proxy, each with the end of its line.
    :ivar silence: that of the destination, until it has answered.
    """

    pool: Any
    prefix: str
    tunnel: bool
    head: bytes
    silence: Silence


class Transport:
    """Makes requests; safe to use from many threads.

    :param pool_size: connections kept open for each host.
    :param name: prefix of the name of its thread.
    :param certificate: PEM files of who we are and of its key, for servers that ask.
    :param tls: gives the context of each new connection, in place of the files, which may be wrong by then; None for
        the files. What is said to a proxy over TLS is of the files.
    :param most: bytes of an answer that are read.
    :param tells: whether the silence of a destination is told of that has never answered.
    """

    def __init__(
        self,
        config: HttpConfig,
        pool_size: int,
        clock: Clock,
        name: str,
        certificate: tuple[str, str] | None = None,
        *,
        tls: Callable[[], ssl.SSLContext | None] | None = None,
        most: int = MOST_OF_AN_ANSWER,
        tells: bool = True,
    ) -> None:
        self._certificate, self._tls, self._most_bytes, self._tells = certificate, tls, most, tells
        self._adapter = FollowedAdapter(pool_connections=_POOLS, pool_maxsize=pool_size, max_retries=0)
        self._connect_timeout, self._read_timeout = config.connect_timeout_ms / 1000, config.read_timeout_ms / 1000
        self._most = (config.attempt_timeout_ms or config.connect_timeout_ms + config.read_timeout_ms) / 1000
        self._watchdog = Watchdog(self._most, clock, f"{name}-watchdog")
        self._limit = f"{self._most:g} s, the most that an attempt may take (http.attempt_timeout_ms)"
        self._config = config
        self._verify = authorities_of(config)
        self._routes: dict[tuple[str, int], tuple[Mapping[str, str], _Route]] = {}

    def proxies_for(self, base_url: str) -> Mapping[str, str]:
        """See :func:`.proxies.proxies_for`."""
        return proxies_for(self._config, base_url)

    def hurry(self, end: Deadline, limit: str = "the time that was left to end in") -> None:
        """No request goes on beyond this, whatever the server does.

        :param limit: the limit in words.
        """
        self._limit = limit
        self._watchdog.hurry(end)

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
        with self._watchdog.watch() as watch, Outgoing() as request:
            try:
                route = self._route(base_url, proxies)
                if self._tells and not route.silence.answered:
                    self._watchdog.listen(watch, route.silence)
                connection, received = self._exchange(route, method, target, head, body)
            except Exception as error:
                if watch.cut:
                    raise error_of_limit(self._limit, request.sent, through(base_url, proxies)) from error
                if isinstance(error, _OF_THE_NETWORK):
                    raise error_of_exception(error, request.sent, through(base_url, proxies)) from error
                raise
        # A connection that is shut down also looks like one that the server closed after a complete answer.
        if received.last or watch.cut:
            connection.close()
        # Not before the watchdog has let go of it: any thread may take it there, and close it.
        route.pool._put_conn(connection)
        if watch.cut:
            raise error_of_limit(self._limit, request.sent, through(base_url, proxies))
        if not route.silence.answered:
            route.silence.end()
        headers: Any = received.headers
        return Answer(received.status, request_id_of(headers), received.body), headers

    def _route(self, base_url: str, proxies: Mapping[str, str]) -> _Route:
        key = base_url, id(proxies)
        known = self._routes.get(key)
        # A manager of urllib3 1 closes pools that were long not used; any is closed by close.
        if known is None or known[0] is not proxies or known[1].pool.pool is None:
            if len(self._routes) >= _POOLS:
                self._routes = {}
            known = self._routes[key] = proxies, self._find_route(base_url, proxies)
        return known[1]

    def _find_route(self, base_url: str, proxies: Mapping[str, str]) -> _Route:
        """
        :raises OSError: there is no such file of certificates.
        :raises ValueError: a URL that cannot be used.
        """
        request, given = requests.PreparedRequest(), dict(proxies)
        request.method, request.url, request.headers = "POST", f"{base_url}/", requests.structures.CaseInsensitiveDict()
        pool: Any
        if hasattr(self._adapter, "get_connection_with_tls_context"):
            pool = self._adapter.get_connection_with_tls_context(request, self._verify, given, self._certificate)
        else:  # requests before 2.32
            pool = self._adapter.get_connection(request.url, given)
        self._adapter.cert_verify(pool, request.url, self._verify, self._certificate)  # type: ignore[no-untyped-call]  # requests has no types of it
        forwarded = not self._adapter.request_url(request, given).startswith("/")
        tunnel = pool.proxy is not None and not forwarded
        # Those of a tunnel are told to the proxy that opens it.
        own = b"" if tunnel or not pool.proxy_headers else head_of(pool.proxy_headers) + b"\r\n"
        silence = Silence(f"{place_of(base_url)}{through(base_url, proxies)}", self._most)
        return _Route(pool, base_url if forwarded else "", tunnel, own, silence)

    def _exchange(self, route: _Route, method: str, target: str, head: bytes, body: bytes) -> tuple[Any, Received]:
        connection = route.pool._get_conn()
        try:
            if connection.is_closed:
                self._connect(route, connection)
            whole = b"%b%b\r\nContent-Length: %d" % (route.head, head, len(body))
            timeout = min(self._read_timeout, unwatched())
            received: Received = connection.exchange(
                method, route.prefix + target, whole, body, timeout, self._most_bytes
            )
        except BaseException:
            connection.close()
            raise
        return connection, received

    def _connect(self, route: _Route, connection: Any) -> None:
        connection.timeout = min(self._connect_timeout, unwatched())
        if self._tls is not None and (route.pool.proxy is None or route.pool.proxy.scheme != "https"):
            _use(connection, self._tls())
        try:
            if route.tunnel:
                route.pool._prepare_proxy(connection)
            else:
                connection.connect()
            route.pool._validate_conn(connection)
        except Exception as error:
            if route.pool.proxy is not None and not connection.has_connected_to_proxy:
                raise urllib3.exceptions.ProxyError("no way through the proxy", error) from error
            raise

    def close(self) -> None:
        """Close the pooled connections; attempts that go on all the same still end within their limit."""
        self._adapter.close()
        for _, route in list(self._routes.values()):  # the manager of urllib3 2 only forgets its pools
            route.pool.close()
        self._watchdog.close()


def _use(connection: Any, context: ssl.SSLContext | None) -> None:
    if context is not None:
        connection.ssl_context = context
        connection.ca_certs = connection.ca_cert_dir = connection.cert_file = connection.key_file = None


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

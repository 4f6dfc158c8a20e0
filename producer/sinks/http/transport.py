"""HTTP: one request an attempt over urllib3's pooled connections; nothing is retried or redirected here.

``requests`` chooses the proxy and the certificates, once for a destination, so that its settings and those of the
environment mean what they mean elsewhere. Its sessions are not used: cookies, redirects, and passwords out of ~/.netrc
in place of our signature are not wanted, and what it does for each request costs more than the request.

An attempt ends within its limit (``http.attempt_timeout_ms``) from its first step to the last byte of the answer.
"""

from __future__ import annotations

import http.client
import ipaddress
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import requests
import requests.utils
import urllib3.exceptions

from ...clock import Clock
from .connections import FollowedAdapter, outgoing
from .failures import error_of_exception, error_of_limit
from .watchdog import Watchdog

if TYPE_CHECKING:
    from ...config import HttpConfig

#: An error of a server is a few hundred bytes; whatever sends more is something else.
_MAX_ANSWER = 64 * 1024
#: Destinations whose connections are kept.
_POOLS = 32
#: What may come from below when a request is made; anything else is a bug.
_OF_THE_NETWORK = (
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    zlib.error,
    OSError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Answer:
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
    if _is_address(parts.hostname or ""):
        return Target(endpoint, host)
    return Target(f"{parts.scheme}://{host}", host)


def _is_address(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Route:
    """The way to a destination.

    :ivar pool: its connections.
    :ivar prefix: what stands before a path in the request line: nothing, or, for a proxy that forwards, the base URL.
    :ivar tunnel: a proxy is to open a tunnel first.
    :ivar headers: of the proxy.
    """

    pool: Any
    prefix: str
    tunnel: bool
    headers: Mapping[str, str]


class Transport:
    """Makes requests; safe to use from many threads.

    :param pool_size: connections kept open for each host.
    :param name: prefix of the name of its thread.
    :param certificate: PEM files of who we are and of its key, for servers that ask.
    """

    def __init__(
        self,
        config: HttpConfig,
        pool_size: int,
        clock: Clock,
        name: str,
        certificate: tuple[str, str] | None = None,
    ) -> None:
        self._certificate = certificate
        self._adapter = FollowedAdapter(pool_connections=_POOLS, pool_maxsize=pool_size, max_retries=0)
        self._connect_timeout, self._read_timeout = config.connect_timeout_ms / 1000, config.read_timeout_ms / 1000
        limit = (config.attempt_timeout_ms or config.connect_timeout_ms + config.read_timeout_ms) / 1000
        self._watchdog = Watchdog(limit, clock, f"{name}-watchdog")
        self._limit = f"{limit:g} s, the most that an attempt may take (http.attempt_timeout_ms)"
        self._proxies = config.proxies
        bundle = config.ca_bundle or os.environ.get("REQUESTS_CA_BUNDLE") or True
        self._verify: bool | str = bundle if config.verify else False
        self._routes: dict[tuple[str, int], tuple[Mapping[str, str], _Route]] = {}

    def proxies_for(self, base_url: str) -> Mapping[str, str]:
        """The proxies of requests to ``base_url``: as configured, else from the environment."""
        return requests.utils.get_environ_proxies(base_url) if self._proxies is None else self._proxies

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
        """
        target = path + (f"?{urlencode(params)}" if params else "")
        with self._watchdog.watch() as watch, outgoing() as request:
            try:
                answer = self._exchange(self._route(base_url, proxies), method, target, headers, body)
            except Exception as error:
                if watch.cut:
                    raise error_of_limit(self._limit, request.sent) from error
                if isinstance(error, _OF_THE_NETWORK):
                    raise error_of_exception(error, request.sent) from error
                raise
        # A connection that is shut down also looks like one that the server closed after a complete answer.
        if watch.cut:
            raise error_of_limit(self._limit, request.sent)
        return answer

    def _route(self, base_url: str, proxies: Mapping[str, str]) -> _Route:
        key = base_url, id(proxies)
        known = self._routes.get(key)
        # Pools that were long not used are closed by their manager.
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
        self._adapter.cert_verify(pool, request.url, self._verify, self._certificate)  # type: ignore[no-untyped-call]
        forwarded = not self._adapter.request_url(request, given).startswith("/")
        tunnel = pool.proxy is not None and not forwarded
        return _Route(pool, base_url if forwarded else "", tunnel, {} if tunnel else pool.proxy_headers)

    def _exchange(
        self, route: _Route, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[Answer, Mapping[str, str]]:
        head = _head({**headers, **route.headers, "Content-Length": str(len(body))})
        connection = route.pool._get_conn()
        try:
            if connection.is_closed:
                self._connect(route, connection)
            response = connection.exchange(method, route.prefix + target, head, body, self._read_timeout)
            answer = Answer(response.status, response.headers.get("x-log-requestid", ""), _read(response))
        except BaseException:
            connection.close()
            raise
        if connection.broken or not response.isclosed():  # of the answer there is more than anybody wants to read
            connection.close()
        route.pool._put_conn(connection)
        return answer, response.headers

    def _connect(self, route: _Route, connection: Any) -> None:
        connection.timeout = self._connect_timeout
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
        self._watchdog.close()


def _head(headers: Mapping[str, str]) -> bytes:
    """The lines of a request's headers, which travel as they were signed.

    :raises ValueError: a header that cannot be sent.
    """
    try:
        head = "\r\n".join([f"{name}: {value}" for name, value in headers.items()]).encode("latin-1")
    except UnicodeEncodeError:
        head = b""
    ends = len(headers) - 1
    if head.count(b"\n") != ends or head.count(b"\r") != ends:
        wrong = [name for name, value in headers.items() if not value.isascii() or {"\r", "\n"} & set(value)]
        raise ValueError(f"not to be sent as a header, for an end of line or characters beyond latin-1: {wrong}")
    return head


def _read(response: http.client.HTTPResponse) -> bytes:
    """The first bytes of an answer's body, unpacked.

    :raises http.client.HTTPException: the answer is not whole, or does not say how long it is.
    """
    lengths = set(response.headers.get_all("Content-Length", ()))
    if len(lengths) > 1:
        raise http.client.HTTPException(f"the answer has {len(lengths)} lengths: {', '.join(sorted(lengths))}")
    body = response.read(_MAX_ANSWER)
    if response.length and len(body) < _MAX_ANSWER:
        raise http.client.IncompleteRead(body, response.length)
    if response.headers.get("Content-Encoding") in ("gzip", "x-gzip", "deflate"):
        # By a proxy: nobody was asked to pack it.
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body, _MAX_ANSWER)
    return body

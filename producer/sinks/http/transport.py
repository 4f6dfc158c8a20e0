"""HTTP: one request an attempt over pooled connections, by ``requests``; nothing is retried or redirected here.

An attempt ends within its limit (``http.attempt_timeout_ms``) from its first step to the last byte of the answer.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import requests
import requests.utils

from ...clock import Clock
from .connections import FollowedAdapter, outgoing
from .failures import error_of_exception, error_of_limit
from .watchdog import Watchdog

if TYPE_CHECKING:
    from ...config import HttpConfig

#: An error of a server is a few hundred bytes; whatever sends more is something else.
_MAX_ANSWER = 64 * 1024


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


class Transport:
    """Posts bodies; safe to use from many threads.

    :param pool_size: connections kept open for each host.
    :param name: prefix of the name of its thread.
    """

    def __init__(self, config: HttpConfig, pool_size: int, clock: Clock, name: str) -> None:
        # The adapter without a session: cookies, redirects, and passwords out of ~/.netrc in place of our signature are
        # not wanted, and what a session does for them costs as much as the rest of a small request.
        self._adapter = FollowedAdapter(pool_connections=32, pool_maxsize=pool_size, max_retries=0)
        self._timeouts = (config.connect_timeout_ms / 1000, config.read_timeout_ms / 1000)
        limit = (config.attempt_timeout_ms or config.connect_timeout_ms + config.read_timeout_ms) / 1000
        self._watchdog = Watchdog(limit, clock, f"{name}-watchdog")
        self._limit = f"{limit:g} s, the most that an attempt may take (http.attempt_timeout_ms)"
        self._proxies = config.proxies
        bundle = config.ca_bundle or os.environ.get("REQUESTS_CA_BUNDLE") or True
        self._verify: bool | str = bundle if config.verify else False

    def proxies_for(self, base_url: str) -> Mapping[str, str]:
        """The proxies of requests to ``base_url``: as configured, else from the environment."""
        return requests.utils.get_environ_proxies(base_url) if self._proxies is None else self._proxies

    def post(
        self,
        url: str,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
        proxies: Mapping[str, str],
    ) -> tuple[Answer, Mapping[str, str]]:
        """Send one request and read its answer.

        :returns: the answer, and its headers.
        :raises NetworkError: there was none, or not in time.
        """
        target = url + (f"?{urlencode(params)}" if params else "")
        with self._watchdog.watch() as watch, outgoing() as request:
            try:
                answer = self._exchange(_prepared(target, headers, body), proxies)
            except Exception as error:
                if watch.cut:
                    raise error_of_limit(self._limit, request.sent) from error
                if _is_of_the_network(error):
                    raise error_of_exception(error, request.sent) from error
                raise
        # A connection that is shut down also looks like one that the server closed after a complete answer.
        if watch.cut:
            raise error_of_limit(self._limit, request.sent)
        return answer

    def _exchange(
        self, request: requests.PreparedRequest, proxies: Mapping[str, str]
    ) -> tuple[Answer, Mapping[str, str]]:
        response = self._adapter.send(
            request, stream=True, timeout=self._timeouts, verify=self._verify, proxies=dict(proxies)
        )
        with response:
            return _read(response), response.headers

    def close(self) -> None:
        """Close the pooled connections; attempts that go on all the same still end within their limit."""
        self._adapter.close()
        self._watchdog.close()


def _prepared(url: str, headers: Mapping[str, str], body: bytes) -> requests.PreparedRequest:
    """A request that travels as it was signed: neither the URL nor the headers are changed.

    :raises requests.exceptions.InvalidHeader: a header that cannot be sent.
    """
    request = requests.PreparedRequest()
    request.method = "POST"
    request.url = url
    request.prepare_headers({**headers, "Content-Length": str(len(body))})
    request.body = body
    return request


def _is_of_the_network(error: Exception) -> bool:
    if isinstance(error, requests.exceptions.RequestException | OSError | ValueError):
        return True
    # urllib3's own errors come through when a body is read directly.
    return type(error).__module__.startswith(("urllib3", "http.client"))


def _read(response: requests.Response) -> Answer:
    content = response.raw.read(_MAX_ANSWER, decode_content=True)
    request_id = response.headers.get("x-log-requestid", "")
    return Answer(response.status_code, request_id, content)

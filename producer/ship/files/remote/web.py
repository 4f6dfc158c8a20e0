"""Reads files of web servers.

Metadata is queried by a ``GET`` of the first bytes, because signed URLs often allow no ``HEAD``. If a server answers a
range request with the whole file, the file can only be read from the beginning. A directory is a page with links to
addresses below it, such as the index pages of servers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from http import HTTPStatus
from urllib.parse import urldefrag, urljoin

import requests
import urllib3

from ....wire.patterns import Pattern
from .address import shown, without_secrets
from .seen import AccessRefusedError, NotThereError, RemoteError, Seen, is_same, version_of

# Timeouts to connect and for the next bytes, seconds.
_TIMEOUT = (5.0, 30.0)
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_PROXY_ASKS = "the proxy of the environment (HTTP_PROXY, HTTPS_PROXY) requires a user and password"
_MISSING = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
# Maximum size of a page of links, bytes.
_MOST_PAGE_BYTES = 32 << 20
_MOST_DEPTH = 32
_CONTENT_RANGE = re.compile(r"bytes (?:\*|(?P<first>\d+)-\d+)/(?P<size>\d+)")


class WebFiles:
    """The files of web servers."""

    def look(self, address: str, head: int) -> Seen:
        with _asked(address, f"bytes=0-{max(head - 1, 0)}") as answer:
            return _seen(address, answer, head)

    def below(self, address: str) -> list[str] | None:
        """Return the files below an address that ends with ``/``, found by the links of its pages."""
        if not _path(address).endswith("/"):
            return None
        return sorted(_walk(address, _MOST_DEPTH))

    def matches(self, pattern: str) -> list[str]:
        base = pattern[: pattern.index("*")].rpartition("/")[0] + "/"
        rest = pattern[len(base) :]
        depth = _MOST_DEPTH if "**" in rest else rest.count("/") + 1
        expression = Pattern(_translated(rest), option=pattern, outcome="the file is left out")
        return sorted(found for found in _walk(base, depth) if expression.fullmatch(found[len(base) :]))

    def open(self, seen: Seen, start: int, end: int) -> _Download:
        return _Download(seen, start)


class _Download:
    """A download of a file from an offset."""

    def __init__(self, seen: Seen, start: int) -> None:
        self._seen = seen
        self._position = start
        self._answer: requests.Response | None = None

    def seek(self, position: int) -> None:
        if position != self._position:
            self.close()
            self._position = position

    def read(self, size: int) -> bytes:
        """Return the bytes that have arrived, at least one."""
        if self._position >= self._seen.size:
            return b""
        with _translated_errors(self._seen.address):
            if self._answer is None:
                self._answer = self._begin()
            data: bytes = self._answer.raw.read(min(size, self._seen.size - self._position), decode_content=False)
        if not data:
            raise RemoteError(f"{shown(self._seen.address)}: the connection ended before the file did")
        self._position += len(data)
        return data

    def close(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None

    def _begin(self) -> requests.Response:
        seen = self._seen
        answer = _ask(seen.address, f"bytes={self._position}-" if seen.ranged else None)
        try:
            _check_status(seen.address, answer)
            if seen.ranged and answer.status_code != HTTPStatus.PARTIAL_CONTENT and self._position:
                raise RemoteError(f"{shown(seen.address)}: the server no longer answers a range with that range")
            if not is_same(seen.version, version_of(answer.headers)):
                raise RemoteError(f"{shown(seen.address)}: was replaced by another file since the job was planned")
            if not seen.ranged:
                _skip(answer, self._position)
        except BaseException:
            answer.close()
            raise
        return answer


def _skip(answer: requests.Response, size: int) -> None:
    while size > 0 and (data := answer.raw.read(min(size, 1 << 20), decode_content=False)):
        size -= len(data)


def _ask(address: str, wanted: str | None) -> requests.Response:
    headers = {"Accept-Encoding": "identity"} | ({} if wanted is None else {"Range": wanted})
    with _translated_errors(address):
        # requests takes credentials from the address or ~/.netrc, and the proxy from the environment.
        return requests.get(address, headers=headers, timeout=_TIMEOUT, stream=True)


@contextmanager
def _asked(address: str, wanted: str | None) -> Iterator[requests.Response]:
    answer = _ask(address, wanted)
    try:
        with _translated_errors(address):
            if answer.status_code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                _check_status(address, answer)
            yield answer
    finally:
        answer.close()


@contextmanager
def _translated_errors(address: str) -> Iterator[None]:
    try:
        yield
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise RemoteError(f"{shown(address)}: {_reason(error, address)}") from error


def _reason(error: Exception, address: str) -> str:
    if isinstance(error, requests.ConnectTimeout | requests.ReadTimeout | urllib3.exceptions.ReadTimeoutError):
        return f"the server did not answer within {_TIMEOUT[1]:g} seconds"
    if isinstance(error, requests.exceptions.SSLError):
        return f"no secure connection: {without_secrets(str(error), address)}"
    if isinstance(error, requests.exceptions.ProxyError):
        # The response of the proxy to CONNECT is available only as the message of http.client.
        unauthenticated = f"Tunnel connection failed: {HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:d}" in str(error)
        return _PROXY_ASKS if unauthenticated else "the proxy of the environment (HTTP_PROXY, HTTPS_PROXY) failed"
    if isinstance(error, requests.ConnectionError):
        return "no connection to the server: check its name, its port and the network"
    if isinstance(error, urllib3.exceptions.ProtocolError):
        return "the connection ended before the file did"
    return without_secrets(f"{type(error).__name__}: {error}", address)


def _check_status(address: str, answer: requests.Response) -> None:
    status, name = answer.status_code, shown(address)
    reason = f"the server answered {status} {without_secrets(answer.reason or '', address)}".rstrip()
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        raise AccessRefusedError(f"{name}: {reason}: {_PROXY_ASKS}")
    if status in _REFUSED:
        raise AccessRefusedError(
            f"{name}: access refused, {reason}; credentials come from the address or ~/.netrc, and a signed address "
            "may have expired"
        )
    if status in _MISSING:
        raise NotThereError(f"{name}: not found, {reason}")
    if status not in {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT}:
        raise RemoteError(f"{name}: {reason}")


def _seen(address: str, answer: requests.Response, head: int) -> Seen:
    content_range = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    version = version_of(answer.headers)
    if answer.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return Seen(address, 0, version)  # An empty file satisfies no range.
    data = _first(answer, head)
    if answer.status_code == HTTPStatus.PARTIAL_CONTENT and content_range is not None:
        return Seen(address, int(content_range["size"]), version, head=data)
    length = answer.headers.get("Content-Length", "")
    if not length.isdecimal():
        raise RemoteError(f"{shown(address)}: the server sends no length; ship it as: curl -sf URL | producer ship -")
    return Seen(address, int(length), version, ranged=False, head=data)


def _first(answer: requests.Response, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := answer.raw.read(size - len(data), decode_content=False)):
        data += more
    return data


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _walk(address: str, depth: int) -> Iterator[str]:
    """Yield the files below a page, at most ``depth`` pages deep."""
    for link in _links(address):
        if not link.endswith("/"):
            yield link
        elif depth > 1:
            yield from _walk(link, depth - 1)


def _links(address: str) -> list[str]:
    """Return the links of a page that lead directly below it."""
    with _asked(address, None) as answer:
        if answer.headers.get("Content-Type", "").partition(";")[0] != "text/html":
            raise RemoteError(
                f"{shown(address)}: ends with /, but the server returned no page of links: it does not list directories"
            )
        page = _Links()
        page.feed(_first(answer, _MOST_PAGE_BYTES).decode(errors="replace"))
    base = _path(address)
    links = {_path(urljoin(base, link)) for link in page.found if "?" not in link}
    return sorted(link for link in links if link.startswith(base) and link.removesuffix("/") not in {base, base[:-1]})


def _path(address: str) -> str:
    return urldefrag(address)[0].partition("?")[0]


def _translated(pattern: str) -> str:
    """Return a glob as a regular expression: ``*`` stays in one folder, ``**`` crosses folders."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    return "".join(parts.get(part, re.escape(part)) for part in re.split(r"(\*\*/|\*\*|\*)", pattern))

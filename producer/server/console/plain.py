"""Requests outside LogHub's API: their form, and their authorization.

``/healthz`` and ``/metrics`` contain no names and are public. The console shows and changes everything.

With the default access keys the console is open, since such a server listens on this machine only. The Host must then
be this machine, so that a foreign page under a rebound name cannot use it. With other keys the console requires one of
them as user and password (Basic).

The console's page asks for the key itself and keeps it in its tab. The challenge has a scheme of its own: with the
standard one, the browser would ask, too, and add the key to requests of other pages. A request that changes something
must come from the console's own page or from no page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ...text.addresses import foreign_page
from ..auth import TEST_ACCESS_KEY, AccessKey, knows_key
from ..budget import Lease
from ..errors import ApiError
from ..messages import Answer, ApiRequest
from ..operations.names import check_name
from ..service import Call, Service


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRequest:
    """A complete request.

    :ivar method: ``GET``, ``POST`` or ``DELETE``.
    :ivar path: the decoded path.
    :ivar query: the decoded parameters.
    :ivar headers: the headers, names in lower case.
    :ivar body: the body.
    :ivar lease: its share of the server's memory.
    :ivar is_gone: returns True if the client has disconnected.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    lease: Lease
    is_gone: Callable[[], bool]

    def call(self) -> Call:
        """Return the request in the form of LogHub's operations; its parameters name project and logstore.

        :raises ApiError: ``ParameterInvalid``, project or logstore is missing or invalid.
        """
        project = check_name("project", self.query.get("project")).lower()
        logstore = check_name("logstore", self.query.get("logstore"))
        request = ApiRequest(
            request_id="",
            number=0,
            operation="Console",
            method=self.method,
            path=self.path,
            query=self.query,
            headers=self.headers,
            project=project,
            logstore=logstore,
            path_params={},
        )
        return Call(request=request, body=self.body, lease=self.lease, is_gone=self.is_gone)


PlainHandler = Callable[[Service, PlainRequest], Awaitable[Answer]]


def check_console(keys: Mapping[str, AccessKey | str], request: PlainRequest) -> None:
    """Refuse a request that may not use the console.

    :raises ApiError: ``Unauthorized``.
    """
    origin = request.headers.get("origin")
    if request.method != "GET" and origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise ApiError("Unauthorized", f"a page of {origin[:128]} may not change anything: use the console's own page")
    if _is_open(keys):
        if foreign_page({"host": request.headers.get("host") or "none"}):
            raise ApiError("Unauthorized", "the console is open to this machine only: use 127.0.0.1 or localhost")
    elif not knows_key(keys, request.headers.get("authorization", "")):
        raise ApiError("Unauthorized", "send an access key to the console: its id as user, its secret as password")


def challenge(keys: Mapping[str, AccessKey | str]) -> dict[str, str]:
    """Return the header that asks a refused client for a key; empty if the console needs none."""
    return {} if _is_open(keys) else {"WWW-Authenticate": 'LogHub-Key realm="LogHub console", scheme="Basic"'}


def _is_open(keys: Mapping[str, AccessKey | str]) -> bool:
    return dict(keys) == dict([TEST_ACCESS_KEY])


def text_answer(text: str, kind: str = "text/plain; charset=utf-8", **headers: Any) -> Answer:
    """Return an answer of status 200 with text."""
    return Answer(headers={"Content-Type": kind, "Cache-Control": "no-store", **headers}, body=text.encode())

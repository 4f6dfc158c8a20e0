"""Requests that are not LogHub's: how they look, who may ask, and which address is which function.

``/healthz`` and ``/metrics`` tell no names and are for everybody. The console shows and changes everything. It is open
where the access keys are the default ones, since that server listens on this machine only; then the Host must be this
machine, so that no page of another site, whose name was made to lead here, can ask. With keys of one's own it wants one
of them as user and password (Basic). The console's page asks for it by itself and keeps it in its tab: the challenge
has a name of its own, so that no browser asks too, and then adds the key to whatever another page requests. A request
that changes something must come from the console's own page, or from none.
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
    """A request, whole.

    :ivar method: ``GET``, ``POST`` or ``DELETE``.
    :ivar path: its decoded path.
    :ivar query: its decoded parameters.
    :ivar headers: its headers, names in lower case.
    :ivar body: its body.
    :ivar lease: what it holds of the server's memory.
    :ivar is_gone: tells whether nobody waits for the answer any more.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    lease: Lease
    is_gone: Callable[[], bool]

    def call(self) -> Call:
        """The request as operations of LogHub read it: its parameters name the logstore.

        :raises ApiError: ``ParameterInvalid``, they do not.
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
    """Let only those in who may see and change everything.

    :raises ApiError: ``Unauthorized``.
    """
    origin = request.headers.get("origin")
    if request.method != "GET" and origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise ApiError("Unauthorized", f"a page of {origin[:128]} cannot change anything here")
    if _is_open(keys):
        if foreign_page({"host": request.headers.get("host") or "none"}):
            raise ApiError("Unauthorized", "the console is open on this machine only: use 127.0.0.1 or localhost")
    elif not knows_key(keys, request.headers.get("authorization", "")):
        raise ApiError("Unauthorized", "the console wants an access key: its id as user, its secret as password")


def challenge(keys: Mapping[str, AccessKey | str]) -> dict[str, str]:
    """The header that tells who was refused that a key would do; none where no key would."""
    return {} if _is_open(keys) else {"WWW-Authenticate": 'LogHub-Key realm="LogHub console", scheme="Basic"'}


def _is_open(keys: Mapping[str, AccessKey | str]) -> bool:
    return dict(keys) == dict([TEST_ACCESS_KEY])


def text_answer(text: str, kind: str = "text/plain; charset=utf-8", **headers: Any) -> Answer:
    """Status 200 with text."""
    return Answer(headers={"Content-Type": kind, "Cache-Control": "no-store", **headers}, body=text.encode())

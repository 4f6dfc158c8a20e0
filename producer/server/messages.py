"""Requests and answers of LogHub over HTTP, whatever ASGI framework carries them.

Source: LogHub protocol, PutLogs (headers, the project in the Host header) and the JSON form of errors.
"""

from __future__ import annotations

import ipaddress
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ..text.plural import counted
from ..wire.signing import UnsignedRequest
from .errors import ApiError

API_VERSION = "0.6.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """A request as the operations see it.

    :ivar request_id: the ``x-log-requestid`` that its answer will carry.
    :ivar number: 1 for the first request since the server was made.
    :ivar operation: ``PutLogs``, ``PullLogs``, …
    :ivar method: ``GET``, ``POST``, …
    :ivar path: the decoded path, without the query.
    :ivar query: the decoded query parameters; of one that was given twice, the last.
    :ivar headers: the headers, names in lower case.
    :ivar project: the project it names, in its path or its Host, in lower case, or an empty string.
    :ivar logstore: the logstore it names, or an empty string.
    :ivar path_params: what the route found in the path.
    """

    request_id: str
    number: int
    operation: str
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    project: str
    logstore: str
    path_params: Mapping[str, Any]

    def to_verify(self) -> UnsignedRequest:
        """The request in the form that signatures are computed from, without its body."""
        return UnsignedRequest(method=self.method, path=self.path, params=self.query, headers=self.headers)

    @property
    def raw_size(self) -> int | None:
        """Bytes of the body before compression, as ``x-log-bodyrawsize`` says; None without that header.

        :raises ApiError: ``ParameterInvalid``, it is not a number.
        """
        text = self.headers.get("x-log-bodyrawsize")
        return None if text is None else parse_number("x-log-bodyrawsize", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer, not yet on its way.

    :ivar status: the HTTP status.
    :ivar headers: headers beyond those that every answer has.
    :ivar body: its bytes.
    :ivar error_code: the error code in the body, or None.
    :ivar logs: how many logs the request stored.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    error_code: str | None = None
    logs: int = 0


def json_answer(content: Any) -> Answer:
    """Status 200 with ``content`` as JSON."""
    return Answer(headers={"Content-Type": "application/json"}, body=json.dumps(content).encode())


def error_answer(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    """An error in the documented JSON form."""
    body = json.dumps({"errorCode": code, "errorMessage": message}, ensure_ascii=False).encode()
    return Answer(
        status=status,
        headers={"Content-Type": "application/json", **(headers or {})},
        body=body,
        error_code=code,
    )


def new_request_id() -> str:
    """An ``x-log-requestid``: 24 hexadecimal digits, unique."""
    return uuid.uuid4().hex[:24].upper()


def parse_number(name: str, text: str, low: int = 0, high: int = (1 << 63) - 1) -> int:
    """A whole number from ``low`` to ``high`` in a header or parameter.

    :raises ApiError: ``ParameterInvalid``, it is something else.
    """
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 20 or not low <= int(digits) <= high:
        raise ApiError("ParameterInvalid", f"{name} is {text[:64]!r}: it must be a whole number from {low} to {high}")
    return int(digits)


def too_large(size: int, limit: int) -> ApiError:
    """The refusal of a body of ``size`` bytes where ``limit`` are allowed."""
    return ApiError("PostBodyTooLarge", f"the body has {counted(size, 'byte')}, {limit} are allowed")


def path_of_target(target: bytes) -> str:
    """The decoded path of a request target.

    The absolute form (``http://host/path``), which clients behind a proxy send, gives the same path as the origin form.

    :raises ApiError: ``ParameterInvalid``, it is in neither form.
    """
    text = target.decode("ascii", "replace")
    try:
        path = text if text.startswith("/") else urlsplit(text).path or "/"
    except ValueError as error:  # an address in brackets that is none, or whose bracket is not closed
        raise _no_target(text, f" ({error})") from error
    if not path.startswith("/"):
        raise _no_target(text, " (this server is no proxy for https: use an endpoint of http)" if ":" in text else "")
    return unquote(path)


def _no_target(text: str, reason: str = "") -> ApiError:
    return ApiError(
        "ParameterInvalid", f"the request target is {text[:64]!r}{reason}: it must be /path or http://host/path"
    )


def parse_query(query: bytes) -> dict[str, str]:
    """The decoded parameters of a query string."""
    return dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))


def project_of(headers: Mapping[str, str]) -> str:
    """The project that a request names, in lower case: ``x-log-project``, or the first label of its Host. Empty when
    there is neither.

    A project is a part of a host name, and these know no case.
    """
    named = headers.get("x-log-project", "").strip().lower()
    if named:
        return named
    host = headers.get("host", "").strip().lower()
    name, separator, rest = host.partition(".")
    return "" if not (name and separator and rest) or _is_address(host) else name


def _is_address(host: str) -> bool:
    name = host.rsplit(":", 1)[0] if not host.startswith("[") else host[1:].split("]", 1)[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def check_api_version(headers: Mapping[str, str]) -> None:
    """Refuse a request that speaks another version.

    :raises ApiError: ``InvalidAPIVersion``.
    """
    version = headers.get("x-log-apiversion")
    if version != API_VERSION:
        raise ApiError("InvalidAPIVersion", f"x-log-apiversion is {version!r}: this server speaks {API_VERSION}")


def check_project(project: str) -> str:
    """``project``, which must not be empty.

    :raises ApiError: ``InvalidHost``.
    """
    if not project:
        raise ApiError(
            "InvalidHost",
            "the request names no project: the Host header must be <project>.<endpoint>, also where the endpoint is an"
            " address (my-project.127.0.0.1:9170), or x-log-project must name it",
        )
    return project

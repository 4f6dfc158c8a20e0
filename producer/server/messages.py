"""Requests and answers of LogHub over HTTP, independent of the ASGI framework.

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
    """A request, as the operations see it.

    :ivar request_id: the ``x-log-requestid`` of its answer.
    :ivar number: 1 for the first request since the server was made.
    :ivar operation: ``PutLogs``, ``PullLogs``, …
    :ivar method: ``GET``, ``POST``, …
    :ivar path: the decoded path, without the query.
    :ivar query: the decoded query parameters; the last value of a repeated one.
    :ivar headers: the headers, names in lower case.
    :ivar project: the project from the path or the Host header, in lower case; empty if there is none.
    :ivar logstore: the logstore from the path; empty if there is none.
    :ivar path_params: the parameters that the route matched in the path.
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
        """Return the request in the form that is signed, without its body."""
        return UnsignedRequest(method=self.method, path=self.path, params=self.query, headers=self.headers)

    @property
    def raw_size(self) -> int | None:
        """Return ``x-log-bodyrawsize``, the bytes of the body before compression; None without that header.

        :raises ApiError: ``ParameterInvalid``, it is not a number.
        """
        text = self.headers.get("x-log-bodyrawsize")
        return None if text is None else parse_number("x-log-bodyrawsize", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer to send.

    :ivar status: the HTTP status.
    :ivar headers: headers beyond the standard ones.
    :ivar body: the bytes of the body.
    :ivar error_code: the error code in the body, or None.
    :ivar logs: number of logs that the request stored.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    error_code: str | None = None
    logs: int = 0


def json_answer(content: Any) -> Answer:
    """Return an answer of status 200 with ``content`` as JSON."""
    return Answer(headers={"Content-Type": "application/json"}, body=json.dumps(content).encode())


def error_answer(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an error answer in LogHub's JSON form."""
    body = json.dumps({"errorCode": code, "errorMessage": message}, ensure_ascii=False).encode()
    return Answer(
        status=status,
        headers={"Content-Type": "application/json", **(headers or {})},
        body=body,
        error_code=code,
    )


def new_request_id() -> str:
    """Return a unique ``x-log-requestid`` of 24 hexadecimal digits."""
    return uuid.uuid4().hex[:24].upper()


def parse_number(name: str, text: str, low: int = 0, high: int = (1 << 63) - 1) -> int:
    """Parse a whole number from ``low`` to ``high`` in a header or parameter.

    :raises ApiError: ``ParameterInvalid``, the text is not such a number.
    """
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 20 or not low <= int(digits) <= high:
        raise ApiError("ParameterInvalid", f"{name} is {text[:64]!r}: it must be a whole number from {low} to {high}")
    return int(digits)


def too_large(size: int, limit: int) -> ApiError:
    """Return the refusal of a body of ``size`` bytes where ``limit`` bytes are allowed."""
    return ApiError("PostBodyTooLarge", f"the body has {counted(size, 'byte')}: at most {limit} are allowed")


def path_of_target(target: bytes) -> str:
    """Return the decoded path of a request target.

    The absolute form (``http://host/path``), which clients send to a proxy, gives the same path as the origin form.

    :raises ApiError: ``ParameterInvalid``, the target is in neither form.
    """
    text = target.decode("ascii", "replace")
    try:
        path = text if text.startswith("/") else urlsplit(text).path or "/"
    except ValueError as error:  # an invalid address in brackets, or an open bracket
        raise _no_target(text, f" ({error})") from error
    if not path.startswith("/"):
        raise _no_target(
            text, " (this server is not a proxy for https: use an endpoint of http)" if ":" in text else ""
        )
    return unquote(path)


def _no_target(text: str, reason: str = "") -> ApiError:
    return ApiError(
        "ParameterInvalid", f"the request target is {text[:64]!r}{reason}: it must be /path or http://host/path"
    )


def parse_query(query: bytes) -> dict[str, str]:
    """Return the decoded parameters of a query string."""
    return dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))


def project_of(headers: Mapping[str, str]) -> str:
    """Return the project that a request names, in lower case; empty if it names none.

    It is ``x-log-project``, or the first label of the Host header. A project is part of a host name, so its case does
    not matter.
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
    """Refuse a request of another API version.

    :raises ApiError: ``InvalidAPIVersion``.
    """
    version = headers.get("x-log-apiversion")
    if version != API_VERSION:
        raise ApiError("InvalidAPIVersion", f"x-log-apiversion is {version!r}: this server speaks {API_VERSION}")


def check_project(project: str) -> str:
    """Return ``project`` if it is not empty.

    :raises ApiError: ``InvalidHost``, it is empty.
    """
    if not project:
        raise ApiError(
            "InvalidHost",
            "the request names no project: send <project>.<endpoint> in the Host header (for an address:"
            " my-project.127.0.0.1:9170), or the project in x-log-project",
        )
    return project

"""Temporary credentials of the RAM role of an ECS instance, from its metadata service.

Version 2 of the service wants a token in each request, ``X-aliyun-ecs-metadata-token``, which a PUT returns. Version 1
wants none. A service without tokens is asked by version 1, unless ``ALIBABA_CLOUD_IMDSV1_DISABLED`` is true. The path
``/latest/meta-data/ram/security-credentials/`` lists the role, and the role below it has the credentials as JSON.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from ....model.credentials import Credentials, is_header_text
from ....model.errors import NetworkError, UnreachableError
from ....runtime.clock import Deadline
from .asking import Asking, Reply, failed, object_of, request, session_of, within

#: The address of the metadata service, the same on all instances.
SERVICE = "http://100.100.100.200"
_TOKEN, _ROLES = "/latest/api/token", "/latest/meta-data/ram/security-credentials/"
#: The life of a token, seconds: one call of the provider uses it.
_LIFE_SECONDS = "60"
#: The limits of all requests, and of the one for a token, seconds. A container behind a bridge may get no answer to it.
LIMIT, TOKEN_LIMIT = 5.0, 1.5
_ROLE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NAME = "the metadata service"


@dataclass(frozen=True, slots=True)
class EcsRamRoleCredentials(Asking):
    """The credentials of an instance's role.

    :ivar role: the role's name; None for ``ALIBABA_CLOUD_ECS_METADATA``, or the one that the service lists.
    """

    role: str | None = None

    def ask(self, end: Deadline) -> Credentials:
        if is_true("ALIBABA_CLOUD_ECS_METADATA_DISABLED"):
            raise failed("ALIBABA_CLOUD_ECS_METADATA_DISABLED is true")
        end = within(end, LIMIT)
        try:
            headers = _token(end)
            role = self.role or os.environ.get("ALIBABA_CLOUD_ECS_METADATA") or _role(end, headers)
            answer = request("GET", f"{SERVICE}{_ROLES}{role}", end, headers=headers, direct=True)
        except NetworkError as error:
            raise failed(f"{_NAME} at {SERVICE} does not answer: {error.message}") from error
        if answer.status == HTTPStatus.NOT_FOUND:
            raise failed(f"{_NAME} knows no RAM role {role}")
        return session_of(object_of(_checked(answer).body), _NAME, answer.clock_offset)


def _token(end: Deadline) -> dict[str, str]:
    """Return the header with a token; empty for version 1 of the service."""
    headers = {"X-aliyun-ecs-metadata-token-ttl-seconds": _LIFE_SECONDS}
    try:
        answer = request("PUT", SERVICE + _TOKEN, within(end, TOKEN_LIMIT), headers=headers, direct=True)
    except UnreachableError:
        raise
    except NetworkError as error:
        reason = error.message
    else:
        token = answer.body.decode("latin-1").strip()
        if answer.status == HTTPStatus.OK and is_header_text(token):
            return {"X-aliyun-ecs-metadata-token": token}
        reason = f"HTTP {answer.status}"
    if is_true("ALIBABA_CLOUD_IMDSV1_DISABLED"):
        raise failed(f"{_NAME} gave no token ({reason}), and ALIBABA_CLOUD_IMDSV1_DISABLED is true")
    return {}


def _role(end: Deadline, headers: dict[str, str]) -> str:
    answer = request("GET", SERVICE + _ROLES, end, headers=headers, direct=True)
    if answer.status == HTTPStatus.NOT_FOUND:
        raise failed("the instance has no RAM role: attach one to it")
    role = _checked(answer).body.decode("latin-1").strip()
    if _ROLE.fullmatch(role) is None:
        raise failed(f"{_NAME} did not answer with the name of a role")
    return role


def _checked(answer: Reply) -> Reply:
    if answer.status != HTTPStatus.OK:
        raise failed(f"{_NAME} answered HTTP {answer.status}")
    return answer


@dataclass(frozen=True, slots=True)
class UriCredentials(Asking):
    """The credentials at ``ALIBABA_CLOUD_CREDENTIALS_URI``, in the form of the metadata service."""

    def ask(self, end: Deadline) -> Credentials:
        uri = os.environ.get("ALIBABA_CLOUD_CREDENTIALS_URI", "")
        parts = urlsplit(uri)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise failed("ALIBABA_CLOUD_CREDENTIALS_URI is not set to a URL")
        try:
            answer = request("GET", uri, end, direct=True)
        except NetworkError as error:
            raise failed(f"{parts.hostname} does not answer: {error.message}") from error
        return session_of(object_of(_checked(answer).body), parts.hostname, answer.clock_offset)


def is_true(variable: str) -> bool:
    """Return True if an environment variable is ``true``."""
    return os.environ.get(variable, "").lower() == "true"

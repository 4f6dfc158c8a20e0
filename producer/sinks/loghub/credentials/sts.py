"""Temporary credentials of a RAM role from STS: AssumeRole with a key, and AssumeRoleWithOIDC with a pod's token.

A request is a POST with the common parameters in its query and those of the action in a form. AssumeRole is signed:
all parameters are sorted, percent-encoded, and joined; HMAC-SHA1 of ``POST&%2F&`` and that text, encoded again, under
the secret and ``&`` is the parameter ``Signature`` (RPC signature version 1, as in Aliyun's own credentials packages).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote, urlencode

from ....model.credentials import Credentials
from ....model.errors import AttemptError
from ....model.interfaces import CredentialsProvider
from ....runtime.clock import Deadline
from ....text.small_files import read_text
from .asking import Asking, Reply, ask, failed, object_of, request, session_of
from .metadata import is_true

#: The most bytes of a pod's token.
_MOST_TOKEN = 64 * 1024
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9._]{0,99}")
#: The beginning of the codes for a request whose time differs by more than 15 minutes.
_WRONG_TIME = "InvalidTimeStamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role to assume.

    :ivar arn: such as ``acs:ram::123456789012:role/name``; empty for ``ALIBABA_CLOUD_ROLE_ARN``.
    :ivar session_name: the name in audit logs; empty for ``ALIBABA_CLOUD_ROLE_SESSION_NAME``, or one with the time.
    :ivar seconds: the life of the credentials.
    :ivar policy: restricts the role's permissions further; empty for no restriction.
    :ivar external_id: the id that the role's trust policy wants; empty for none.
    :ivar region: the region of STS; empty for ``ALIBABA_CLOUD_STS_REGION``, or the central endpoint.
    :ivar in_vpc: True for the endpoint within a VPC, as with ``ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED``.
    """

    arn: str = ""
    session_name: str = ""
    seconds: int = 3600
    policy: str = ""
    external_id: str = ""
    region: str = ""
    in_vpc: bool = False

    def form(self) -> dict[str, str]:
        """Return the parameters of the action.

        :raises CredentialsError: there is no ARN.
        """
        name = self.session_name or os.environ.get("ALIBABA_CLOUD_ROLE_SESSION_NAME")
        found = {
            "RoleArn": self.arn or needed("ALIBABA_CLOUD_ROLE_ARN"),
            "RoleSessionName": name or f"loghub-producer-{int(time.time())}",
            "DurationSeconds": str(self.seconds),
            "Policy": self.policy,
            "ExternalId": self.external_id,
        }
        return {name: value for name, value in found.items() if value}

    def endpoint(self) -> str:
        """Return the URL of STS."""
        region = self.region or os.environ.get("ALIBABA_CLOUD_STS_REGION")
        host = "sts-vpc" if self.in_vpc or is_true("ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED") else "sts"
        return f"https://{host}.{region}.aliyuncs.com" if region else "https://sts.aliyuncs.com"


@dataclass(frozen=True, slots=True)
class RamRoleArnCredentials(Asking):
    """The credentials of a role that another key may assume.

    :ivar role: the role.
    :ivar source: the provider of the other key.
    """

    role: Role
    source: CredentialsProvider

    def ask(self, end: Deadline) -> Credentials:
        form = self.role.form()
        key = ask(self.source, end)

        def query(now: float) -> dict[str, str]:
            params = {
                **_query("AssumeRole", now),
                "SignatureMethod": "HMAC-SHA1",
                "SignatureVersion": "1.0",
                "SignatureNonce": secrets.token_hex(16),
                "AccessKeyId": key.access_key_id,
            }
            if key.security_token:
                params["SecurityToken"] = key.security_token
            return params | {"Signature": signature("POST", params | form, key.access_key_secret)}

        return _assume(self.role, query, form, end)


@dataclass(frozen=True, slots=True)
class OidcCredentials(Asking):
    """The credentials of a role that a pod may assume by the token that Kubernetes gives it (RRSA).

    :ivar role: the role.
    :ivar provider_arn: the OIDC provider; empty for ``ALIBABA_CLOUD_OIDC_PROVIDER_ARN``.
    :ivar token_file: the file of the token; empty for ``ALIBABA_CLOUD_OIDC_TOKEN_FILE``.
    """

    role: Role
    provider_arn: str = ""
    token_file: str = ""

    def ask(self, end: Deadline) -> Credentials:
        file = self.token_file or needed("ALIBABA_CLOUD_OIDC_TOKEN_FILE")
        form = {
            **self.role.form(),
            "OIDCProviderArn": self.provider_arn or needed("ALIBABA_CLOUD_OIDC_PROVIDER_ARN"),
            "OIDCToken": read_bounded(Path(file), _MOST_TOKEN).strip(),
        }
        return _assume(self.role, lambda now: _query("AssumeRoleWithOIDC", now), form, end)


def needed(variable: str) -> str:
    """Return the value of an environment variable.

    :raises CredentialsError: it is not set.
    """
    value = os.environ.get(variable)
    if not value:
        raise failed(f"{variable} is not set")
    return value


def read_bounded(path: Path, most: int) -> str:
    """Return the text of a file.

    :param most: the limit of its size, bytes.
    :raises CredentialsError: it cannot be read, or is larger.
    """
    try:
        return read_text(path, most)
    except ValueError as error:
        raise failed(str(error)) from None


def _query(action: str, now: float) -> dict[str, str]:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    return {"Action": action, "Version": "2015-04-01", "Format": "JSON", "Timestamp": stamp}


def signature(method: str, params: Mapping[str, str], secret: str) -> str:
    """Return the RPC signature, version 1, of a request's parameters."""
    pairs = (f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(params.items()))
    text = f"{method}&%2F&{quote('&'.join(pairs), safe='')}"
    return base64.b64encode(hmac.digest(f"{secret}&".encode(), text.encode(), hashlib.sha1)).decode()


def _assume(
    role: Role, query: Callable[[float], Mapping[str, str]], form: Mapping[str, str], end: Deadline
) -> Credentials:
    """Ask STS for a role; once more with the time of STS if it refuses this machine's.

    :param query: makes the query of a request at a time, seconds since the Unix epoch.
    """
    answer = _post(role.endpoint(), query(time.time()), form, end)
    if str(object_of(answer.body).get("Code", "")).startswith(_WRONG_TIME) and answer.clock_offset:
        answer = _post(role.endpoint(), query(time.time() + answer.clock_offset), form, end)
    found = object_of(answer.body)
    if answer.status != HTTPStatus.OK:
        # Its message may repeat the signed text, with the security token.
        code, request_id = str(found.get("Code", "")), str(found.get("RequestId", ""))
        shown = code if _CODE.fullmatch(code) else "not an answer of STS"
        shown_id = f", request {request_id}" if re.fullmatch(r"[0-9A-Fa-f-]{1,64}", request_id) else ""
        raise failed(f"STS refuses the role {form['RoleArn']}: {shown} (HTTP {answer.status}{shown_id})")
    return session_of(found.get("Credentials"), "STS", answer.clock_offset)


def _post(endpoint: str, query: Mapping[str, str], form: Mapping[str, str], end: Deadline) -> Reply:
    headers, body = {"Content-Type": "application/x-www-form-urlencoded"}, urlencode(form).encode()
    try:
        return request("POST", endpoint, end, params=query, headers=headers, body=body)
    except AttemptError as error:
        raise failed(f"STS at {endpoint} does not answer: {error.message}") from error

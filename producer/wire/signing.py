"""Request signatures of LogHub, versions 1 (HMAC-SHA1) and 4 (HMAC-SHA256 with a region).

Both take the request as it will travel and return the headers to add to it; neither reads a clock nor touches the
locale (the weekday and month names of ``Date`` are English by rule, RFC 7231 section 7.1.1.1).

Source: LogHub protocol, Signatures; held to vectors made by the official SDK.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from urllib.parse import quote

# OpenSSL sets a digest up at its first use, under a lock of its own: a fork at that moment would leave the child
# waiting for that lock for ever. So all of them are used once while the module is imported.
for _name in ("sha1", "sha256"):
    hmac.digest(b"key", b"", _name)
hashlib.md5(usedforsecurity=False)

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsignedRequest:
    """A request before its signature.

    :ivar method: ``GET``, ``POST``, …
    :ivar path: the path as sent, without the query, such as ``/logstores/app/shards/lb``.
    :ivar params: query parameters, values not yet percent-encoded.
    :ivar headers: the headers it already carries; ``Host`` and ``Content-Type`` take part in version 4.
    :ivar body: the body as sent (after compression), bytes.
    """

    method: str
    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """Who signs. ``security_token`` is the STS token, or None; ``region`` is needed by version 4 only."""

    access_key_id: str
    access_key_secret: str
    security_token: str | None = None
    region: str | None = None

    def __repr__(self) -> str:
        return f"SigningKey(access_key_id={self.access_key_id!r}, access_key_secret=***)"


def sign_v1(request: UnsignedRequest, key: SigningKey, now: datetime) -> dict[str, str]:
    """Return all headers of ``request`` with those of signature version 1 added.

    :param now: the time of signing, aware and in UTC; the server refuses more than 15 minutes of difference.
    """
    date = http_date(now)
    headers = unsigned_v1(request.headers, key)
    headers["Date"] = date
    if request.body:
        headers["Content-MD5"] = hashlib.md5(request.body, usedforsecurity=False).hexdigest().upper()
    text = string_to_sign_v1(request, headers)
    digest = hmac.digest(key.access_key_secret.encode(), text.encode(), "sha1")
    headers["Authorization"] = f"LOG {key.access_key_id}:{base64.b64encode(digest).decode()}"
    # Proxies may drop Date. This copy overrides it on the server, and is not part of what was signed.
    headers["x-log-date"] = date
    return headers


def unsigned_v1(headers: Mapping[str, str], key: SigningKey) -> dict[str, str]:
    """A copy of ``headers`` with those that version 1 adds whatever the body and the time are."""
    return {**_with_token(headers, key), "x-log-signaturemethod": "hmac-sha1"}


def string_to_sign_v1(request: UnsignedRequest, headers: Mapping[str, str]) -> str:
    """The text that version 1 signs, from ``headers`` that already hold ``Date`` and ``Content-MD5`` (but no
    ``x-log-date``).
    """
    lower = {name.lower(): value for name, value in headers.items()}
    signed = sorted((name, value) for name, value in lower.items() if name.startswith(("x-log-", "x-acs-")))
    resource = request.path
    if request.params:
        resource += "?" + "&".join(f"{name}={value}" for name, value in sorted(request.params.items()))
    head = [
        request.method,
        lower.get("content-md5", ""),
        lower.get("content-type", ""),
        lower.get("date", ""),
    ]
    return "\n".join([*head, *(f"{name}:{value}" for name, value in signed), resource])


def sign_v4(request: UnsignedRequest, key: SigningKey, now: datetime) -> dict[str, str]:
    """Return all headers of ``request`` with those of signature version 4 added.

    :param now: the time of signing, aware and in UTC.
    :raises ValueError: ``key`` has no region.
    """
    if not key.region:
        raise ValueError("signature version 4 needs a region, such as 'cn-hangzhou'")
    headers = _with_token(request.headers, key)
    headers["x-log-content-sha256"] = hashlib.sha256(request.body).hexdigest()
    headers["x-log-date"] = now.strftime("%Y%m%dT%H%M%SZ")
    signature, scope = signature_v4(request, headers, key.access_key_secret, key.region)
    headers["Authorization"] = f"SLS4-HMAC-SHA256 Credential={key.access_key_id}/{scope},Signature={signature}"
    return headers


def signature_v4(
    request: UnsignedRequest, headers: Mapping[str, str], access_key_secret: str, region: str
) -> tuple[str, str]:
    """The hexadecimal signature and its scope, from ``headers`` that hold ``x-log-date`` and
    ``x-log-content-sha256``.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    timestamp = lower["x-log-date"]
    scope = f"{timestamp[:8]}/{region}/sls/aliyun_v4_request"
    canonical = hashlib.sha256(_canonical_request(request, lower).encode()).hexdigest()
    text = f"SLS4-HMAC-SHA256\n{timestamp}\n{scope}\n{canonical}"
    mac = _begun(access_key_secret, timestamp[:8], region).copy()
    mac.update(text.encode())
    return mac.hexdigest(), scope


@lru_cache(maxsize=32)
def _begun(access_key_secret: str, day: str, region: str) -> hmac.HMAC:
    """The signature of a day's requests; continued in a copy, since ``hmac.digest`` would let go of the interpreter,
    and may get it back milliseconds later.
    """
    key = f"aliyun_v4{access_key_secret}".encode()
    for part in (day, region, "sls", "aliyun_v4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, digestmod="sha256")


def _canonical_request(request: UnsignedRequest, lower: Mapping[str, str]) -> str:
    signed = sorted(
        (name, value.strip())
        for name, value in lower.items()
        if name in {"content-type", "host"} or name.startswith(("x-log-", "x-acs-"))
    )
    query = "&".join(
        f"{name}={quote(value, safe='~')}" if value else name for name, value in sorted(request.params.items())
    )
    lines = "".join(f"{name}:{value}\n" for name, value in signed)
    names = ";".join(name for name, _ in signed)
    return f"{request.method}\n{request.path}\n{query}\n{lines}\n{names}\n{lower['x-log-content-sha256']}"


def http_date(now: datetime) -> str:
    """``now`` as the ``Date`` header writes it, in English whatever the process's locale says."""
    return (
        f"{_WEEKDAYS[now.weekday()]}, {now.day:02d} {_MONTHS[now.month - 1]} {now.year:04d} "
        f"{now.hour:02d}:{now.minute:02d}:{now.second:02d} GMT"
    )


def _with_token(headers: Mapping[str, str], key: SigningKey) -> dict[str, str]:
    """A copy of ``headers`` with the STS token, which both versions sign."""
    copy = dict(headers)
    if key.security_token:
        copy["x-acs-security-token"] = key.security_token
    return copy

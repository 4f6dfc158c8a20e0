"""Signs requests of LogHub, by version 1 (HMAC-SHA1) and version 4 (HMAC-SHA256 with a region).

Both take the request as it is sent, and return its headers with the signature. They use neither the clock nor the
locale: the names of days and months in ``Date`` are English (RFC 7231, section 7.1.1.1).

Source: LogHub protocol, Signatures; tested with vectors of the official SDK.
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

# OpenSSL loads a digest at its first use, under a lock. A fork at that moment would leave the child waiting for this
# lock permanently. So each digest is used once while this module is imported.
for _name in ("sha1", "sha256"):
    hmac.digest(b"key", b"", _name)
hashlib.md5(usedforsecurity=False)

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsignedRequest:
    """A request before its signature.

    :ivar method: the HTTP method, such as ``POST``.
    :ivar path: the path as it is sent, without the query, such as ``/logstores/app/shards/lb``.
    :ivar params: query parameters, not yet percent-encoded.
    :ivar headers: the headers so far; version 4 signs ``Host`` and ``Content-Type``.
    :ivar body: the body as it is sent (after compression), bytes.
    """

    method: str
    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """The credentials that sign requests.

    :ivar access_key_id: the id of the access key.
    :ivar access_key_secret: the secret of the access key.
    :ivar security_token: the STS token; None without one.
    :ivar region: the region; only version 4 needs it.
    """

    access_key_id: str
    access_key_secret: str
    security_token: str | None = None
    region: str | None = None

    def __repr__(self) -> str:
        return f"SigningKey(access_key_id={self.access_key_id!r}, access_key_secret=***)"


def sign_v1(request: UnsignedRequest, key: SigningKey, now: datetime) -> dict[str, str]:
    """Return the headers of ``request`` with those of signature version 1.

    :param now: the current time, aware and in UTC; the server rejects a difference of more than 15 minutes.
    """
    date = http_date(now)
    headers = unsigned_v1(request.headers, key)
    headers["Date"] = date
    if request.body:
        headers["Content-MD5"] = hashlib.md5(request.body, usedforsecurity=False).hexdigest().upper()
    text = string_to_sign_v1(request, headers)
    digest = hmac.digest(key.access_key_secret.encode(), text.encode(), "sha1")
    headers["Authorization"] = f"LOG {key.access_key_id}:{base64.b64encode(digest).decode()}"
    # Proxies may drop Date. The server prefers this copy, which is not signed.
    headers["x-log-date"] = date
    return headers


def unsigned_v1(headers: Mapping[str, str], key: SigningKey) -> dict[str, str]:
    """Return a copy of ``headers`` with those of version 1 that depend neither on the body nor on the time."""
    return {**_with_token(headers, key), "x-log-signaturemethod": "hmac-sha1"}


def string_to_sign_v1(request: UnsignedRequest, headers: Mapping[str, str]) -> str:
    """Return the text that version 1 signs.

    :param headers: the headers with ``Date`` and ``Content-MD5``, without ``x-log-date``.
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
    """Return the headers of ``request`` with those of signature version 4.

    :param now: the current time, aware and in UTC.
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
    """Return the hexadecimal signature of version 4, and its scope.

    :param headers: the headers with ``x-log-date`` and ``x-log-content-sha256``.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    timestamp = lower["x-log-date"]
    scope = f"{timestamp[:8]}/{region}/sls/aliyun_v4_request"
    canonical = hashlib.sha256(_canonical_request(request, lower).encode()).hexdigest()
    text = f"SLS4-HMAC-SHA256\n{timestamp}\n{scope}\n{canonical}"
    mac = _mac_of_day(access_key_secret, timestamp[:8], region).copy()
    mac.update(text.encode())
    return mac.hexdigest(), scope


@lru_cache(maxsize=32)
def _mac_of_day(access_key_secret: str, day: str, region: str) -> hmac.HMAC:
    """Return the initial HMAC state of a day's requests, to be copied.

    ``hmac.digest`` would release the GIL, and might get it back milliseconds later.
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
    """Format ``now`` for the ``Date`` header, in English whatever the locale is."""
    return (
        f"{_WEEKDAYS[now.weekday()]}, {now.day:02d} {_MONTHS[now.month - 1]} {now.year:04d} "
        f"{now.hour:02d}:{now.minute:02d}:{now.second:02d} GMT"
    )


def _with_token(headers: Mapping[str, str], key: SigningKey) -> dict[str, str]:
    """Return a copy of ``headers`` with the STS token, which both versions sign."""
    copy = dict(headers)
    if key.security_token:
        copy["x-acs-security-token"] = key.security_token
    return copy

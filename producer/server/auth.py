"""Authentication of requests: signatures of versions 1 and 4, verified by computing them again.

The head of a request must have a known access key, the STS token of that key, a time within 15 minutes of the server's,
and a valid signature. The signature covers the digest of the body. So the head is verified before the server reads any
of the body, and the body is verified by its digest.

Source: LogHub protocol, Signatures and Error codes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from ..text.addresses import foreign_page
from ..wire.signing import UnsignedRequest, signature_v4, string_to_sign_v1
from .errors import ApiError
from .limits import MAX_CLOCK_SKEW_SECONDS

#: The default access key. It is public, and no secret.
TEST_ACCESS_KEY = ("test-access-key-id", "test-access-key-secret")

_V1 = re.compile(r"LOG ([^:\s]+):(\S+)")
_V4 = re.compile(
    r"SLS4-HMAC-SHA256 Credential=([^/\s]+)/(\d{8})/([^/\s]+)/sls/aliyun_v4_request,Signature=([0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKey:
    """An access key that the server knows.

    :ivar secret: its secret.
    :ivar security_token: the STS token that must come with it; None for a key without one.
    :ivar enabled: False to refuse the key with ``Unauthorized``.
    """

    secret: str
    security_token: str | None = None
    enabled: bool = True

    def __repr__(self) -> str:
        return f"AccessKey(secret=***, enabled={self.enabled})"


def as_key(key: AccessKey | str) -> AccessKey:
    """Return an access key; a plain string is the secret of an enabled key without token."""
    return AccessKey(secret=key) if isinstance(key, str) else key


@dataclass(frozen=True, slots=True)
class SignedDigest:
    """The digest of the body that a request's signature covers.

    :ivar header: the header that carries it.
    :ivar algorithm: its name in ``hashlib``.
    :ivar claimed: the digest in hexadecimal digits; None for a request without a digest, which must have no body.
    """

    header: str
    algorithm: str
    claimed: str | None

    def check(self, body: bytes) -> None:
        """Refuse a body whose digest differs from the signed one.

        :raises ApiError: ``PostBodyInvalid``, or ``MissingContentMD5`` for a body without a digest.
        """
        if self.claimed is None:
            self.check_presence(len(body))
            return
        actual = hashlib.new(self.algorithm, body, usedforsecurity=False).hexdigest()
        if self.claimed.lower() != actual:
            raise ApiError(
                "PostBodyInvalid",
                f"{self.header} is {self.claimed[:64]!r}, but the digest of the received body is {actual}",
            )

    def check_presence(self, size: int) -> None:
        """Refuse a body of ``size`` bytes without a digest.

        :raises ApiError: ``MissingContentMD5``.
        """
        if self.claimed is None and size:
            raise ApiError("MissingContentMD5", f"a request with a body must carry {self.header}")


def authenticate(
    request: UnsignedRequest,
    keys: Mapping[str, AccessKey | str],
    now: float,
    body_size: int,
    region: str | None = None,
) -> SignedDigest:
    """Verify a request's head, and return the digest that its body must have.

    :param request: the request, with lower-case header names; its body is ignored.
    :param keys: known access keys by id; a plain string is the secret of an enabled key without token.
    :param now: the server's time, Unix seconds.
    :param body_size: size of the body, bytes; 0 if unknown.
    :param region: the region that a version 4 signature must name; None for any.
    :raises ApiError: ``MissAccessKeyId``, ``InvalidAccessKeyId``, ``Unauthorized``, ``InvalidRequestTime``,
        ``RequestTimeExpired``, ``MissingContentMD5``, ``PostBodyInvalid`` or ``SignatureNotMatch``.
    """
    authorization = request.headers.get("authorization", "")
    if match := _V1.fullmatch(authorization):
        key = _find_key(match[1], keys, request.headers)
        return _verify_v1(request, key, match[2], now, body_size)
    if match := _V4.fullmatch(authorization):
        key = _find_key(match[1], keys, request.headers)
        return _verify_v4(request, key, (match[2], match[3], match[4]), now, region)
    raise ApiError(
        "MissAccessKeyId",
        "the request carries no signature: Authorization must be 'LOG <access key id>:<signature>' (version 1) or"
        " 'SLS4-HMAC-SHA256 Credential=<access key id>/<date>/<region>/sls/aliyun_v4_request,Signature=<hex>'",
    )


def has_default_key(keys: Mapping[str, AccessKey | str]) -> bool:
    """Return True if the public default secret is among the keys."""
    return TEST_ACCESS_KEY[1] in (as_key(key).secret for key in keys.values())


def check_page(keys: Mapping[str, AccessKey | str], headers: Mapping[str, str]) -> None:
    """Refuse a request from a web page of another site while the public default key is in use.

    :raises ApiError: ``Unauthorized``.
    """
    if has_default_key(keys) and (site := foreign_page(headers, is_project_first=True)):
        raise ApiError(
            "Unauthorized",
            f"with the default access key this server answers this machine only, as 127.0.0.1 or localhost, and not"
            f" {site[:128]!r}: start it with an access key of your own",
        )


def is_basic(headers: Mapping[str, str]) -> bool:
    """Return True if a request carries user and password (Basic)."""
    return headers.get("authorization", "").lower().startswith("basic ")


def knows_key(keys: Mapping[str, AccessKey | str], authorization: str) -> bool:
    """Return True if user and password (Basic) are an access key that needs no token."""
    kind, _, encoded = authorization.partition(" ")
    try:
        key_id, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return False
    if kind.lower() != "basic" or key_id not in keys:
        return False
    key = as_key(keys[key_id])
    if not key.enabled or key.security_token is not None:
        return False
    return hmac.compare_digest(key.secret.encode(), secret.encode())


def _find_key(key_id: str, keys: Mapping[str, AccessKey | str], headers: Mapping[str, str]) -> AccessKey:
    known = keys.get(key_id)
    if known is None:
        raise ApiError("InvalidAccessKeyId", f"access key id {key_id} is not known here")
    key = as_key(known)
    if not key.enabled:
        raise ApiError("Unauthorized", f"access key id {key_id} is disabled")
    token = headers.get("x-acs-security-token")
    if not hmac.compare_digest((token or "").encode(), (key.security_token or "").encode()):
        raise ApiError("Unauthorized", f"the security token is not the current one of access key id {key_id}")
    return key


def _verify_v1(request: UnsignedRequest, key: AccessKey, claimed: str, now: float, body_size: int) -> SignedDigest:
    # x-log-date is a copy for proxies that drop Date: it overrides Date, and is added after signing.
    headers = {name: value for name, value in request.headers.items() if _takes_part(name) and name != "x-log-date"}
    headers["date"] = request.headers.get("x-log-date") or request.headers.get("date", "")
    _check_time(_parse_http_date(headers["date"]), now)
    digest = SignedDigest("Content-MD5", "md5", request.headers.get("content-md5"))
    digest.check_presence(body_size)
    signature = hmac.digest(key.secret.encode(), string_to_sign_v1(request, headers).encode(), "sha1")
    _compare(claimed, base64.b64encode(signature).decode())
    return digest


def _verify_v4(
    request: UnsignedRequest, key: AccessKey, claims: tuple[str, str, str], now: float, here: str | None
) -> SignedDigest:
    date, region, claimed = claims
    stamp = request.headers.get("x-log-date", "")
    _check_time(_parse_stamp(stamp), now)
    if not stamp.startswith(date):
        raise ApiError("SignatureNotMatch", f"the credential's date {date} is not that of x-log-date, {stamp}")
    if here is not None and region != here:
        raise ApiError("SignatureNotMatch", f"the signature is for region {region[:64]!r}, this server is in {here!r}")
    digest = SignedDigest("x-log-content-sha256", "sha256", request.headers.get("x-log-content-sha256"))
    if digest.claimed is None:
        raise ApiError("PostBodyInvalid", "x-log-content-sha256 is missing: version 4 signs the digest of the body")
    headers = {name: value for name, value in request.headers.items() if _takes_part(name)}
    expected, _ = signature_v4(request, headers, key.secret, region)
    _compare(claimed, expected)
    return digest


def _takes_part(name: str) -> bool:
    return not name.startswith("x-log-meta-")


def _compare(claimed: str, expected: str) -> None:
    if not hmac.compare_digest(claimed.encode(), expected.encode()):
        raise ApiError(
            "SignatureNotMatch",
            "the signature does not match the request: check the access key, and that no proxy changes the request",
        )


def _parse_http_date(text: str) -> datetime:
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # OverflowError: a year or a zone of too many digits
        raise _no_time("Date (or x-log-date)", text) from None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _parse_stamp(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise _no_time("x-log-date", text) from None


def _no_time(header: str, text: str) -> ApiError:
    return ApiError("InvalidRequestTime", f"{header} is {text[:64]!r}: it must be the time of signing")


def _check_time(signed: datetime, now: float) -> None:
    difference = signed.timestamp() - now
    if abs(difference) > MAX_CLOCK_SKEW_SECONDS:
        raise ApiError(
            "RequestTimeExpired",
            f"the request was signed {difference:+.0f} s from the server's time: at most {MAX_CLOCK_SKEW_SECONDS} s are"
            " allowed; set the client's clock",
        )

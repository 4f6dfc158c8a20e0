"""Signatures equal those of the official SDK."""

import base64
import locale
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from producer.wire import signing
from producer.wire.signing import SigningKey, UnsignedRequest, http_date, sign_v1, sign_v4
from tests.wire.test_log_group import VECTORS

SIGNATURES = [
    pytest.param(vector, id=f"{vector['version']}-{vector['method']}-{vector['path']}-{bool(vector['security_token'])}")
    for vector in VECTORS["signatures"]
]


@pytest.mark.parametrize("vector", SIGNATURES)
def test_each_vectors_request_gets_exactly_the_vectors_headers_and_signature(vector: dict[str, Any]) -> None:
    """Each vector's request gets exactly the vector's headers and signature."""
    request = UnsignedRequest(
        method=vector["method"],
        path=vector["path"],
        params=vector["params"],
        headers=vector["headers_before"],
        body=base64.b64decode(vector["body_base64"]),
    )
    key = SigningKey(
        access_key_id=vector["access_key_id"],
        access_key_secret=vector["access_key_secret"],
        security_token=vector["security_token"],
        region=vector["region"],
    )
    now = datetime.fromisoformat(vector["now_utc"])
    sign = {"v1": sign_v1, "v4": sign_v4}[vector["version"]]
    assert sign(request, key, now) == vector["headers_after"]
    assert request.headers == vector["headers_before"]


def test_version_4_without_a_region_is_refused_in_words() -> None:
    """Version 4 without a region is refused."""
    request = UnsignedRequest(method="GET", path="/", params={}, headers={})
    with pytest.raises(ValueError, match="needs a region, such as"):
        sign_v4(request, SigningKey(access_key_id="a", access_key_secret="b"), datetime.now(UTC))


def test_the_date_is_english_whatever_the_locale() -> None:
    """The names in the Date header are English in any locale."""
    before = locale.setlocale(locale.LC_TIME)
    try:
        for name in ("de_DE.UTF-8", "zh_CN.UTF-8", "C"):
            try:
                locale.setlocale(locale.LC_TIME, name)
            except locale.Error:
                continue
            assert http_date(datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC)) == "Wed, 06 May 2026 07:08:09 GMT"
    finally:
        locale.setlocale(locale.LC_TIME, before)


def test_each_weekday_and_month_has_its_right_name_as_the_server_rejects_a_wrong_date() -> None:
    """Each weekday and month has its right name, as the server rejects a wrong date."""
    days = [datetime(2026, 1, 1, 23, 59, 58, tzinfo=UTC) + timedelta(days=number) for number in range(366)]
    assert [http_date(day) for day in days] == [format_datetime(day, usegmt=True) for day in days]


def test_a_signing_key_shows_no_secret() -> None:
    """The repr of a signing key has neither the secret nor the token."""
    key = SigningKey(access_key_id="id", access_key_secret="s3cret", security_token="t0ken")
    assert "s3cret" not in repr(key)
    assert "t0ken" not in repr(key)


def test_of_version_4_the_key_of_a_day_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of a day is computed once per secret, day and region, and requests do not release the GIL."""
    calls: list[bytes] = []
    digest = signing.hmac.digest
    monkeypatch.setattr(signing.hmac, "digest", lambda key, *rest: calls.append(key) or digest(key, *rest))
    request = UnsignedRequest(method="GET", path="/", params={}, headers={"Host": "h"})
    keys = [SigningKey(access_key_id="a", access_key_secret=f"once {n}", region="r") for n in range(2)]
    signatures = set()
    for key in keys:
        for day in (1, 2):
            for second in range(3):
                now = datetime(2026, 1, day, 0, 0, second, tzinfo=UTC)
                signatures.add(sign_v4(request, key, now)["Authorization"])
    assert (len(calls), len(signatures)) == (2 * 2 * 4, 2 * 2 * 3)

"""Prepared requests equal those made one by one."""

import hmac
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import md5
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.model.records import StreamKey
from producer.sinks.http.transport import head_of
from producer.wire.prepared import PreparedV1, PreparedV4
from producer.wire.put_logs import put_logs_headers, put_logs_params, put_logs_path
from producer.wire.signing import SigningKey, UnsignedRequest, sign_v1, sign_v4

KINDS = {"v1": (PreparedV1, sign_v1), "v4": (PreparedV4, sign_v4)}
_TEXT = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E))


@pytest.mark.parametrize("version", KINDS)
@given(
    logstore=st.text(min_size=1, max_size=10).filter(lambda text: text.isprintable()),
    shard_hash=st.none() | st.just("0" * 32),
    processor=st.none() | st.text("a b%&=+/\u4e2d", max_size=5),
    token=st.none() | _TEXT,
    body=st.binary(max_size=20),
    sizes=st.lists(st.integers(0, 2**40), min_size=1, max_size=3),
    seconds=st.lists(st.integers(0, 2**34).map(lambda quarters: quarters / 4), min_size=1, max_size=3),
)
def test_a_prepared_request_has_the_headers_of_one_that_is_signed_as_a_whole(
    version: str,
    logstore: str,
    shard_hash: str | None,
    processor: str | None,
    token: str | None,
    body: bytes,
    sizes: list[int],
    seconds: list[float],
) -> None:
    """A prepared request has the same headers and signature for any body, size and time, at each use."""
    stream = StreamKey("p", logstore, shard_hash=shard_hash)
    key = SigningKey(access_key_id="a", access_key_secret="s\u00e9", security_token=token, region="cn-x")
    request = UnsignedRequest(
        method="POST",
        path=put_logs_path(stream),
        params=put_logs_params(stream, processor),
        headers=put_logs_headers("h", 0, "lz4", "agent"),
    )
    kind, sign = KINDS[version]
    prepared = kind(request, key, head_of)
    for size in sizes:
        for second in seconds:
            whole = replace(
                request,
                path=unquote(request.path),
                headers={**request.headers, "x-log-bodyrawsize": str(size)},
                body=body,
            )
            signed = sign(whole, key, datetime.fromtimestamp(second, UTC))
            assert _lines(prepared.head(body, size, second)) == _lines(head_of(signed))
            assert prepared.head(body, size, second, md5(body).digest()) == prepared.head(body, size, second)


def _lines(head: bytes) -> list[bytes]:
    return sorted(head.split(b"\r\n"))


def test_a_request_is_signed_without_giving_up_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is signed without releasing the GIL, which `hmac.digest` would do."""
    stream = StreamKey("p", "l")
    request = UnsignedRequest(
        method="POST",
        path=put_logs_path(stream),
        params=put_logs_params(stream, None),
        headers=put_logs_headers("h", 0, "lz4", "agent"),
    )
    key = SigningKey(access_key_id="a", access_key_secret="s", security_token=None, region="")
    prepared = PreparedV1(request, key, head_of)
    before = prepared.head(b"x", 1, 1.0)
    monkeypatch.delattr(hmac, "digest")
    assert prepared.head(b"x", 1, 1.0) == before

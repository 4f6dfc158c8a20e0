"""The role of an ECS instance, from the metadata service: both versions, bad answers, slow answers."""

import json
import time

import pytest

from producer import CredentialsError
from producer.sinks.loghub.credentials import metadata
from producer.sinks.loghub.credentials.metadata import EcsRamRoleCredentials, UriCredentials
from tests.support.aliyun import ROLE, Aliyun

_LIST = "/latest/meta-data/ram/security-credentials/"
_GOOD = {
    "Code": "Success",
    "AccessKeyId": "STS.x",
    "AccessKeySecret": "s3cr3t",
    "SecurityToken": "t0k3n",
    "Expiration": "2999-01-01T00:00:00Z",
}


def _failure() -> str:
    with pytest.raises(CredentialsError) as caught:
        EcsRamRoleCredentials().get_credentials()
    assert "s3cr3t" not in repr(caught.value)
    assert "t0k3n" not in repr(caught.value)
    return str(caught.value)


def test_the_role_s_credentials_come_with_a_token_of_the_service(service: Aliyun) -> None:
    """Version 2 of the service: a token, the name of the role, its credentials with their expiry."""
    found = EcsRamRoleCredentials().get_credentials()
    assert (found.access_key_id, found.access_key_secret, found.security_token) == ("STS.1", "secret-1", "token-1")
    assert found.expires_at == pytest.approx(time.time() + 3600, abs=60)
    assert service.asked == ["PUT /latest/api/token", f"GET {_LIST}", f"GET {_LIST}{ROLE}"]


def test_a_named_role_is_not_looked_up(service: Aliyun, monkeypatch: pytest.MonkeyPatch) -> None:
    """A role from the name, or from ALIBABA_CLOUD_ECS_METADATA, saves a request; an unknown one is named."""
    EcsRamRoleCredentials(ROLE).get_credentials()
    monkeypatch.setenv("ALIBABA_CLOUD_ECS_METADATA", ROLE)
    EcsRamRoleCredentials().get_credentials()
    assert f"GET {_LIST}" not in service.asked
    with pytest.raises(CredentialsError, match="knows no RAM role other"):
        EcsRamRoleCredentials("other").get_credentials()


def test_a_service_without_tokens_is_asked_by_version_1_unless_forbidden(
    service: Aliyun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without tokens version 1 is used; ALIBABA_CLOUD_IMDSV1_DISABLED makes that an error."""
    service.has_tokens = service.wants_tokens = False
    assert EcsRamRoleCredentials().get_credentials().access_key_id == "STS.1"
    monkeypatch.setenv("ALIBABA_CLOUD_IMDSV1_DISABLED", "true")
    assert "gave no token (HTTP 404), and ALIBABA_CLOUD_IMDSV1_DISABLED is true" in _failure()


def test_a_disabled_service_is_not_asked(service: Aliyun, monkeypatch: pytest.MonkeyPatch) -> None:
    """ALIBABA_CLOUD_ECS_METADATA_DISABLED keeps all requests away."""
    monkeypatch.setenv("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "true")
    assert "ALIBABA_CLOUD_ECS_METADATA_DISABLED is true" in _failure()
    assert service.asked == []


def test_where_there_is_no_such_service_the_error_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is no ECS instance: one connection, and the address in the error."""
    monkeypatch.setattr(metadata, "SERVICE", "http://127.0.0.1:9")
    assert "the metadata service at http://127.0.0.1:9 does not answer: no connection" in _failure()


@pytest.mark.parametrize(
    ("path", "status", "body", "words"),
    [
        (_LIST, 404, "", "has no RAM role: attach one"),
        (_LIST, 500, "s3cr3t", "answered HTTP 500"),
        (_LIST, 302, "", "answered HTTP 302"),
        (_LIST, 200, "<html>s3cr3t</html>", "did not answer with the name of a role"),
        (_LIST, 200, "../../token", "did not answer with the name of a role"),
        (_LIST, 200, "r" * 1_000_000, "did not answer with the name of a role"),
        (_LIST + ROLE, 503, "s3cr3t", "answered HTTP 503"),
        (_LIST + ROLE, 200, "", "without credentials"),
        (_LIST + ROLE, 200, "s3cr3t", "without credentials"),
        (_LIST + ROLE, 200, "[" * 60_000, "without credentials"),
        (_LIST + ROLE, 200, '["s3cr3t"]', "without credentials"),
        (_LIST + ROLE, 200, " " * 1_000_000 + json.dumps(_GOOD), "without credentials"),
        (_LIST + ROLE, 200, json.dumps(_GOOD | {"SecurityToken": ""}), "without credentials"),
        (_LIST + ROLE, 200, json.dumps(_GOOD | {"AccessKeySecret": "s3cr3t\r\nX: y"}), "invalid .*: access_key_secret"),
        (_LIST + ROLE, 200, json.dumps(_GOOD | {"AccessKeyId": 7}), "invalid credentials: access_key_id"),
        (_LIST + ROLE, 200, json.dumps(_GOOD | {"SecurityToken": ["t0k3n"]}), "invalid credentials: security_token"),
        (_LIST + ROLE, 200, json.dumps(_GOOD | {"Expiration": "t0k3n"}), "invalid credentials: Expiration"),
        (_LIST + ROLE, 200, json.dumps(_GOOD | {"Expiration": "2001-01-01T00:00:00Z"}), "expired at 2001-01-01"),
    ],
)
def test_a_bad_answer_is_a_short_error_without_its_content(
    service: Aliyun, path: str, status: int, body: str, words: str
) -> None:
    """An answer that is no role or no credentials fails with its fault; nothing of its content is repeated."""
    service.instead = lambda name: (status, body.encode()) if name == f"GET {path}" else None
    text = _failure()
    assert len(text) < 200
    with pytest.raises(CredentialsError, match=words):
        EcsRamRoleCredentials().get_credentials()


def test_a_token_that_is_no_header_is_not_sent(service: Aliyun) -> None:
    """A token with line ends cannot add headers to the next request."""
    service.instead = lambda name: (200, b"a\r\nX-Evil: 1") if name.startswith("PUT") else None
    assert "answered HTTP 403" in _failure()


def test_a_service_that_drips_is_left_at_the_limit(service: Aliyun, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer without end costs the limit of all requests, and no more."""
    monkeypatch.setattr(metadata, "LIMIT", 0.4)
    monkeypatch.setattr(metadata, "TOKEN_LIMIT", 0.1)
    service.drips = True
    began = time.monotonic()
    assert "does not answer: no complete answer within" in _failure()
    assert time.monotonic() - began < 5
    assert service.asked == ["PUT /latest/api/token", f"GET {_LIST}"]  # without an answer to the PUT, version 1


def test_a_url_gives_credentials_in_the_same_form(service: Aliyun, monkeypatch: pytest.MonkeyPatch) -> None:
    """ALIBABA_CLOUD_CREDENTIALS_URI names a URL that answers as the metadata service."""
    service.wants_tokens = False
    monkeypatch.setenv("ALIBABA_CLOUD_CREDENTIALS_URI", f"{service.url}{_LIST}{ROLE}?x=1")
    assert UriCredentials().get_credentials().access_key_id == "STS.1"
    monkeypatch.setenv("ALIBABA_CLOUD_CREDENTIALS_URI", "file:///etc/passwd")
    with pytest.raises(CredentialsError, match="is not set to a URL"):
        UriCredentials().get_credentials()

"""Credentials by name: the order of the default, what a pickle carries, and refreshes while a producer sends."""

import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from producer import (
    ConfigError,
    Credentials,
    CredentialsError,
    EnvironmentCredentials,
    Producer,
    ProducerConfig,
    ProjectConfig,
)
from producer.model import credentials as model
from producer.server import LogHubServer
from producer.sinks.loghub.credentials.cache import CredentialsCache
from producer.sinks.loghub.credentials.names import provider_of
from producer.sinks.loghub.credentials.sources import SOURCES
from producer.testing import ManualClock
from tests.support.aliyun import ARN, KEY, POD_TOKEN, SECRET, Aliyun

from .test_profiles import cli_profiles, ini_profiles


def test_each_name_has_a_source() -> None:
    """The names that a configuration accepts are those that have a source."""
    assert set(SOURCES) == set(model._NAMES)
    for name, has_argument in model._NAMES.items():
        assert provider_of(f"{name}:x" if has_argument else name) is not None


@pytest.mark.parametrize("given", ["", "ecs", "Default", "oidc:x", "profile:", "default:", "environment ", "S3cr3tKey"])
def test_another_name_is_refused_when_the_project_is_made(given: str) -> None:
    """The error lists the names, and does not repeat the text, which may be a secret."""
    with pytest.raises(ConfigError, match=r"credentials: must be default, environment, profile\[:NAME\]") as caught:
        ProjectConfig("shop", endpoint="http://127.0.0.1:9", credentials=given)
    assert "S3cr3t" not in str(caught.value)


def test_the_environment_has_our_variables_or_aliyun_s(service: Aliyun, monkeypatch: pytest.MonkeyPatch) -> None:
    """ALIBABA_CLOUD_* is used if no LOGHUB_* key is set; the two are never mixed."""
    with pytest.raises(
        ConfigError, match="LOGHUB_ACCESS_KEY_ID: must be set in the environment, or ALIBABA_CLOUD_ACCESS_KEY_ID"
    ):
        EnvironmentCredentials().get_credentials()
    for name in ("ACCESS_KEY_ID", "ACCESS_KEY_SECRET", "SECURITY_TOKEN"):
        monkeypatch.setenv(f"ALIBABA_CLOUD_{name}", f"theirs-{name}")
    assert EnvironmentCredentials().get_credentials().security_token == "theirs-SECURITY_TOKEN"
    monkeypatch.setenv("LOGHUB_ACCESS_KEY_ID", "ours")
    with pytest.raises(ConfigError, match=r"LOGHUB_ACCESS_KEY_SECRET: must be set in the environment$"):
        EnvironmentCredentials().get_credentials()
    monkeypatch.setenv("LOGHUB_ACCESS_KEY_SECRET", "ours")
    assert EnvironmentCredentials().get_credentials() == Credentials(access_key_id="ours", access_key_secret="ours")
    assert EnvironmentCredentials(prefix="ALIBABA_CLOUD_").get_credentials().access_key_id == "theirs-ACCESS_KEY_ID"


def test_the_default_asks_in_the_order_of_aliyun_s_tools(
    service: Aliyun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each source that is taken away lets the next one answer; at last the error lists all with their reasons."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "token").write_text(POD_TOKEN)
    cli = cli_profiles(tmp_path, {"name": "one", "mode": "AK", "access_key_id": "cli", "access_key_secret": SECRET})
    ini = ini_profiles(tmp_path, f"[default]\ntype=access_key\naccess_key_id=ini\naccess_key_secret={SECRET}")
    variables = {
        "ACCESS_KEY_ID": "variable",
        "ACCESS_KEY_SECRET": SECRET,
        "ROLE_ARN": ARN,
        "OIDC_PROVIDER_ARN": "a",
        "OIDC_TOKEN_FILE": str(tmp_path / "token"),
        "CREDENTIALS_URI": f"{service.url}/latest/meta-data/ram/security-credentials/app-role",
    }
    for name, value in variables.items():
        monkeypatch.setenv(f"ALIBABA_CLOUD_{name}", value)

    steps: list[tuple[str, Callable[[], Any]]] = [
        ("variable", lambda: monkeypatch.delenv("ALIBABA_CLOUD_ACCESS_KEY_ID")),
        ("STS.1", lambda: monkeypatch.delenv("ALIBABA_CLOUD_OIDC_TOKEN_FILE")),
        ("cli", cli.unlink),
        ("ini", ini.unlink),
        ("STS.2", lambda: monkeypatch.setattr(service, "wants_tokens", False)),
        ("STS.3", lambda: monkeypatch.setenv("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "true")),
        ("STS.4", lambda: monkeypatch.delenv("ALIBABA_CLOUD_CREDENTIALS_URI")),
    ]
    for key_id, take_away in steps:
        assert provider_of("default").get_credentials().access_key_id == key_id
        take_away()
    assert service.asked[-1].startswith("GET ")
    with pytest.raises(CredentialsError) as caught:
        provider_of("default").get_credentials()
    assert [part.partition(":")[0] for part in caught.value.message.partition(": ")[2].split("; ")] == [
        *("environment", "oidc", "Aliyun's command line", "credentials file", "ecs-ram-role", "URL")
    ]
    assert "ALIBABA_CLOUD_OIDC_TOKEN_FILE is not set" in caught.value.message
    assert SECRET not in str(caught.value)


def test_the_default_stays_with_its_source(service: Aliyun, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that fails later is not replaced by the next one: the producer would change its identity."""
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", SECRET)
    provider = provider_of("default")
    assert provider.get_credentials().access_key_id == KEY
    monkeypatch.delenv("ALIBABA_CLOUD_ACCESS_KEY_ID")
    with pytest.raises(ConfigError):
        provider.get_credentials()
    assert provider_of("default").get_credentials().access_key_id == "STS.1"


def test_a_role_is_assumed_with_the_default_s_key(service: Aliyun, monkeypatch: pytest.MonkeyPatch) -> None:
    """ram-role-arn:ARN signs with the first key that the default finds."""
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", SECRET)
    assert provider_of(f"ram-role-arn:{ARN}").get_credentials().access_key_id == "STS.1"
    assert service.asked == ["POST AssumeRole"]


def test_a_failed_refresh_keeps_the_earlier_credentials_until_they_expire(
    service: Aliyun, caplog: pytest.LogCaptureFixture
) -> None:
    """The service goes away five minutes before the end: sending continues; after the end the error has the reason."""
    clock = ManualClock(time.time())
    cache = CredentialsCache("ecs-ram-role", clock, "t")
    assert cache.get().access_key_id == "STS.1"
    service.instead = lambda _: (503, b"")
    clock.advance(3500)
    assert cache.get().access_key_id == "STS.1"
    for thread in [each for each in threading.enumerate() if each.name == "t"]:
        thread.join(60)
    assert "answered HTTP 503; the earlier credentials are still valid" in caplog.text
    clock.advance(200)
    with pytest.raises(CredentialsError, match="the metadata service answered HTTP 503"):
        cache.get()
    service.instead, service.life = lambda _: None, 7200
    assert cache.get().access_key_id == "STS.2"


def test_a_producer_sends_on_when_its_session_ends(service: Aliyun) -> None:
    """LogHub refuses the old session between two batches: the next one is fetched, and every log arrives."""
    with LogHubServer() as loghub:
        service.accepted_by(loghub)
        project = ProjectConfig("shop", endpoint=loghub.endpoint, credentials="ecs-ram-role")
        with Producer(project, config=ProducerConfig(base_retry_backoff_ms=1)) as producer:
            assert producer.send("shop", "app-log", {"n": "1"}).result(30).successful
            service.session()  # issued elsewhere, so that ours has ended
            assert producer.send("shop", "app-log", {"n": "2"}).result(30).successful
        assert [log.fields["n"] for log in loghub.logs("shop", "app-log")] == ["1", "2"]
    assert service.sessions == 3


def test_a_pickled_configuration_carries_the_name(service: Aliyun) -> None:
    """The other process asks its own metadata service; neither pickle nor repr has a secret."""
    project = ProjectConfig("shop", endpoint="http://127.0.0.1:9", credentials="ecs-ram-role:app-role")
    cache = CredentialsCache(project.credentials, ManualClock(), "t")
    assert cache.get().access_key_id == "STS.1"
    content = pickle.dumps(project)
    assert pickle.loads(content).credentials == "ecs-ram-role:app-role"
    assert b"secret-1" not in content
    assert "credentials='ecs-ram-role:app-role'" in repr(project)


class _Key:
    """A key as ``alibabacloud-credentials`` returns it."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def get_access_key_id(self) -> str:
        return "id"

    def get_access_key_secret(self) -> str:
        return "secret"

    def get_security_token(self) -> str | None:
        return self._token


class _Client:
    def __init__(self, token: str | None) -> None:
        self._token = token

    def get_credential(self) -> _Key:
        return _Key(self._token)

    @staticmethod
    def get_credentials(config: object) -> object:
        raise AssertionError("this makes a provider of the package, and returns no key")


class _Provider:
    def __init__(self, token: str | None) -> None:
        self._token = token

    def get_credentials(self) -> _Key:
        return _Key(self._token)


@pytest.mark.parametrize("kind", [_Client, _Provider])
def test_an_object_of_aliyun_s_package_is_a_provider(kind: type[Any]) -> None:
    """A client or provider of alibabacloud-credentials is passed as it is; a temporary key is asked for again."""
    clock = ManualClock(time.time())
    project = ProjectConfig("shop", endpoint="http://127.0.0.1:9", credentials=kind("token"))
    found = CredentialsCache(project.credentials, clock, "t").get()
    assert (found.access_key_id, found.access_key_secret, found.security_token) == ("id", "secret", "token")
    assert found.expires_at == pytest.approx(time.time() + 300, abs=60)
    assert CredentialsCache(kind(""), clock, "t").get().expires_at is None

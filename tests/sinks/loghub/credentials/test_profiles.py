"""Profiles in the files of Aliyun's tools."""

import json
from pathlib import Path
from typing import Any

import pytest

from producer import CredentialsError
from producer.sinks.loghub.credentials.names import provider_of
from producer.sinks.loghub.credentials.profiles import CliProfile, IniProfile
from tests.support.aliyun import ARN, KEY, POD_TOKEN, ROLE, SECRET, Aliyun

_KEY = {"access_key_id": KEY, "access_key_secret": SECRET}


@pytest.fixture
def home(tmp_path: Path, service: Aliyun, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory with a pod's token."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "token").write_text(POD_TOKEN)
    return tmp_path


def cli_profiles(home: Path, *profiles: dict[str, Any], current: str = "one") -> Path:
    """Write the command line's file."""
    path = home / ".aliyun" / "config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"current": current, "profiles": profiles, "meta_path": ""}))
    return path


def ini_profiles(home: Path, text: str, name: str = "credentials") -> Path:
    """Write the shared credentials file."""
    path = home / ".alibabacloud" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.replace("TOKEN_FILE", str(home / "token")))
    return path


@pytest.mark.parametrize(
    ("profile", "key_id", "asked"),
    [
        ({"mode": "AK", **_KEY, "sts_token": "left over"}, KEY, []),
        ({"mode": "StsToken", **_KEY, "sts_token": "token"}, KEY, []),
        ({"mode": "RamRoleArn", **_KEY, "ram_role_arn": ARN, "expired_seconds": 900}, "STS.1", ["POST AssumeRole"]),
        ({"mode": "ChainableRamRoleArn", "source_profile": "key", "ram_role_arn": ARN}, "STS.1", ["POST AssumeRole"]),
        ({"mode": "OIDC", "ram_role_arn": ARN, "oidc_provider_arn": "a"}, "STS.1", ["POST AssumeRoleWithOIDC"]),
        ({"mode": "EcsRamRole", "ram_role_name": ROLE}, "STS.1", ["PUT /latest/api/token", None]),
        ({"mode": "EcsRamRole"}, "STS.1", ["PUT /latest/api/token", None, None]),
    ],
    ids=lambda value: value["mode"] if isinstance(value, dict) else "",
)
def test_each_mode_of_the_command_line(
    home: Path, service: Aliyun, profile: dict[str, Any], key_id: str, asked: list[str | None]
) -> None:
    """A profile of Aliyun's command line gives a key, a session, or the session of a role."""
    if profile["mode"] == "OIDC":
        profile |= {"oidc_token_file": str(home / "token")}
    cli_profiles(home, {"name": "key", "mode": "AK", **_KEY}, {"name": "one", **profile})
    found = CliProfile().get_credentials()
    assert found.access_key_id == key_id
    assert (found.security_token is None) == (profile["mode"] == "AK")
    assert len(service.asked) == len(asked)
    assert all(expected in (None, given) for given, expected in zip(service.asked, asked, strict=True))


@pytest.mark.parametrize(
    ("section", "key_id"),
    [
        (f"type = access_key\naccess_key_id = {KEY}\naccess_key_secret = {SECRET} # a comment", KEY),
        (f"type = sts\naccess_key_id = {KEY}\naccess_key_secret = {SECRET}\nsecurity_token = t%x", KEY),
        (f"type = ram_role_arn\naccess_key_id = {KEY}\naccess_key_secret = {SECRET}\nrole_arn = {ARN}", "STS.1"),
        (f"type = ecs_ram_role\nrole_name = {ROLE}", "STS.1"),
        (f"type = oidc_role_arn\nrole_arn = {ARN}\noidc_provider_arn = a\noidc_token_file_path = TOKEN_FILE", "STS.1"),
    ],
)
@pytest.mark.parametrize("name", ["credentials", "credentials.ini"])
def test_each_type_of_the_credentials_file(home: Path, section: str, key_id: str, name: str) -> None:
    """The shared file has the same profiles under other names, with or without the ending .ini."""
    ini_profiles(home, f"[default]\n{section}\n", name)
    assert IniProfile().get_credentials().access_key_id == key_id


def test_the_profile_is_chosen_by_name_then_by_the_environment_then_by_the_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """profile:NAME, ALIBABA_CLOUD_PROFILE, and current; a profile that one file has not is looked for in the other."""
    cli_profiles(
        home, *({"name": name, "mode": "AK", **_KEY, "access_key_id": name} for name in ("one", "two", "three"))
    )
    ini_profiles(home, f"[four]\ntype=access_key\naccess_key_id=four\naccess_key_secret={SECRET}")
    assert provider_of("profile").get_credentials().access_key_id == "one"
    monkeypatch.setenv("ALIBABA_CLOUD_PROFILE", "two")
    assert provider_of("profile").get_credentials().access_key_id == "two"
    assert provider_of("profile:three").get_credentials().access_key_id == "three"
    assert provider_of("profile:four").get_credentials().access_key_id == "four"
    other = ini_profiles(home, f"[two]\ntype=access_key\naccess_key_id=other\naccess_key_secret={SECRET}", "elsewhere")
    monkeypatch.setenv("ALIBABA_CLOUD_CREDENTIALS_FILE", str(other))
    monkeypatch.setenv("ALIBABA_CLOUD_CLI_PROFILE_DISABLED", "true")
    assert provider_of("profile").get_credentials().access_key_id == "other"


def test_a_changed_file_is_read_at_the_next_refresh(home: Path) -> None:
    """A new token that a tool writes into the file is used without a restart."""
    provider = provider_of("profile")
    for token in ("first", "second"):
        cli_profiles(home, {"name": "one", "mode": "StsToken", **_KEY, "sts_token": token})
        assert provider.get_credentials().security_token == token


@pytest.mark.parametrize(
    ("profiles", "words"),
    [
        ([], "profile one: there is no such profile"),
        ([{"name": "one", "mode": "AK"}], "profile one: access_key_id: must be printable"),
        (
            [{"name": "one", "mode": "AK", **_KEY, "access_key_secret": f"{SECRET}\n"}],
            "profile one: access_key_secret: ",
        ),
        ([{"name": "one", "mode": "CloudSSO", **_KEY}], "its mode is 'CloudSSO', and must be one of AK, StsToken, "),
        ([{"name": "one", "mode": ["AK"], **_KEY}], "its mode is "),
        ([{"name": "one", "mode": "RamRoleArn", **_KEY}], "ALIBABA_CLOUD_ROLE_ARN is not set"),
        ([{"name": "one", "mode": "RamRoleArn", **_KEY, "expired_seconds": "1e3"}], "expired_seconds is not a number"),
        ([{"name": "one", "mode": "ChainableRamRoleArn", "source_profile": "one"}], "source_profile leads back to it"),
        ([{"name": "one", "mode": "ChainableRamRoleArn", "source_profile": "x"}], "no profile x, its source_profile"),
        ([{"mode": "AK", **_KEY}], "is not a configuration of Aliyun's command line"),
        (["one"], "is not a configuration of Aliyun's command line"),
    ],
)
def test_an_unusable_profile_of_the_command_line_is_named_without_its_secrets(
    home: Path, profiles: list[Any], words: str
) -> None:
    """The error has the file, the profile and the fault."""
    path = cli_profiles(home, *profiles)
    with pytest.raises(CredentialsError) as caught:
        CliProfile().get_credentials()
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"access_key_secret = {SECRET}", "is not a valid INI file"),
        (f"[default]\n{SECRET}", "is not a valid INI file"),
        (f"[default]\naccess_key_secret = {SECRET}", "its mode is '', and must be one of"),
        (f"[default]\ntype = rsa_key_pair\nprivate_key_file = {SECRET}", "its mode is 'rsa_key_pair'"),
        ("x" * (2 << 20), "has more than 1048576 bytes"),
    ],
)
def test_an_unusable_credentials_file_is_named_without_its_secrets(home: Path, text: str, words: str) -> None:
    """The error has the file and the fault; the parser's own words, which hold lines of the file, are not in it."""
    path = ini_profiles(home, text)
    with pytest.raises(CredentialsError) as caught:
        IniProfile().get_credentials()
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None

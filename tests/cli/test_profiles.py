"""Flags, the environment and profiles give the target and the access key."""

import argparse
import socket
from pathlib import Path

import pytest

from producer.cli import arguments_of, main
from producer.cli.local_key import LocalKeyError, local_key
from producer.cli.profiles import NAMES, Settings, UsageError, config_path, resolve
from producer.cli.serve import DEFAULT_PORT
from producer.model.errors import ConfigError
from producer.runtime.system_user import user_name
from tests.support.aliyun import forget_credentials

FILE = """
profile = "prod"
[profiles.prod]
endpoint = "https://of-the-profile"
project = "profile-project"
access_key_id = "profile-id"
access_key_secret = "profile-secret"
security_token = "profile-token"
[profiles.v4]
region = "cn-hangzhou"
"""


def settled(path: Path, text: str = FILE, mode: int = 0o600, flags: object = None, **environ: str) -> Settings:
    path.write_text(text)
    path.chmod(mode)
    environ = {f"LOGHUB_{name.upper()}": value for name, value in environ.items()}
    return resolve(argparse.Namespace(**(flags or {})), {"XDG_CONFIG_HOME": str(path.parents[1]), **environ})  # type: ignore[dict-item]


def test_flags_go_over_the_environment_and_that_over_the_profile(config_file: Path) -> None:
    """Each setting comes from the flag, else the environment, else the profile."""
    found = settled(config_file, flags={"project": "flag"}, project="environment", endpoint="http://environment")
    assert (found.project, found.endpoint, found.access_key_id) == ("flag", "http://environment", "profile-id")
    assert found.security_token == "profile-token"
    assert found.logstore is None


def test_secrets_of_a_profile_go_with_its_key_id_alone(config_file: Path) -> None:
    """A profile's token never goes with another key id; a secret from a flag or the environment completes its id."""
    for found in (
        settled(config_file, access_key_id="mine", access_key_secret="my-secret"),
        settled(config_file, flags={"access_key_id": "mine", "access_key_secret": "my-secret"}),
    ):
        assert (found.access_key_id, found.access_key_secret, found.security_token) == ("mine", "my-secret", None)
    assert settled(config_file, access_key_secret="other").access_key_id == "profile-id"


@pytest.mark.parametrize(
    ("flags", "environment", "found"),
    [
        ({"credentials": "oidc"}, {}, ("oidc", None, None)),
        ({}, {"credentials": "oidc"}, ("oidc", None, None)),
        ({"credentials": "oidc"}, {"access_key_id": "i", "access_key_secret": "s"}, ("oidc", None, None)),
        ({"access_key_id": "i"}, {"credentials": "oidc", "access_key_secret": "s"}, (None, "i", "s")),
        ({}, {}, (None, "profile-id", "profile-secret")),
        ({}, {"profile": "role"}, ("ecs-ram-role", None, None)),
        ({}, {"profile": "role", "access_key_id": "i", "access_key_secret": "s"}, (None, "i", "s")),
        ({}, {"profile": "v4"}, ("environment", None, None)),
    ],
)
def test_a_source_of_credentials_and_a_key_replace_each_other(
    config_file: Path, flags: dict[str, str], environment: dict[str, str], found: tuple[str | None, ...]
) -> None:
    """The first of flag, environment and profile that names either wins; Aliyun's variables are the last resort."""
    config_file.write_text(FILE + '[profiles.role]\ncredentials = "ecs-ram-role"\n')
    config_file.chmod(0o600)
    environ = {f"LOGHUB_{name.upper()}": value for name, value in environment.items()}
    places = {"XDG_CONFIG_HOME": str(config_file.parents[1]), "ALIBABA_CLOUD_ACCESS_KEY_ID": "theirs"}
    settings = resolve(argparse.Namespace(**flags), {**places, **environ})
    assert (settings.credentials, settings.access_key_id, settings.access_key_secret) == found


def test_a_command_that_finds_no_credentials_lists_the_sources(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The request was not sent; the error lists each source and its fault, and does not blame the network."""
    forget_credentials(monkeypatch)
    monkeypatch.setenv("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "true")
    assert main(["logstores", "--endpoint=http://127.0.0.1:9", "-pp-1", "--credentials=default", "--timeout=1"]) == 1
    told = capsys.readouterr().err
    assert "not sent, CredentialsError: no credentials; tried in this order: environment: LOGHUB_ACCESS_KEY_ID" in told
    assert "/nonexistent/.aliyun/config.json cannot be read: No such file" in told
    assert "check --endpoint" not in told


def test_two_ways_in_one_place_are_refused(config_file: Path) -> None:
    """A key and a source of credentials beside each other are an error, and a wrong name, too."""
    flags = {"credentials": "oidc", "access_key_id": "i", "access_key_secret": "s"}
    with pytest.raises(ConfigError, match="credentials: give either access_key_id and access_key_secret, or"):
        settled(config_file, flags=flags).project_config()
    with pytest.raises(ConfigError, match="credentials: must be default, environment, profile"):
        settled(config_file, credentials="nonsense").project_config()
    with pytest.raises(UsageError, match=r"no credentials: .* or --credentials, or name a --profile"):
        settled(config_file, "[profiles.default]", project="p", endpoint="http://x").project_config()


def test_a_profile_is_named_by_flag_environment_or_file(config_file: Path) -> None:
    """A profile is named by flag, environment or file, in this order; ``default`` is the last resort."""
    assert settled(config_file, flags={"profile": "v4"}, profile="prod").producer_options() == {
        "region": "cn-hangzhou",
        "sign_version": "v4",
    }
    assert settled(config_file, profile="v4").endpoint is None
    assert settled(config_file).endpoint == "https://of-the-profile"
    assert settled(config_file, '[profiles.default]\nproject = "d"').project == "d"
    assert settled(config_file, "") == Settings()


def test_a_profile_of_the_file_goes_over_the_one_that_is_there_without_it(config_file: Path) -> None:
    """A profile ``local`` in the file replaces the built-in one."""
    assert settled(config_file, '[profiles.local]\nproject = "mine"', profile="local") == Settings(project="mine")


def test_the_profile_local_has_a_key_of_the_users_own(config_file: Path) -> None:
    """The built-in profile ``local`` has the address of `serve`, and a generated key that only the user can read."""
    found = settled(config_file, "", profile="local")
    assert found.endpoint == f"http://127.0.0.1:{DEFAULT_PORT}"
    assert found.access_key_id == f"local-{user_name()}"
    assert len(found.access_key_secret or "") == 48
    assert settled(config_file, "", profile="local") == found
    path = config_file.with_name("local.toml")
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(one.name for one in path.parent.iterdir()) == ["config.toml", "local.toml"]


@pytest.mark.parametrize(("text", "told"), [("= hush", "is not valid TOML"), ('x = "hush"', "has no access_key_id")])
def test_a_key_file_that_cannot_be_used_is_reported_with_what_to_do_and_without_its_content(
    config_file: Path, text: str, told: str
) -> None:
    """A key file that cannot be used is reported with what to do, and without its content."""
    config_file.with_name("local.toml").write_text(text)
    with pytest.raises(LocalKeyError, match=f"{told}.*delete it") as error:
        settled(config_file, "", profile="local")
    assert "hush" not in str(error.value)
    (config_file.parent / "file").write_text("")
    with pytest.raises(
        LocalKeyError, match=r"cannot store the access key of this user in .*: (Not a directory|File exists)"
    ):
        local_key(config_file.parent / "file" / "x")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = = 'hush'", "is not valid TOML"),
        ("[prod]", "a profile is a table [profiles.prod]"),
        ('profil = "prod"', "unknown name profil: did you mean profile?"),
        ('profile = "prod"', "there is no such profile; there is only local"),
        ('profile = "x"\n[profiles.prod]', 'profile = "x": there is no such profile; there are local, prod'),
        ("profiles = 1", "a profile is a table such as [profiles.prod]"),
        ('profile = "prd"\n[profiles.prod]', "no such profile: did you mean prod?"),
        ('profile = "a"\n[profiles.a]\nendpont = "hush"', "unknown setting endpont: did you mean endpoint?"),
        ('profile = "a"\n[profiles.a]\nproject = 7', "project must be text in quotes"),
        (f"x = {'9' * 5000}", "is not valid TOML: Exceeds the limit"),
        (f"x = {'[' * 100_000}", "is not valid TOML: "),
    ],
)
def test_an_invalid_file_is_reported_with_the_fault_and_the_closest_name_and_without_secrets(
    config_file: Path, text: str, told: str
) -> None:
    """An invalid file is reported with the fault and the closest name, and without secrets."""
    with pytest.raises(UsageError) as error:
        settled(config_file, text)
    assert told in str(error.value)
    assert str(config_file) in str(error.value)
    assert "hush" not in str(error.value)


def test_a_missing_file_counts_as_empty_an_unreadable_one_is_an_error(tmp_path: Path) -> None:
    """A missing file counts as empty; an unreadable one is an error."""
    (tmp_path / "loghub-producer").write_text("")
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert resolve(argparse.Namespace(), environ) == Settings()
    (tmp_path / "loghub-producer").unlink()
    path = tmp_path / "loghub-producer" / "config.toml"
    path.mkdir(parents=True)
    with pytest.raises(UsageError, match=f"{path} cannot be read: Is a directory"):
        resolve(argparse.Namespace(), environ)


def test_a_target_has_all_settings_a_commands_own_project_overrides_them(config_file: Path) -> None:
    """A target has all settings; a command's own project overrides them."""
    found = settled(config_file)
    config = found.project_config("another")
    key = config.credentials.get_credentials()
    assert (config.project, config.endpoint) == ("another", "https://of-the-profile")
    assert (key.access_key_id, key.access_key_secret, key.security_token) == (
        "profile-id",
        "profile-secret",
        "profile-token",
    )
    assert found.project_config().project == "profile-project"


def test_a_file_with_secrets_that_others_can_read_is_warned_of(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file with secrets that others can read causes a warning with what to do."""
    settled(config_file)
    settled(config_file, '[profiles.a]\nproject = "p"', mode=0o644)
    assert capsys.readouterr().err == ""
    settled(config_file, mode=0o640)
    assert (
        capsys.readouterr().err == f"warning: others can read the secrets in {config_file}: chmod 600 {config_file}\n"
    )


def test_settings_show_no_secret(config_file: Path) -> None:
    """Settings show no secret, neither as text nor in an error."""
    found = settled(config_file)
    assert "profile-secret" not in f"{found!r} {found} {found.project_config()!r}"
    assert "secret" not in repr(found)


def test_a_missing_setting_tells_the_ways_to_say_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A missing setting is reported with its variable, flag and profile, and exits with 2."""
    (tmp_path / "a.log").write_text("line\n")
    assert main(["ship", str(tmp_path / "a.log"), "--endpoint=http://127.0.0.1:1", "--project=p"]) == 2
    said = capsys.readouterr().err
    assert "LOGHUB_ACCESS_KEY_ID" in said
    assert "--profile" in said
    with pytest.raises(UsageError, match="LOGHUB_LOGSTORE or give --logstore"):
        Settings().needed("logstore")


def test_all_missing_settings_are_reported_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """All missing settings are reported at once."""
    assert main(["send", "--profile", "local", "x"]) == 2
    said = capsys.readouterr().err
    assert "no project: " in said
    assert "no logstore: " in said


def test_a_refused_connection_on_this_machine_is_reported_with_the_command_that_starts_a_loghub(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A refused connection on this machine is reported with the command that starts a LogHub."""
    with socket.socket() as taken:  # the port is closed
        taken.bind(("127.0.0.1", 0))
        endpoint = f"--endpoint=http://127.0.0.1:{taken.getsockname()[1]}"
        assert main(["projects", endpoint, "--access-key-id=i", "--access-key-secret=s"]) == 1
    assert "is a LogHub running there? `producer serve` starts one" in capsys.readouterr().err


def test_words_in_a_locale_without_letters_are_utf_8() -> None:
    """Arguments are decoded as UTF-8 in every locale; others stay as they are."""
    as_ascii = ["w\udcc3\udcb6rld", "\udcff", "plain"]
    assert arguments_of(as_ascii) == ["wörld", "\udcff", "plain"]


def test_the_file_is_found_as_the_specification_says() -> None:
    """The file is below an absolute ``$XDG_CONFIG_HOME``, else ``~/.config``; there is none without a home."""
    assert config_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/loghub-producer/config.toml")
    assert config_path({"XDG_CONFIG_HOME": "x", "HOME": "/h"}) == Path("/h/.config/loghub-producer/config.toml")
    assert config_path({}) is None
    assert {"endpoint", "project", "logstore"} < set(NAMES)

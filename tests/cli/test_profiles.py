"""Flags, the environment and profiles: which of them says where to, and who signs."""

import argparse
import socket
from pathlib import Path

import pytest

from producer.cli import arguments_of, main
from producer.cli.local_key import LocalKeyError, local_key
from producer.cli.profiles import NAMES, Settings, UsageError, config_path, resolve
from producer.cli.serve import DEFAULT_PORT
from producer.runtime.system_user import user_name

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
    """Each setting on its own; a setting that none of them names is not there."""
    found = settled(config_file, flags={"project": "flag"}, project="environment", endpoint="http://environment")
    assert (found.project, found.endpoint, found.access_key_id) == ("flag", "http://environment", "profile-id")
    assert found.security_token == "profile-token"
    assert found.logstore is None


def test_secrets_of_a_profile_go_with_its_key_id_alone(config_file: Path) -> None:
    """A token of one key never signs with another; a secret above the file completes the id in it."""
    for found in (
        settled(config_file, access_key_id="mine", access_key_secret="my-secret"),
        settled(config_file, flags={"access_key_id": "mine", "access_key_secret": "my-secret"}),
    ):
        assert (found.access_key_id, found.access_key_secret, found.security_token) == ("mine", "my-secret", None)
    assert settled(config_file, access_key_secret="other").access_key_id == "profile-id"


def test_a_profile_is_named_by_flag_environment_or_file(config_file: Path) -> None:
    """In this order; ``default`` is taken where nobody names one; a region asks for signature version 4."""
    assert settled(config_file, flags={"profile": "v4"}, profile="prod").producer_options() == {
        "region": "cn-hangzhou",
        "sign_version": "v4",
    }
    assert settled(config_file, profile="v4").endpoint is None
    assert settled(config_file).endpoint == "https://of-the-profile"
    assert settled(config_file, '[profiles.default]\nproject = "d"').project == "d"
    assert settled(config_file, "") == Settings()


def test_a_profile_of_the_file_goes_over_the_one_that_is_there_without_it(config_file: Path) -> None:
    """Who names one ``local`` means his own."""
    assert settled(config_file, '[profiles.local]\nproject = "mine"', profile="local") == Settings(project="mine")


def test_the_profile_local_has_a_key_of_the_users_own(config_file: Path) -> None:
    """Without a table: where serve listens, and a key that is made at first use, and that no other user can read."""
    found = settled(config_file, "", profile="local")
    assert found.endpoint == f"http://127.0.0.1:{DEFAULT_PORT}"
    assert found.access_key_id == f"local-{user_name()}"
    assert len(found.access_key_secret or "") == 48
    assert settled(config_file, "", profile="local") == found
    path = config_file.with_name("local.toml")
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(one.name for one in path.parent.iterdir()) == ["config.toml", "local.toml"]


@pytest.mark.parametrize(("text", "told"), [("= hush", "is no TOML"), ('x = "hush"', "has no access_key_id")])
def test_a_key_file_that_cannot_be_used_is_told(config_file: Path, text: str, told: str) -> None:
    """What to do, and never what is in it; so is a folder that cannot be made."""
    config_file.with_name("local.toml").write_text(text)
    with pytest.raises(LocalKeyError, match=f"{told}.*delete it") as error:
        settled(config_file, "", profile="local")
    assert "hush" not in str(error.value)
    (config_file.parent / "file").write_text("")
    with pytest.raises(LocalKeyError, match=r"cannot be kept in .*: (Not a directory|File exists)"):
        local_key(config_file.parent / "file" / "x")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = = 'hush'", "is no TOML"),
        ("[prod]", "a profile is a table [profiles.prod]"),
        ('profil = "prod"', "profil means nothing here: did you mean profile?"),
        ('profile = "prod"', "there is no such profile; there is only local"),
        ('profile = "x"\n[profiles.prod]', 'profile = "x": there is no such profile; there are local, prod'),
        ("profiles = 1", "a profile is a table such as [profiles.prod]"),
        ('profile = "prd"\n[profiles.prod]', "no such profile: did you mean prod?"),
        ('profile = "a"\n[profiles.a]\nendpont = "hush"', "endpont is no setting: did you mean endpoint?"),
        ('profile = "a"\n[profiles.a]\nproject = 7', "project must be text in quotes"),
        (f"x = {'9' * 5000}", "is no TOML: Exceeds the limit"),
        (f"x = {'[' * 100_000}", "is no TOML: "),
    ],
)
def test_a_wrong_file_is_told_in_words(config_file: Path, text: str, told: str) -> None:
    """The file, what is wrong, and the nearest name; never what may be a secret."""
    with pytest.raises(UsageError) as error:
        settled(config_file, text)
    assert told in str(error.value)
    assert str(config_file) in str(error.value)
    assert "hush" not in str(error.value)


def test_a_file_that_is_not_there_is_none_and_one_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """Also where a file stands in the place of its folder; what cannot be read may hold what matters."""
    (tmp_path / "loghub-producer").write_text("")
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert resolve(argparse.Namespace(), environ) == Settings()
    (tmp_path / "loghub-producer").unlink()
    path = tmp_path / "loghub-producer" / "config.toml"
    path.mkdir(parents=True)
    with pytest.raises(UsageError, match=f"{path} cannot be read: Is a directory"):
        resolve(argparse.Namespace(), environ)


def test_a_target_is_made_of_all_that_was_said(config_file: Path) -> None:
    """The token signs with its key; a command that names a project means that one."""
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
    """With what to do; a file of the user's alone, or without secrets, is not."""
    settled(config_file)
    settled(config_file, '[profiles.a]\nproject = "p"', mode=0o644)
    assert capsys.readouterr().err == ""
    settled(config_file, mode=0o640)
    assert (
        capsys.readouterr().err == f"warning: others can read the secrets in {config_file}: chmod 600 {config_file}\n"
    )


def test_settings_show_no_secret(config_file: Path) -> None:
    """Neither as text nor in an error."""
    found = settled(config_file)
    assert "profile-secret" not in f"{found!r} {found} {found.project_config()!r}"
    assert "secret" not in repr(found)


def test_a_missing_setting_tells_the_ways_to_say_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The variable, the flag and the profile; exit code 2."""
    (tmp_path / "a.log").write_text("line\n")
    assert main(["ship", str(tmp_path / "a.log"), "--endpoint=http://127.0.0.1:1", "--project=p"]) == 2
    said = capsys.readouterr().err
    assert "LOGHUB_ACCESS_KEY_ID" in said
    assert "--profile" in said
    with pytest.raises(UsageError, match="LOGHUB_LOGSTORE or give --logstore"):
        Settings().needed("logstore")


def test_all_that_is_missing_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Who names the profile ``local`` hears of the project and of the logstore."""
    assert main(["send", "--profile", "local", "x"]) == 2
    said = capsys.readouterr().err
    assert "no project: " in said
    assert "no logstore: " in said


def test_nobody_who_listens_on_this_machine_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """What would start a LogHub there stands in the message."""
    with socket.socket() as taken:  # nobody listens there
        taken.bind(("127.0.0.1", 0))
        endpoint = f"--endpoint=http://127.0.0.1:{taken.getsockname()[1]}"
        assert main(["projects", endpoint, "--access-key-id=i", "--access-key-secret=s"]) == 1
    assert "is a LogHub running there? `producer serve` starts one" in capsys.readouterr().err


def test_words_in_a_locale_without_letters_are_utf_8() -> None:
    """What the interpreter could not read of the process's arguments is read again; what is no UTF-8 stays."""
    as_ascii = ["w\udcc3\udcb6rld", "\udcff", "plain"]
    assert arguments_of(as_ascii) == ["wörld", "\udcff", "plain"]


def test_the_file_is_found_as_the_specification_says() -> None:
    """``$XDG_CONFIG_HOME`` if it is absolute, else ``~/.config``; none without a home."""
    assert config_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/loghub-producer/config.toml")
    assert config_path({"XDG_CONFIG_HOME": "x", "HOME": "/h"}) == Path("/h/.config/loghub-producer/config.toml")
    assert config_path({}) is None
    assert {"endpoint", "project", "logstore"} < set(NAMES)

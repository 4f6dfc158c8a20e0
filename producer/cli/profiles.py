"""Where a command goes to, and who signs: from its flags, else the environment, else a profile of the file.

One resolver for all commands. The file is ``loghub-producer/config.toml`` below ``$XDG_CONFIG_HOME`` (``~/.config``)::

    profile = "prod"                # used where --profile and LOGHUB_PROFILE name none; optional

    [profiles.prod]
    endpoint = "https://cn-hangzhou.log.aliyuncs.com"
    project = "my-project"
    access_key_id = "..."
    access_key_secret = "..."

The profile ``local`` is there without a table: what ``producer serve`` listens on by default, with the key that is its
default (:mod:`.local_key`).
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..model.config import ProducerConfig, ProjectConfig
from ..model.errors import ProducerError
from .local_key import local_key
from .output import tell
from .parsing import did_you_mean

_LOCAL = {"endpoint": "http://127.0.0.1:9170"}
#: Of no use without the key id beside them.
_OF_THE_KEY = ("access_key_secret", "security_token")


class UsageError(ProducerError):
    """The command cannot be done as asked; says what to give."""


@dataclass(frozen=True, slots=True, repr=False)  # secrets are among them
class Settings:
    """What was said about the target; None for what was not.

    :ivar endpoint: such as ``https://cn-hangzhou.log.aliyuncs.com``.
    :ivar project: the project.
    :ivar logstore: the logstore.
    :ivar access_key_id: who signs.
    :ivar access_key_secret: likewise.
    :ivar security_token: of temporary credentials.
    :ivar region: of signature version 4.
    :ivar sign_version: ``v1`` or ``v4``.
    """

    endpoint: str | None = None
    project: str | None = None
    logstore: str | None = None
    access_key_id: str | None = None
    access_key_secret: str | None = None
    security_token: str | None = None
    region: str | None = None
    sign_version: str | None = None

    def needed(self, name: str) -> str:
        """One that the command cannot do without.

        :raises UsageError: it was not said; tells the ways to say it.
        """
        value: str | None = getattr(self, name)
        if value:
            return value
        raise UsageError(_how_to_say(name))

    def check_there(self, *names: str) -> None:
        """Several that the command cannot do without, told together.

        :raises UsageError: one was not said.
        """
        missing = [name for name in names if not getattr(self, name)]
        if missing:
            raise UsageError("; ".join(map(_how_to_say, missing)))

    def project_config(self, project: str | None = None) -> ProjectConfig:
        """The project, its endpoint, and who signs.

        :param project: another one than that of the settings.
        :raises UsageError: something is missing.
        :raises ConfigError: something is wrong.
        """
        return ProjectConfig(
            project or self.needed("project"),
            endpoint=self.needed("endpoint"),
            access_key_id=self.needed("access_key_id"),
            access_key_secret=self.needed("access_key_secret"),
            security_token=self.security_token,
        )

    def producer_options(self) -> dict[str, Any]:
        """The options of a producer that belong to the target."""
        options = {"region": self.region, "sign_version": self.sign_version or ("v4" if self.region else None)}
        return {name: value for name, value in options.items() if value}

    def producer_config(self, **more: Any) -> ProducerConfig:
        """A producer's configuration.

        :param more: further options.
        :raises ConfigError: something is wrong.
        """
        return ProducerConfig(**self.producer_options(), **more)


NAMES = tuple(field.name for field in fields(Settings))


def resolve(args: argparse.Namespace, environ: Mapping[str, str]) -> Settings:
    """Flags over the environment over the profile; a secret or token counts only beside the key id of its place, or
    above it.

    :param args: with ``profile`` and such of :data:`NAMES` as the command has.
    :raises UsageError: there is no such profile, or the file cannot be used.
    :raises LocalKeyError: likewise, of the profile ``local``.
    """
    flags = {name: getattr(args, name, None) for name in NAMES}
    for name in NAMES:
        if flags[name] == "":  # such as that of a shell's variable that is not set
            raise UsageError(f"--{name.replace('_', '-')} is empty: leave it out, or give a value")
    variables = {name: environ.get(_variable(name)) or None for name in NAMES}
    profile = _profile(getattr(args, "profile", None) or environ.get("LOGHUB_PROFILE"), config_path(environ))
    if flags["access_key_id"] or variables["access_key_id"]:
        profile = {name: value for name, value in profile.items() if name not in _OF_THE_KEY}
    return Settings(**{name: flags[name] or variables[name] or profile.get(name) for name in NAMES})


def _variable(name: str) -> str:
    return f"LOGHUB_{name.upper()}"


def config_path(environ: Mapping[str, str]) -> Path | None:
    """The file with the profiles, whether it exists or not; None where there is no home."""
    # The specification has relative paths ignored.
    base = environ.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):
        home = environ.get("HOME")
        if not home:
            return None
        base = f"{home}/.config"
    return Path(base, "loghub-producer", "config.toml")


def _profile(name: str | None, path: Path | None) -> dict[str, str]:
    """What the profile says; nothing where none is named and there is no default.

    :raises UsageError: see :func:`resolve`.
    """
    content = {} if path is None else _read(path)
    profiles = {"local": _LOCAL, **content.get("profiles", {})}
    own = content.get("profile")
    asked, name = name, name or own or ("default" if "default" in profiles else None)
    if name is None:
        return {}
    if name not in profiles:
        hint = (
            did_you_mean(name, list(profiles))
            or f"; there {'are' if len(profiles) > 1 else 'is only'} {', '.join(profiles)}"
        )
        said = f"--profile {name}: {path}" if asked else f'{path}: profile = "{own}"'
        raise UsageError(f"{said}: there is no such profile{hint}")
    profile = _checked(profiles[name], f"{path}: profile {name}")
    return profile | local_key(path and path.parent) if profiles[name] is _LOCAL else profile


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
            others = os.fstat(file.fileno()).st_mode & 0o077
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # of the library's own, of a number's length or a text's encoding
        # Not the line itself, which may hold a secret.
        raise UsageError(f"{path} is no TOML: {str(error).partition(':')[0]}") from error
    _check_shape(content, path)
    if others and any(set(_OF_THE_KEY) & each.keys() for each in content.get("profiles", {}).values()):
        tell(f"warning: others can read the secrets in {path}: chmod 600 {path}")
    return content


def _check_shape(content: Mapping[str, Any], path: Path) -> None:
    for name in content:
        if name not in ("profile", "profiles"):
            hint = did_you_mean(name, ("profile", "profiles")) or f": a profile is a table [profiles.{name}]"
            raise UsageError(f"{path}: {name} means nothing here{hint}")
    profiles = content.get("profiles", {})
    tables = isinstance(profiles, dict) and all(isinstance(each, dict) for each in profiles.values())
    if not tables or not isinstance(content.get("profile", ""), str):
        raise UsageError(f'{path}: a profile is a table such as [profiles.prod], and profile = "prod" names one')


def _checked(profile: Mapping[str, Any], where: str) -> dict[str, str]:
    for name, value in profile.items():
        if name not in NAMES:
            hint = did_you_mean(name, NAMES) or f"; settings are {', '.join(NAMES)}"
            raise UsageError(f"{where}: {name} is no setting{hint}")
        if not isinstance(value, str):
            raise UsageError(f"{where}: {name} must be text in quotes")
    return dict(profile)


def _how_to_say(name: str) -> str:
    what = "no credentials" if name.startswith("access_key") else f"no {name}"
    flag = f"--{name.replace('_', '-')}"
    return f"{what}: set {_variable(name)} or give {flag}, or name a --profile that has {name}"

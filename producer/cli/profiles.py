"""Resolve the target and credentials of a command from its flags, the environment and a profile, in this order.

Profiles are in the file ``loghub-producer/config.toml`` below ``$XDG_CONFIG_HOME`` (``~/.config``)::

    profile = "prod"                # the default of --profile and LOGHUB_PROFILE; optional

    [profiles.prod]
    endpoint = "https://cn-hangzhou.log.aliyuncs.com"
    project = "my-project"
    access_key_id = "..."
    access_key_secret = "..."

    [profiles.instance]
    credentials = "ecs-ram-role"    # the name of a source, in place of a key

The profile ``local`` needs no table: it is the default address of ``producer serve`` with its default key
(:mod:`.local_key`).
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..model.config import ProducerConfig, ProjectConfig
from ..model.errors import ProducerError
from .local_key import local_key
from .output import tell
from .parsing import did_you_mean

_LOCAL = {"endpoint": "http://127.0.0.1:9170"}
#: Settings that count only beside their key id.
_OF_THE_KEY = ("access_key_secret", "security_token")
#: Two ways to give credentials: the one that is named first replaces the other.
_CREDENTIALS, _KEY = ("credentials",), ("access_key_id", *_OF_THE_KEY)


class UsageError(ProducerError):
    """Raised when a command cannot run as asked; the message says what to give."""


@dataclass(frozen=True, slots=True, repr=False)  # it holds secrets
class Settings:
    """The target and the credentials; None for a missing value.

    :ivar endpoint: such as ``https://cn-hangzhou.log.aliyuncs.com``.
    :ivar project: the project.
    :ivar logstore: the logstore.
    :ivar access_key_id: the access key id.
    :ivar access_key_secret: its secret.
    :ivar security_token: the token of temporary credentials.
    :ivar credentials: the name of a source of credentials, in place of a key.
    :ivar region: the region for signature version 4.
    :ivar sign_version: ``v1`` or ``v4``.
    """

    endpoint: str | None = None
    project: str | None = None
    logstore: str | None = None
    access_key_id: str | None = None
    access_key_secret: str | None = None
    security_token: str | None = None
    credentials: str | None = None
    region: str | None = None
    sign_version: str | None = None

    def needed(self, name: str) -> str:
        """Return a required value.

        :raises UsageError: it is missing; the message says how to give it.
        """
        value: str | None = getattr(self, name)
        if value:
            return value
        raise UsageError(_how_to_give(name))

    def check_given(self, *names: str) -> None:
        """Check that required values are given.

        :raises UsageError: values are missing; the message lists them all.
        """
        missing = [name for name in names if not getattr(self, name)]
        if missing:
            raise UsageError("; ".join(map(_how_to_give, missing)))

    def check_credentials(self) -> None:
        """Check that a key, or the name of a source of credentials, is given.

        :raises UsageError: neither is; the message says how to give it.
        """
        if not self.credentials:
            self.needed("access_key_id")
            self.needed("access_key_secret")

    def project_config(self, project: str | None = None) -> ProjectConfig:
        """Return the configuration of a project.

        :param project: the project; None for that of the settings.
        :raises UsageError: a value is missing.
        :raises ConfigError: a value is invalid.
        """
        name, endpoint = project or self.needed("project"), self.needed("endpoint")
        self.check_credentials()
        return ProjectConfig(
            name,
            endpoint=endpoint,
            access_key_id=self.access_key_id,
            access_key_secret=self.access_key_secret,
            security_token=self.security_token,
            credentials=self.credentials,
        )

    def producer_options(self) -> dict[str, Any]:
        """Return the producer's options that depend on the target."""
        options = {"region": self.region, "sign_version": self.sign_version or ("v4" if self.region else None)}
        return {name: value for name, value in options.items() if value}

    def producer_config(self, **more: Any) -> ProducerConfig:
        """Return a producer's configuration.

        :param more: further options.
        :raises ConfigError: an option is invalid.
        """
        return ProducerConfig(**self.producer_options(), **more)


NAMES = tuple(field.name for field in fields(Settings))


def resolve(args: argparse.Namespace, environ: Mapping[str, str]) -> Settings:
    """Resolve the settings: flags override the environment, which overrides the profile.

    A profile's secret and token are ignored if the key id comes from a flag or the environment. A key and the name of a
    source of credentials replace each other. Without either, the variables ``ALIBABA_CLOUD_…`` are the source.

    :param args: the parsed arguments, with ``profile`` and those of :data:`NAMES` that the command has.
    :raises UsageError: there is no such profile, or the file cannot be used.
    :raises LocalKeyError: the key of the profile ``local`` cannot be used.
    """
    flags = {name: getattr(args, name, None) for name in NAMES}
    for name in NAMES:
        if flags[name] == "":  # for example an unset variable of a shell
            raise UsageError(f"--{name.replace('_', '-')} is empty: leave it out, or give a value")
    variables = {name: environ.get(_variable(name)) or None for name in NAMES}
    profile = _profile(getattr(args, "profile", None) or environ.get("LOGHUB_PROFILE"), config_path(environ))
    if flags["access_key_id"] or variables["access_key_id"]:
        profile = {name: value for name, value in profile.items() if name not in _OF_THE_KEY}
    _keep_one_way(flags, variables, profile)
    found = Settings(**{name: flags[name] or variables[name] or profile.get(name) for name in NAMES})
    if found.access_key_id or found.credentials or not environ.get("ALIBABA_CLOUD_ACCESS_KEY_ID"):
        return found
    return replace(found, credentials="environment")


def _keep_one_way(*levels: dict[str, Any]) -> None:
    """Drop the key below a level that names a source of credentials, and the other way round."""
    for number, level in enumerate(levels):
        if level.get("credentials") or level.get("access_key_id"):
            others = _KEY if level.get("credentials") else _CREDENTIALS
            for below in levels[number + 1 :]:
                below.update(dict.fromkeys(others))
            return


def _variable(name: str) -> str:
    return f"LOGHUB_{name.upper()}"


def config_path(environ: Mapping[str, str]) -> Path | None:
    """Return the path of the profiles' file, which may not exist; None if there is no home directory."""
    # The XDG specification ignores relative paths.
    base = environ.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):
        home = environ.get("HOME")
        if not home:
            return None
        base = f"{home}/.config"
    return Path(base, "loghub-producer", "config.toml")


def _profile(name: str | None, path: Path | None) -> dict[str, str]:
    """Return the profile's settings; none if no profile is named and there is no default.

    :raises UsageError: there is no such profile, or the file cannot be used.
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
        place = f"--profile {name}: {path}" if asked else f'{path}: profile = "{own}"'
        raise UsageError(f"{place}: there is no such profile{hint}")
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
    except (ValueError, RecursionError) as error:  # invalid TOML, a number that is too long, or invalid UTF-8
        # The rest of the message may hold a secret.
        raise UsageError(f"{path} is not valid TOML: {str(error).partition(':')[0]}") from error
    _check_shape(content, path)
    if others and any(set(_OF_THE_KEY) & each.keys() for each in content.get("profiles", {}).values()):
        tell(f"warning: others can read the secrets in {path}: chmod 600 {path}")
    return content


def _check_shape(content: Mapping[str, Any], path: Path) -> None:
    for name in content:
        if name not in ("profile", "profiles"):
            hint = did_you_mean(name, ("profile", "profiles")) or f": a profile is a table [profiles.{name}]"
            raise UsageError(f"{path}: unknown name {name}{hint}")
    profiles = content.get("profiles", {})
    tables = isinstance(profiles, dict) and all(isinstance(each, dict) for each in profiles.values())
    if not tables or not isinstance(content.get("profile", ""), str):
        raise UsageError(f'{path}: a profile is a table such as [profiles.prod], and profile = "prod" names one')


def _checked(profile: Mapping[str, Any], where: str) -> dict[str, str]:
    for name, value in profile.items():
        if name not in NAMES:
            hint = did_you_mean(name, NAMES) or f"; settings are {', '.join(NAMES)}"
            raise UsageError(f"{where}: unknown setting {name}{hint}")
        if not isinstance(value, str):
            raise UsageError(f"{where}: {name} must be text in quotes")
    return dict(profile)


def _how_to_give(name: str) -> str:
    missing = "no credentials" if name.startswith("access_key") else f"no {name}"
    flag = f"--{name.replace('_', '-')}"
    source = ", or --credentials" if name.startswith("access_key") else ""
    return f"{missing}: set {_variable(name)} or give {flag}{source}, or name a --profile that has {name}"

"""Profiles in the files of Aliyun's tools: the CLI's ``~/.aliyun/config.json``, and ``~/.alibabacloud/credentials``.

``config.json`` has a list of ``profiles``, each with a ``name`` and a ``mode``, and ``current`` names the one in use.
The other file is an INI file with a section for each profile, whose ``type`` is the mode under another name. In both
the environment variable ``ALIBABA_CLOUD_PROFILE`` chooses the profile. The files are read at each use.
"""

from __future__ import annotations

import configparser
import json
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....model.credentials import Credentials, StaticCredentials
from ....model.errors import ProducerError
from ....model.interfaces import CredentialsProvider
from ....runtime.clock import Deadline
from .asking import Asking, ask, failed, reason_of
from .metadata import EcsRamRoleCredentials, is_true
from .sts import OidcCredentials, RamRoleArnCredentials, Role, read_bounded

#: The limit of a file, bytes.
_MOST_BYTES = 1 << 20

Profile = Mapping[str, Any]

#: What the INI file calls the modes and their values, and what ``config.json`` does.
_MODES = {
    "access_key": "AK",
    "sts": "StsToken",
    "ram_role_arn": "RamRoleArn",
    "ecs_ram_role": "EcsRamRole",
    "oidc_role_arn": "OIDC",
}
_KEYS = {
    "security_token": "sts_token",
    "role_arn": "ram_role_arn",
    "role_session_name": "ram_session_name",
    "role_name": "ram_role_name",
    "oidc_token_file_path": "oidc_token_file",
    "sts_region_id": "sts_region",
}


@dataclass(frozen=True, slots=True)
class _FileProfile(Asking):
    """A profile in a file.

    :ivar name: the profile; None for the one that the environment or the file chooses.
    """

    name: str | None = None

    def ask(self, end: Deadline) -> Credentials:
        path = self._path()
        profiles, current = self._read(path)
        name = self.name or os.environ.get("ALIBABA_CLOUD_PROFILE") or current
        try:
            return ask(_provider(profiles, name), end)
        except ProducerError as error:
            raise failed(f"{path}, profile {name}: {reason_of(error)}") from None

    @abstractmethod
    def _path(self) -> Path: ...

    @abstractmethod
    def _read(self, path: Path) -> tuple[Mapping[str, Profile], str]:
        """Return the profiles by name, and the name of the one in use."""


class CliProfile(_FileProfile):
    """A profile of Aliyun's command line."""

    __slots__ = ()

    def _path(self) -> Path:
        if is_true("ALIBABA_CLOUD_CLI_PROFILE_DISABLED"):
            raise failed("ALIBABA_CLOUD_CLI_PROFILE_DISABLED is true")
        return _home() / ".aliyun" / "config.json"

    def _read(self, path: Path) -> tuple[Mapping[str, Profile], str]:
        try:
            found = json.loads(read_bounded(path, _MOST_BYTES))
            profiles = {str(each["name"]): dict(each) for each in found["profiles"]}
            return profiles, str(found.get("current") or "default")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):  # their words may hold a secret
            raise failed(f"{path} is not a configuration of Aliyun's command line") from None


class IniProfile(_FileProfile):
    """A profile of the shared credentials file; ``ALIBABA_CLOUD_CREDENTIALS_FILE`` names another file."""

    __slots__ = ()

    def _path(self) -> Path:
        if named := os.environ.get("ALIBABA_CLOUD_CREDENTIALS_FILE"):
            return Path(named)
        path = _home() / ".alibabacloud" / "credentials"
        other = path.with_suffix(".ini")  # of the packages for Java and Python
        return other if other.exists() and not path.exists() else path

    def _read(self, path: Path) -> tuple[Mapping[str, Profile], str]:
        parser = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=("#",))
        try:
            parser.read_string(read_bounded(path, _MOST_BYTES))
        except configparser.Error:  # its words hold lines of the file
            raise failed(f"{path} is not a valid INI file") from None
        return {name: _of_section(parser[name]) for name in parser.sections()}, "default"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise failed("there is no home directory") from None


def _of_section(section: Mapping[str, str]) -> Profile:
    mode = section.get("type", "")
    return {_KEYS.get(name, name): value for name, value in section.items()} | {"mode": _MODES.get(mode, mode)}


def _provider(profiles: Mapping[str, Profile], name: str, seen: tuple[str, ...] = ()) -> CredentialsProvider:
    """Return the provider that a profile describes.

    :param seen: the profiles that led here.
    """
    if name not in profiles:
        raise failed("there is no such profile" if not seen else f"there is no profile {name}, its source_profile")
    if name in seen:
        raise failed("its source_profile leads back to it")
    profile = profiles[name]
    mode = _text(profile, "mode")
    if mode == "ChainableRamRoleArn":
        source = _provider(profiles, _text(profile, "source_profile"), (*seen, name))
        return RamRoleArnCredentials(_role(profile), source)
    if mode not in _PROVIDERS:
        known = ", ".join((*_PROVIDERS, "ChainableRamRoleArn"))
        raise failed(f"its mode is {mode[:40]!r}, and must be one of {known}")
    return _PROVIDERS[mode](profile)


def _static(profile: Profile) -> StaticCredentials:
    key, secret = _text(profile, "access_key_id"), _text(profile, "access_key_secret")
    return StaticCredentials(credentials=Credentials(access_key_id=key, access_key_secret=secret))


def _session(profile: Profile) -> StaticCredentials:
    key, secret = _text(profile, "access_key_id"), _text(profile, "access_key_secret")
    token = _text(profile, "sts_token")
    return StaticCredentials(credentials=Credentials(access_key_id=key, access_key_secret=secret, security_token=token))


def _assumed(profile: Profile) -> RamRoleArnCredentials:
    return RamRoleArnCredentials(_role(profile), _static(profile))


def _instance(profile: Profile) -> EcsRamRoleCredentials:
    return EcsRamRoleCredentials(_text(profile, "ram_role_name") or None)


def _pod(profile: Profile) -> OidcCredentials:
    return OidcCredentials(_role(profile), _text(profile, "oidc_provider_arn"), _text(profile, "oidc_token_file"))


_PROVIDERS: Mapping[str, Callable[[Profile], CredentialsProvider]] = {
    "AK": _static,
    "StsToken": _session,
    "RamRoleArn": _assumed,
    "EcsRamRole": _instance,
    "OIDC": _pod,
}


def _role(profile: Profile) -> Role:
    seconds = _text(profile, "expired_seconds") or "3600"
    if not seconds.isdecimal() or len(seconds) > 6:
        raise failed("its expired_seconds is not a number of seconds")
    return Role(
        arn=_text(profile, "ram_role_arn"),
        session_name=_text(profile, "ram_session_name") or _text(profile, "role_session_name"),
        seconds=int(seconds),
        policy=_text(profile, "policy"),
        external_id=_text(profile, "external_id"),
        region=_text(profile, "sts_region"),
        in_vpc=_text(profile, "enable_vpc").lower() == "true",
    )


def _text(profile: Profile, name: str) -> str:
    value = profile.get(name)
    return "" if value is None else str(value)

"""Credentials, and the providers of the package. A provider is any object with ``get_credentials()``."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import cast

from .errors import ConfigError

_HEADER_TEXT = re.compile(r"[!-~](?:[ -~]*[!-~])?")


def is_header_text(value: object) -> bool:
    """True if ``value`` is text that an HTTP header can contain unchanged."""
    return isinstance(value, str) and _HEADER_TEXT.fullmatch(value) is not None


#: Names of credentials in a configuration; True for those that may have an argument, after a colon.
_NAMES = {
    "default": False,
    "environment": False,
    "profile": True,
    "ecs-ram-role": True,
    "oidc": False,
    "ram-role-arn": True,
}
CREDENTIALS_NAMES = "default, environment, profile[:NAME], ecs-ram-role[:ROLE], oidc or ram-role-arn[:ARN]"


def split_name(given: str) -> tuple[str, str]:
    """Return the name of a source of credentials, and its argument, which may be empty.

    :raises ConfigError: it is not such a name; the message does not repeat it, since it may be a secret.
    """
    name, colon, argument = given.partition(":")
    if name not in _NAMES or (colon and not (_NAMES[name] and is_header_text(argument))):
        raise ConfigError("credentials", f"must be {CREDENTIALS_NAMES}, the name of a source", "credentials")
    return name, argument


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """An access key that signs requests.

    :ivar access_key_id: the access key's id.
    :ivar access_key_secret: its secret; masked in the repr.
    :ivar security_token: the STS token of temporary credentials, or None; masked in the repr.
    :ivar expires_at: expiry, seconds since the Unix epoch; None for never.
    """

    access_key_id: str
    access_key_secret: str
    security_token: str | None = None
    expires_at: float | None = None

    def __post_init__(self) -> None:
        rule = "must be printable ASCII text, not empty, without spaces or a line end at its ends"
        for name in ("access_key_id", "access_key_secret", "security_token"):
            value = getattr(self, name)
            if not is_header_text(value) and not (name == "security_token" and value is None):
                raise ConfigError(name, rule, value if name == "access_key_id" else "***")

        if self.expires_at is not None and not _is_time(self.expires_at):
            raise ConfigError("expires_at", "must be None or seconds since the Unix epoch", self.expires_at)

    def __repr__(self) -> str:
        token = None if self.security_token is None else "***"
        return (
            f"Credentials(access_key_id={self.access_key_id!r}, access_key_secret='***', "
            f"security_token={token!r}, expires_at={self.expires_at!r})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentCredentials:
    """A credentials provider that reads environment variables at each call.

    :ivar prefix: the prefix of ``ACCESS_KEY_ID``, ``ACCESS_KEY_SECRET`` and the optional ``SECURITY_TOKEN``. None for
        ``LOGHUB_``, and ``ALIBABA_CLOUD_`` if neither the id nor the secret is set with it.
    """

    prefix: str | None = None

    def get_credentials(self) -> Credentials:
        """Read the variables.

        :raises ConfigError: one is missing.
        """
        prefixes = _PREFIXES if self.prefix is None else (self.prefix,)
        prefix = next((each for each in prefixes if any(_key_with(each).values())), prefixes[0])
        values = _key_with(prefix)
        for name, value in values.items():
            if not value:
                variable = prefix + name
                others = "" if any(values.values()) else "".join(f", or {each}{name}" for each in prefixes[1:])
                raise ConfigError(variable, f"must be set in the environment{others}", variable)
        return Credentials(
            access_key_id=cast("str", values["ACCESS_KEY_ID"]),
            access_key_secret=cast("str", values["ACCESS_KEY_SECRET"]),
            security_token=os.environ.get(prefix + "SECURITY_TOKEN") or None,
        )


#: The prefixes of the variables of this package and of Aliyun's tools.
_PREFIXES = "LOGHUB_", "ALIBABA_CLOUD_"


def _key_with(prefix: str) -> dict[str, str | None]:
    return {name: os.environ.get(prefix + name) for name in ("ACCESS_KEY_ID", "ACCESS_KEY_SECRET")}


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticCredentials:
    """A credentials provider that always returns the same credentials.

    :ivar credentials: the credentials to return.
    """

    credentials: Credentials

    def get_credentials(self) -> Credentials:
        """Return :attr:`credentials`."""
        return self.credentials

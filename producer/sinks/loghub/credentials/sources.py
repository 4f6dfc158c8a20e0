"""The sources of credentials, by the names that a configuration has.

The order of ``default`` is that of Aliyun's own packages: environment variables, a pod's token, the profiles of the
command line, the shared credentials file, the role of the ECS instance, and a URL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....model.credentials import EnvironmentCredentials
from ....model.interfaces import CredentialsProvider
from .asking import FirstOf
from .metadata import EcsRamRoleCredentials, UriCredentials
from .profiles import CliProfile, IniProfile
from .sts import OidcCredentials, RamRoleArnCredentials, Role


def _default(_: str = "") -> FirstOf:
    before = ("environment", EnvironmentCredentials()), ("oidc", OidcCredentials(Role()))
    after = ("ecs-ram-role", EcsRamRoleCredentials()), ("URL", UriCredentials())
    return FirstOf([*before, *_profiles(""), *after])


def _profiles(name: str) -> list[tuple[str, CredentialsProvider]]:
    return [("Aliyun's command line", CliProfile(name or None)), ("credentials file", IniProfile(name or None))]


#: The sources by name, each made of the text after the name's colon.
SOURCES: Mapping[str, Callable[[str], CredentialsProvider]] = {
    "default": _default,
    "environment": lambda _: EnvironmentCredentials(),
    "profile": lambda name: FirstOf(_profiles(name)),
    "ecs-ram-role": lambda role: EcsRamRoleCredentials(role or None),
    "oidc": lambda _: OidcCredentials(Role()),
    "ram-role-arn": lambda arn: RamRoleArnCredentials(Role(arn=arn), _default()),
}

"""Providers by the names that a configuration has.

The order of ``default`` is that of Aliyun's own packages: environment variables, a pod's token, the profiles of the
command line, the shared credentials file, the role of the ECS instance, and a URL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from ....model.credentials import EnvironmentCredentials, split_name
from ....model.interfaces import CredentialsProvider
from .aliyun_package import AliyunClient, AliyunCredentials
from .asking import FirstOf
from .metadata import EcsRamRoleCredentials, UriCredentials
from .profiles import CliProfile, IniProfile
from .sts import OidcCredentials, RamRoleArnCredentials, Role


def provider_of(given: CredentialsProvider | AliyunClient | str) -> CredentialsProvider:
    """Return the provider that a configuration's ``credentials`` mean.

    :param given: a provider, a client of ``alibabacloud-credentials``, or a name that
        :func:`~producer.model.credentials.split_name` accepts.
    """
    if not isinstance(given, str):
        # A client of that package also has a get_credentials, of another kind.
        is_client = hasattr(given, "get_credential")
        return AliyunCredentials(cast("AliyunClient", given)) if is_client else cast("CredentialsProvider", given)
    name, argument = split_name(given)
    return _SOURCES[name](argument)


def _default(_: str = "") -> FirstOf:
    before = ("environment", EnvironmentCredentials()), ("oidc", OidcCredentials(Role()))
    after = ("ecs-ram-role", EcsRamRoleCredentials()), ("URL", UriCredentials())
    return FirstOf([*before, *_profiles(""), *after])


def _profiles(name: str) -> list[tuple[str, CredentialsProvider]]:
    return [("Aliyun's command line", CliProfile(name or None)), ("credentials file", IniProfile(name or None))]


#: The sources by name, each made of the text after the name's colon.
_SOURCES: Mapping[str, Callable[[str], CredentialsProvider]] = {
    "default": _default,
    "environment": lambda _: EnvironmentCredentials(),
    "profile": lambda name: FirstOf(_profiles(name)),
    "ecs-ram-role": lambda role: EcsRamRoleCredentials(role or None),
    "oidc": lambda _: OidcCredentials(Role()),
    "ram-role-arn": lambda arn: RamRoleArnCredentials(Role(arn=arn), _default()),
}

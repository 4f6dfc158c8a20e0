"""Turn the credentials in a configuration into a provider."""

from __future__ import annotations

from typing import cast

from ....model.credentials import split_name
from ....model.interfaces import CredentialsProvider
from .aliyun_package import AliyunClient, AliyunCredentials


def provider_of(given: CredentialsProvider | AliyunClient | str) -> CredentialsProvider:
    """Return the provider that a configuration's ``credentials`` mean.

    :param given: a provider, a client of ``alibabacloud-credentials``, or a name that
        :func:`~producer.model.credentials.split_name` accepts.
    """
    if isinstance(given, str):
        from .sources import SOURCES  # noqa: PLC0415  # a key or an object needs none of them

        name, argument = split_name(given)
        return SOURCES[name](argument)
    # A client of that package also has a get_credentials, of another kind.
    is_client = hasattr(given, "get_credential")
    return AliyunCredentials(cast("AliyunClient", given)) if is_client else cast("CredentialsProvider", given)

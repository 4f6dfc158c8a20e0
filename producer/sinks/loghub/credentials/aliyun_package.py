"""Keys of the package ``alibabacloud-credentials``, for applications that configure their credentials with it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol, cast

from ....model.credentials import Credentials

#: How long a temporary key is used before the client is asked again, seconds. Its expiry is unknown: the client
#: replaces it early enough by itself.
ASK_AGAIN = 300.0


class AliyunClient(Protocol):
    """A client of the package."""

    def get_credential(self) -> object:
        """Return its current key."""


@dataclass(frozen=True, slots=True)
class AliyunCredentials:
    """A provider of a client's keys.

    :ivar client: the client.
    """

    client: AliyunClient

    def get_credentials(self) -> Credentials:
        """Return the client's current key."""
        return cast("Credentials", credentials_of(self.client.get_credential()))


def credentials_of(found: Any) -> Any:
    """Return a key of the package as :class:`Credentials`; any other object unchanged."""
    if not callable(getattr(found, "get_access_key_secret", None)):
        return found
    token = found.get_security_token() or None
    return Credentials(
        access_key_id=found.get_access_key_id(),
        access_key_secret=found.get_access_key_secret(),
        security_token=token,
        expires_at=None if token is None else time.time() + ASK_AGAIN,
    )

"""Ask a service for credentials: one deadline for all requests, bounded answers, and no secret in an error."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from ....model.config import HttpConfig
from ....model.credentials import Credentials
from ....model.errors import ConfigError, CredentialsError, ProducerError
from ....model.interfaces import CredentialsProvider
from ....runtime.clock import Deadline, SystemClock
from ...http.server_time import clock_offset
from ...http.transport import Transport

#: The limit of a provider with all its requests, seconds: less than an attempt to send waits for credentials.
LIMIT = 9.0
#: How long a connection may take, milliseconds. The metadata service is one hop away, and elsewhere it does not exist.
_CONNECT_MS = 1_000

_clock = SystemClock()


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of a service.

    :ivar status: the HTTP status.
    :ivar body: the first bytes of the body.
    :ivar clock_offset: seconds that the service's clock is ahead of this machine's; 0 if its date is invalid.
    """

    status: int
    body: bytes
    clock_offset: float


def failed(text: str) -> CredentialsError:
    """Return the error of a source that has no credentials."""
    return CredentialsError("CredentialsError", text)


class Asking(ABC):
    """A provider that asks a service, or other providers, within a deadline."""

    def get_credentials(self) -> Credentials:
        """Return new credentials.

        :raises CredentialsError: there are none, and why; no secret is in the message.
        """
        return self.ask(Deadline.after(_clock, LIMIT))

    @abstractmethod
    def ask(self, end: Deadline) -> Credentials:
        """Return new credentials before the deadline."""


def ask(provider: CredentialsProvider, end: Deadline) -> Credentials:
    """Return a provider's credentials before the deadline, if it has limits."""
    return provider.ask(end) if isinstance(provider, Asking) else provider.get_credentials()


class FirstOf(Asking):
    """A provider that asks others in turn, and stays with the first that has credentials.

    Staying with it means that a failed refresh never changes the identity of a running producer.

    :param sources: the providers, by the names for messages.
    """

    def __init__(self, sources: Sequence[tuple[str, CredentialsProvider]]) -> None:
        self._sources = sources
        self._found: CredentialsProvider | None = None

    def ask(self, end: Deadline) -> Credentials:
        if self._found is not None:
            return ask(self._found, end)
        reasons = []
        for name, source in self._sources:
            try:
                credentials = ask(source, end)
            except ProducerError as error:
                reasons.append(f"{name}: {reason_of(error)}")
            else:
                self._found = source
                return credentials
        raise failed(f"no credentials; tried in this order: {'; '.join(reasons)}")


def reason_of(error: ProducerError) -> str:
    """Return the message of an error without its code."""
    return error.message if isinstance(error, CredentialsError) else str(error)


def within(end: Deadline, seconds: float) -> Deadline:
    """Return the earlier of the deadline and ``seconds`` from now."""
    return end.within(_clock, seconds)


def request(
    method: str,
    url: str,
    end: Deadline,
    *,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    direct: bool = False,
) -> Reply:
    """Send one request, and return the answer, of which at most 64 KiB are read.

    :param direct: True to use no proxy and to give up early if the host does not exist.
    :raises NetworkError: there was no answer before the deadline.
    """
    config = HttpConfig(proxies={}, connect_timeout_ms=_CONNECT_MS) if direct else HttpConfig()
    parts = urlsplit(url)
    base = f"{parts.scheme}://{parts.netloc}"
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    transport = Transport(config, 1, _clock, "loghub-credentials", warns=False)
    transport.hurry(end, f"the limit of a credentials provider, {LIMIT:g} s")
    try:
        sent = {"Host": parts.netloc, "User-Agent": config.user_agent, **(headers or {})}
        proxies = transport.proxies_for(base)
        answer, received = transport.request(method, base, target, params or {}, sent, body, proxies)
    finally:
        transport.close()
    return Reply(answer.status, answer.body, clock_offset(received.get("Date"), _clock.time()) or 0.0)


def object_of(body: bytes) -> Mapping[str, Any]:
    """Return the JSON object in a body; empty if it is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def session_of(found: object, service: str, offset: float) -> Credentials:
    """Return the temporary credentials in an answer; they expire by this machine's clock, also if that is wrong.

    :param service: the name of the service, for the message.
    :param offset: the ``clock_offset`` of the answer.
    :raises CredentialsError: the answer has none, or they have expired.
    """
    if not isinstance(found, dict) or not found.get("SecurityToken"):
        raise failed(f"{service} answered without credentials")
    try:
        expires_at = datetime.strptime(str(found.get("Expiration")), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        session = Credentials(
            access_key_id=found.get("AccessKeyId", ""),
            access_key_secret=found.get("AccessKeySecret", ""),
            security_token=found["SecurityToken"],
            expires_at=expires_at.timestamp() - offset,
        )
    except (ValueError, OverflowError) as error:  # a part is missing or invalid
        part = error.name if isinstance(error, ConfigError) else "Expiration"
        raise failed(f"{service} answered with invalid credentials: {part}") from None
    if expires_at.timestamp() - offset <= _clock.time():
        raise failed(f"{service} answered with credentials that expired at {found['Expiration']}")
    return session

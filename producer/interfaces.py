"""The protocols by which the parts know each other: what a batch's destination and a credentials source must do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from .clock import Clock
from .credentials import Credentials
from .records import StreamKey

__all__ = ["Clock", "CredentialsProvider", "Delivery", "Payload", "Receipt", "Sink"]


@runtime_checkable
class CredentialsProvider(Protocol):
    """Where credentials come from, for those that change."""

    def get_credentials(self) -> Credentials:
        """Return the current credentials. May block on I/O; called on a thread of the producer, never in ``send``."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A batch's body as it will be sent, at the first attempt and at every retry.

    :ivar body: the bytes, compressed.
    :ivar raw_size: their size before compression.
    """

    body: bytes
    raw_size: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """The server's acknowledgement.

    :ivar request_id: the server's id of the request.
    :ivar http_status: the HTTP status.
    """

    request_id: str = ""
    http_status: int | None = 200


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a sink is asked to deliver.

    :ivar key: the stream that it belongs to.
    :ivar pack_id: the value of the ``__pack_id__`` tag, or None.
    :ivar payload: what :meth:`Sink.encode` made.
    """

    key: StreamKey
    pack_id: str | None
    payload: Payload


class Sink(Protocol):
    """Where batches leave. Its methods are called from several IO threads at once."""

    def tail_size(self, key: StreamKey, pack_id: str | None) -> int:
        """How many bytes a body has besides its records."""

    def encode(self, key: StreamKey, pack_id: str | None, records: Sequence[bytes]) -> Payload:
        """Make a batch's body from its records; called once a batch. May raise only on bugs."""

    def decode(self, payload: Payload) -> list[bytes]:
        """The records that :meth:`encode` was given, one log each; needed to split a batch."""

    def write(self, delivery: Delivery) -> Receipt:
        """Make exactly one attempt.

        :raises AttemptError: it failed; the class of the error says whether another attempt makes sense.
        """

    def close(self) -> None:
        """Release connections and threads; called once, after the last write."""

"""FileTransaction: a transaction of a file channel. Puts are encoded at once and written by the commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ....model.errors import TransactionFullError, TransactionStateError
from ....model.interfaces import Event, Stored
from ...transaction import BaseTransaction
from ..options import FileChannelOptions
from ..store.format import PutPayload
from ..store.speed import encode_events
from .ledger import Taken


class Keeping(Protocol):
    """The part of a file channel that its transactions use."""

    @property
    def name(self) -> str:
        """Name for messages."""

    @property
    def options(self) -> FileChannelOptions:
        """The channel's options."""

    def _count_puts(self, count: int) -> None:
        """Count events given to ``put``."""

    def _commit_puts(self, payloads: Sequence[PutPayload], timeout: float | None) -> int:
        """Store events; return the last sequence number."""

    def _take_into(self, taken: Taken, count: int, max_bytes: int | None, timeout: float | None) -> list[Event]:
        """Take events into ``taken``."""

    def _commit_takes(self, taken: Taken, sequences: Sequence[int | None]) -> None:
        """Make takes final."""

    def _put_back(self, taken: Taken, sequences: Sequence[int | None] | None = None) -> None:
        """Return takes to the queue; None for all of them."""

    def _orphan(self, taken: Taken) -> None:
        """Schedule all takes to be returned. The garbage collector calls it, at any point of any thread."""


class FileTransaction(BaseTransaction):
    """A transaction of a file channel; it puts or takes, not both.

    One that is dropped while open is rolled back at the next use of its channel.
    """

    def __init__(self, channel: Keeping) -> None:
        super().__init__(channel.name)
        self._channel = channel
        self._puts: list[PutPayload] = []
        self._taken: Taken = {}

    def _do_put(self, events: Sequence[Event]) -> None:
        channel, capacity = self._channel, self._channel.options.transaction_capacity
        channel._count_puts(len(events))
        if self._taken:
            raise self._mixed()
        if len(self._puts) + len(events) > capacity:
            raise TransactionFullError(channel.name, "puts", capacity)
        self._puts += encode_events(events)

    def _do_take(self, count: int, max_bytes: int | None, timeout: float | None) -> list[Event]:
        if self._puts:
            raise self._mixed()
        return self._channel._take_into(self._taken, count, max_bytes, timeout)

    def _mixed(self) -> TransactionStateError:
        message = "a transaction of a file channel either puts or takes: use two"
        return TransactionStateError(self._channel.name, message)

    def _do_acknowledge(self, events: Sequence[Event]) -> None:
        self._channel._commit_takes(self._taken, [event.sequence for event in events])

    def _do_give_back(self, events: Sequence[Event]) -> None:
        self._channel._put_back(self._taken, [event.sequence for event in events])

    def _do_commit(self, timeout: float | None) -> Stored:
        if self._puts:
            self._last_sequence = self._channel._commit_puts(self._puts, timeout)
            self._puts = []
        elif self._taken:
            self._channel._commit_takes(self._taken, list(self._taken))
        return self._channel.options.promise

    def _do_rollback(self) -> None:
        self._puts = []
        self._channel._put_back(self._taken)

    def __del__(self) -> None:
        if getattr(self, "_taken", None):
            self._channel._orphan(self._taken)

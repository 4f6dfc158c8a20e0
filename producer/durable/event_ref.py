"""Ticket: the reference to an event of the channel until the event is acknowledged."""

from __future__ import annotations

from typing import cast

from ..model.futures import SendFuture
from ..model.records import StreamKey
from ..pipeline.batching.batch import ProducerBatch
from .take_lease import Taking


class Ticket:
    """One event of the channel while the pipeline has it.

    :ivar taking: the transaction that took it.
    :ivar sequence: its sequence number in the channel.
    :ivar position: its position in an idempotent stream: the sequence number, or the one in the channel it was adopted
        from.
    :ivar ident: the record's stable name, as in the event's body.
    :ivar future: the future of its send, until a batch takes it over; None for a record without a future.
    :ivar shares: the number of uncompleted batches that carry a part of it.
    :ivar kept: the stream for which it must stay in the channel, once a part of it could not be delivered; else None.
    """

    __slots__ = ("future", "ident", "kept", "position", "sequence", "shares", "taking")

    def __init__(
        self, taking: Taking, sequence: int, ident: bytes, future: SendFuture | None, position: int | None = None
    ) -> None:
        self.taking = taking
        self.sequence = sequence
        self.position = sequence if position is None else position
        self.ident = ident
        self.future = future
        self.shares = 1
        self.kept: StreamKey | None = None

    def cut(self) -> None:
        """Count one more batch that carries a part of the event."""
        with self.taking.lock:
            self.shares += 1

    def settle_part(self) -> bool:
        """Note that a batch with the event, or a part of it, is completed; return True if it was the last."""
        if self.shares == 1:  # only a batch that carries it could split it, and none is left
            return True
        with self.taking.lock:
            self.shares -= 1
            return not self.shares


def tickets_of(batch: ProducerBatch) -> list[Ticket]:
    """Return the tickets of a batch out of the channel, one for each send."""
    if batch.origins is None:
        raise TypeError("a batch of records that are in no channel has no tickets")  # a bug
    return cast("list[Ticket]", batch.origins)

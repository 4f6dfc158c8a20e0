"""Ticket: what is remembered of an event from the channel until the channel may forget it."""

from __future__ import annotations

from typing import cast

from ..model.futures import SendFuture
from ..model.records import StreamKey
from ..pipeline.batching.batch import ProducerBatch
from .take_lease import Taking


class Ticket:
    """One event on its way through the pipeline.

    :ivar taking: the transaction that took it.
    :ivar sequence: the channel's number of it.
    :ivar position: its place in an idempotent stream: the sequence number, or that of the channel it was adopted from.
    :ivar ident: the record's stable id, as in the event's body.
    :ivar future: the future of its send, until a batch takes it over; None for a record that nobody asks about.
    :ivar shares: how many batches that are not settled carry a part of it.
    :ivar kept: for the sake of which stream it must stay in the channel, once a part of it could go nowhere; else None.
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
        """One more batch carries a part of the event."""
        with self.taking.lock:
            self.shares += 1

    def settle_part(self) -> bool:
        """One batch that carried the event, or a part of it, is done; whether it was the last."""
        if self.shares == 1:  # only a batch that carries it could cut it, and there is none any more
            return True
        with self.taking.lock:
            self.shares -= 1
            return not self.shares


def tickets_of(batch: ProducerBatch) -> list[Ticket]:
    """Return the tickets of a batch out of the channel, one for each send."""
    if batch.origins is None:
        raise TypeError("a batch of records that are in no channel has no tickets")  # a bug
    return cast("list[Ticket]", batch.origins.all)

"""FedBatch: a batch of records that came out of a channel; each brings its ticket along.

It keeps its records until it is settled, for they may have to go to the dead letters; so that memory holds them once,
the body that was made of them is dropped whenever the batch waits, and made anew for the next attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..model.futures import SendFuture
from ..model.interfaces import Payload, Record
from ..model.records import IDEMPOTENT
from ..pipeline.batching.batch import ProducerBatch, Recipient
from .event_ref import Ticket


class FedBatch(ProducerBatch):
    """A batch that keeps its records, and the tickets that came with them, until it is settled.

    :ivar tickets: of its sends, in order; of the one send that was cut, in both halves.
    """

    __slots__ = ("tickets",)

    apart = True  # what is refused goes to the dead letters one by one

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.tickets: list[Ticket] = []

    def add(self, record: Record, logs: int, recipient: Recipient, charge: int) -> SendFuture | None:
        """The future of the ticket becomes this batch's, which keeps it."""
        if not isinstance(recipient, Ticket):
            raise TypeError("a record that came out of a channel was fed without its ticket")  # a bug
        records, tickets = self.open, self.tickets
        if records is None:
            return None
        if len(tickets) > records.sends:
            self._trim()
        tickets.append(recipient)
        added = records.append(record, logs, None, charge)
        if added is None:
            self._trim()
            return None
        future, recipient.future = recipient.future, None
        if future is None:
            return added
        self.heed(added._position, future)
        future._position = added._position
        future._holder = self
        return future

    def _trim(self) -> None:
        """Forget the ticket of a record that was not added."""
        del self.tickets[self.sends :]

    def seal(self) -> None:
        """See :meth:`ProducerBatch.seal`."""
        super().seal()
        self._trim()

    def share_with(self, halves: Sequence[ProducerBatch], middle: int) -> None:
        """See :meth:`ProducerBatch.share_with`."""
        left, right = halves
        if not isinstance(left, FedBatch) or not isinstance(right, FedBatch):
            raise RuntimeError("a batch out of a channel was cut into others")  # a bug
        left.tickets, right.tickets = self.tickets[:middle], self.tickets[middle:]
        if not middle:
            left.tickets = list(self.tickets)
            self.tickets[0].cut()

    @property
    def indivisible(self) -> bool:
        """See :attr:`ProducerBatch.indivisible`. Nor is a single event of an idempotent stream: it has one position in
        the channel, by which nobody could tell how much of it was sent.
        """
        return super().indivisible or (self.key.order.startswith(IDEMPOTENT) and self.sends == 1)

    def shares_send(self, other: ProducerBatch) -> bool:
        """See :meth:`ProducerBatch.shares_send`."""
        return isinstance(other, FedBatch) and self.tickets[0] is other.tickets[-1]

    def encode(self, payload: Payload) -> None:
        """The body is made, for this attempt."""
        self.payload = payload

    def rest(self) -> None:
        """See :meth:`ProducerBatch.rest`."""
        self.payload = None

"""Taking: a transaction that takes events from the channel for as long as the producer lives.

The feeder takes, the acks thread acknowledges; what nobody acknowledged goes back when the producer closes, and by
itself when the process dies.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ..interfaces import Channel, Event
from .ticket import Ticket


class Taking:
    """See the module.

    :raises ChannelClosedError: the channel is closed.
    """

    def __init__(self, channel: Channel) -> None:
        self.transaction = channel.transaction()
        self.transaction.begin()
        self._lock = threading.Lock()  # guards everything below, and the shares of its tickets
        self._outstanding = 0
        self._retired = False
        self._ended = False

    @property
    def unused(self) -> bool:
        """Whether all that it took is acknowledged."""
        return not self._outstanding

    def take(self, count: int, max_bytes: int, timeout: float) -> list[Event]:
        """As :meth:`producer.interfaces.Transaction.take`."""
        events = self.transaction.take(count, max_bytes=max_bytes, timeout=timeout)
        with self._lock:
            self._outstanding += len(events)
        return events

    def acknowledge(self, sequences: Sequence[int]) -> None:
        """Have the channel forget these events; it knows them by their sequence numbers.

        :raises ChannelError: it could not; they may be acknowledged again.
        """
        self.transaction.acknowledge([Event(sequence=sequence) for sequence in sequences])
        with self._lock:
            self._outstanding -= len(sequences)
        self._end_if_done()

    def give_back(self, sequences: Sequence[int]) -> None:
        """Let these events be taken again, from where they were.

        :raises ChannelError: the channel could not.
        """
        self.transaction.give_back([Event(sequence=sequence) for sequence in sequences])
        with self._lock:
            self._outstanding -= len(sequences)
        self._end_if_done()

    def retire(self) -> None:
        """Nothing more is taken with it; it ends when everything is acknowledged."""
        with self._lock:
            self._retired = True
        self._end_if_done()

    def _end_if_done(self) -> None:
        with self._lock:
            done = self._retired and not self._outstanding and not self._ended
            self._ended |= done
        if done:
            self.transaction.commit()
            self.transaction.close()

    def roll_back(self) -> None:
        """Give back what is not acknowledged."""
        with self._lock:
            ended, self._ended = self._ended, True
        if not ended:
            self.transaction.rollback()
            self.transaction.close()

    @property
    def ended(self) -> bool:
        """Whether it was committed or rolled back."""
        return self._ended

    def cut(self, ticket: Ticket) -> None:
        """One more batch carries a part of this event."""
        with self._lock:
            ticket.shares += 1

    def part_settled(self, ticket: Ticket) -> bool:
        """One batch that carried the event, or a part of it, is done; whether it was the last."""
        if ticket.shares == 1:  # only a batch that carries it could cut it, and there is none any more
            return True
        with self._lock:
            ticket.shares -= 1
        return False

"""Taking: a transaction that takes events from the channel for as long as the producer lives.

The feeder takes, the acks thread acknowledges; what nobody acknowledged goes back when the producer closes, and by
itself when the process dies.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ..model.interfaces import Channel, Event
from ..runtime.loggers import get_logger

_log = get_logger("loghub.feeder")


class Taking:
    """One transaction of takes, and which of its events are settled.

    :ivar unused: whether nothing was ever taken with it.
    :raises ChannelClosedError: the channel is closed.
    """

    def __init__(self, channel: Channel) -> None:
        self.transaction = channel.transaction()
        self.transaction.begin()
        self.lock = threading.Lock()  # guards everything below, and the shares of the events' tickets
        self.unused = True
        self._outstanding = 0
        self._retired = False
        self._ended = False

    def take(self, count: int, max_bytes: int, timeout: float) -> list[Event]:
        """As :meth:`producer.model.interfaces.Transaction.take`."""
        events = self.transaction.take(count, max_bytes=max_bytes, timeout=timeout)
        with self.lock:
            self.unused = self.unused and not events
            self._outstanding += len(events)
        return events

    def acknowledge(self, sequences: Sequence[int]) -> None:
        """Have the channel forget these events; it knows them by their sequence numbers.

        :raises ChannelError: it could not; they may be acknowledged again.
        """
        self.transaction.acknowledge([Event(sequence=sequence) for sequence in sequences])
        with self.lock:
            self._outstanding -= len(sequences)
        self._end_if_done()

    def give_back(self, sequences: Sequence[int]) -> None:
        """Let these events be taken again, from where they were.

        :raises ChannelError: the channel could not.
        """
        self.transaction.give_back([Event(sequence=sequence) for sequence in sequences])
        with self.lock:
            self._outstanding -= len(sequences)
        self._end_if_done()

    def retire(self) -> None:
        """Nothing more is taken with it; it ends when everything is acknowledged."""
        with self.lock:
            self._retired = True
        self._end_if_done()

    def _end_if_done(self) -> None:
        with self.lock:
            done = self._retired and not self._outstanding and not self._ended
            self._ended |= done
        if done:
            self._end()

    def _end(self) -> None:
        """Commit it, with nothing in it: what it took is acknowledged, whatever the channel says of this."""
        try:
            self.transaction.commit()
            self.transaction.close()
        except Exception:  # noqa: BLE001  # a channel is somebody else's class
            _log.exception("a transaction without events could not be ended; its channel ends it when it is closed")

    def roll_back(self) -> None:
        """Give back what is not acknowledged."""
        with self.lock:
            ended, self._ended = self._ended, True
        if not ended:
            self.transaction.rollback()
            self.transaction.close()

    @property
    def ended(self) -> bool:
        """Whether it was committed or rolled back."""
        return self._ended

"""Taking: a transaction that takes events from the channel for as long as the producer lives.

The feeder takes, and the acks thread acknowledges. Events that were not acknowledged go back to the channel when the
producer closes or the process dies.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.interfaces import Channel, Event
from ..runtime.locks import Lock
from ..runtime.loggers import get_logger

_log = get_logger("loghub.feeder")


class Taking:
    """One transaction of takes, and its acknowledged events.

    :ivar unused: True if nothing was ever taken with it.
    :raises ChannelClosedError: the channel is closed.
    """

    def __init__(self, channel: Channel) -> None:
        self.transaction = channel.transaction()
        self.transaction.begin()
        self.lock = Lock()  # guards everything below, and the shares of the events' tickets
        self.unused = True
        self._outstanding = 0
        self._retired = False
        self._ended = False

    def take(self, count: int, max_bytes: int, timeout: float) -> list[Event]:
        """Take events, as :meth:`producer.model.interfaces.Transaction.take` does."""
        events = self.transaction.take(count, max_bytes=max_bytes, timeout=timeout)
        with self.lock:
            self.unused = self.unused and not events
            self._outstanding += len(events)
        return events

    def acknowledge(self, sequences: Sequence[int]) -> None:
        """Acknowledge these events, named by their sequence numbers.

        :raises ChannelError: the channel refused; the events may be acknowledged again.
        """
        self.transaction.acknowledge([Event(sequence=sequence) for sequence in sequences])
        self._end_if_done(len(sequences))

    def give_back(self, sequences: Sequence[int]) -> None:
        """Return these events to their places in the channel.

        :raises ChannelError: the channel refused.
        """
        self.transaction.give_back([Event(sequence=sequence) for sequence in sequences])
        self._end_if_done(len(sequences))

    def retire(self) -> None:
        """Take nothing more; the transaction ends when everything is acknowledged."""
        with self.lock:
            self._retired = True
        self._end_if_done(0)

    def _end_if_done(self, returned: int) -> None:
        with self.lock:
            self._outstanding -= returned
            done = self._retired and not self._outstanding and not self._ended
            self._ended |= done
        if done:
            self._end()

    def _end(self) -> None:
        """Commit the transaction, which is empty: its events are acknowledged even if the commit fails."""
        try:
            self.transaction.commit()
            self.transaction.close()
        except Exception:  # noqa: BLE001  # a channel may be user code
            _log.exception("a transaction without events could not be ended; its channel ends it when it is closed")

    def roll_back(self) -> None:
        """Return the events that are not acknowledged."""
        with self.lock:
            ended, self._ended = self._ended, True
        if not ended:
            self.transaction.rollback()
            self.transaction.close()

    @property
    def ended(self) -> bool:
        """True if it was committed or rolled back."""
        return self._ended

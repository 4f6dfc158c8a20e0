"""Delivery of batches from a channel, from the take to the end of each of them.

========= ======================================================================= ====================
state     a batch is                                                              becomes
========= ======================================================================= ====================
TAKEN     with the sink                                                           any of the following
HELD      taken, without its bytes: events of it wait in :mod:`.held_back`        DELIVERED, RETURNED
DELIVERED no longer in the channel                                                nothing else
RETURNED  in its place in the channel                                             nothing else
========= ======================================================================= ====================

The transaction of the take stays open as long as a batch of it is TAKEN or HELD.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from ...channels.limits import first_within
from ...model.errors import TransactionStateError
from ...model.interfaces import Event, Transaction
from ..events.batch import EventBatch
from ..events.event_format import count_of
from .letters import Letter

#: The maximum number of batches in one take.
MOST_BATCHES = 1000


class State(enum.Enum):
    """The state of a batch in a delivery."""

    TAKEN = "taken"
    HELD = "held"
    DELIVERED = "delivered"
    RETURNED = "returned"


_BECOMES: Mapping[State, Collection[State]] = {
    State.TAKEN: (State.HELD, State.DELIVERED, State.RETURNED),
    State.HELD: (State.DELIVERED, State.RETURNED),
    State.DELIVERED: (),
    State.RETURNED: (),
}


class Source(Protocol):
    """The channel of a delivery."""

    keeps: bool

    def read(self, events: Sequence[Event]) -> list[EventBatch]:
        """Decode events."""

    def put(self, batch: EventBatch, timeout: float | None = None) -> None:
        """Commit a batch."""

    def leaving(self, batches: Sequence[EventBatch]) -> None:
        """Record that batches are about to leave."""

    def leave(self, batches: Sequence[EventBatch]) -> None:
        """Count batches that have left."""

    def pass_over(self, sequence: int) -> None:
        """Record that a batch will be delivered after batches with higher numbers."""

    def came_back(self) -> None:
        """Wake takers: batches are available again."""

    def ended(self) -> None:
        """Count the end of a take."""


class Outgoing:
    """One batch of a delivery.

    :ivar letters: the refused events to deliver elsewhere, if the batch is HELD.
    """

    __slots__ = ("batch", "delivery", "event", "letters", "state")

    def __init__(self, delivery: Delivery, event: Event, batch: EventBatch) -> None:
        self.delivery, self.event, self.batch = delivery, event, batch
        self.state, self.letters = State.TAKEN, list[Letter]()

    @property
    def parts(self) -> list[EventBatch]:
        """The refused events of the letters."""
        return [part for part, _ in self.letters]

    @property
    def size(self) -> int:
        """The bytes of the letters."""
        return sum(part.size for part in self.parts)

    def become(self, state: State) -> None:
        """Change the state."""
        assert state in _BECOMES[self.state], f"{self.state} cannot become {state}"  # noqa: S101  # the table
        self.state = state
        if state is State.HELD:
            self.event, self.batch = Event(sequence=self.batch.sequence), self.batch.without_bytes()


class Delivery:
    """The batches of one take.

    :ivar count: the events of all batches.
    :ivar size: the bytes of all batches.
    :ivar full: True if the next batch would exceed a limit.
    """

    def __init__(self, channel: Source, transaction: Transaction, most_events: int, most_bytes: int) -> None:
        self._channel, self._transaction = channel, transaction
        self._most_events, self._most_bytes = most_events, most_bytes
        self._all: list[Outgoing] = []
        self.count = self.size = 0
        self.full = False

    @property
    def batches(self) -> list[EventBatch]:
        """The open batches in the channel's order: all that were taken, or only those HELD."""
        return [one.batch for one in self._all]

    @property
    def is_open(self) -> bool:
        """True if a batch is TAKEN or HELD."""
        return any(_BECOMES[one.state] for one in self._all)

    def more(self, timeout: float) -> bool:
        """Take further batches. Return True if any came in time and fit.

        :param timeout: seconds to wait; 0 for batches that are there.
        """
        events_left, bytes_left = self._most_events - self.count, self._most_bytes - self.size
        if events_left <= 0 or bytes_left <= 0:
            self.full = True
        if self.full:
            return False
        events = _take(self._transaction, events_left, bytes_left, timeout)
        fitting = first_within(map(count_of, events), events_left) if events else 0
        if self._all and events and count_of(events[0]) > events_left:
            fitting = 0
        if fitting < len(events):
            self._transaction.give_back(events[fitting:])
            self.full = True
        if fitting:
            batches = self._channel.read(events[:fitting])
            self._all += [Outgoing(self, *pair) for pair in zip(events[:fitting], batches, strict=True)]
            self.count += sum(batch.count for batch in batches)
            self.size += sum(batch.size for batch in batches)
        return fitting > 0

    def commit(
        self, later: Sequence[EventBatch] = (), held: Sequence[EventBatch] = (), *, numbered: bool = True
    ) -> list[Outgoing]:
        """End the delivery of all batches except those listed.

        :param later: batches that become RETURNED.
        :param held: batches that become HELD; they are the result.
        :param numbered: True if ``held`` keep their numbers although later batches are delivered before them.
        :raises ChannelError: if the disk failed; all may be delivered again.
        """
        states = {id(batch): State.RETURNED for batch in later} | {id(batch): State.HELD for batch in held}
        becomes = {state: list[Outgoing]() for state in State}
        for one in self._all:
            becomes[states.get(id(one.batch), State.DELIVERED)].append(one)
        try:
            if held and not numbered:
                self._channel.pass_over(max(batch.sequence or 0 for batch in held))
            self._leave(becomes[State.DELIVERED])
            if later:
                self._transaction.give_back([one.event for one in becomes[State.RETURNED]])
                self._channel.came_back()
        except BaseException:
            self.rollback()
            raise
        for state, some in becomes.items():
            for one in some:
                one.become(state)
        if held:
            self._all = becomes[State.HELD]
        else:
            self._end()
        return list(becomes[State.HELD])

    def commit_one(self, one: Outgoing) -> None:
        """End a HELD batch that was delivered.

        :raises ChannelError: if the disk failed; the batch may be delivered again.
        """
        self._leave([one])
        one.become(State.DELIVERED)
        self._all.remove(one)
        if not self._all:
            self._end()

    def shorten(self, one: Outgoing) -> None:
        """Replace a HELD batch by a new one, at the end of the channel, with only its refused events.

        Only channels that keep their events do so. If others forgot the rest, the source might read the whole batch
        again.

        :raises ChannelError: if there is no room, or the disk failed.
        """
        if self._channel.keeps and sum(part.count for part in one.parts) < one.batch.count:
            for part in one.parts:
                self._channel.put(part.at(None), 0)
            self.commit_one(one)

    def rollback(self) -> None:
        """Return all open batches to the channel."""
        for one in self._all:
            if _BECOMES[one.state]:
                one.become(State.RETURNED)
        self._end()
        self._channel.came_back()

    def _leave(self, gone: Sequence[Outgoing]) -> None:
        if not gone:
            return
        batches = [one.batch for one in gone]
        self._channel.leaving(batches)
        if len(gone) == len(self._all):
            self._transaction.commit()
        else:
            self._transaction.acknowledge([one.event for one in gone])
        self._channel.leave(batches)

    def _end(self) -> None:
        with contextlib.suppress(TransactionStateError):  # the transaction was committed
            self._transaction.rollback()
        self._transaction.close()
        self._channel.ended()


def _take(transaction: Transaction, most_events: int, most_bytes: int, timeout: float) -> list[Event]:
    """Take as many batches as are likely to fit: batches taken in excess are read twice."""
    events = transaction.take(1, max_bytes=most_bytes, timeout=timeout)
    while events and len(events) < MOST_BATCHES:
        held, size = sum(map(count_of, events)), sum(len(event.body) for event in events)
        if held >= most_events or size >= most_bytes:
            break
        likely = max(1, (most_events - held) * len(events) // max(held, 1))
        more = transaction.take(min(likely, MOST_BATCHES - len(events)), max_bytes=most_bytes - size, timeout=0)
        if not more:
            break
        events += more
    return events

"""Acks: the thread that acknowledges completed events to the channel.

Everything completed since the last time is acknowledged in one call. Undeliverable events first go to the dead letters,
if there are any, and are acknowledged once they are stored there. If they are refused there too, they stay in the
channel. The memory of failed records is returned when they are stored, or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..model.errors import ChannelClosedError, ChannelIOError
from ..model.interfaces import Event
from ..model.metrics import Counters
from ..model.owned_lock import OwnedLock
from ..model.records import SEQUENCED, StreamKey
from ..model.results import Result
from ..pipeline.batching.batch import ProducerBatch
from ..pipeline.batching.memory import Refund
from ..pipeline.settling.backing import Backing, Body, NumberJournal
from ..pipeline.threads import StageThread
from ..runtime.clock import LOOK_AGAIN, Clock, Deadline, Latch, WaitingRoom
from ..runtime.loggers import get_logger
from ..runtime.rate_limited_log import RateLimitedLog
from ..text.plural import counted
from .dead_letters import DeadLetters
from .event_format import write_event
from .event_ref import Ticket, tickets_of
from .stopped_events import Parking
from .take_lease import Taking

_log = get_logger("loghub.acks")

#: The pause before refused acknowledgements are repeated, seconds.
_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class _Failed:
    """A failed batch: its tickets, result and memory."""

    key: StreamKey
    tickets: Sequence[Ticket]
    records: Sequence[bytes]
    logs: Sequence[int]
    result: Result
    refund: Refund


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """An event that holds no record."""

    taking: Taking
    event: Event
    reason: str


@dataclass(frozen=True, slots=True)
class _Barrier:
    """A point that a caller waits for: everything enqueued before it is done."""

    passed: Latch
    acknowledged: bool


_Item = Sequence[Ticket] | _Failed | _Unreadable | _Barrier


class Acks(Backing):
    """Acknowledges events to a channel, on a thread of its own; undeliverable ones go to the dead letters first.

    :param channel: the name of the channel.
    :param dead_letters: the dead letters; None to count and drop undeliverable events.
    :param lasts: True if the channel keeps its events when it is closed.
    :param journal: as in :class:`~producer.pipeline.settling.backing.Backing`.
    :ivar counters: ``kept_back`` counts events that were taken, get no further attempt by this producer, and stay in
        the channel.
    :ivar parking: those of them whose streams may be resumed.
    """

    keeps = True
    without_threads = "records stay in the channel, and the next producer on it delivers them"

    def __init__(
        self,
        name: str,
        clock: Clock,
        channel: str,
        dead_letters: DeadLetters | None,
        *,
        lasts: bool,
        journal: NumberJournal | None,
    ) -> None:
        self._name = name
        self.journal = journal
        where = (
            f"it is stored in channel {channel}, and the next producer on it delivers it"
            if lasts
            else f"what channel {channel} had in memory is lost, and the next producer on it delivers the rest"
        )
        self.abandonment = "LeftInChannel", f"the producer was closed before the record could be delivered: {where}"
        self._clock = clock
        self._dead_letters = dead_letters
        self._refusals = RateLimitedLog(clock)
        self.counters = Counters()
        self.parking = Parking()
        # Used by the thread only: acknowledgements that the channel refused.
        self._owed: dict[Taking, list[int]] = {}
        #: Used by the thread only: latches to set when no acknowledgement is left.
        self._barriers: list[Latch] = []
        self._room = WaitingRoom(clock, LOOK_AGAIN)
        self._lock = OwnedLock()  # guards everything below
        self._items: list[_Item] = []
        self._stopped = self._ended = False
        self.thread = StageThread(f"{name}-acks", self._loop)

    def delivered(self, batch: ProducerBatch) -> None:
        self._put(tickets_of(batch))

    def failed(self, batch: ProducerBatch, result: Result, refund: Refund, body: Body) -> None:  # noqa: ARG002  # it has the events
        records, logs = [bytes(record) for record in batch.records], batch.logs_of_sends
        self._put(_Failed(batch.key, tickets_of(batch), records, logs, result, refund))

    def settled(self, ticket: Ticket) -> None:
        """Acknowledge an event that an earlier process had delivered or failed, but not acknowledged."""
        self._put([ticket])

    def parked(self, batch: ProducerBatch) -> None:
        self.park(batch.key, tickets_of(batch))

    def park(self, key: StreamKey, tickets: Sequence[Ticket]) -> None:
        """Keep events in the channel for the next producer on it; those of an ordered stream, until it is resumed."""
        for ticket in tickets:
            ticket.kept = key
        self._stay([ticket for ticket in tickets if ticket.settle_part()])

    def _stay(self, tickets: Sequence[Ticket]) -> None:
        """Count events that no batch carries any more, and that must stay in the channel at least in part."""
        for ticket in tickets:
            if ticket.kept is not None and ticket.kept.order:
                self.parking.park(ticket.kept.line, ticket)
        self.counters.add("kept_back", len(tickets))

    def unreadable(self, taking: Taking, event: Event, reason: str) -> None:
        """Enqueue an event that holds no record."""
        self._put(_Unreadable(taking, event, reason))

    def barrier(self) -> Latch:
        """Return a latch that is set once everything completed so far is acknowledged or retained.

        Acknowledgements that the channel refuses are waited for.
        """
        return self._put_barrier(_Barrier(Latch(), acknowledged=True))

    def handled(self) -> Latch:
        """Return a latch that is set once every undeliverable event completed so far is a dead letter or parked. Unlike
        :meth:`barrier`, it does not wait for acknowledgements that the channel refuses.
        """
        return self._put_barrier(_Barrier(Latch(), acknowledged=False))

    def _put_barrier(self, barrier: _Barrier) -> Latch:
        with self._lock:
            if self._ended:
                barrier.passed.set()
            else:
                self._items.append(barrier)
        self._room.wake_all()
        return barrier.passed

    def _put(self, item: _Item) -> None:
        with self._lock:
            self._items.append(item)
        self._room.wake_all()

    def stop(self) -> None:
        """Let the thread end after everything that was completed so far."""
        with self._lock:
            self._stopped = True
        self._room.wake_all()

    def run_once(self) -> bool:
        """Do all work without waiting; return True if there was any. For pipelines without threads."""
        with self._lock:
            items, self._items = self._items, []
        self._handle(items)
        return bool(items)

    def _loop(self) -> None:
        while True:
            again = Deadline.after(self._clock, _PAUSE if self._owed else None)
            self._room.wait_until(lambda: self._items or self._stopped, again)
            with self._lock:
                items, self._items = self._items, []
                last = self._ended = self._stopped and not items
            self._handle(items)
            if last:
                return

    def _handle(self, items: Sequence[_Item]) -> None:
        try:
            for item in items:
                if isinstance(item, list):
                    self._owe(item)
            self._acknowledge()
            bad = [item for item in items if isinstance(item, _Failed | _Unreadable)]
            for item in bad:
                self._store_dead_letter(item)
            if bad:
                self._acknowledge()
        finally:  # even after a failure, no caller waits forever
            self._pass(item for item in items if isinstance(item, _Barrier))

    def _pass(self, barriers: Iterable[_Barrier]) -> None:
        for barrier in barriers:
            if barrier.acknowledged:
                self._barriers.append(barrier.passed)
            else:
                barrier.passed.set()
        if not self._owed or self._ended:
            waiting, self._barriers = self._barriers, []
            for passed in waiting:
                passed.set()

    def _owe(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            if not ticket.settle_part():
                continue
            if ticket.kept is not None:
                self._stay((ticket,))
            else:
                self._owed.setdefault(ticket.taking, []).append(ticket.sequence)

    def _acknowledge(self) -> None:
        for taking, sequences in list(self._owed.items()):
            left = self._acknowledged(taking, sequences)
            if left:
                self._owed[taking] = left
            else:
                del self._owed[taking]

    def _acknowledged(self, taking: Taking, sequences: list[int]) -> list[int]:
        """Acknowledge these events; return those to be tried again."""
        try:
            taking.acknowledge(sequences)
        except (ChannelIOError, ChannelClosedError) as error:
            self._refused(error, len(sequences))
            return sequences
        except Exception as error:  # noqa: BLE001  # a channel may be user code
            if len(sequences) > 1:  # an event that the channel does not know must not block the others
                middle = len(sequences) // 2
                return self._acknowledged(taking, sequences[:middle]) + self._acknowledged(taking, sequences[middle:])
            self._refused(error, 1)
            self.counters.add("kept_back", 1)
        return []

    def _refused(self, error: Exception, events: int) -> None:
        if self._refusals.due(type(error).__name__, 0) is not None:
            _log.error(
                "%s: the channel refused the acknowledgement of %s: %s: %s; retrying. Events not acknowledged when the "
                "process ends are sent again",
                self._name,
                counted(events, "completed event"),
                type(error).__name__,
                error,
            )

    def _store_dead_letter(self, item: _Failed | _Unreadable) -> None:
        if isinstance(item, _Failed):
            self._store_failed(item)
        else:
            self._store_unreadable(item)

    def _store_failed(self, item: _Failed) -> None:
        """Store failed events as dead letters, then acknowledge them; without dead letters acknowledge all."""
        dead_letters, done = self._dead_letters, len(item.tickets)
        if dead_letters is not None:
            done = self._guarded(lambda: dead_letters.store(self._letters(dead_letters, item)))
        item.refund.pay()
        self._owe(item.tickets[:done])
        self.park(item.key, item.tickets[done:])

    def _store_unreadable(self, item: _Unreadable) -> None:
        """Store an unreadable event as a dead letter; without dead letters it stays, since it may be the only copy."""
        dead_letters = self._dead_letters
        if dead_letters is not None and self._guarded(lambda: dead_letters.store([self._letter(dead_letters, item)])):
            self._owed.setdefault(item.taking, []).append(item.event.sequence or 0)
        else:
            self.counters.add("kept_back", 1)

    def _guarded(self, store: Callable[[], int]) -> int:
        """Call ``store`` so that a failure with one batch does not keep the others from the dead letters."""
        try:
            return store()
        except BaseException:  # noqa: BLE001  # a channel may be user code, as may be parts of a result
            _log.exception("%s: a bug: events that could not be delivered stay in the channel", self._name)
            return 0

    @staticmethod
    def _letters(dead_letters: DeadLetters, item: _Failed) -> list[Event]:
        reason = dead_letters.reason_of(item.result)
        # Without the sequence key: when a dead letter is delivered, the server has seen higher numbers of that key, and
        # would report the letter as already written.
        key = item.key._replace(order="") if item.key.order.startswith(SEQUENCED) else item.key
        return [
            write_event(key, ticket.ident, logs, record, reason)
            for ticket, logs, record in zip(item.tickets, item.logs, item.records, strict=True)
        ]

    @staticmethod
    def _letter(dead_letters: DeadLetters, item: _Unreadable) -> Event:
        event = item.event
        return Event({**event.headers, **dead_letters.reason_unreadable(item.reason)}, event.body)

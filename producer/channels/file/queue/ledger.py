"""Ledger: the state of a file channel in memory: its queue, capacity, counters and waiting threads.

One lock guards all of it, and no I/O happens under that lock. The log shares the lock, so that a run's effects are
visible at once and in log order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ....model.errors import ChannelClosedError, ChannelFullError, TransactionFullError
from ....model.interfaces import Event
from ....model.owned_lock import OwnedLock
from ....runtime.clock import LOOK_AGAIN, Clock, Deadline, WaitingRoom
from ...counters import ChannelCounters
from ...room import Claim, Room
from ..log.run import Run
from ..options import FileChannelOptions
from ..store.pointers import Entry
from ..store.speed import decode_events
from .event_queue import Columns, EventQueue
from .recent import Recent

#: Events that a transaction has taken and not committed, by sequence number; guarded by the ledger's lock.
Taken = dict[int, Entry]


class Ledger:
    """Accounts of one file channel: queued, taken and reserved events, and the counters.

    :ivar name: the channel's name.
    :ivar lock: guards everything here.
    :ivar queue: the events and their places in the log.
    :ivar recent: cached payloads of recent puts.
    :ivar changes: incremented with every change that a checkpoint would record.
    """

    def __init__(self, name: str, options: FileChannelOptions, clock: Clock) -> None:
        self.name, self._options, self._clock = name, options, clock
        self.lock = OwnedLock()
        self.queue = EventQueue()
        self.changes = 0
        self._room = Room(options.capacity, options.byte_capacity, self.queue.sums, admit_larger=options.admit_larger)
        self._counters = ChannelCounters(clock)
        self._putters, self._takers = WaitingRoom(clock, LOOK_AGAIN), WaitingRoom(clock, LOOK_AGAIN)
        self._aside: list[int] = []  # unreadable events, withheld until the next checkpoint
        self.recent = Recent()
        self._orphans: list[Taken] = []  # takes of dropped transactions; appended without the lock
        self._closed: str | None = None
        self._sums: dict[str, int] = {}

    def restore(self, events: Columns, sums: dict[str, int]) -> None:
        """Start with recovered events; called before any other thread uses the ledger."""
        self.queue.restore(events)
        self._sums = dict(sums)

    # -- open and closed

    @property
    def is_open(self) -> bool:
        """True if the channel can be used."""
        return self._closed is None

    @property
    def events(self) -> int:
        """Return the approximate number of events, taken ones included; reads without the lock."""
        return len(self.queue) + len(self.queue.taken)

    def check_open(self) -> None:
        """Check that the channel can be used.

        :raises ChannelClosedError: it is closed.
        """
        if self._closed is not None:
            raise ChannelClosedError(self.name, f"{self._closed}: nothing more can be put or taken")

    def close(self, reason: str) -> bool:
        """Refuse all further calls, and wake all waiting threads; False if it was closed before."""
        with self.lock:
            if self._closed is not None:
                return False
            self._closed = reason
            self.recent = Recent()
        self.wake()
        return True

    def close_in_child(self, reason: str) -> None:
        """Close it in a forked child, where a thread of the parent may hold the lock."""
        self._closed = self._closed or reason
        self.recent = Recent()
        self.lock = OwnedLock()
        self._putters, self._takers = WaitingRoom(self._clock, LOOK_AGAIN), WaitingRoom(self._clock, LOOK_AGAIN)

    def wake(self) -> None:
        """Let all waiting threads check again; called without the lock, after every change."""
        if self._putters:
            self._putters.wake_all()
        if self._takers:
            self._takers.wake_all()

    # -- room

    def acquire(self, claim: Claim, timeout: float) -> None:
        """Reserve capacity, waiting for it; the caller must call :meth:`settle` unless the run is published.

        :param timeout: seconds to wait.
        :raises ChannelFullError: no capacity within the timeout.
        :raises ChannelClosedError: the channel is closed.
        """
        if not len(self._putters):
            with self.lock:
                if self._closed is not None:
                    self.check_open()
                if self._room.grant(claim):
                    return
        started = self._clock.monotonic()
        fits = self._room.could_hold(claim)
        if not self._putters.wait_until(lambda: self._grant(claim), Deadline(started + (timeout if fits else 0))):
            with self.lock:
                self.check_open()
                raise self._full(claim, self._clock.monotonic() - started)
        if len(self._putters):  # there may be capacity for the next waiting thread, too
            self._putters.wake_all()

    def _grant(self, claim: Claim) -> bool:
        with self.lock:
            self.check_open()
            return self._room.grant(claim)

    def settle(self, run: Run) -> None:
        """Release the capacity of a run that will not be published."""
        if run.claim is not None:
            run.claim.over = True  # if taking the lock raises, the next grant still sees it
            with self.lock:
                self._room.drop(run.claim)
            self.wake()

    def _full(self, claim: Claim, waited: float) -> ChannelFullError:
        (events, size), room = self._room.used, self._room
        return ChannelFullError(
            self.name,
            size=events,
            capacity=room.capacity,
            used_bytes=size,
            byte_capacity=room.byte_capacity,
            wanted=claim.events,
            wanted_bytes=claim.size,
            last_take_age=self._counters.last_take_age,
            waited=waited,
            never=not room.could_hold(claim),
        )

    # -- published runs

    def publish(self, run: Run) -> None:
        """Apply a durable run: queue its puts, remove its takes. Called in log order, under the lock."""
        self.changes += bool(run.puts or run.takes)
        if run.puts and run.place is not None:
            self.queue.append(run.first, run.place.segment, run.place.offsets, run.place.lengths, run.time)
            self.recent.add(run.first, run.puts)
            if run.claim is not None:
                self._room.drop(run.claim)
            self._counters.committed(len(run.puts), 0)
        if run.takes:
            # Events given back after an interrupted commit are delivered again.
            gone = [sequence for sequence in run.takes if sequence in self.queue.taken]
            self.queue.remove(gone)
            self._counters.committed(0, len(gone))

    # -- takes

    def take(self, taken: Taken, count: int, max_bytes: int | None, deadline: Deadline) -> list[Entry]:
        """Take entries into ``taken``, waiting for the first; none if the deadline passes.

        :raises TransactionFullError: ``taken`` holds ``transaction_capacity`` events.
        :raises ChannelClosedError: the channel is closed.
        """
        entries: list[Entry] = []

        def taken_now() -> bool:
            entries.extend(self._take_now(taken, count, max_bytes))
            return bool(entries)

        self._takers.wait_until(taken_now, deadline)
        return entries

    def _take_now(self, taken: Taken, count: int, max_bytes: int | None) -> list[Entry]:
        capacity = self._options.transaction_capacity
        with self.lock:
            self.check_open()
            self._return_orphans()
            if len(taken) >= capacity:
                self._counters.take_attempts += 1
                raise TransactionFullError(self.name, "takes", capacity)
            return self.queue.take(min(count, capacity - len(taken)), max_bytes, taken)

    def recent_events(self, entries: Sequence[Entry]) -> list[Event] | None:
        """Return the events of entries just taken, if all are in the cache, and remove them there; else None."""
        sequences = [entry.sequence for entry in entries]
        with self.lock:
            payloads = self.recent.pop(sequences)
        return decode_events(payloads, sequences) if len(payloads) == len(entries) else None

    def put_back(self, taken: Taken, sequences: Iterable[int]) -> None:
        """Return these of ``taken`` to the queue."""
        with self.lock:
            self._return(taken, tuple(sequences))
        self.wake()

    def _return(self, taken: Taken, sequences: Sequence[int]) -> None:
        self.queue.put_back([taken[sequence] for sequence in sequences if sequence in taken])
        for sequence in sequences:
            taken.pop(sequence, None)

    def orphan(self, taken: Taken) -> None:
        """Schedule the return of a dropped transaction's takes. Takes no lock: the collecting thread may hold it."""
        self._orphans.append(taken)

    def _return_orphans(self) -> None:
        while self._orphans:
            taken = self._orphans.pop()
            self._return(taken, tuple(taken))

    def lose(self, taken: Taken, entries: Sequence[Entry]) -> None:
        """Remove damaged events of ``taken``, and count them as lost."""
        with self.lock:
            for entry in entries:
                taken.pop(entry.sequence, None)
            self.queue.remove(tuple(entry.sequence for entry in entries if entry.sequence in self.queue.taken))
            self._counters.take_errors += len(entries)
            self._add("lost_events", len(entries))
            self._add("damaged_records", len(entries))
            self.changes += 1
        self.wake()

    def set_aside(self, taken: Taken, sequence: int) -> None:
        """Withhold one of ``taken`` from all takers until :meth:`return_aside`."""
        with self.lock:
            if taken.pop(sequence, None) is not None:
                self._aside.append(sequence)
            self._counters.take_errors += 1

    def return_aside(self) -> None:
        """Return the events that were set aside to the queue."""
        with self.lock:
            aside, self._aside = self._aside, []
            self.queue.put_back([self.queue.taken[sequence] for sequence in aside])
        if aside:
            self.wake()

    # -- counting

    def count_puts(self, attempts: int, errors: int = 0) -> None:
        """Count events given to ``put``, and failed commits of puts."""
        with self.lock:
            self._counters.put_attempts += attempts
            self._counters.put_errors += errors

    def count_takes(self, attempts: int, errors: int = 0) -> None:
        """Count events asked for, and failed takes or commits of takes."""
        with self.lock:
            self._counters.take_attempts += attempts
            self._counters.take_errors += errors

    def add(self, name: str, amount: int) -> None:
        """Add to one of the sums of :class:`~producer.model.interfaces.FileStats`."""
        with self.lock:
            self._add(name, amount)

    def _add(self, name: str, amount: int) -> None:
        self._sums[name] = self._sums.get(name, 0) + amount

    def figures(self) -> tuple[dict[str, Any], dict[str, int]]:
        """Return the fields of :class:`~producer.model.interfaces.ChannelStats`, and the sums of its ``file``, at one
        moment.
        """
        now = self._clock.time()
        with self.lock:
            self._return_orphans()
            counters, room, queue = self._counters, self._room, self.queue
            size, taken, oldest = len(queue), len(queue.taken), queue.oldest
            return {
                "open": self.is_open,
                "size": size,
                "taken": taken,
                "capacity": room.capacity,
                "fill": (size + taken) / room.capacity,
                "bytes": room.used[1],
                "byte_capacity": room.byte_capacity,
                "put_attempts": counters.put_attempts,
                "put_successes": counters.put_successes,
                "take_attempts": counters.take_attempts,
                "take_successes": counters.take_successes,
                "put_errors": counters.put_errors,
                "take_errors": counters.take_errors,
                "put_rate": counters.put_rate.per_second(),
                "take_rate": counters.take_rate.per_second(),
                "oldest_event_age": None if oldest is None else max(0.0, now - oldest),
                "last_take_age": counters.last_take_age,
                "waiting": room.waiting,
            }, {**self._sums, "recent_bytes": self.recent.size}

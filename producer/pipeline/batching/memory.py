"""MemoryBudget: the bound on the bytes of everything accepted and not yet settled, and Reservation, a part of it.

First come, first served: a request waits behind those that came before it, also when it would fit, so that a large
one is never starved by small ones. Every byte taken is given back once. The file is long because budget and reservation
share one lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Self

from ...model.errors import ProducerClosedError, SendTimeoutError
from ...model.owned_lock import OwnedLock
from ...runtime.clock import LOOK_AGAIN, Clock, Deadline, Signal
from ...runtime.compiled import either
from ..threads import stand_back
from .open_records import FIRST_QUANTUM, MAX_QUANTUM, OpenRecords


def _never_at_once(budget: MemoryBudget, open_records: OpenRecords, charge: int) -> bool:  # noqa: ARG001  # as the native one
    """See :meth:`MemoryBudget.grant`, whose usual case the compiled twin does; in Python there is no shorter way."""
    return False


def _never_reclaimed(budget: MemoryBudget) -> None:
    """Likewise of :meth:`MemoryBudget.make_free`, which takes back from all that were granted some."""


def _never_advanced_at_once(budget: MemoryBudget, open_records: OpenRecords) -> bool:  # noqa: ARG001  # as the native one
    """Likewise of :meth:`MemoryBudget.advance`."""
    return False


_advance_at_once = either(f"{__package__}._open_records", "advance_at_once", _never_advanced_at_once)
_reclaim_at_once = either(f"{__package__}._open_records", "reclaim_at_once", _never_reclaimed)
_grant_at_once = either(f"{__package__}._open_records", "grant_at_once", _never_at_once)


class MemoryBudget:
    """A fair counting semaphore of bytes.

    :param limit: bytes in all.
    :param may_wait: whether the caller's thread may wait: not if it is one that gives bytes back.
    :param oldest_age: asked, outside the lock, when a wait failed: seconds, or None.
    :param make_room: called with a number of bytes before somebody waits for them, that others may give some back.
    :ivar lock: guards all of it, the reservations, and what else changes together with them: the batches that take
        records.
    :ivar used: bytes taken.
    :ivar reserved: those of them that senders hold for records that are in no batch yet.
    :ivar sealed: those of batches that take no more records.
    :ivar waiters: who waits, in order.
    """

    def __init__(
        self,
        limit: int,
        clock: Clock,
        *,
        may_wait: Callable[[], bool] = lambda: True,
        oldest_age: Callable[[], float | None] = lambda: None,
        make_room: Callable[[int], object] = lambda _wanted: None,
    ) -> None:
        self.limit = limit
        self.clock = clock
        self.may_wait = may_wait
        self.oldest_age = oldest_age
        self.make_room = make_room
        self.lock = OwnedLock()
        self.used = self.reserved = self.sealed = 0
        self.waiters: deque[Reservation] = deque()
        #: Open batches that may have been granted more than they have spent.
        self._creditors: dict[OpenRecords, None] = {}
        #: How many these were when it was last taken back: when memory is short it is shared by so many, evenly, or the
        #: first to ask would have it all, and it would have to be taken back for each of the next.
        self._sharers = 0
        self.closed = False
        self._waited = 0.0

    @property
    def waiting(self) -> int:
        """Senders that wait for bytes at this moment."""
        return len(self.waiters)

    @property
    def waited(self) -> float:
        """The seconds that all waits for bytes took together; waits that go on are not in it yet."""
        return self._waited

    def has(self, amount: int) -> bool:
        """Whether ``amount`` bytes are free, and nobody waits for them. The caller holds the lock."""
        return not self.waiters and not self.closed and self.used + amount <= self.limit

    def make_free(self, amount: int) -> bool:
        """As :meth:`has`; if need be, what was granted to open batches and not spent is taken back first. Who was taken
        from once has nothing that could be taken, so that to be refused again and again costs little. The caller holds
        the lock.
        """
        if self.has(amount):
            return True
        if self.waiters or self.closed:
            return False
        self._reclaim()
        return self.has(amount)

    def _reclaim(self) -> None:
        self._sharers = max(2 * len(self._creditors), self._sharers - self._sharers // 8)
        _reclaim_at_once(self)
        while self._creditors:
            records, _ = self._creditors.popitem()
            before = records.granted
            records.reclaim()
            self.used -= before - records.granted

    def grant(self, open_records: OpenRecords, charge: int) -> bool:
        """Let an open batch spend ``charge`` bytes more, and some bytes in advance where there are enough; whether it
        may. Refused if it is closed, if there are too few, and while others wait for some.

        :raises ProducerError: a finalizer or signal handler interrupted this thread while it held the lock.
        """
        if _grant_at_once(self, open_records, charge):
            return True
        with self.lock:
            if open_records.closed:
                return False
            missing = charge - (open_records.granted - open_records.spent)
            largest = min(max(2 * open_records.quantum, FIRST_QUANTUM), MAX_QUANTUM)
            largest = max(largest, charge)
            quantum = max(min(largest, self._share()), charge)
            if missing > quantum or self.waiters or self.closed or self.used + quantum > self.limit:
                if not self.make_free(missing):
                    return False
                quantum = charge - (open_records.granted - open_records.spent)  # it may have been taken from
                quantum = max(quantum, 0)
                if not self.has(quantum):
                    return False
            self._creditors[open_records] = None
            self.used += quantum
            open_records.granted += quantum
            open_records.quantum = largest
            return True

    def advance(self, open_records: OpenRecords) -> None:
        """Let an open batch to which more logs will come spend ``FIRST_QUANTUM`` bytes in advance, once, so that the
        next logs of very many streams ask for nothing. It is granted none while others wait, or if that is more than
        its share of what is free: nothing is taken back from others for it.
        """
        if _advance_at_once(self, open_records):
            return
        with self.lock:
            if open_records.closed or open_records.quantum or not self.has(FIRST_QUANTUM):
                return
            if self._share() < FIRST_QUANTUM:
                return
            self._creditors[open_records] = None
            self.used += FIRST_QUANTUM
            open_records.granted += FIRST_QUANTUM
            open_records.quantum = FIRST_QUANTUM

    def _share(self) -> int:
        """What one of those who hold memory in advance may have of what is free, bytes. The caller holds the lock."""
        creditors = len(self._creditors)
        return (self.limit - self.used) // max(self._sharers - creditors, creditors, 1)

    def has_spent(self, open_records: OpenRecords) -> None:
        """A batch has nothing left that could be taken back. The caller holds the lock."""
        self._creditors.pop(open_records, None)

    def needs_open_batches(self, wanted: int) -> bool:
        """Whether those who want so many bytes need what batches hold that take records, which give nothing back before
        they have lingered: it would not fit if everything else came back, or they hold most of the memory.
        """
        unsealed = self.used - self.sealed
        return self.used + wanted > self.limit and (unsealed + wanted > self.limit or 2 * unsealed > self.limit)

    def take(self, reservation: Reservation, amount: int) -> bool:
        """Let ``reservation`` have ``amount`` bytes more, if they are free; whether they were.

        :raises ProducerClosedError: the producer closes.
        """
        stand_back(self.lock)
        with self.lock:
            if self.closed:
                raise ProducerClosedError("the producer is closed")
            if not self.make_free(amount):
                return False
            self.used += amount
            self.reserved += amount
            reservation.held += amount
            return True

    def line_up(self, reservation: Reservation) -> None:
        """Let ``reservation`` have what it wants in its turn; to be followed by :meth:`leave`."""
        with self.lock:
            self.waiters.append(reservation)
            self._reclaim()
            self._grant()  # what there was too little of may have been given back since

    def leave(self, reservation: Reservation, waited: float) -> None:
        """``reservation`` waits no more, after so many seconds; whoever waited behind it may fit now."""
        with self.lock:
            self._waited += waited
            if reservation in self.waiters:
                self.waiters.remove(reservation)
            self._grant()

    def release(self, amount: int) -> None:
        """Give back bytes of a batch that takes no more records."""
        stand_back(self.lock)
        with self.lock:
            self.give_back(amount)

    def give_back(self, amount: int) -> None:
        """As :meth:`release`. The caller holds the lock."""
        self.used -= amount
        self.sealed -= amount
        self._grant()

    def take_back(self, reservation: Reservation, keep: int) -> None:
        """Take what ``reservation`` holds beyond ``keep`` bytes."""
        with self.lock:
            surplus = reservation.held - keep
            if surplus > 0:
                self.used -= surplus
                self.reserved -= surplus
                reservation.held = keep
            self._grant()

    def end(self, reservation: Reservation) -> None:
        """``reservation`` is used no more."""
        with self.lock:
            if reservation in self.waiters:  # a signal handler that raised kept it from leaving
                self.waiters.remove(reservation)
            self.used -= reservation.held
            self.reserved -= reservation.held
            reservation.held = reservation.wanted = 0
            self._grant()

    def usage(self) -> tuple[int, int]:
        """Bytes taken, and those of them that senders hold for records that are in no batch yet."""
        with self.lock:
            return self.used, self.reserved

    def _grant(self) -> None:
        """Serve the waiters in order, as far as the bytes reach. The caller holds the lock."""
        while self.waiters and not self.closed and self.used + self.waiters[0].wanted <= self.limit:
            first = self.waiters[0]
            self.used += first.wanted
            self.reserved += first.wanted
            first.held += first.wanted
            first.wanted = 0
            del self.waiters[0]
            first.wake.set()

    def close(self) -> None:
        """Refuse every request from now on, also those that wait."""
        with self.lock:
            self.closed = True
            for waiter in self.waiters:
                waiter.wake.set()


class Reservation:
    """Bytes that a sender holds for records that are in no batch yet; used by one thread, in ``with``.

    All its waits together have one deadline. It never waits while it holds anything: two that did could wait for each
    other.

    :param budget: where the bytes come from, and go back to at the end.
    :param max_block: seconds that all waits may take together; 0 does not wait, None waits for ever.
    :ivar held: bytes; guarded by the budget's lock, as is the next.
    :ivar wanted: bytes that it stands in line for.
    :ivar wake: set when they are granted, or the producer closes.
    """

    __slots__ = ("_budget", "_deadline", "_max_block", "_started", "held", "wake", "wanted")

    def __init__(self, budget: MemoryBudget, max_block: float | None) -> None:
        self._budget = budget
        self._max_block = max_block
        self._started = 0.0
        self._deadline: Deadline | None = None
        self.held = self.wanted = 0
        self.wake = Signal()

    def acquire(self, amount: int) -> None:
        """Hold ``amount`` bytes, or all that there are if that is less; waits for them.

        :raises SendTimeoutError: not enough became free before the deadline.
        :raises ProducerClosedError: the producer closes.
        """
        budget = self._budget
        amount = min(amount, budget.limit)
        budget.take_back(self, 0)
        if budget.take(self, amount):
            return
        budget.make_room(amount)
        began, deadline = budget.clock.monotonic(), self._begin_waiting()
        if budget.may_wait() and not deadline.expired(budget.clock) and self._wait(amount, deadline, began):
            return
        raise SendTimeoutError(
            limit=budget.limit,
            used=budget.used,
            wanted=amount,
            oldest_age=budget.oldest_age(),
            waited=budget.clock.monotonic() - self._started,
        )

    def _begin_waiting(self) -> Deadline:
        if self._deadline is None:
            self._started = self._budget.clock.monotonic()
            self._deadline = Deadline(None if self._max_block is None else self._started + self._max_block)
        return self._deadline

    def _wait(self, amount: int, deadline: Deadline, began: float) -> bool:
        """Stand in line for ``amount`` bytes; whether they were granted.

        :param began: when the wait did, monotonic seconds, so that one that lasts to its deadline counts as a whole.
        """
        budget, clock = self._budget, self._budget.clock
        self.wanted = amount
        try:
            budget.line_up(self)
            while self.wanted and not budget.closed and not deadline.expired(clock):
                clock.wait_for(self.wake, deadline.within(clock, LOOK_AGAIN))
        finally:
            budget.leave(self, clock.monotonic() - began)
        if self.wanted and budget.closed:
            raise ProducerClosedError("the producer was closed while send waited for memory")
        return not self.wanted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.end(self)

    def __del__(self) -> None:
        if self.held:  # a signal handler raised at the end of ``with``
            self._budget.end(self)

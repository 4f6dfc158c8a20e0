"""MemoryBudget: bounds the bytes of all accepted records until they are completed.

It is fair. A request waits behind earlier ones, even if it would fit: small requests never starve a large one. Every
byte taken is returned once.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ...model.errors import ProducerClosedError
from ...model.owned_lock import OwnedLock, reentered
from ...runtime.clock import LOOK_AGAIN, Clock, Deadline, Signal
from ...runtime.compiled import either
from ...runtime.locks import RLock
from ..threads import wait_until_free


class PureBytes:
    """Counts the bytes in use against a limit.

    :ivar used: bytes.
    :ivar reserved_for_others: True while senders wait for bytes, and after the close: :meth:`take` then takes none.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.reserved_for_others = False
        self._own_lock = RLock()  # guards used; never taken twice by one thread

    def take(self, amount: int) -> bool:
        """Take ``amount`` bytes if they are free and no other sender waits; return True if they were taken.

        :raises ProducerError: a finalizer or a signal handler interrupted this thread while it changed the count.
        """
        lock = self._own_lock
        if lock._is_owned():  # an OwnedLock costs more, for each log
            raise reentered()
        with lock:
            used = self.used + amount
            if self.reserved_for_others or used > self.limit:
                return False
            self.used = used
            return True

    def change(self, amount: int) -> None:
        """Add ``amount`` bytes, which may be negative, regardless of the limit."""
        with self._own_lock:
            self.used += amount


if TYPE_CHECKING:
    Bytes = PureBytes
else:
    Bytes = either(f"{__package__}._open_records", "Bytes", PureBytes)


class MemoryBudget(Bytes):
    """A fair counting semaphore of bytes. Open batches take theirs log by log, without :attr:`lock`.

    :param limit: bytes in all.
    :ivar lock: guards the attributes below, the reservations, and the open batches.
    :ivar reserved: bytes that senders hold for records that are in no batch yet.
    :ivar sealed: bytes of sealed batches.
    :ivar waiters: the reservations that wait, in order.
    :ivar waited: seconds that all ended reservations took together.
    """

    def __init__(self, limit: int, clock: Clock) -> None:
        super().__init__(limit)
        self.clock = clock
        self.lock = OwnedLock()
        self.reserved = self.sealed = 0
        self.waiters: deque[Reservation] = deque()
        self.closed = False
        self.waited = 0.0

    @property
    def waiting(self) -> int:
        """The number of senders that wait for bytes."""
        return len(self.waiters)

    def needs_open_batches(self, wanted: int) -> bool:
        """Return True if a sender that wants ``wanted`` bytes needs open batches to be sealed.

        It would not fit even if all other bytes were returned, or the open batches hold most of the memory. Open
        batches return nothing before they have lingered.
        """
        unsealed = self.used - self.sealed
        return self.used + wanted > self.limit and (unsealed + wanted > self.limit or 2 * unsealed > self.limit)

    def release(self, amount: int) -> None:
        """Return bytes of a sealed batch."""
        wait_until_free(self.lock)
        with self.lock:
            self.give_back(amount)

    def give_back(self, amount: int) -> None:
        """Return bytes of a sealed batch. The caller holds the lock."""
        self.change(-amount)
        self.sealed -= amount
        self.serve()

    def usage(self) -> tuple[int, int]:
        """Return the bytes in use, and how many of them senders hold for records that are in no batch yet."""
        with self.lock:
            return self.used, self.reserved

    def serve(self) -> None:
        """Grant waiting requests, in order, while there are enough bytes. The caller holds the lock."""
        while self.waiters and not self.closed and self.used + self.waiters[0].wanted <= self.limit:
            first = self.waiters[0]
            first.hold(first.wanted)
            first.wanted = 0
            self.waiters.popleft()  # not before: after an interrupt the next call serves it
            first.wake.set()
        self.reserved_for_others = self.closed or bool(self.waiters)

    def close(self) -> None:
        """Refuse all requests, including those that wait."""
        with self.lock:
            self.closed = self.reserved_for_others = True
            for waiter in self.waiters:
                waiter.wake.set()


class Reservation:
    """Bytes that a sender holds for records that are in no batch yet; used by one thread, which calls :meth:`end`.

    All its waits share one deadline. It never waits while it holds bytes: two reservations that did could wait for each
    other.

    :param max_block: seconds that all waits may take together; 0 never waits, None waits without a limit.
    :ivar held: bytes; guarded by the budget's lock, as is ``wanted``.
    :ivar wanted: bytes that it waits for.
    :ivar wake: set when they are granted, or at the close.
    """

    __slots__ = ("_began", "_budget", "_deadline", "held", "wake", "wanted")

    def __init__(self, budget: MemoryBudget, max_block: float | None) -> None:
        self._budget = budget
        self._began = budget.clock.monotonic()
        self._deadline = Deadline(None if max_block is None else self._began + max_block)
        self.held = self.wanted = 0
        self.wake = Signal()

    def hold(self, amount: int) -> None:
        """Take ``amount`` bytes regardless of the limit; return them if negative. The caller holds the lock."""
        self.held += amount
        self._budget.reserved += amount
        self._budget.change(amount)

    def spend(self, amount: int) -> None:
        """Pass ``amount`` of the held bytes to a batch. The caller holds the lock."""
        self.held -= amount
        self._budget.reserved -= amount

    def reserve(self, amount: int) -> bool:
        """Hold exactly ``amount`` bytes; wait for them in turn until the deadline. Return True if they are held.

        :raises ProducerClosedError: the producer closes.
        """
        budget, clock = self._budget, self._budget.clock
        wait_until_free(budget.lock)
        try:
            with budget.lock:
                self.hold(-self.held)
                self.wanted = amount
                budget.waiters.append(self)
                budget.serve()
            while self.wanted and not budget.closed and not self._deadline.expired(clock):
                clock.wait_for(self.wake, self._deadline.within(clock, LOOK_AGAIN))
        finally:
            with budget.lock:
                self._leave()
        if self.wanted and budget.closed:
            raise ProducerClosedError("the producer was closed while send waited for memory")
        return not self.wanted

    def _leave(self) -> None:
        if self in self._budget.waiters:
            self._budget.waiters.remove(self)
        self._budget.serve()  # later requests may fit

    @property
    def waited(self) -> float:
        """Seconds since it was made."""
        return self._budget.clock.monotonic() - self._began

    def end(self) -> None:
        """Return the bytes that are held."""
        waited = self.waited
        with self._budget.lock:
            self._budget.waited += waited
            self.hold(-self.held)
            self._leave()


class Refund:
    """Bytes of a batch that are returned to the budget once, however often :meth:`pay` is called."""

    __slots__ = ("_amount", "_budget")

    def __init__(self, budget: MemoryBudget, amount: int) -> None:
        self._budget, self._amount = budget, amount

    def pay(self) -> None:
        """Return the bytes to the budget."""
        amount, self._amount = self._amount, 0
        self._budget.release(amount)

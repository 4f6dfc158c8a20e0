"""Memory: the bound on the bytes of everything accepted and not yet settled.

First come, first served: a request waits behind those that came before it, also when it would fit, so that a large
one is never starved by small ones. Every byte taken is given back once.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Self

from ...model.errors import ProducerClosedError
from ...model.owned_lock import OwnedLock, reentered
from ...runtime.clock import LOOK_AGAIN, Clock, Deadline, Signal
from ...runtime.compiled import either
from ..threads import stand_back


class PureBytes:
    """Counts the bytes in use against a limit.

    :ivar used: bytes.
    :ivar reserved_for_others: True while senders wait for bytes, and after the close: :meth:`take` takes none.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.reserved_for_others = False
        self._own_lock = threading.RLock()  # guards used; never taken twice

    def take(self, amount: int) -> bool:
        """Take ``amount`` bytes if they are free and no other sender waits; return whether they were taken.

        :raises ProducerError: a finalizer or signal handler interrupted this thread in a change of the count.
        """
        lock = self._own_lock
        if lock._is_owned():  # type: ignore[attr-defined]  # an OwnedLock costs more, for each log
            raise reentered()
        with lock:
            used = self.used + amount
            if self.reserved_for_others or used > self.limit:
                return False
            self.used = used
            return True

    def change(self, amount: int) -> None:
        """Add ``amount`` bytes, which may be negative, whatever the limit."""
        with self._own_lock:
            self.used += amount


if TYPE_CHECKING:
    Bytes = PureBytes
else:
    Bytes = either(f"{__package__}._open_records", "Bytes", PureBytes)


class MemoryBudget(Bytes):
    """A fair counting semaphore of bytes. Open batches take theirs one log after the other, without :attr:`lock`.

    :param limit: bytes in all.
    :ivar lock: guards all below, the reservations, and the batches that take records.
    :ivar reserved: bytes that senders hold for records that are in no batch yet.
    :ivar sealed: bytes of batches that take no more records.
    :ivar waiters: the reservations that wait, in order.
    :ivar waited: seconds that all waits for bytes took together, without those that go on.
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
        """Senders that wait for bytes."""
        return len(self.waiters)

    def needs_open_batches(self, wanted: int) -> bool:
        """Return True if a sender that wants ``wanted`` bytes needs those of open batches, which give none back before
        they have lingered: it would not fit if all else came back, or they hold most of the memory.
        """
        unsealed = self.used - self.sealed
        return self.used + wanted > self.limit and (unsealed + wanted > self.limit or 2 * unsealed > self.limit)

    def release(self, amount: int) -> None:
        """Give back bytes of a batch that takes no more records."""
        stand_back(self.lock)
        with self.lock:
            self.give_back(amount)

    def give_back(self, amount: int) -> None:
        """As :meth:`release`, with the lock held."""
        self.change(-amount)
        self.sealed -= amount
        self.serve()

    def usage(self) -> tuple[int, int]:
        """Return the bytes in use, and those of them that senders hold for records that are in no batch yet."""
        with self.lock:
            return self.used, self.reserved

    def serve(self) -> None:
        """Grant the waiters what they want, in order, as far as the bytes reach. The caller holds the lock."""
        while self.waiters and not self.closed and self.used + self.waiters[0].wanted <= self.limit:
            first = self.waiters.popleft()
            first.hold(first.wanted)
            first.wanted = 0
            first.wake.set()
        self.reserved_for_others = self.closed or bool(self.waiters)

    def close(self) -> None:
        """Refuse all requests, also those that wait."""
        with self.lock:
            self.closed = self.reserved_for_others = True
            for waiter in self.waiters:
                waiter.wake.set()


class Reservation:
    """Bytes that a sender holds for records that are in no batch yet; used by one thread, in ``with``.

    All its waits together have one deadline. It never waits while it holds anything: two that did could wait for each
    other.

    :param max_block: seconds that all waits may take together; 0 does not wait, None waits without a limit.
    :ivar held: bytes; guarded by the budget's lock, as is the next.
    :ivar wanted: bytes that it waits for.
    :ivar wake: set when they are granted, or at the close.
    """

    __slots__ = ("_budget", "_deadline", "_since", "_started", "held", "max_block", "wake", "wanted")

    def __init__(self, budget: MemoryBudget, max_block: float | None) -> None:
        self._budget = budget
        self.max_block = max_block
        self._started: float | None = None  # when its first wait began, monotonic seconds
        self._since = 0.0  # when this one did
        self._deadline = Deadline(None)
        self.held = self.wanted = 0
        self.wake = Signal()

    def hold(self, amount: int) -> None:
        """Take ``amount`` bytes whatever the limit, or give them back if negative. The caller holds the lock."""
        self.held += amount
        self._budget.reserved += amount
        self._budget.change(amount)

    def spend(self, amount: int) -> None:
        """Let a batch owe ``amount`` of the bytes held. The caller holds the lock."""
        self.held -= amount
        self._budget.reserved -= amount

    def reserve(self, amount: int) -> bool:
        """Hold ``amount`` bytes, and no others, if they are free; return whether they are held.

        :raises ProducerClosedError: the producer closes.
        """
        budget = self._budget
        stand_back(budget.lock)
        with budget.lock:
            self.hold(-self.held)
            budget.serve()
            if budget.closed:
                raise ProducerClosedError("the producer is closed")
            if budget.take(amount):
                self.held = amount
                budget.reserved += amount
                return True
        self._since = budget.clock.monotonic()
        if self._started is None:
            self._started = self._since
            self._deadline = Deadline(None if self.max_block is None else self._since + self.max_block)
        return False

    def wait(self, amount: int) -> bool:
        """After :meth:`reserve`: wait for the bytes until the deadline; return whether they are held.

        :raises ProducerClosedError: the producer closes.
        """
        budget, clock = self._budget, self._budget.clock
        if self._deadline.expired(clock):
            return False
        try:
            with budget.lock:
                self.wanted = amount
                budget.waiters.append(self)
                budget.serve()  # bytes may have been given back since
            while self.wanted and not budget.closed and not self._deadline.expired(clock):
                clock.wait_for(self.wake, self._deadline.within(clock, LOOK_AGAIN))
        finally:
            waited = clock.monotonic() - self._since
            with budget.lock:
                budget.waited += waited
                self._leave()
        if self.wanted and budget.closed:
            raise ProducerClosedError("the producer was closed while send waited for memory")
        return not self.wanted

    def _leave(self) -> None:
        if self in self._budget.waiters:
            self._budget.waiters.remove(self)
        self._budget.serve()  # those behind it may fit

    @property
    def waited(self) -> float:
        """The seconds since its first wait began."""
        return 0.0 if self._started is None else self._budget.clock.monotonic() - self._started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Give back the bytes that are held."""
        with self._budget.lock:
            self.hold(-self.held)
            self._leave()


class Refund:
    """Bytes of a batch that are given back to the budget once, however often :meth:`pay` is called."""

    __slots__ = ("_amount", "_budget")

    def __init__(self, budget: MemoryBudget, amount: int) -> None:
        self._budget, self._amount = budget, amount

    def pay(self) -> None:
        """Give them back."""
        amount, self._amount = self._amount, 0
        self._budget.release(amount)

"""MemoryBudget: the bound on the bytes of everything accepted and not yet settled.

First come, first served: a request waits behind those that came before it, also when it would fit, so that a large
one is never starved by small ones. Every byte taken is given back by exactly one ``release``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from ..clock import Clock, Deadline
from ..errors import ProducerClosedError, SendTimeoutError


class _Waiter:
    __slots__ = ("amount", "granted", "wake")

    def __init__(self, amount: int) -> None:
        self.amount = amount
        self.granted = False
        self.wake: SimpleQueue[None] = SimpleQueue()


class MemoryBudget:
    """A fair counting semaphore of bytes.

    :param limit: bytes in all.
    :param may_wait: whether the caller's thread may wait: not if it is one that gives bytes back.
    :param oldest_age: asked, outside the lock, when a wait failed: seconds, or None.
    """

    def __init__(
        self,
        limit: int,
        clock: Clock,
        oldest_age: Callable[[], float | None] = lambda: None,
        may_wait: Callable[[], bool] = lambda: True,
        lock: threading.Lock | None = None,
    ) -> None:
        self.limit = limit
        self._clock = clock
        self._oldest_age = oldest_age
        self._may_wait = may_wait
        self._lock = lock or threading.Lock()  # guards used, waiters, _closed and _waited
        self.used = 0
        self.waiters: deque[_Waiter] = deque()
        self._closed = False
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
        return not self.waiters and not self._closed and self.used + amount <= self.limit

    def acquire(self, amount: int, max_block: float | None) -> None:
        """Take ``amount`` bytes.

        :param amount: bytes; the caller has checked that it is not more than :attr:`limit`.
        :param max_block: seconds to wait; 0 does not wait, None waits for ever.
        :raises SendTimeoutError: not enough became free in time.
        :raises ProducerClosedError: the producer closes.
        """
        with self._lock:
            if self._closed:
                raise ProducerClosedError("the producer is closed")
            if not self.waiters and self.used + amount <= self.limit:
                self.used += amount
                return
        started = self._clock.monotonic()
        if max_block != 0 and self._may_wait() and self._wait(amount, Deadline.after(self._clock, max_block)):
            return
        waited = self._clock.monotonic() - started
        age = self._oldest_age()
        raise SendTimeoutError(limit=self.limit, used=self.used, wanted=amount, oldest_age=age, waited=waited)

    def _wait(self, amount: int, deadline: Deadline) -> bool:
        """Stand in line for ``amount`` bytes; whether they were granted.

        An exception that a signal handler raises may fall on any line: it must leave no lock held and nobody in line.
        That is why the waiting is one call into a queue written in C, and not a condition around the shared lock.
        """
        waiter, kept, started = _Waiter(amount), False, self._clock.monotonic()
        try:
            self._line_up(waiter)
            while not waiter.granted and not self._closed and not deadline.expired(self._clock):
                self._clock.wait_for(waiter.wake, deadline)
            kept = waiter.granted
        finally:
            if not kept:
                self._leave(waiter)
            self._count_wait(started)
        if not kept and self._closed:
            raise ProducerClosedError("the producer was closed while send waited for memory")
        return kept

    def _line_up(self, waiter: _Waiter) -> None:
        with self._lock:
            self.waiters.append(waiter)
            self._grant()  # what there was too little of may have been given back since

    def _count_wait(self, started: float) -> None:
        with self._lock:
            self._waited += self._clock.monotonic() - started

    def _leave(self, waiter: _Waiter) -> None:
        """Give up: what was granted meanwhile goes back, and whoever waited behind this one may fit now."""
        with self._lock:
            if waiter.granted:
                self.used -= waiter.amount
            elif waiter in self.waiters:
                self.waiters.remove(waiter)
            self._grant()

    def release(self, amount: int) -> None:
        """Give ``amount`` bytes back."""
        with self._lock:
            self.used -= amount
            self._grant()

    def _grant(self) -> None:
        """Serve the waiters in order, as far as the bytes reach. The caller holds the lock."""
        while self.waiters and not self._closed and self.used + self.waiters[0].amount <= self.limit:
            waiter = self.waiters.popleft()
            self.used += waiter.amount
            waiter.granted = True
            waiter.wake.put(None)

    def close(self) -> None:
        """Refuse every request from now on, also those that wait."""
        with self._lock:
            self._closed = True
            for waiter in self.waiters:
                waiter.wake.put(None)

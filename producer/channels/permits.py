"""Permits: the room in a channel, in events and in bytes, first come, first served.

It has no lock of its own: a channel guards it by the lock that guards its queue, so that room and content change
together. Waiting happens outside that lock, in :meth:`Waiter.wait`.

A call that is interrupted (see :mod:`.turns`) has granted nothing half-way; an interrupted :meth:`Permits.release` may
have happened or not. What can never fit would hold up the line until its owner leaves: callers refuse it before.
"""

from __future__ import annotations

from collections import deque
from queue import SimpleQueue

from ..clock import Clock, Deadline


class Waiter:
    """One who stands in line.

    :ivar granted: whether the room is his.
    """

    __slots__ = ("events", "granted", "size", "wake")

    def __init__(self, events: int, size: int) -> None:
        self.events, self.size = events, size
        self.granted = False
        self.wake: SimpleQueue[None] = SimpleQueue()

    def wait(self, clock: Clock, deadline: Deadline) -> None:
        """Return once woken, or at the deadline; called without the channel's lock."""
        clock.wait_for(self.wake, deadline)


class Permits:
    """See the module. Every method is called with the channel's lock held.

    :param capacity: events.
    :param byte_capacity: bytes; None for no limit.
    """

    def __init__(self, capacity: int, byte_capacity: int | None) -> None:
        self.capacity, self.byte_capacity = capacity, byte_capacity
        self.events = self.size = 0
        self._line: deque[Waiter] = deque()

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._line)

    def acquire(self, events: int, size: int) -> bool:
        """Take room at once, if there is enough and nobody stands in line for it."""
        if self._line or not self._fits(events, size):
            return False
        self._take(events, size)
        return True

    def could_hold(self, events: int, size: int) -> bool:
        """Whether so much would fit if nothing else were there."""
        return events <= self.capacity and (self.byte_capacity is None or size <= self.byte_capacity)

    def force(self, events: int, size: int) -> None:
        """Take room that is there by definition, or has to be: for what a channel finds when it is opened."""
        self._take(events, size)

    def line_up(self, events: int, size: int) -> Waiter:
        """Stand in line for room; to be followed by :meth:`leave`, unless it is granted and kept."""
        waiter = Waiter(events, size)
        try:
            self._line.append(waiter)
            self._grant()
        except BaseException:  # an interrupt: the caller has nothing that he could give up
            self.leave(waiter)
            raise
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Give up the place in the line, or the room that was granted meanwhile."""
        if waiter.granted:
            waiter.granted = False
            self.release(waiter.events, waiter.size)
            return
        if waiter in self._line:
            self._line.remove(waiter)
        self._grant()

    def release(self, events: int, size: int) -> None:
        """Give room back.

        :raises RuntimeError: more than was taken: a bug.
        """
        if events > self.events or size > self.size:
            raise RuntimeError(f"{events} events of {size} bytes given back, of {self.events} of {self.size} taken")
        self.events -= events
        self.size -= size
        self._grant()

    def resize(self, capacity: int, byte_capacity: int | None) -> bool:
        """Change the limits; False, and nothing changes, if more than the new ones is in use."""
        if self.events > capacity or (byte_capacity is not None and self.size > byte_capacity):
            return False
        self.capacity, self.byte_capacity = capacity, byte_capacity
        self._grant()
        return True

    def wake_all(self) -> None:
        """Let everybody in line look again: the channel was closed."""
        for waiter in self._line:
            waiter.wake.put(None)

    def _fits(self, events: int, size: int) -> bool:
        if events and self.events + events > self.capacity:
            return False
        return not size or self.byte_capacity is None or self.size + size <= self.byte_capacity

    def _take(self, events: int, size: int) -> None:
        self.events += events
        self.size += size

    def _grant(self) -> None:
        while self._line and self._fits(self._line[0].events, self._line[0].size):
            waiter = self._line[0]
            # At once.
            self.events += waiter.events
            self.size += waiter.size
            waiter.granted = True
            del self._line[0]
            waiter.wake.put(None)

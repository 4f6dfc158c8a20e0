"""Room: the capacity of a channel in events and bytes, granted first come, first served.

It has no lock of its own: the lock of the channel's queue guards it, so that capacity and content change together.
Threads wait outside that lock, in a :class:`~producer.runtime.clock.WaitingRoom`. A claim that can never fit would
block the line, so callers refuse it first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Claim:
    """A request for capacity.

    :ivar granted: True if its owner has the capacity.
    :ivar over: True if its owner no longer needs it, even if :meth:`Room.drop` has not been called yet.
    """

    __slots__ = ("events", "granted", "over", "size")

    def __init__(self, events: int, size: int) -> None:
        self.events, self.size = events, size
        self.granted = self.over = False


class Room:
    """Limits and claims of one channel. Every method is called with the channel's lock held.

    :param capacity: number of events.
    :param byte_capacity: bytes; None for no limit.
    :param stored: returns the events and bytes in the channel.
    :param admit_larger: True to admit a larger claim when the channel is empty.
    """

    def __init__(
        self,
        capacity: int,
        byte_capacity: int | None,
        stored: Callable[[], tuple[int, int]],
        *,
        admit_larger: bool = False,
    ) -> None:
        self.capacity, self.byte_capacity, self._admit_larger = capacity, byte_capacity, admit_larger
        self._stored = stored
        self._granted = self._granted_bytes = 0
        self._line: deque[Claim] = deque()

    @property
    def used(self) -> tuple[int, int]:
        """Return the events and bytes in use: stored or granted."""
        events, size = self._stored()
        return events + self._granted, size + self._granted_bytes

    @property
    def waiting(self) -> int:
        """Return the number of waiting claims."""
        return sum(not claim.over for claim in self._line)

    def could_hold(self, claim: Claim) -> bool:
        """True if the claim would fit into an empty channel."""
        most = self.byte_capacity
        return claim.events <= self.capacity and (most is None or claim.size <= most or self._admit_larger)

    def grant(self, claim: Claim) -> bool:
        """Grant a claim, unless others are before it or there is too little capacity; True if it is granted."""
        line = self._line
        while line and line[0].over:
            line.popleft()
        if claim.granted:
            return True
        events, size = self._stored()
        if (line and line[0] is not claim) or not self._fits(claim, events + self._granted, size + self._granted_bytes):
            if claim not in line:
                line.append(claim)
            return False
        claim.granted = True
        self._granted += claim.events
        self._granted_bytes += claim.size
        if line:
            line.popleft()
        return True

    def drop(self, claim: Claim) -> None:
        """Release a claim's capacity, or its place in the line; may be called again."""
        claim.over = True
        if claim.granted:
            claim.granted = False
            self._granted -= claim.events
            self._granted_bytes -= claim.size
        elif claim in self._line:
            self._line.remove(claim)

    def _fits(self, claim: Claim, events: int, size: int) -> bool:
        """True if the claim fits beside the events and bytes in use."""
        if claim.events and events + claim.events > self.capacity:
            return False
        if not claim.size or self.byte_capacity is None or size + claim.size <= self.byte_capacity:
            return True
        return self._admit_larger and not size

"""Room: how many events, and how many bytes, may be in a channel; first come, first served.

What is in use is not counted up and down, since an exception that a signal handler raises could come between two
counts: it is what the channel says that it holds, and the claims of those who are about to store something. A claim has
its room, or its place in the line, until it is dropped; if an interrupt kept its owner from doing so, until the claim
is gone with whatever held it.

It has no lock of its own: a channel guards it by the lock that guards its queue, so that room and content change
together. Waiting happens outside that lock, in a :class:`~producer.runtime.clock.WaitingRoom`. What can never fit
would hold up
the line until its owner leaves: callers refuse it before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from weakref import ref

_numbers = itertools.count()


class Claim:
    """What somebody wants room for.

    :ivar granted: whether the room is his.
    """

    __slots__ = ("__weakref__", "events", "granted", "number", "size")

    def __init__(self, events: int, size: int) -> None:
        self.events, self.size = events, size
        self.granted = False
        self.number = next(_numbers)


class Room:
    """The limits of one channel, and who has claimed what of them. Every method is called with the channel's lock held.

    :param capacity: events.
    :param byte_capacity: bytes; None for no limit.
    :param admit_larger: let in alone what has more.
    :param stored: what the channel holds: events, and bytes.
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
        self._claims: dict[int, ref[Claim]] = {}  # by number

    @property
    def used(self) -> tuple[int, int]:
        """Events and bytes in use."""
        events, size = self._stored()
        for claim in self._living():
            if claim.granted:
                events += claim.events
                size += claim.size
        return events, size

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return sum(not claim.granted for claim in self._living())

    def _living(self) -> list[Claim]:
        """The claims that somebody has; the others are forgotten."""
        if not self._claims:
            return []
        claims = [claim for each in self._claims.values() if (claim := each()) is not None]
        if len(claims) < len(self._claims):
            self._claims = {claim.number: ref(claim) for claim in claims}
        return claims

    def could_hold(self, claim: Claim) -> bool:
        """Whether it would fit if nothing else were there."""
        most = self.byte_capacity
        return claim.events <= self.capacity and (most is None or claim.size <= most or self._admit_larger)

    def grant(self, claim: Claim) -> bool:
        """Let it have its room, if nobody came before it who still waits, and there is enough; else it is in line."""
        if claim.granted:
            return True
        alone = not self._claims
        self._claims[claim.number] = ref(claim)
        if alone:
            claim.granted = self._fits(claim, *self._stored())
        elif all(other.granted or other.number >= claim.number for other in self._living()):
            claim.granted = self._fits(claim, *self.used)
        return claim.granted

    def drop(self, claim: Claim) -> None:
        """It needs its room, or its place in the line, no more; may be called again."""
        self._claims.pop(claim.number, None)

    def _fits(self, claim: Claim, events: int, size: int) -> bool:
        """Whether there is enough beside what is in use."""
        if claim.events and events + claim.events > self.capacity:
            return False
        if not claim.size or self.byte_capacity is None or size + claim.size <= self.byte_capacity:
            return True
        return self._admit_larger and not size

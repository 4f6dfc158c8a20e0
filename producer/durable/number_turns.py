"""NumberTurns: lets one sender at a time store pieces on a stream with a ``SequenceKey``.

The pieces must be in the channel in the order of their numbers, and the numbers of a failed put are used again. So one
sender owns the count from its first number to the end of the put. A put is I/O, and may wait for room: the other
senders wait without a lock, under their own deadlines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..model.sequence import Numbering
from ..runtime.clock import Clock, Deadline, WaitingRoom
from ..runtime.locks import Lock


class NumberTurns:
    """The current sender of every stream with a ``SequenceKey``."""

    def __init__(self, clock: Clock) -> None:
        self._room = WaitingRoom(clock)
        self._lock = Lock()  # guards _holders
        self._holders: dict[Numbering, object] = {}

    @contextmanager
    def turn(self, numbering: Numbering, deadline: Deadline) -> Iterator[bool]:
        """Wait for the turn, and hold it in the block; yield False if the turn did not come in time."""
        holder = object()
        try:
            yield self._room.wait_until(lambda: self._take(numbering, holder), deadline)
        finally:
            self._give_back(numbering, holder)

    def _take(self, numbering: Numbering, holder: object) -> bool:
        with self._lock:
            return self._holders.setdefault(numbering, holder) is holder

    def _give_back(self, numbering: Numbering, holder: object) -> None:
        with self._lock:
            if self._holders.get(numbering) is not holder:
                return
            del self._holders[numbering]
        self._room.wake_all()

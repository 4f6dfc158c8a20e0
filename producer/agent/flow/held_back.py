"""Hold refused events back while others are delivered, if no dead letters take them.

Their batches stay taken from the channel, so that they are delivered again after a crash. Only the bytes of the refused
events are kept. They are limited, so that a channel with nothing but such batches blocks in the end. Dead letters are
retried until they have room. Without dead letters the sink is retried, since the destination may accept the events
later.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence

from ...model.errors import ChannelClosedError, ChannelError
from ...runtime.backoff import Backoff
from ...runtime.clock import Clock
from ..events.batch import EventBatch
from ..events.interfaces import left_of
from .delivery import Outgoing
from .letters import Letter

#: Maximum bytes of refused events, which a single batch may exceed; and the maximum number of their batches.
HELD_BYTES, _HELD_BATCHES = 8 << 20, 1000
#: Seconds between two attempts, at first and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class HeldBack:
    """The refused events of one sink or group that are held back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[Outgoing] = deque()
        self._size = 0
        self._backoff, self._next = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE), clock.monotonic()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __len__(self) -> int:
        return sum(part.count for one in self._waiting for part in one.parts)

    def has_room(self, parts: Sequence[EventBatch]) -> bool:
        """Return True if these can be held back as well."""
        if not self._waiting:
            return len(parts) <= _HELD_BATCHES and (len(parts) == 1 or _bytes(parts) <= HELD_BYTES)
        return len(self._waiting) + len(parts) <= _HELD_BATCHES and self._size + _bytes(parts) <= HELD_BYTES

    def add(self, held: Sequence[Outgoing], letters: Sequence[Letter]) -> None:
        """Hold letters back.

        :param held: the batches that they belong to.
        """
        if not self._waiting:
            self._backoff.reset()
            self._next = self._clock.monotonic() + _FIRST_PAUSE
        of_batches = {one.batch.sequence: one for one in held}
        for part, marks in letters:  # without numbers: these stand for whole batches, but the rest was delivered
            of_batches[part.sequence].letters.append(Letter(part.numbered(None), marks))
        self._waiting += held
        self._size += sum(one.size for one in held)

    def is_due(self) -> bool:
        """Return True if it is time for another attempt."""
        return bool(self._waiting) and self._clock.monotonic() >= self._next

    def retry(self, deliver: Callable[[Sequence[Letter]], None]) -> None:
        """Deliver one after the other, until one fails.

        :param deliver: raises as a sink does.
        :raises Exception: if one cannot be delivered; it is then tried last.
        :raises ChannelError: if the channel fails.
        """
        for _ in range(len(self._waiting)):
            one = self._waiting[0]
            try:
                deliver(one.letters)
            except Exception as error:
                if left := left_of(error, one.parts):
                    self._wait_longer(one, left)
                    raise
            one.delivery.commit_one(one)
            self._waiting.popleft()
            self._size -= one.size
            self._backoff.reset()

    def _wait_longer(self, one: Outgoing, left: Sequence[EventBatch]) -> None:
        marks, before = {id(part): marks for part, marks in one.letters}, one.size
        one.letters = [Letter(part, marks.get(id(part), one.letters[0].marks)) for part in left]
        self._size -= before - one.size
        self._waiting.rotate(-1)
        self._next = self._clock.monotonic() + self._backoff.next_pause()

    def give_back(self) -> None:
        """Return all batches to their channel.

        If the channel keeps its events, only the refused ones go back, so that none is repeated.
        """
        for one in self._waiting:
            with contextlib.suppress(ChannelError):  # then the whole batch goes back
                one.delivery.shorten(one)
        deliveries = {id(one.delivery): one.delivery for one in self._waiting}
        self._waiting.clear()
        self._size = 0
        for delivery in deliveries.values():
            if delivery.is_open:
                with contextlib.suppress(ChannelClosedError):
                    delivery.rollback()


def _bytes(parts: Sequence[EventBatch]) -> int:
    return sum(part.size for part in parts)

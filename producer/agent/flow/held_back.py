"""Aside: what a destination refuses for good, and no dead letters take, waits here, and holds nothing else up.

Its batches stay taken from their channel, so that after a death they are delivered anew; of their bytes only those of
the refused events are kept, and so few that a channel with nothing but such batches is held up after all. Dead letters
are asked again whether they have room. Without any the sink is: what the destination has refused it may take one day.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence

from ...model.errors import ChannelClosedError, ChannelError
from ...runtime.clock import Clock
from ..events.batch import EventBatch
from ..events.interfaces import left_of
from .delivery import Outgoing
from .letters import Letter

#: Bytes of refused events, of one batch at least; and batches that these are of.
ASIDE_BYTES, _ASIDE_BATCHES = 8 << 20, 1000
#: Seconds between two tries, at first and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class Aside:
    """Refused events of one sink, or group."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[Outgoing] = deque()
        self._size = 0
        self._pause, self._next = _FIRST_PAUSE, clock.monotonic()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __len__(self) -> int:
        return sum(part.count for one in self._waiting for part in one.parts)

    def has_room(self, parts: Sequence[EventBatch]) -> bool:
        """Whether these, too, may wait."""
        if not self._waiting:
            return len(parts) <= _ASIDE_BATCHES and (len(parts) == 1 or _bytes(parts) <= ASIDE_BYTES)
        return len(self._waiting) + len(parts) <= _ASIDE_BATCHES and self._size + _bytes(parts) <= ASIDE_BYTES

    def add(self, held: Sequence[Outgoing], letters: Sequence[Letter]) -> None:
        """Have letters wait.

        :param held: the batches that they are of.
        """
        if not self._waiting:
            self._pause, self._next = _FIRST_PAUSE, self._clock.monotonic() + _FIRST_PAUSE
        of_batches = {one.batch.sequence: one for one in held}
        for part, marks in letters:  # without their numbers, which say whole batches, of which the rest was delivered
            of_batches[part.sequence].letters.append(Letter(part.numbered(None), marks))
        self._waiting += held
        self._size += sum(one.size for one in held)

    def is_due(self) -> bool:
        """Whether some are to be tried again."""
        return bool(self._waiting) and self._clock.monotonic() >= self._next

    def settle(self, deliver: Callable[[Sequence[Letter]], None]) -> None:
        """Try one after the other, until one still cannot go.

        :param deliver: raises as a sink does.
        :raises Exception: that of the one that could not go, which is tried last from now on.
        :raises ChannelError: a channel fails.
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
            self._pause = _FIRST_PAUSE

    def _wait_longer(self, one: Outgoing, left: Sequence[EventBatch]) -> None:
        marks, before = {id(part): marks for part, marks in one.letters}, one.size
        one.letters = [Letter(part, marks.get(id(part), one.letters[0].marks)) for part in left]
        self._size -= before - one.size
        self._waiting.rotate(-1)
        self._next = self._clock.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def give_back(self) -> None:
        """All of them go back to their channel. One that keeps its events gets no more than what was refused, or the
        rest would be delivered again.
        """
        for one in self._waiting:
            with contextlib.suppress(ChannelError):  # the whole batch goes back
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

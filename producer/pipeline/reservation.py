"""Reservation: memory that is taken before there are records, and handed on to their sends.

What is to be encoded as a whole needs its memory first. A reservation waits for it once; what its sends then take is
theirs, and the rest goes back. It never waits while it holds anything: two that did could wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

from ..interfaces import Record
from ..records import StreamKey
from .batch import BATCH_OVERHEAD
from .memory import MemoryBudget


class Piece(NamedTuple):
    """One send, encoded.

    :ivar key: its stream.
    :ivar record: its logs, joined.
    :ivar logs: how many they are.
    """

    key: StreamKey
    record: Record
    logs: int


def with_overhead(size: int) -> int:
    """What to reserve for some sends of ``size`` bytes together: their objects need memory as well."""
    return size + size // 16 + BATCH_OVERHEAD


class Reservation:
    """See the module; used by one thread, as a context manager.

    :param budget: where the bytes come from.
    :param max_block: seconds to wait for them; None waits for ever.
    :param make_room: called before it waits, that others may give some back.
    """

    def __init__(self, budget: MemoryBudget, max_block: float | None, make_room: Callable[[], object]) -> None:
        self._budget = budget
        self._max_block = max_block
        self._make_room = make_room
        self.held = 0

    def acquire(self, amount: int) -> None:
        """Hold ``amount`` bytes from now on, or all there are if that is less.

        :raises SendTimeoutError: not enough became free in time.
        :raises ProducerClosedError: the producer closes.
        """
        amount = min(amount, self._budget.limit)
        self.shrink(amount)
        if self.held < amount:
            self.shrink(0)
            self._wait(amount)

    def settle(self, amount: int) -> None:
        """Hold ``amount`` bytes, now that it is known how many are needed.

        Of more than there are in all nothing is held: each send then waits for its own.

        :raises SendTimeoutError: as :meth:`acquire`; likewise ProducerClosedError.
        """
        self.acquire(amount if amount <= self._budget.limit else 0)

    def pay(self, amount: int) -> None:
        """Hand ``amount`` bytes on to a send; if not as many are held, all go back, and the send waits for its own.

        :raises SendTimeoutError: as :meth:`acquire`; likewise ProducerClosedError.
        """
        if amount > self.held:
            self.shrink(0)
            self._wait(amount)
        self.held -= amount

    def _wait(self, amount: int) -> None:
        if self._budget.used + amount > self._budget.limit:
            self._make_room()
        self._budget.acquire(amount, self._max_block)
        self.held = amount

    def shrink(self, to: int) -> None:
        """Give back what is held beyond ``to`` bytes."""
        surplus, self.held = self.held - to, min(self.held, to)
        if surplus > 0:
            self._budget.release(surplus)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shrink(0)

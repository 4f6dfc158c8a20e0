"""What all requests together may take of something: bytes of memory, searches at once.

Whoever wants more than is free waits in turn, so that a large request is not passed for ever by small ones; the wait
is bounded, and so is the number of those who wait. Everything here happens on one event loop and needs no lock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..text.plural import counted
from .errors import ApiError

UNCOUNTED_BYTES = 64 * 1024


class Budget:
    """A number of units that are taken before they are needed, and given back.

    :ivar total: how many there are.
    """

    def __init__(self, name: str, total: int, *, waiting: int, seconds: float) -> None:
        """All units are free.

        :param name: what they are, for refusals: ``"memory for requests"``.
        :param total: how many there are; who wants more gets all of them.
        :param waiting: how many may wait at the same time.
        :param seconds: how long each of them may wait.
        """
        self._name = name
        self.total = total
        self._free = total
        self._max_waiting = waiting
        self._seconds = seconds
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def free(self) -> int:
        """How many units nobody has."""
        return self._free

    async def take(self, units: int) -> int:
        """Take ``units``, at most all there are, as soon as they are free; the result is how many to give back.

        :raises ApiError: ``ServerBusy``, too many wait already, or this wait took too long.
        """
        units = min(units, self.total)
        if units <= self._free and not self._waiting:
            self._free -= units
        elif len(self._waiting) >= self._max_waiting:
            waiting = counted(self._max_waiting, "request waits", "requests wait")
            raise ApiError("ServerBusy", f"{waiting} for {self._name} already: try again later")
        else:
            await self._wait(units)
        return units

    def give_back(self, units: int) -> None:
        """Free ``units`` for those who wait."""
        self._free += units
        self._grant()

    @asynccontextmanager
    async def taken(self, units: int) -> AsyncIterator[None]:
        """Have ``units`` inside the block.

        :raises ApiError: as :meth:`take`.
        """
        taken = await self.take(units)
        try:
            yield
        finally:
            self.give_back(taken)

    async def _wait(self, units: int) -> None:
        entry = (units, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(self._seconds):
                await entry[1]
        except BaseException as error:
            self._leave(entry)
            if isinstance(error, TimeoutError):
                raise ApiError(
                    "ServerBusy", f"{self._name} did not become free within {self._seconds:g} s: try again later"
                ) from error
            raise

    def _leave(self, entry: tuple[int, asyncio.Future[None]]) -> None:
        units, granted = entry
        if granted.done() and not granted.cancelled():  # granted in the moment in which the wait ended
            self.give_back(units)
        else:
            self._waiting.remove(entry)
            self._grant()

    def _grant(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            units, granted = self._waiting[0]
            if granted.cancelled():  # its owner will leave, and grant to those behind it
                return
            self._waiting.popleft()
            self._free -= units
            granted.set_result(None)


class Lease:
    """The bytes that one request holds: none at first, none at the end.

    As many as fit beside the buffers of a connection are not counted: every connection may have them, and small
    requests do not wait for large ones.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._units = 0

    async def resize(self, size: int) -> None:
        """Hold ``size`` bytes from now on.

        :raises ApiError: ``ServerBusy``, as :meth:`Budget.take`; then it holds what it held before.
        """
        units = min(size, self._budget.total) if size > UNCOUNTED_BYTES else 0
        if units > self._units:
            self._units += await self._budget.take(units - self._units)
        else:
            self._budget.give_back(self._units - units)
            self._units = units

    def release(self) -> None:
        """Hold nothing."""
        self._budget.give_back(self._units)
        self._units = 0

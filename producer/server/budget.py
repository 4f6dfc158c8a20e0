"""A budget that all requests share: bytes of memory, or concurrent searches.

A request that needs more units than are free waits in a queue, first in first out. So small requests cannot starve a
large one. The length of the queue and the wait are bounded. All of it runs on one event loop and needs no lock.
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
    """A number of units that requests take and give back.

    :ivar total: the number of units.
    :ivar free: the number of free units.
    """

    def __init__(self, name: str, total: int, *, waiting: int, seconds: float) -> None:
        """Create the budget with all units free.

        :param name: name of the units in refusals, such as ``"memory for requests"``.
        :param total: the number of units; a request for more gets all of them.
        :param waiting: longest queue of requests.
        :param seconds: longest wait of each.
        """
        self._name = name
        self.total = self.free = total
        self._max_waiting = waiting
        self._seconds = seconds
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, units: int) -> int:
        """Take ``units``, at most the total, as soon as they are free, and return the number taken.

        :raises ApiError: ``ServerBusy``, the queue is full, or the wait took too long.
        """
        units = min(units, self.total)
        if units <= self.free and not self._waiting:
            self.free -= units
        elif len(self._waiting) >= self._max_waiting:
            waiting = counted(self._max_waiting, "request waits", "requests wait")
            raise ApiError("ServerBusy", f"{waiting} for {self._name}, the most allowed: try again later")
        else:
            await self._wait(units)
        return units

    def give_back(self, units: int) -> None:
        """Free ``units`` for the requests in the queue."""
        self.free += units
        self._grant()

    @asynccontextmanager
    async def taken(self, units: int) -> AsyncIterator[None]:
        """Hold ``units`` inside the block.

        :raises ApiError: ``ServerBusy``, the queue is full, or the wait took too long.
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
        if granted.done() and not granted.cancelled():  # granted at the moment the wait ended
            self.give_back(units)
        else:
            self._waiting.remove(entry)
            self._grant()

    def _grant(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.free:
            units, granted = self._waiting[0]
            if granted.cancelled():  # its task will remove it, and grant the next
                return
            self._waiting.popleft()
            self.free -= units
            granted.set_result(None)


class Lease:
    """The bytes that one request holds; none at first.

    A size that fits beside the buffers of a connection is not counted. Every connection may have it, so small requests
    do not wait for large ones.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._units = 0

    async def resize(self, size: int) -> None:
        """Hold ``size`` bytes instead of the current number.

        :raises ApiError: ``ServerBusy``, from :meth:`Budget.take`; then the lease is unchanged.
        """
        units = min(size, self._budget.total) if size > UNCOUNTED_BYTES else 0
        if units > self._units:
            self._units += await self._budget.take(units - self._units)
        else:
            self._budget.give_back(self._units - units)
            self._units = units

    def release(self) -> None:
        """Give all bytes back."""
        self._budget.give_back(self._units)
        self._units = 0

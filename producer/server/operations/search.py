"""Search for one page of matching logs, at any depth.

Matching logs are ordered by time, nanoseconds and arrival. A page is ``line`` logs after the first ``offset`` ones. A
log's place in the order is one whole number, its key, and only keys are held in memory.

For a page near the start the smallest keys are kept. For a deeper page the keys are first counted in buckets, which
shows the bucket where the page begins and the number of logs before it. That bucket is counted in buckets of its own,
until few enough logs precede the page.

Each round reads the LogGroups of the range, a few megabytes at a time, so a deep page costs time but no memory.
LogGroups arrive nearly in order of time. So a search for the last logs begins at the last LogGroup. When it has enough
logs, it skips LogGroups whose times are too early to contribute.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from ...text.plural import counted
from ..errors import ApiError, ClientGoneError
from ..limits import Limits
from ..service import Call, Service
from ..store import reading
from ..store.log_groups import StoredLog, StoredLogGroup
from ..store.rows import PackedGroup, Page, Search
from .query import Query

T = TypeVar("T")

#: Maximum number of keys held; and the number of buckets for more keys.
_KEPT = 1 << 16
_BUCKETS = 1 << 12

# A key consists of the time, its nanoseconds, the row of the LogGroup, and the log's index in it.
_TIME_BITS, _NS_BITS, _ROW_BITS, _INDEX_BITS = 32, 32, 63, 32
#: The key of a search that is not reversed, shifted by so many bits, is the time of its log.
TIME_SHIFT = _NS_BITS + _ROW_BITS + _INDEX_BITS
_END = 1 << (_TIME_BITS + _NS_BITS + _ROW_BITS + _INDEX_BITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A search: the condition on LogGroups and on logs, the page of matching logs, and the order."""

    search: Search
    matches: Query
    offset: int
    line: int
    reverse: bool

    def key(self, time: int, time_ns: int, row: int, index: int) -> int:
        """Return a log's place in the order of matching logs."""
        key = ((time << _NS_BITS | time_ns) << _ROW_BITS | row) << _INDEX_BITS | index
        return _END - 1 - key if self.reverse else key

    def place(self, key: int) -> tuple[int, int]:
        """Return the row and the index of the log with ``key``."""
        key = _END - 1 - key if self.reverse else key
        return key >> _INDEX_BITS & (1 << _ROW_BITS) - 1, key & (1 << _INDEX_BITS) - 1

    def before(self, key: int) -> Search:
        """Return the search without the LogGroups whose logs all come after ``key``."""
        search = self.search
        if self.reverse:
            return replace(search, begin=max(search.begin, (_END - 1 - key) >> TIME_SHIFT))
        return replace(search, end=min(search.end, (key >> TIME_SHIFT) + 1))


class Smallest:
    """A set of the smallest keys from ``low`` on.

    :ivar high: bound of useful keys; keys from it on are dropped.
    """

    def __init__(self, low: int, count: int) -> None:
        self._low = low
        self.high = _END
        self._count = count
        self._keys: list[int] = []

    def add(self, key: int) -> None:
        """Add a key."""
        if self._low <= key < self.high:
            self._keys.append(key)
            if len(self._keys) > 2 * self._count + 100:
                self._cut()

    def keys(self) -> list[int]:
        """Return the keys, sorted."""
        self._cut()
        return self._keys

    def _cut(self) -> None:
        self._keys.sort()
        if len(self._keys) > self._count:
            self.high = self._keys[self._count]
            del self._keys[self._count :]


class Histogram:
    """Counts of keys in many equal parts of [low, high)."""

    def __init__(self, low: int, high: int) -> None:
        self._low = low
        self._width = high - low
        self._counts = [0] * _BUCKETS

    def add(self, key: int) -> None:
        """Count a key."""
        if 0 <= key - self._low < self._width:
            self._counts[(key - self._low) * _BUCKETS // self._width] += 1

    def find(self, skip: int) -> tuple[int, int, int] | None:
        """Return begin and end of the part with the key number ``skip``, and the number of keys before it in the part.

        None if there are not so many keys.
        """
        for bucket, count in enumerate(self._counts):
            if skip < count:
                return self._begin(bucket), self._begin(bucket + 1), skip
            skip -= count
        return None

    def _begin(self, bucket: int) -> int:
        return self._low - (-bucket * self._width // _BUCKETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a search: the LogGroups below row ``before`` (None for all), for about ``seconds`` seconds."""

    before: int | None = None
    seconds: float = math.inf


WHOLE = Part()

#: Gets the time of a log, and its keys and texts.
SeeLog = Callable[[int, list[tuple[str, str]]], None]
#: Gets the range of rows that were scanned.
SeeRows = Callable[[int, int], Awaitable[None]]
#: Gets a row, its LogGroup, and a function that returns True if the client has disconnected.
Sift = Callable[[int, StoredLogGroup, Callable[[], bool]], None]


@asynccontextmanager
async def searching(service: Service) -> AsyncIterator[None]:
    """Hold a place for a search and bound its time inside the block.

    :raises ApiError: ``ServerBusy``, there are too many searches; ``RequestTimeout``, the block took too long.
    """
    async with service.searches.taken(1), time_to_search(service):
        yield


def time_to_search(service: Service) -> AbstractAsyncContextManager[None]:
    """Bound the time of a search inside the block (:func:`in_time`)."""
    seconds = service.limits.search_seconds
    return in_time(seconds, f"the search did not end within {seconds:g} s: narrow its time range, or use PullLogs")


@asynccontextmanager
async def in_time(seconds: float, refusal: str) -> AsyncIterator[None]:
    """Bound the time inside the block.

    :raises ApiError: ``RequestTimeout`` with the message ``refusal``, the block took longer.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise ApiError("RequestTimeout", refusal) from error


async def find_page(service: Service, call: Call, wanted: Wanted) -> list[tuple[int, int]]:
    """Return row and index of each log of the page, in order."""
    part: tuple[int, int, int] | None = (0, _END, wanted.offset)
    while part is not None and part[2] + wanted.line > max(_KEPT, 2 * wanted.line):
        histogram = Histogram(part[0], part[1])
        await see_all(service, call, wanted, histogram.add)
        part = histogram.find(part[2])
    if part is None:
        return []
    low, _, skip = part
    smallest = Smallest(low, skip + wanted.line)
    scan = _Scan(service, call, wanted, lambda: wanted.before(smallest.high), back=wanted.reverse)
    await scan.run(_keys_to(wanted, smallest.add))
    return [wanted.place(key) for key in smallest.keys()[skip:]]


async def load_logs(
    service: Service, call: Call, places: list[tuple[int, int]], render: Callable[[StoredLog, int], T]
) -> list[T]:
    """Load logs and render each from the log and its index in its LogGroup; expired logs are left out.

    :raises ApiError: ``ParameterInvalid``, several logs are too large for one answer.
    """
    found: dict[tuple[int, int], T] = {}
    size = 0
    for row in dict(places):
        indexes = {index for other, index in places if other == row}
        group = await service.stored(reading.group, call.place, row, service.now())
        if group is not None:
            rendered = await service.search(_render, group, indexes, render)
            found |= rendered
            size += sum(len(str(one)) for one in rendered.values())
            _check_size(len(places), size, service.limits)
    return [found[place] for place in places if place in found]


async def see_all(service: Service, call: Call, wanted: Wanted, see: Callable[[int], None]) -> None:
    """Pass the keys of all matching logs to ``see``."""
    await _Scan(service, call, wanted, lambda: wanted.search).run(_keys_to(wanted, see))


async def see_logs(service: Service, call: Call, wanted: Wanted, see: SeeLog, *, back: bool = False) -> None:
    """Pass time, keys and texts of all matching logs to ``see``, LogGroup by LogGroup in the order of arrival.

    :param back: True for the reverse order of LogGroups.
    """
    await _Scan(service, call, wanted, lambda: wanted.search, back=back).run(_logs_to(wanted, see))


async def see_back(
    service: Service,
    call: Call,
    wanted: Wanted,
    see: Callable[[int], None],
    see_rows: Callable[[int, int], Awaitable[None]],
    part: Part,
) -> int | None:
    """Pass the keys of matching logs to ``see``, the last LogGroups first, within the time of ``part``.

    :param see_rows: called with each scanned range of rows: the row before the first, and the last.
    :returns: ``before`` for the next part; None if all rows were scanned.
    """
    scan = _Scan(service, call, wanted, lambda: wanted.search, back=True)
    return await scan.run(_keys_to(wanted, see), part, see_rows)


class _Scan:
    """One pass through the LogGroups of a search.

    :param search: returns the search; called before each page, since the search may become narrower.
    :param back: True to scan from the last LogGroup to the first.
    """

    def __init__(
        self, service: Service, call: Call, wanted: Wanted, search: Callable[[], Search], *, back: bool = False
    ) -> None:
        self._service = service
        self._call = call
        self._matches = wanted.matches
        self._search = search
        self._back = back
        self._now = service.now()
        self._ended = threading.Event()

    async def run(self, sift: Sift, part: Part = WHOLE, see_rows: SeeRows | None = None) -> int | None:
        """Pass each LogGroup that may match to ``sift``, and return the row to continue at; None at the end."""
        clock = asyncio.get_running_loop().time
        end = clock() + part.seconds
        last = await self._service.stored(reading.last_row, self._call.place)
        at: int | None = 0
        if self._back:
            at = last + 1 if part.before is None else min(part.before, last + 1)
        try:
            while at is not None:
                page = await self._page(at, last)
                await self._service.search(self._sift, page.groups, sift)
                if see_rows is not None:
                    await see_rows((page.after or 1) - 1, at - 1)
                at = page.after
                if clock() >= end:
                    break
        finally:
            # Stops the thread when the caller ends the search early.
            self._ended.set()
        return at

    async def _page(self, at: int, last: int) -> Page:
        place = self._call.place
        if self._back:
            return await self._service.stored(reading.search_back, place, self._search(), at, self._now)
        return await self._service.stored(reading.search, place, self._search(), at, last, self._now)

    def _sift(self, groups: list[PackedGroup], sift: Sift) -> None:
        for packed in groups:
            group = packed.unpack()
            if self._matches.may_match(group.raw):
                sift(packed.row, group, self._is_over)

    def _is_over(self) -> bool:
        return self._ended.is_set() or self._call.is_gone()


def _keys_to(wanted: Wanted, see: Callable[[int], None]) -> Sift:
    begin, end, matches = wanted.search.begin, wanted.search.end, wanted.matches

    def sift(row: int, group: StoredLogGroup, is_over: Callable[[], bool]) -> None:
        for index, (time, time_ns, texts) in enumerate(group.scan()):
            if is_over():
                raise ClientGoneError
            if begin <= time < end and matches(texts):
                see(wanted.key(time, time_ns, row, index))

    return sift


def _logs_to(wanted: Wanted, see: SeeLog) -> Sift:
    begin, end, matches = wanted.search.begin, wanted.search.end, wanted.matches

    def sift(_row: int, group: StoredLogGroup, is_over: Callable[[], bool]) -> None:
        for time, _, texts in group.scan():
            if is_over():
                raise ClientGoneError
            if begin <= time < end and matches(found := list(texts)):
                see(time, found)

    return sift


def _render(group: PackedGroup, indexes: set[int], render: Callable[[StoredLog, int], T]) -> dict[tuple[int, int], T]:
    logs = enumerate(group.unpack().iter_logs())
    return {(group.row, index): render(log, index) for index, log in logs if index in indexes}


def _check_size(logs: int, size: int, limits: Limits) -> None:
    if logs > 1 and size > limits.page_bytes:
        raise ApiError(
            "ParameterInvalid",
            f"the {logs} logs of this page have more than {counted(limits.page_bytes, 'byte')}: use a smaller line",
        )

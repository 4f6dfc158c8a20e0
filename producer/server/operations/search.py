"""The logs of one page of a search, whatever lies before it.

All logs that match have an order: by time, then nanoseconds, then arrival. A page is some ``line`` logs of that order
behind the first ``offset`` of them. To find it nothing is kept but numbers. A log's place in the order is one whole
number, its key; of the keys the smallest are kept while that suffices. For a page that lies deeper, the keys are first
counted in buckets: that tells in which bucket the page begins and how many logs lie before it, and that bucket is then
counted in buckets of its own, until few enough lie before the page.

Each round reads the LogGroups of the range, a few megabytes at a time, so a deep page costs time and no memory. Most
have the order of their times, or nearly so: a search for the last logs begins at the last LogGroup, and one that has
enough of them leaves out, by their times alone, those that cannot have any further.
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
from ..store.log_groups import StoredLog, StoredLogGroup
from ..store.rows import PackedGroup, Page, Search
from .query import Query

T = TypeVar("T")

#: Keys that are kept at most, and buckets in which more than these are counted.
_KEPT = 1 << 16
_BUCKETS = 1 << 12

# A key: the time, its nanoseconds, the row of the LogGroup, the log's index in it.
_TIME_BITS, _NS_BITS, _ROW_BITS, _INDEX_BITS = 32, 32, 63, 32
#: A key of a search that is not reversed, without so many bits, is the time of its log.
TIME_SHIFT = _NS_BITS + _ROW_BITS + _INDEX_BITS
_END = 1 << (_TIME_BITS + _NS_BITS + _ROW_BITS + _INDEX_BITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a reader asks for: a search, which logs of it match, which page of those, and the newest first or last."""

    search: Search
    matches: Query
    offset: int
    line: int
    reverse: bool

    def key(self, time: int, time_ns: int, row: int, index: int) -> int:
        """The place of a log in the order of what matches."""
        key = ((time << _NS_BITS | time_ns) << _ROW_BITS | row) << _INDEX_BITS | index
        return _END - 1 - key if self.reverse else key

    def place(self, key: int) -> tuple[int, int]:
        """The row and the index of the log that has ``key``."""
        key = _END - 1 - key if self.reverse else key
        return key >> _INDEX_BITS & (1 << _ROW_BITS) - 1, key & (1 << _INDEX_BITS) - 1

    def before(self, key: int) -> Search:
        """The search without the LogGroups whose logs all lie behind ``key`` in the order."""
        search = self.search
        if self.reverse:
            return replace(search, begin=max(search.begin, (_END - 1 - key) >> TIME_SHIFT))
        return replace(search, end=min(search.end, (key >> TIME_SHIFT) + 1))


class Smallest:
    """The smallest keys from ``low`` on.

    :ivar high: a key that is too large.
    """

    def __init__(self, low: int, count: int) -> None:
        self._low = low
        self.high = _END
        self._count = count
        self._keys: list[int] = []

    def add(self, key: int) -> None:
        """See it."""
        if self._low <= key < self.high:
            self._keys.append(key)
            if len(self._keys) > 2 * self._count + 100:
                self._cut()

    def keys(self) -> list[int]:
        """These keys, in order."""
        self._cut()
        return self._keys

    def _cut(self) -> None:
        self._keys.sort()
        if len(self._keys) > self._count:
            self.high = self._keys[self._count]
            del self._keys[self._count :]


class Histogram:
    """How many keys there are in each of many equal parts of [low, high)."""

    def __init__(self, low: int, high: int) -> None:
        self._low = low
        self._width = high - low
        self._counts = [0] * _BUCKETS

    def add(self, key: int) -> None:
        """See it."""
        if 0 <= key - self._low < self._width:
            self._counts[(key - self._low) * _BUCKETS // self._width] += 1

    def find(self, skip: int) -> tuple[int, int, int] | None:
        """The part with the key that ``skip`` others lie before: its begin, its end, and how many keys before that one
        are in it. None when there are not so many keys.
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
    """A part of a search: LogGroups below row ``before``, None for all, during so many ``seconds`` or a little more."""

    before: int | None = None
    seconds: float = math.inf


WHOLE = Part()

#: Is shown the time, and the names and texts, of a log.
SeeLog = Callable[[int, list[tuple[str, str]]], None]
#: Is told of rows that were looked at.
SeeRows = Callable[[int, int], Awaitable[None]]
#: Is shown a row and its LogGroup, and may ask whether nobody waits any more.
Sift = Callable[[int, StoredLogGroup, Callable[[], bool]], None]


@asynccontextmanager
async def searching(service: Service) -> AsyncIterator[None]:
    """Inside the block there is room for a search, and time.

    :raises ApiError: ``ServerBusy``, too many others search; as :func:`in_time`.
    """
    async with service.searches.taken(1), time_to_search(service):
        yield


def time_to_search(service: Service) -> AbstractAsyncContextManager[None]:
    """Inside the block there is the time of a search, see :func:`in_time`."""
    seconds = service.limits.search_seconds
    return in_time(seconds, f"the search did not end within {seconds:g} s: narrow its time, or use PullLogs")


@asynccontextmanager
async def in_time(seconds: float, refusal: str) -> AsyncIterator[None]:
    """Inside the block there is so much time.

    :raises ApiError: ``RequestTimeout`` in these words, it took longer.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise ApiError("RequestTimeout", refusal) from error


async def find_page(service: Service, call: Call, wanted: Wanted) -> list[tuple[int, int]]:
    """Row and index of each log of the page, in order."""
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
    """Each of these logs as ``render`` makes it of a log and its number in its LogGroup; what has expired since they
    were found is left out.

    :raises ApiError: ``ParameterInvalid``, several logs are too much for one answer.
    """
    found: dict[tuple[int, int], T] = {}
    size = 0
    for row in dict(places):
        indexes = {index for other, index in places if other == row}
        group = await service.stored(service.store.group(call.place, row, service.now()))
        if group is not None:
            rendered = await service.search(_render, group, indexes, render)
            found |= rendered
            size += sum(len(str(one)) for one in rendered.values())
            _check_size(len(places), size, service.limits)
    return [found[place] for place in places if place in found]


async def see_all(service: Service, call: Call, wanted: Wanted, see: Callable[[int], None]) -> None:
    """Show the keys of all logs that match to ``see``."""
    await _Scan(service, call, wanted, lambda: wanted.search).run(_keys_to(wanted, see))


async def see_logs(service: Service, call: Call, wanted: Wanted, see: SeeLog, *, back: bool = False) -> None:
    """Show times, and names and texts, of all logs that match to ``see``, LogGroup by LogGroup in the order of arrival.

    :param back: or those that arrived last first.
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
    """As :func:`see_all`, those that arrived last first, within the time of ``part``.

    :param see_rows: is told of each run of rows that was looked at: beyond which one it began, and its last one.
    :returns: the next part's ``before``; None, all were seen.
    """
    scan = _Scan(service, call, wanted, lambda: wanted.search, back=True)
    return await scan.run(_keys_to(wanted, see), part, see_rows)


class _Scan:
    """One way through the LogGroups of a search.

    :param search: what is looked for, asked again and again: it may become narrower on the way.
    :param back: from the last to arrive to the first.
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
        """Show each LogGroup that may have what matches to ``sift``; where the next part begins, None at the end."""
        clock = asyncio.get_running_loop().time
        end = clock() + part.seconds
        last = await self._service.stored(self._service.store.last_row(self._call.place))
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
            # Whoever ends the search early does not stop its thread otherwise.
            self._ended.set()
        return at

    async def _page(self, at: int, last: int) -> Page:
        store, place = self._service.store, self._call.place
        if self._back:
            return await self._service.stored(store.search_back(place, self._search(), at, self._now))
        return await self._service.stored(store.search(place, self._search(), at, last, self._now))

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
            f"the {logs} logs of this page have more than {counted(limits.page_bytes, 'byte')}: ask for fewer by line",
        )

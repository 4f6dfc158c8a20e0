"""The logs of one page of a search, whatever lies before it.

All logs that match have an order: by time, then nanoseconds, then arrival. A page is some ``line`` logs of that order
behind the first ``offset`` of them. To find it nothing is kept but numbers. A log's place in the order is one whole
number, its key; of the keys the smallest are kept while that suffices. For a page that lies deeper, the keys are first
counted in buckets: that tells in which bucket the page begins and how many logs lie before it, and that bucket is then
counted in buckets of its own, until few enough lie before the page.

Each round reads all LogGroups of the range, a few megabytes at a time, so a deep page costs time and no memory.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from ..errors import ApiError, ClientGoneError
from ..limits import Limits
from ..service import Call, Service
from ..store.log_groups import StoredLog
from ..store.rows import PackedGroup, Search
from .query import Matcher

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
    matches: Matcher
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


class Smallest:
    """The smallest keys from ``low`` on."""

    def __init__(self, low: int, count: int) -> None:
        self._low = low
        self._high = _END
        self._count = count
        self._keys: list[int] = []

    def add(self, key: int) -> None:
        """See it."""
        if self._low <= key < self._high:
            self._keys.append(key)
            if len(self._keys) > 2 * self._count + 1000:
                self._cut()

    def keys(self) -> list[int]:
        """These keys, in order."""
        self._cut()
        return self._keys

    def _cut(self) -> None:
        self._keys.sort()
        if len(self._keys) > self._count:
            self._high = self._keys[self._count]
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


@asynccontextmanager
async def searching(service: Service) -> AsyncIterator[None]:
    """Inside the block there is room for a search, and time.

    :raises ApiError: ``ServerBusy``, too many others search; ``RequestTimeout``, the search took too long.
    """
    async with service.searches.taken(1):
        try:
            async with asyncio.timeout(service.limits.search_seconds):
                yield
        except TimeoutError as error:
            raise ApiError(
                "RequestTimeout",
                f"the search did not end within {service.limits.search_seconds:g} s: narrow its time, or use PullLogs",
            ) from error


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
    await see_all(service, call, wanted, smallest.add)
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
    await _sift_all(service, call, wanted, lambda groups, is_over: _sift(wanted, groups, see, is_over))


async def see_logs(
    service: Service, call: Call, wanted: Wanted, see: Callable[[int, list[tuple[str, str]]], None]
) -> None:
    """Show times, and names and texts, of all logs that match to ``see``, in the order of arrival."""
    await _sift_all(service, call, wanted, lambda groups, is_over: _sift_texts(wanted, groups, see, is_over))


async def _sift_all(
    service: Service, call: Call, wanted: Wanted, sift: Callable[[list[PackedGroup], Callable[[], bool]], None]
) -> None:
    now = service.now()
    until = await service.stored(service.store.last_row(call.place))
    after: int | None = 0
    ended = threading.Event()
    try:
        while after is not None:
            page = await service.stored(service.store.search(call.place, wanted.search, after, until, now))
            await service.search(sift, page.groups, lambda: ended.is_set() or call.is_gone())
            after = page.after
    finally:
        # Whoever ends the search early does not stop its thread otherwise.
        ended.set()


def _sift(wanted: Wanted, groups: list[PackedGroup], see: Callable[[int], None], is_over: Callable[[], bool]) -> None:
    begin, end, matches = wanted.search.begin, wanted.search.end, wanted.matches
    for group in groups:
        for index, (time, time_ns, texts) in enumerate(group.unpack().scan()):
            if is_over():
                raise ClientGoneError
            if begin <= time < end and matches(texts):
                see(wanted.key(time, time_ns, group.row, index))


def _sift_texts(
    wanted: Wanted,
    groups: list[PackedGroup],
    see: Callable[[int, list[tuple[str, str]]], None],
    is_over: Callable[[], bool],
) -> None:
    begin, end, matches = wanted.search.begin, wanted.search.end, wanted.matches
    for group in groups:
        for time, _, texts in group.unpack().scan():
            if is_over():
                raise ClientGoneError
            if begin <= time < end and matches(found := list(texts)):
                see(time, found)


def _render(group: PackedGroup, indexes: set[int], render: Callable[[StoredLog, int], T]) -> dict[tuple[int, int], T]:
    logs = enumerate(group.unpack().iter_logs())
    return {(group.row, index): render(log, index) for index, log in logs if index in indexes}


def _check_size(logs: int, size: int, limits: Limits) -> None:
    if logs > 1 and size > limits.page_bytes:
        raise ApiError(
            "ParameterInvalid",
            f"the {logs} logs of this page have more than {limits.page_bytes} bytes: ask for fewer with line",
        )

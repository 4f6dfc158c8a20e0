"""GetLogs in scan mode: the logs that match the keywords, sifted by SPL.

Its offsets count what matches the keywords, whatever the pipeline makes of it: an answer says from which to which it
has looked, and whether there is more, and a client asks on from there, forward or back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...wire.schema import LogGroup
from ..service import Call, Service
from ..store.log_groups import StoredLogGroup, parse_group
from .search import Wanted, find_page, searching
from .spl import sifted
from .spl_text import Pipeline

#: Logs that are looked at first; where none is kept, more are looked at, twice as many each time up to the second.
_LOOK, _MOST = 1000, 16_000


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a scan has found.

    :ivar kept: LogGroups of one log each.
    :ivar begin: the first log that it has looked at, of those that match the keywords.
    :ivar end: behind the last one.
    :ivar is_all: whether there is no more, in its direction.
    :ivar size: bytes of what it has looked at.
    """

    kept: list[StoredLogGroup]
    begin: int
    end: int
    is_all: bool
    size: int


def wants_scan(params: Mapping[str, Any]) -> bool:
    """Whether the parameters of GetLogs say ``session`` ``mode=scan``."""
    settings = str(params.get("session") or "").replace(" ", "").lower()
    return "mode=scan" in settings.split(";")


async def scan(service: Service, call: Call, wanted: Wanted, pipeline: Pipeline, *, forward: bool) -> Scanned:
    """Look at logs until some are kept, all were seen, or half of the time of a search is over.

    :param wanted: ``offset`` is where to begin, ``line`` how many logs to give.
    :param forward: else what lies before the offset is looked at, and the last ones of it are given.
    :raises ApiError: as a search; as SPL.
    """
    clock = asyncio.get_running_loop().time
    enough = clock() + service.limits.search_seconds / 2
    found, count = Scanned([], wanted.offset, wanted.offset, is_all=False, size=0), _LOOK
    while not (found.kept or found.is_all or clock() >= enough):
        page = _page_after(found, count) if forward else _page_before(found, count)
        looked = await _look(service, call, replace(wanted, offset=page.start, line=len(page)), back=not forward)
        groups = sorted(looked.groups, key=lambda group: group.position)
        kept = await sifted(service, call, pipeline, groups) if groups else []
        found = _joined(found, page, looked, kept, forward=forward)
        count = min(2 * count, _MOST)
    return _cut(found, max(1, wanted.line), forward=forward)


def _page_after(found: Scanned, count: int) -> range:
    return range(found.end, found.end + count)


def _page_before(found: Scanned, count: int) -> range:
    return range(max(0, found.begin - count), found.begin)


@dataclass(frozen=True, slots=True)
class _Looked:
    """A part of a page.

    :ivar groups: LogGroups of one log each, whose position is the log's place among what matches.
    :ivar there: how many logs the page has.
    :ivar reached: how many of them were looked at.
    """

    groups: list[StoredLogGroup]
    there: int
    reached: int


def _joined(found: Scanned, page: range, looked: _Looked, kept: list[StoredLogGroup], *, forward: bool) -> Scanned:
    size = found.size + sum(len(group.raw) for group in looked.groups)
    if forward:
        is_all = looked.reached == looked.there < len(page)
        return Scanned(kept, found.begin, page.start + looked.reached, is_all, size)
    begin = page.start + looked.there - looked.reached
    return Scanned(kept, begin, found.end, begin == 0, size)


def _cut(found: Scanned, line: int, *, forward: bool) -> Scanned:
    """The first logs that were kept, or the last ones; what lies behind them was not looked at."""
    kept = found.kept
    if len(kept) <= line:
        return found
    if forward:
        return replace(found, kept=kept[:line], end=kept[line].position, is_all=False)
    return replace(found, kept=kept[-line:], begin=kept[-line - 1].position + 1, is_all=False)


async def _look(service: Service, call: Call, page: Wanted, *, back: bool) -> _Looked:
    """Load the logs of a page one by one, its last ones first if ``back``, until they are many bytes."""
    async with searching(service):
        places = list(enumerate(await find_page(service, call, page), page.offset))
        places = places[::-1] if back else places
        rows: dict[int, dict[int, int]] = {}
        for number, (row, index) in places:
            rows.setdefault(row, {})[index] = number
        groups, seen, left = list[StoredLogGroup](), set[int](), service.limits.pull_bytes
        for row, numbers in rows.items():
            if left < 0:
                break
            packed = await service.stored(service.store.group(call.place, row, service.now()))
            if packed is None:  # it has expired since it was found
                seen.update(numbers.values())
                continue
            alone = await service.search(_one_by_one, packed.unpack, numbers, left)
            groups += alone
            seen.update(group.position for group in alone)
            left -= sum(len(group.raw) for group in alone)
    reached = next((count for count, (number, _) in enumerate(places) if number not in seen), len(places))
    within = {number for number, _ in places[:reached]}
    return _Looked([group for group in groups if group.position in within], len(places), reached)


def _one_by_one(unpack: Callable[[], StoredLogGroup], numbers: dict[int, int], most: int) -> list[StoredLogGroup]:
    """LogGroups with one log each: those of some indexes, each with the number that is given for it.

    :param most: bytes after which no more are made: each has the tags of all, which may be megabytes.
    """
    group = unpack()
    whole = parse_group(group.raw)
    shared = LogGroup(Topic=whole.Topic, Source=whole.Source, LogTags=whole.LogTags)
    alone = list[StoredLogGroup]()
    for index, number in numbers.items():
        if most < 0:
            break
        one = LogGroup(Logs=[whole.Logs[index]])
        one.MergeFrom(shared)
        raw = bytes(one.SerializeToString())
        most -= len(raw)
        alone.append(replace(group, raw=raw, count=1, position=number))
    return alone

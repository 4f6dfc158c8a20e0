"""GetLogs in scan mode: the logs that match the keywords, filtered by SPL.

Its offsets count the logs that match the keywords, before the pipeline. The answer has the range of offsets scanned,
and says whether more logs follow. A client continues from either end, forward or back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...wire.schema import LogGroup
from ..service import Call, Service
from ..store import reading
from ..store.log_groups import StoredLogGroup, parse_group
from .search import Wanted, find_page, searching
from .spl import sifted
from .spl_text import Pipeline

#: Logs scanned first. While none is kept, the number doubles up to the second value.
_FIRST_LOGS, _MOST = 1000, 16_000


@dataclass(frozen=True, slots=True)
class Scanned:
    """The result of a scan.

    :ivar kept: LogGroups of one log each.
    :ivar begin: offset of the first scanned log.
    :ivar end: offset after the last scanned log.
    :ivar is_all: True if there are no more logs in the scan's direction.
    :ivar size: bytes scanned.
    """

    kept: list[StoredLogGroup]
    begin: int
    end: int
    is_all: bool
    size: int


def wants_scan(params: Mapping[str, Any]) -> bool:
    """Return True if ``session`` has ``mode=scan`` in the parameters of GetLogs."""
    settings = str(params.get("session") or "").replace(" ", "").lower()
    return "mode=scan" in settings.split(";")


async def scan(service: Service, call: Call, wanted: Wanted, pipeline: Pipeline, *, forward: bool) -> Scanned:
    """Scan until some logs are kept, all were seen, or half of the time for a search is over.

    :param wanted: the condition; ``offset`` is the start, ``line`` the number of logs to return.
    :param forward: False to scan the logs before the offset, and return the last ones kept.
    :raises ApiError: the search or the SPL fails.
    """
    clock = asyncio.get_running_loop().time
    enough = clock() + service.limits.search_seconds / 2
    found, count = Scanned([], wanted.offset, wanted.offset, is_all=False, size=0), _FIRST_LOGS
    while not (found.kept or found.is_all or clock() >= enough):
        page = _page_after(found, count) if forward else _page_before(found, count)
        part = await _load_part(service, call, replace(wanted, offset=page.start, line=len(page)), back=not forward)
        groups = sorted(part.groups, key=lambda group: group.position)
        kept = await sifted(service, call, pipeline, groups) if groups else []
        found = _joined(found, page, part, kept, forward=forward)
        count = min(2 * count, _MOST)
    return _cut(found, max(1, wanted.line), forward=forward)


def _page_after(found: Scanned, count: int) -> range:
    return range(found.end, found.end + count)


def _page_before(found: Scanned, count: int) -> range:
    return range(max(0, found.begin - count), found.begin)


@dataclass(frozen=True, slots=True)
class _ScannedPart:
    """The scanned part of a page.

    :ivar groups: LogGroups of one log each, whose position is the log's offset.
    :ivar there: number of logs on the page.
    :ivar reached: number of these that were scanned.
    """

    groups: list[StoredLogGroup]
    there: int
    reached: int


def _joined(found: Scanned, page: range, part: _ScannedPart, kept: list[StoredLogGroup], *, forward: bool) -> Scanned:
    size = found.size + sum(len(group.raw) for group in part.groups)
    if forward:
        is_all = part.reached == part.there < len(page)
        return Scanned(kept, found.begin, page.start + part.reached, is_all, size)
    begin = page.start + part.there - part.reached
    return Scanned(kept, begin, found.end, begin == 0, size)


def _cut(found: Scanned, line: int, *, forward: bool) -> Scanned:
    """Keep at most ``line`` logs, the first or the last ones, and end the scanned range with them."""
    kept = found.kept
    if len(kept) <= line:
        return found
    if forward:
        return replace(found, kept=kept[:line], end=kept[line].position, is_all=False)
    return replace(found, kept=kept[-line:], begin=kept[-line - 1].position + 1, is_all=False)


async def _load_part(service: Service, call: Call, page: Wanted, *, back: bool) -> _ScannedPart:
    """Load the logs of a page one by one, up to the limit of bytes; the last ones first if ``back``."""
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
            packed = await service.stored(reading.group, call.place, row, service.now())
            if packed is None:  # expired since it was found
                seen.update(numbers.values())
                continue
            alone = await service.search(_one_by_one, packed.unpack, numbers, left)
            groups += alone
            seen.update(group.position for group in alone)
            left -= sum(len(group.raw) for group in alone)
    reached = next((count for count, (number, _) in enumerate(places) if number not in seen), len(places))
    within = {number for number, _ in places[:reached]}
    return _ScannedPart([group for group in groups if group.position in within], len(places), reached)


def _one_by_one(unpack: Callable[[], StoredLogGroup], numbers: dict[int, int], most: int) -> list[StoredLogGroup]:
    """Return LogGroups of one log each, for the given indexes and offsets.

    :param most: bytes after which no more are made: each has the shared tags, which may be megabytes.
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

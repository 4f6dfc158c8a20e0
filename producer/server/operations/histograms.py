"""GetHistograms: how many logs of a time range match a query, in equal parts of that range."""

from __future__ import annotations

from ..messages import Answer, json_answer
from ..service import Call, Service
from .get_logs import parse_wanted
from .search import TIME_SHIFT, Wanted, searching, see_all

#: Parts of a range at most. A part has one of these lengths, seconds, and begins at a multiple of it.
MAX_PARTS = 60
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


async def get_histograms(service: Service, call: Call) -> Answer:
    """``GET /logstores/{logstore}?type=histogram&from=…&to=…[&query=…&topic=…]``, also below ``/index``."""
    wanted = parse_wanted(call.request.query, service.limits)
    parts = await count_parts(service, call, wanted)
    total = sum(count for _, _, count in parts)
    found = [{"from": begin, "to": end, "count": count, "progress": "Complete"} for begin, end, count in parts]
    answer = json_answer(found)
    return Answer(headers={**answer.headers, "x-log-progress": "Complete", "x-log-count": str(total)}, body=answer.body)


async def count_parts(service: Service, call: Call, wanted: Wanted) -> list[tuple[int, int, int]]:
    """Begin, end and number of matching logs of each part of the range.

    :raises ApiError: as a search.
    """
    begin, end = wanted.search.begin, wanted.search.end
    step = _step(begin, end)
    counts: dict[int, int] = {}

    def see(key: int) -> None:
        part = (key >> TIME_SHIFT) // step
        counts[part] = counts.get(part, 0) + 1

    async with searching(service):
        await see_all(service, call, wanted, see)
    parts = range(begin // step, (end - 1) // step + 1) if begin < end else range(0)
    return [(max(begin, part * step), min(end, (part + 1) * step), counts.get(part, 0)) for part in parts]


def _step(begin: int, end: int) -> int:
    for step in _STEPS:
        if (end - begin) // step < MAX_PARTS:
            return step
    day = _STEPS[-1]
    return -(-(end - begin) // ((MAX_PARTS - 1) * day)) * day

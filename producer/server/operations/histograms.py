"""GetHistograms: numbers of matching logs in equal parts of a time range."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from ..errors import ApiError
from ..messages import Answer, json_answer, parse_number
from ..service import Call, Service
from ..store import reading
from .get_logs import parse_wanted
from .search import TIME_SHIFT, WHOLE, Part, Wanted, searching, see_back

#: The maximum number of parts of a range, without and with an interval in the request. A part's length is one of these
#: numbers of seconds, and it begins at a multiple of its length.
MAX_PARTS = 60
_MAX_WANTED_PARTS = 2000
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


async def get_histograms(service: Service, call: Call) -> Answer:
    """Count logs: ``GET …?type=histogram&from=…&to=…[&query=…&topic=…&interval=seconds]``, also below ``/index``."""
    wanted = parse_wanted(call.request.query, service.limits)
    step = _wanted_step(call.request.query.get("interval", "0"), wanted)
    parts = (await count_parts(service, call, wanted, step=step)).parts
    total = sum(count for _, _, count in parts)
    found = [{"from": begin, "to": end, "count": count, "progress": "Complete"} for begin, end, count in parts]
    answer = json_answer(found)
    return Answer(headers={**answer.headers, "x-log-progress": "Complete", "x-log-count": str(total)}, body=answer.body)


@dataclass(frozen=True, slots=True)
class Counted:
    """Begin, end and number of matching logs of each part of the range counted so far.

    :ivar before: row to continue below; None if all rows were counted.
    """

    parts: list[tuple[int, int, int]]
    before: int | None


async def count_parts(
    service: Service, call: Call, wanted: Wanted, part: Part = WHOLE, *, step: int | None = None
) -> Counted:
    """Count the matching logs. Without a condition, LogGroups inside one part of the range are counted unread.

    :param step: length of a part, seconds; None for a length that suits the range.
    :raises ApiError: the search fails.
    """
    begin, end = wanted.search.begin, wanted.search.end
    counts = _Counts(step or _step(begin, end))
    # The order of the keys is irrelevant here, and they must contain the times.
    read = replace(wanted, reverse=False)
    if wanted.matches.matches_all:
        read = replace(read, search=replace(wanted.search, across=counts.step))

    async def see_rows(after: int, until: int) -> None:
        if wanted.matches.matches_all:
            rows = after, until
            counts.add(
                await service.stored(reading.counts, call.place, wanted.search, counts.step, rows, service.now())
            )

    async with searching(service):
        before = await see_back(service, call, read, counts.see, see_rows, part)
    return Counted(counts.between(begin, end), before)


class _Counts:
    """Numbers of logs in parts of ``step`` seconds."""

    def __init__(self, step: int) -> None:
        self.step = step
        self._counts: Counter[int] = Counter()

    def see(self, key: int) -> None:
        self._counts[(key >> TIME_SHIFT) // self.step] += 1

    def add(self, counts: dict[int, int]) -> None:
        self._counts.update(counts)

    def between(self, begin: int, end: int) -> list[tuple[int, int, int]]:
        step = self.step
        parts = range(begin // step, (end - 1) // step + 1) if begin < end else range(0)
        return [(max(begin, part * step), min(end, (part + 1) * step), self._counts[part]) for part in parts]


def _wanted_step(interval: str, wanted: Wanted) -> int | None:
    """Return the requested length of a part, seconds; None for 0, which requests none."""
    step = parse_number("interval", interval)
    if not step:
        return None
    parts = (wanted.search.end - wanted.search.begin) // step
    if parts > _MAX_WANTED_PARTS:
        raise ApiError(
            "ParameterInvalid",
            f"interval {step} makes {parts} parts: at most {_MAX_WANTED_PARTS} are allowed; use a longer one, or none",
        )
    return step


def _step(begin: int, end: int) -> int:
    for step in _STEPS:
        if (end - begin) // step < MAX_PARTS:
            return step
    day = _STEPS[-1]
    return -(-(end - begin) // ((MAX_PARTS - 1) * day)) * day

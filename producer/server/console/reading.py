"""Reads for the console: logstores and sizes, searches, histograms, fields, the tail, and neighbours of a log."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping
from typing import Any

from ..messages import Answer, json_answer, parse_number
from ..operations.context import Neighbour, neighbours
from ..operations.get_logs import parse_wanted
from ..operations.histograms import count_parts
from ..operations.query_tokens import split_query
from ..operations.rendering import log_fields, pack_meta
from ..operations.search import Part, Wanted, find_page, load_logs, searching, see_logs
from ..operations.sql import run_sql
from ..service import Service
from ..store import reading as stored
from ..store.log_groups import StoredLog
from ..store.rows import EVERYTHING
from ..store.sizes import sizes_of
from .plain import PlainRequest

_TAIL_LOGS = 500
_TAIL_ROWS = 2000
_SAMPLE = 10_000
_MAX_FIELDS = 500
_MAX_VALUES = 1000
_RATE_SECONDS = 60


async def list_logstores(service: Service, _request: PlainRequest) -> Answer:
    """``GET /console/api/logstores``: all logstores with their shards.

    Each shard has its size, and its logs and bytes a second over the last minute.
    """
    now = service.now()
    sizes = await service.stored(sizes_of, now, now - _RATE_SECONDS)
    return json_answer(
        {
            "now": now,
            "logstores": [
                {
                    "project": one.place.project,
                    "logstore": one.place.logstore,
                    "ttl": one.ttl_days,
                    "from": one.earliest,
                    "to": one.latest,
                    "shards": [
                        {
                            "shard": shard.number,
                            "status": "readwrite" if shard.is_writable else "readonly",
                            "logs": shard.logs,
                            "bytes": shard.bytes,
                            "first": shard.first,
                            "last": shard.last,
                            "logs_per_second": shard.new_logs / _RATE_SECONDS,
                            "bytes_per_second": shard.new_bytes / _RATE_SECONDS,
                        }
                        for shard in one.shards
                    ],
                }
                for one in sizes
            ],
        }
    )


async def search(service: Service, request: PlainRequest) -> Answer:
    """``GET /console/api/search``: logs, or the rows of the query's SQL.

    Parameters: ``project=…&logstore=…&from=…&to=…[&query=…&offset=…&line=…&reverse=…]``.
    """
    call, (wanted, command) = request.call(), _parse_search(service, request)
    if command is not None:
        done = (await run_sql(service, call, wanted, command)).result
        return json_answer({"names": done.names, "types": done.types, "rows": done.rows})
    async with searching(service):
        places = await find_page(service, call, wanted)
        logs = await load_logs(service, call, places, _shown)
    return json_answer({"logs": logs})


def _parse_search(service: Service, request: PlainRequest) -> tuple[Wanted, str | None]:
    """Return the condition for logs, and the SQL over them or None."""
    keywords, command = split_query(request.query.get("query", ""))
    return parse_wanted(request.query, service.limits, keywords), command


async def histogram(service: Service, request: PlainRequest) -> Answer:
    """``GET /console/api/histogram``: counts of the matching logs, without the query's SQL.

    The parameters are those of a search. With ``seconds``, a long count stops after that time and answers the counts so
    far. The answer's ``before`` is the parameter to continue with; null at the end.
    """
    wanted, _ = _parse_search(service, request)
    counted = await count_parts(service, request.call(), wanted, _part(request.query))
    return json_answer(
        {
            "total": sum(count for _, _, count in counted.parts),
            "parts": [{"from": begin, "to": end, "count": count} for begin, end, count in counted.parts],
            "before": counted.before,
        }
    )


async def fields(service: Service, request: PlainRequest) -> Answer:
    """``GET /console/api/fields``: the fields of the last matching logs, with their commonest values.

    The parameters are those of a search, ``top`` (values of each field), and ``seconds`` for the scan.
    """
    top = parse_number("top", request.query.get("top", "5"), 1, 100)
    counts = _FieldCounts()
    wanted = parse_wanted(request.query, service.limits)
    async with searching(service):
        with contextlib.suppress(_EnoughError, TimeoutError):
            async with asyncio.timeout(_part(request.query).seconds):
                await see_logs(service, request.call(), wanted, counts.see, back=True)
    return json_answer({"sampled": counts.logs, "fields": counts.commonest(top)})


def _part(query: Mapping[str, str]) -> Part:
    seconds = parse_number("seconds", query["seconds"], 0, 60) if "seconds" in query else math.inf
    return Part(before=parse_number("before", query["before"], 1) if "before" in query else None, seconds=seconds)


async def tail(service: Service, request: PlainRequest) -> Answer:
    """``GET /console/api/tail?project=…&logstore=…[&query=…&after=…]``: the logs that arrived after ``after``.

    ``after`` is that of the last answer; without it the answer has no logs, only the ``after`` to start with.
    """
    call = request.call()
    until = await service.stored(stored.last_row, call.place)
    if "after" not in request.query:
        return json_answer({"after": until, "logs": [], "skipped": False})
    # A client that was away for long gets only the last rows.
    requested = parse_number("after", request.query["after"])
    after: int | None = max(requested, until - _TAIL_ROWS)
    wanted = parse_wanted({**request.query, "from": "0", "to": str(EVERYTHING.end)}, service.limits)
    logs: list[dict[str, Any]] = []
    async with searching(service):
        while after is not None and after < until:
            page = await service.stored(stored.search, call.place, EVERYTHING, after, until, service.now())
            for group in page.groups:
                logs += await service.search(_matching, wanted, group.unpack)
            after = page.after
    return json_answer({"after": until, "logs": logs[-_TAIL_LOGS:], "skipped": requested < until - _TAIL_ROWS})


async def neighbourhood(service: Service, request: PlainRequest) -> Answer:
    """``GET /console/api/neighbours``: the logs of the same sender before and after a log.

    Without a pack id they are those of its LogGroup.

    Parameters: ``project=…&logstore=…&shard=…&position=…&index=…[&back=…&forward=…]``.
    """
    query = request.query
    shard, position, index = (parse_number(name, query.get(name, "")) for name in ("shard", "position", "index"))
    back, forward = (parse_number(name, query.get(name, "20"), 0, 100) for name in ("back", "forward"))
    before, log, after = await neighbours(service, request.call(), (shard, position, index), (back, forward))
    return json_answer({"before": _all(before), "log": _shown(log.log, log.index), "after": _all(after)})


def _all(found: list[Neighbour]) -> list[dict[str, Any]]:
    return [_shown(one.log, one.index) for one in found]


def _shown(log: StoredLog, index: int) -> dict[str, Any]:
    where = {"shard": log.shard, "position": log.position, "index": index, "pack_meta": pack_meta(log, index)}
    return {"time": log.time, "time_ns": log.time_ns, "fields": log_fields(log), **where}


def _matching(wanted: Wanted, unpack: Any) -> list[dict[str, Any]]:
    group = unpack()
    hits = [wanted.matches(texts) for _, _, texts in group.scan()]
    return [_shown(log, index) for index, log in enumerate(group.iter_logs()) if hits[index]]


class _EnoughError(Exception):
    """Raised when the sample is large enough."""


class _FieldCounts:
    """Counts of each field's values over some logs; values beyond the limits are not counted."""

    def __init__(self) -> None:
        self.logs = 0
        self._counts: dict[str, dict[str, int]] = {}
        self._with: dict[str, int] = {}

    def see(self, _time: int, texts: list[tuple[str, str]]) -> None:
        """Count the fields of one log."""
        for name, text in texts:
            if name in self._counts or len(self._counts) < _MAX_FIELDS:
                self._with[name] = self._with.get(name, 0) + 1
                values, value = self._counts.setdefault(name, {}), text[:256]
                if value in values or len(values) < _MAX_VALUES:
                    values[value] = values.get(value, 0) + 1
        self.logs += 1
        if self.logs >= _SAMPLE:
            raise _EnoughError

    def commonest(self, top: int) -> list[dict[str, Any]]:
        """Return each field with its commonest values, the most frequent field first."""
        names = sorted(self._counts, key=lambda name: (-self._with[name], name))
        return [
            {
                "name": name,
                "logs": self._with[name],
                "values": len(self._counts[name]),
                "top": sorted(self._counts[name].items(), key=lambda pair: (-pair[1], pair[0]))[:top],
            }
            for name in names
        ]

"""GetContextLogs: the logs that one sender sent just before and just after a log.

A log is named by its pack id, which GetLogs gives as ``__tag__:__pack_id__``, and its pack meta, ``__pack_meta__``,
which GetLogs adds where the query ends with ``|with_pack_meta``: shard, position of its LogGroup, its number in there.
Whatever has the same pack id up to the last ``-`` came from one sender; the number behind it tells the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import ApiError
from ..messages import Answer, json_answer, parse_number
from ..service import Call, Service
from ..store.log_groups import StoredLog
from ..store.rows import PackedGroup
from .rendering import log_fields, pack_meta

_MAX_LINES = 100


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A log, and its number in its LogGroup."""

    log: StoredLog
    index: int


async def get_context_logs(service: Service, call: Call) -> Answer:
    """``GET /logstores/{logstore}?type=context_log&pack_id=…&pack_meta=…&back_lines=…&forward_lines=…``."""
    query = call.request.query
    back, forward = (
        parse_number(name, query.get(name, "0"), 0, _MAX_LINES) for name in ("back_lines", "forward_lines")
    )
    shard, position, index = _parse_meta(query.get("pack_meta", ""))
    before, log, after = await neighbours(service, call, (shard, position, index), (back, forward))
    if log.log.pack_id is None or log.log.pack_id != query.get("pack_id"):
        raise ApiError("ParameterInvalid", "pack_id is not that of the log that pack_meta names")
    lines = [*before, log, *after]
    return json_answer(
        {
            "progress": "Complete",
            "total_lines": len(lines),
            "back_lines": len(before),
            "forward_lines": len(after),
            "logs": [_line(one, number) for number, one in enumerate(lines, -len(before))],
        }
    )


async def neighbours(
    service: Service, call: Call, where: tuple[int, int, int], wanted: tuple[int, int]
) -> tuple[list[Neighbour], Neighbour, list[Neighbour]]:
    """The logs before a log (the nearest last), the log, and those behind it.

    :param where: its shard, the position of its LogGroup, its number in there.
    :param wanted: how many before it and behind it at most.
    :raises ApiError: ``ParameterInvalid``, there is no such log.
    """
    shard, position, index = where
    group = await service.stored(service.store.group_at(call.place, shard, position, service.now()))
    logs = [] if group is None else await service.offload(_logs_of, group)
    if group is None or index >= len(logs):
        raise ApiError("ParameterInvalid", "pack_meta names no log that is still there")
    before = await _more(service, call, (group, True), logs[:index], wanted[0])
    after = await _more(service, call, (group, False), logs[index + 1 :], wanted[1])
    return before, logs[index], after


async def _more(
    service: Service, call: Call, way: tuple[PackedGroup, bool], found: list[Neighbour], count: int
) -> list[Neighbour]:
    """``found`` and the logs beyond it on that way, ``count`` in all at most."""
    group, backward = way
    while len(found) < count:
        groups = await service.stored(service.store.next_in_context(call.place, group, backward, service.now()))
        if not groups:
            break
        for group in groups:
            logs = await service.offload(_logs_of, group)
            found = [*logs, *found] if backward else [*found, *logs]
    return found[len(found) - min(count, len(found)) :] if backward else found[:count]


def _logs_of(group: PackedGroup) -> list[Neighbour]:
    return [Neighbour(log, index) for index, log in enumerate(group.unpack().iter_logs())]


def _line(one: Neighbour, number: int) -> dict[str, Any]:
    return {**log_fields(one.log), "__index_number__": str(number), "__pack_meta__": pack_meta(one.log, one.index)}


def _parse_meta(meta: str) -> tuple[int, int, int]:
    parts = meta.split("|")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise ApiError(
            "ParameterInvalid", f"pack_meta {meta[:64]!r} is not one that GetLogs gave: search with '… |with_pack_meta'"
        )
    shard, position, index = map(int, parts)
    return shard, position, index

"""GetContextLogs: the logs that a sender sent just before and after a given log.

A log is identified by its pack id and its pack meta. GetLogs returns the pack id as ``__tag__:__pack_id__``. It adds
the pack meta as ``__pack_meta__`` (shard, position of the LogGroup, index in the LogGroup) if the query ends with
``|with_pack_meta``. LogGroups whose pack ids agree up to the last ``-`` came from one sender, and the number after it
is their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import ApiError
from ..messages import Answer, json_answer, parse_number
from ..service import Call, Service
from ..store import reading
from ..store.log_groups import StoredLog
from ..store.rows import PackedGroup
from .rendering import log_fields, pack_meta

_MAX_LINES = 100


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A log, and its index in its LogGroup."""

    log: StoredLog
    index: int


async def get_context_logs(service: Service, call: Call) -> Answer:
    """Return a log's context: ``GET …?type=context_log&pack_id=…&pack_meta=…&back_lines=…&forward_lines=…``."""
    query = call.request.query
    back, forward = (
        parse_number(name, query.get(name, "0"), 0, _MAX_LINES) for name in ("back_lines", "forward_lines")
    )
    shard, position, index = _parse_meta(query.get("pack_meta", ""))
    before, log, after = await neighbours(service, call, (shard, position, index), (back, forward))
    if log.log.pack_id is None or log.log.pack_id != query.get("pack_id"):
        raise ApiError("ParameterInvalid", "pack_id and pack_meta are of different logs: take both from one log")
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
    """Return the logs before a log (the nearest last), the log, and the logs after it.

    :param where: shard, position of the LogGroup, and index in the LogGroup.
    :param wanted: largest number of logs before and after.
    :raises ApiError: ``ParameterInvalid``, there is no such log.
    """
    shard, position, index = where
    group = await service.stored(reading.group_at, call.place, shard, position, service.now())
    logs = [] if group is None else await service.offload(_logs_of, group)
    if group is None or index >= len(logs):
        raise ApiError("ParameterInvalid", "pack_meta names no stored log: it is wrong, or the log has expired")
    before = await _more(service, call, (group, True), logs[:index], wanted[0])
    after = await _more(service, call, (group, False), logs[index + 1 :], wanted[1])
    return before, logs[index], after


async def _more(
    service: Service, call: Call, way: tuple[PackedGroup, bool], found: list[Neighbour], count: int
) -> list[Neighbour]:
    """Extend ``found`` in one direction to at most ``count`` logs."""
    group, backward = way
    while len(found) < count:
        groups = await service.stored(reading.next_in_context, call.place, group, backward, service.now())
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
            "ParameterInvalid", f"pack_meta is {meta[:64]!r}: take it from a search that ends with '|with_pack_meta'"
        )
    shard, position, index = map(int, parts)
    return shard, position, index

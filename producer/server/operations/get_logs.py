"""GetLogs: logs of a time range that match a keyword query, as JSON.

Two forms of the same search: ``GET /logstores/{logstore}?type=log&…`` answers a list, its facts in headers; ``POST
/logstores/{logstore}/logs`` with the parameters as JSON (what current SDKs send) answers ``{"meta": …, "data": […]}``,
compressed. There is no index: every LogGroup of the range is read. To read everything, PullLogs is the way.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ...wire.compression import compress
from ..errors import ApiError
from ..limits import Limits
from ..messages import Answer, parse_number
from ..service import Call, Service
from ..store.log_groups import StoredLog
from ..store.rows import Search
from .json_body import parse_json
from .pull_logs import accepted_compression
from .query import compile_query, split_query
from .rendering import log_fields, pack_meta
from .search import Wanted, find_page, load_page, searching


async def get_logs(service: Service, call: Call) -> Answer:
    """``GET /logstores/{logstore}?type=log&from=…&to=…[&query=…&topic=…&line=…&offset=…&reverse=…]``."""
    return await _search(service, call, call.request.query, _as_list)


async def get_logs_by_json(service: Service, call: Call) -> Answer:
    """``POST /logstores/{logstore}/logs``, the same parameters as a JSON object."""
    compression = accepted_compression(call.request)
    return await _search(service, call, parse_json(call.body), lambda logs: _as_object(logs, compression))


def parse_wanted(params: Mapping[str, Any], limits: Limits, keywords: str | None = None) -> Wanted:
    """What the parameters ask for; those that this server does not know are ignored.

    :param keywords: what logs must match, instead of ``query``.
    :raises ApiError: ``ParameterInvalid``.
    """
    for name in ("from", "to"):
        if name not in params:
            raise ApiError("ParameterInvalid", f"{name} is missing: a search needs from and to, Unix seconds")
    return Wanted(
        search=Search(
            begin=_number(params, "from", 0), end=_number(params, "to", 0), topic=_text(params, "topic") or None
        ),
        matches=compile_query(_text(params, "query") if keywords is None else keywords, limits),
        offset=_number(params, "offset", 0),
        line=_number(params, "line", limits.page_logs, limits.page_logs),
        reverse=str(params.get("reverse", "")).lower() == "true",
    )


def _number(params: Mapping[str, Any], name: str, default: int, high: int = (1 << 63) - 1) -> int:
    return parse_number(name, str(params.get(name, default)), 0, high)


def _text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name) or ""
    if not isinstance(value, str):
        raise ApiError("ParameterInvalid", f"{name} must be text")
    return value


async def _search(
    service: Service, call: Call, params: Mapping[str, Any], answer: Callable[[list[str]], Answer]
) -> Answer:
    """Search when there is room for it, and hold the answer before another search begins."""
    keywords, command = split_query(_text(params, "query"))
    render = _as_json if command is None else _renderer(command)
    wanted = parse_wanted(params, service.limits, keywords)
    async with searching(service):
        places = await find_page(service, call, wanted)
        logs = await load_page(service, call, places, render)
        found = await service.search(answer, logs)
        await call.lease.resize(len(found.body))
    return found


def _renderer(command: str) -> Callable[[StoredLog, int], str]:
    """How logs are shown that ``command``, what follows ``|`` in a query, is done to."""
    if command.lower() == "with_pack_meta":
        return _as_json_with_meta
    raise ApiError("ParameterInvalid", f"{command[:64]!r} after '|' is not known to this server: use with_pack_meta")


def _as_list(logs: list[str]) -> Answer:
    headers = {
        "Content-Type": "application/json",
        "x-log-progress": "Complete",
        "x-log-count": str(len(logs)),
        "x-log-processed-rows": str(len(logs)),
        "x-log-has-sql": "false",
    }
    return Answer(headers=headers, body=f"[{', '.join(logs)}]".encode())


def _as_object(logs: list[str], compression: str) -> Answer:
    meta = {"progress": "Complete", "count": len(logs), "processedRows": len(logs), "hasSQL": False, "mode": 0}
    raw = f'{{"meta": {json.dumps(meta)}, "data": [{", ".join(logs)}]}}'.encode()
    headers = {"Content-Type": "application/json", "x-log-bodyrawsize": str(len(raw))}
    if compression != "none":
        headers["x-log-compresstype"] = compression
    return Answer(headers=headers, body=compress(raw, compression))


def _as_json(log: StoredLog, _index: int) -> str:
    return json.dumps(log_fields(log))


def _as_json_with_meta(log: StoredLog, index: int) -> str:
    return json.dumps({**log_fields(log), "__pack_meta__": pack_meta(log, index)})

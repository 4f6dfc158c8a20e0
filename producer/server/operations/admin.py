"""Projects, logstores and shards: making them and looking at them.

Source: LogHub protocol, Reading back / admin.
"""

from __future__ import annotations

import re
from typing import Any

from ..errors import ApiError
from ..messages import Answer, ApiRequest, json_answer, parse_number
from ..service import Service, place_of
from ..store.rows import Logstore, Place
from ..store.shards import shard_ranges
from .get_logs import get_logs, parse_json

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_MAX_SHARDS = 256
_MAX_LIST = 500


def check_name(kind: str, name: Any) -> str:
    """A name for a project or a logstore.

    :raises ApiError: ``ParameterInvalid``.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ApiError(
            "ParameterInvalid",
            f"{str(name)[:140]!r} is no {kind} name: 1 to 128 letters, digits, '-', '_', '.', not a sign first",
        )
    return name


async def create_project(service: Service, _request: ApiRequest, body: bytes) -> Answer:
    """``POST /`` with ``{"projectName": …, "description": …}``."""
    wanted = parse_json(body)
    name = check_name("project", wanted.get("projectName")).lower()
    description = str(wanted.get("description") or "")
    await service.stored(service.store.create_project(name, description, service.now()))
    return Answer()


async def get_project(service: Service, request: ApiRequest, _body: bytes) -> Answer:
    """``GET /``."""
    project = await service.stored(service.store.project(request.project))
    created = str(int(project.created))
    return json_answer(
        {
            "projectName": project.name,
            "description": project.description,
            "status": "Normal",
            "owner": "",
            "region": "embedded",
            "createTime": created,
            "lastModifyTime": created,
        }
    )


async def create_logstore(service: Service, request: ApiRequest, body: bytes) -> Answer:
    """``POST /logstores`` with ``{"logstoreName": …, "ttl": …, "shardCount": …, …}``; other settings are kept as they
    are.
    """
    settings = parse_json(body)
    name = check_name("logstore", settings.pop("logstoreName", None))
    if "shardCount" in settings:
        settings["shardCount"] = parse_number("shardCount", str(settings["shardCount"]), 1, _MAX_SHARDS)
    place = Place(project=request.project, logstore=name)
    await service.stored(service.store.create_logstore(place, settings, service.now()))
    return Answer()


async def list_logstores(service: Service, request: ApiRequest, _body: bytes) -> Answer:
    """``GET /logstores[?offset=…&size=…&logstoreName=…]``."""
    names = await service.stored(service.store.logstore_names(request.project))
    pattern = request.query.get("logstoreName", "")
    matching = [name for name in names if pattern in name]
    offset = parse_number("offset", request.query.get("offset", "0"))
    size = parse_number("size", request.query.get("size", str(_MAX_LIST)), 0, _MAX_LIST)
    page = matching[offset : offset + size]
    return json_answer({"count": len(page), "total": len(matching), "logstores": page})


async def read_logstore(service: Service, request: ApiRequest, body: bytes) -> Answer:
    """``GET /logstores/{logstore}``: its settings; with ``type=log``, its logs."""
    kind = request.query.get("type")
    if kind == "log":
        return await get_logs(service, request, body)
    if kind is not None:
        raise ApiError("ParameterInvalid", f"type {kind[:64]!r} is not supported by this server: use log, or none")
    return json_answer(_settings(await service.stored(service.store.logstore(place_of(request)))))


async def list_shards(service: Service, request: ApiRequest, _body: bytes) -> Answer:
    """``GET /logstores/{logstore}/shards``. Whoever asks is about to write or read, so it may create the logstore."""
    logstore = await service.stored(service.store.logstore_to_use(place_of(request), service.now()))
    return json_answer(
        [
            {
                "shardID": part.shard,
                "status": "readwrite",
                "inclusiveBeginKey": part.begin,
                "exclusiveEndKey": part.end,
                "createTime": int(logstore.created),
            }
            for part in shard_ranges(logstore.shard_count)
        ]
    )


def _settings(logstore: Logstore) -> dict[str, Any]:
    defaults = {
        "ttl": 30,
        "enable_tracking": False,
        "autoSplit": False,
        "maxSplitShard": 64,
        "appendMeta": False,
        "telemetryType": "",
    }
    facts = {
        "logstoreName": logstore.name,
        "shardCount": logstore.shard_count,
        "createTime": int(logstore.created),
        "lastModifyTime": int(logstore.created),
    }
    return {**defaults, **logstore.settings, **facts}

"""Projects, logstores and shards: making them and looking at them.

Source: LogHub protocol, Reading back / admin.
"""

from __future__ import annotations

import re
from typing import Any

from ..errors import ApiError
from ..messages import Answer, json_answer, parse_number
from ..service import Call, Service
from ..store.rows import TTL_FOR_EVER, Logstore, Place
from ..store.shards import shard_ranges
from .get_logs import get_logs
from .json_body import parse_json

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


async def create_project(service: Service, call: Call) -> Answer:
    """``POST /`` with ``{"projectName": …, "description": …}``."""
    wanted = parse_json(call.body)
    name = check_name("project", wanted.get("projectName")).lower()
    description = str(wanted.get("description") or "")
    await service.stored(service.store.create_project(name, description, service.now()))
    return Answer()


async def get_project(service: Service, call: Call) -> Answer:
    """``GET /``."""
    project = await service.stored(service.store.project(call.request.project))
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


async def create_logstore(service: Service, call: Call) -> Answer:
    """``POST /logstores`` with ``{"logstoreName": …, "ttl": …, "shardCount": …, …}``; other settings are kept as they
    are.
    """
    settings = parse_json(call.body)
    name = check_name("logstore", settings.pop("logstoreName", None))
    for setting, most in (("shardCount", _MAX_SHARDS), ("ttl", TTL_FOR_EVER)):
        if setting in settings:
            settings[setting] = parse_number(setting, str(settings[setting]), 1, most)
    place = Place(project=call.request.project, logstore=name)
    await service.stored(service.store.create_logstore(place, settings, service.now()))
    return Answer()


async def list_logstores(service: Service, call: Call) -> Answer:
    """``GET /logstores[?offset=…&size=…&logstoreName=…]``."""
    query = call.request.query
    offset = parse_number("offset", query.get("offset", "0"))
    size = parse_number("size", query.get("size", str(_MAX_LIST)), 0, _MAX_LIST)
    part = query.get("logstoreName", "")
    total, page = await service.stored(service.store.logstore_names(call.request.project, part, offset, size))
    return json_answer({"count": len(page), "total": total, "logstores": page})


async def read_logstore(service: Service, call: Call) -> Answer:
    """``GET /logstores/{logstore}``: its settings; with ``type=log``, its logs."""
    kind = call.request.query.get("type")
    if kind == "log":
        return await get_logs(service, call)
    if kind is not None:
        raise ApiError("ParameterInvalid", f"type {kind[:64]!r} is not supported by this server: use log, or none")
    return json_answer(_settings(await service.stored(service.store.logstore(call.place))))


async def list_shards(service: Service, call: Call) -> Answer:
    """``GET /logstores/{logstore}/shards``. Whoever asks is about to write or read, so it may create the logstore."""
    logstore = await service.stored(service.store.logstore_to_use(call.place, service.now()))
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
        "enable_tracking": False,
        "autoSplit": False,
        "maxSplitShard": 64,
        "appendMeta": False,
        "telemetryType": "",
    }
    facts = {
        "logstoreName": logstore.name,
        "shardCount": logstore.shard_count,
        "ttl": logstore.ttl_days,
        "createTime": int(logstore.created),
        "lastModifyTime": int(logstore.created),
    }
    return {**defaults, **logstore.settings, **facts}

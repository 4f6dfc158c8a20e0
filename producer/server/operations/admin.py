"""Operations on projects, logstores and shards: create, change, delete, list.

Source: LogHub protocol, Reading back / admin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ApiError
from ..messages import Answer, json_answer, parse_number
from ..service import Call, Service
from ..store import catalog
from ..store.rows import TTL_FOR_EVER, Logstore, Place, Project
from ..store.shards import MAX_SHARDS, Shard
from .json_body import parse_json
from .names import check_name
from .pull_logs import shard_number
from .substores import SUBSTORES

_MAX_LIST = 500
_METERING_MODE = "meteringMode"
_METERING_MODES = ("ChargeByFunction", "ChargeByDataIngest")


async def create_project(service: Service, call: Call) -> Answer:
    """Create a project: ``POST /`` with ``{"projectName": …, "description": …}``."""
    wanted = parse_json(call.body)
    name = check_name("project", wanted.get("projectName"))
    description = str(wanted.get("description") or "")
    await service.stored(catalog.create_project, name, description, service.now())
    return Answer()


async def get_project(service: Service, call: Call) -> Answer:
    """Return a project: ``GET /``."""
    return json_answer(_description(await service.stored(catalog.project_of, call.request.project)))


async def list_projects(service: Service, call: Call) -> Answer:
    """List projects: ``GET /[?offset=…&size=…&projectName=…]`` of a host without a project."""
    query = call.request.query
    offset, size = _page(query)
    part = query.get("projectName", "")
    total, page = await service.stored(catalog.list_projects, part, offset, size)
    return json_answer({"count": len(page), "total": total, "projects": [_description(project) for project in page]})


async def update_project(service: Service, call: Call) -> Answer:
    """Change a project's description: ``PUT /`` with ``{"description": …}``."""
    description = str(parse_json(call.body).get("description") or "")
    await service.stored(catalog.update_project, call.request.project, description, service.now())
    return Answer()


async def delete_project(service: Service, call: Call) -> Answer:
    """Delete a project with all its logstores: ``DELETE /``."""
    await service.stored(catalog.delete_project, call.request.project)
    return Answer()


def _page(query: Mapping[str, str]) -> tuple[int, int]:
    """Return offset and size of a page of a list."""
    return parse_number("offset", query.get("offset", "0")), parse_number(
        "size", query.get("size", str(_MAX_LIST)), 0, _MAX_LIST
    )


def _description(project: Project) -> dict[str, Any]:
    return {
        "projectName": project.name,
        "description": project.description,
        "status": "Normal",
        "owner": "",
        "region": "embedded",
        "createTime": str(int(project.created)),
        "lastModifyTime": str(int(project.modified)),
    }


async def create_logstore(service: Service, call: Call) -> Answer:
    """Create a logstore: ``POST /logstores`` with ``{"logstoreName": …, "ttl": …, "shardCount": …, …}``.

    Other settings are stored unchanged.
    """
    settings = parse_json(call.body)
    name = settings.pop("logstoreName", None)
    if not isinstance(name, str):
        raise ApiError("ParameterInvalid", f"logstoreName is {str(name)[:64]!r}: it must be the name of a logstore")
    _check_settings(settings)
    place = Place(project=call.request.project, logstore=name)
    await service.stored(service.store.create_logstore, place, settings, service.now())
    return Answer()


async def list_logstores(service: Service, call: Call) -> Answer:
    """List logstores: ``GET /logstores[?offset=…&size=…&logstoreName=…&telemetryType=None|Metrics|…]``."""
    query = call.request.query
    part, kind = query.get("logstoreName", ""), query.get("telemetryType", "")
    names = service.store.logstore_names
    total, page = await service.stored(names, call.request.project, part, kind, *_page(query))
    return json_answer({"count": len(page), "total": total, "logstores": page})


async def list_configs(service: Service, call: Call) -> Answer:
    """List collection configurations, of which there are none: ``GET /configs``.

    Clients that copy a logstore ask for them.
    """
    await service.stored(catalog.project_of, call.request.project)
    return json_answer({"count": 0, "total": 0, "configs": []})


async def get_logstore(service: Service, call: Call) -> Answer:
    """Return a logstore's settings: ``GET /logstores/{logstore}``."""
    return json_answer(_settings(await service.stored(catalog.logstore_of, call.place)))


async def update_logstore(service: Service, call: Call) -> Answer:
    """Change settings: ``PUT /logstores/{logstore}`` with the new ones; the number of shards stays."""
    settings = parse_json(call.body)
    settings.pop("logstoreName", None)
    settings.pop("shardCount", None)
    _check_settings(settings)
    await service.stored(catalog.update_logstore, call.place, settings, service.now())
    return Answer()


async def get_metering_mode(service: Service, call: Call) -> Answer:
    """Return the billing mode: ``GET /logstores/{logstore}/meteringmode``; by function if it was never set."""
    logstore = await service.stored(catalog.logstore_of, call.place)
    return json_answer({"meteringMode": logstore.settings.get(_METERING_MODE, _METERING_MODES[0])})


async def update_metering_mode(service: Service, call: Call) -> Answer:
    """Store the billing mode: ``PUT /logstores/{logstore}/meteringmode`` with ``{"meteringMode": …}``. It has no
    effect.
    """
    mode = parse_json(call.body).get("meteringMode")
    if mode not in _METERING_MODES:
        raise ApiError("ParameterInvalid", f"meteringMode is {str(mode)[:64]!r}: use {' or '.join(_METERING_MODES)}")
    await service.stored(catalog.update_logstore, call.place, {_METERING_MODE: mode}, service.now())
    return Answer()


async def delete_logstore(service: Service, call: Call) -> Answer:
    """Delete a logstore with all its data: ``DELETE /logstores/{logstore}``."""
    await service.stored(catalog.delete_logstore, call.place)
    return Answer()


async def clear_logstore(service: Service, call: Call) -> Answer:
    """Delete a logstore's logs: ``DELETE /logstores/{logstore}/storage``.

    Cursors, checkpoints and sequence numbers stay.
    """
    await service.stored(catalog.clear_logstore, call.place)
    return Answer()


async def list_shards(service: Service, call: Call) -> Answer:
    """List a logstore's shards: ``GET /logstores/{logstore}/shards``."""
    return _as_list(await service.stored(service.store.shards, call.place))


async def split_shard(service: Service, call: Call) -> Answer:
    """Split a shard: ``POST …/shards/{shard}?action=split[&key=…|&shardCount=…]``.

    The answer is the old shard and the new ones, which take further writes. Without key and number there are two
    halves.
    """
    query = call.request.query
    if "key" in query and "shardCount" in query:
        raise ApiError("ParameterInvalid", "a split takes key or shardCount, and the request has both: send one")
    where = query.get("key") or parse_number("shardCount", query.get("shardCount", "2"), 2, MAX_SHARDS)
    return _as_list(await service.stored(catalog.split_shard, call.place, shard_number(call), where, service.now()))


async def merge_shards(service: Service, call: Call) -> Answer:
    """Merge a shard with the next one: ``POST …/shards/{shard}?action=merge``. The answer is the new and the old
    shards.
    """
    return _as_list(await service.stored(catalog.merge_shard, call.place, shard_number(call), service.now()))


def _as_list(shards: list[Shard]) -> Answer:
    return json_answer(
        [
            {
                "shardID": shard.number,
                "status": "readwrite" if shard.is_writable else "readonly",
                "inclusiveBeginKey": shard.begin,
                "exclusiveEndKey": shard.end,
                "createTime": int(shard.created),
            }
            for shard in shards
        ]
    )


def _check_settings(settings: dict[str, Any]) -> None:
    for setting, most in (("shardCount", MAX_SHARDS), ("ttl", TTL_FOR_EVER)):
        if setting in settings:
            settings[setting] = parse_number(setting, str(settings[setting]), 1, most)


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
        "lastModifyTime": int(logstore.modified),
    }
    kept = {name: value for name, value in logstore.settings.items() if name not in (_METERING_MODE, SUBSTORES)}
    return {**defaults, **kept, **facts}

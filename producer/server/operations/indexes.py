"""Index configurations: kept and given back. Searches and SQL see every field, with an index or without."""

from __future__ import annotations

from ..messages import Answer, json_answer
from ..service import Call, Service
from .json_body import parse_json


async def create_index(service: Service, call: Call) -> Answer:
    """``POST /logstores/{logstore}/index`` with the configuration."""
    await service.stored(service.store.indexes.create(call.place, parse_json(call.body), service.now()))
    return Answer()


async def update_index(service: Service, call: Call) -> Answer:
    """``PUT /logstores/{logstore}/index`` with the whole configuration."""
    await service.stored(service.store.indexes.update(call.place, parse_json(call.body), service.now()))
    return Answer()


async def delete_index(service: Service, call: Call) -> Answer:
    """``DELETE /logstores/{logstore}/index``."""
    await service.stored(service.store.indexes.delete(call.place))
    return Answer()


async def get_index(service: Service, call: Call) -> Answer:
    """``GET /logstores/{logstore}/index``."""
    content, modified = await service.stored(service.store.indexes.get(call.place))
    logstore = await service.stored(service.store.logstore(call.place))
    facts = {"index_mode": "v2", "storage": "pg", "ttl": logstore.ttl_days, "lastModifyTime": int(modified)}
    return json_answer({**facts, **content})

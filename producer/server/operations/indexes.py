"""Index configurations, stored without effect: searches and SQL see every field."""

from __future__ import annotations

from ..messages import Answer, json_answer
from ..service import Call, Service
from ..store import indexes
from ..store.catalog import logstore_of
from .json_body import parse_json


async def create_index(service: Service, call: Call) -> Answer:
    """Create the configuration: ``POST /logstores/{logstore}/index`` with all of it."""
    await service.stored(indexes.create, call.place, parse_json(call.body), service.now())
    return Answer()


async def update_index(service: Service, call: Call) -> Answer:
    """Replace the configuration: ``PUT /logstores/{logstore}/index`` with all of it."""
    await service.stored(indexes.update, call.place, parse_json(call.body), service.now())
    return Answer()


async def delete_index(service: Service, call: Call) -> Answer:
    """Delete the configuration: ``DELETE /logstores/{logstore}/index``."""
    await service.stored(indexes.delete, call.place)
    return Answer()


async def get_index(service: Service, call: Call) -> Answer:
    """Return the configuration: ``GET /logstores/{logstore}/index``."""
    content, modified = await service.stored(indexes.get, call.place)
    logstore = await service.stored(logstore_of, call.place)
    facts = {"index_mode": "v2", "storage": "pg", "ttl": logstore.ttl_days, "lastModifyTime": int(modified)}
    return json_answer({**facts, **content})

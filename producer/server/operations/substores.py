"""Substores: clients create one, ``prom``, to set up a metric store.

They are stored as sent, and only the time to live has an effect.
"""

from __future__ import annotations

from typing import Any

from ..errors import ApiError
from ..messages import Answer, json_answer, parse_number
from ..service import Call, Service
from ..store import catalog
from ..store.rows import TTL_FOR_EVER
from .json_body import parse_json
from .names import check_name

#: Key of the substores in the settings of a logstore.
SUBSTORES = "substores"
_MOST = 100


async def create_substore(service: Service, call: Call) -> Answer:
    """Create a substore: ``POST …/substores`` with ``{"name": …, "ttl": …, "keys": […], …}``."""
    wanted = parse_json(call.body)
    name = check_name("substore", wanted.get("name"))
    return await _keep(service, call, {**await _substores(service, call), name: wanted})


async def list_substores(service: Service, call: Call) -> Answer:
    """List the names of the substores: ``GET /logstores/{logstore}/substores``."""
    return json_answer({"substores": sorted(await _substores(service, call))})


async def get_substore(service: Service, call: Call) -> Answer:
    """Return a substore: ``GET /logstores/{logstore}/substores/{name}``."""
    return json_answer(_one_of(await _substores(service, call), _name(call)))


async def update_substore(service: Service, call: Call) -> Answer:
    """Replace a substore: ``PUT /logstores/{logstore}/substores/{name}`` with all of it."""
    substores = await _substores(service, call)
    _one_of(substores, _name(call))
    return await _keep(service, call, {**substores, _name(call): parse_json(call.body)})


async def delete_substore(service: Service, call: Call) -> Answer:
    """Delete a substore: ``DELETE /logstores/{logstore}/substores/{name}``."""
    substores = await _substores(service, call)
    _one_of(substores, _name(call))
    return await _keep(service, call, {name: one for name, one in substores.items() if name != _name(call)})


async def get_substore_ttl(service: Service, call: Call) -> Answer:
    """Return the logstore's time to live, days: ``GET /logstores/{logstore}/substores/storage/ttl``."""
    return json_answer({"ttl": (await service.stored(catalog.logstore_of, call.place)).ttl_days})


async def update_substore_ttl(service: Service, call: Call) -> Answer:
    """Set the logstore's time to live: ``PUT /logstores/{logstore}/substores/storage/ttl?ttl=days``."""
    ttl = parse_number("ttl", call.request.query.get("ttl", ""), 1, TTL_FOR_EVER)
    await service.stored(catalog.update_logstore, call.place, {"ttl": ttl}, service.now())
    return Answer()


async def _substores(service: Service, call: Call) -> dict[str, Any]:
    logstore = await service.stored(catalog.logstore_of, call.place)
    return dict(logstore.settings.get(SUBSTORES, {}))


async def _keep(service: Service, call: Call, substores: dict[str, Any]) -> Answer:
    if len(substores) > _MOST:
        raise ApiError("ParameterInvalid", f"the logstore has {_MOST} substores, the limit: delete one first")
    await service.stored(catalog.update_logstore, call.place, {SUBSTORES: substores}, service.now())
    return Answer()


def _name(call: Call) -> str:
    return str(call.request.path_params["substore"])


def _one_of(substores: dict[str, Any], name: str) -> Any:
    if name not in substores:
        raise ApiError("ParameterInvalid", f"the logstore has no substore {name[:128]!r}: it has {sorted(substores)}")
    return substores[name]

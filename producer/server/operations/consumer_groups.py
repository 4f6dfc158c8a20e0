"""Consumer groups for the official consumer libraries: heartbeats that distribute shards, and checkpoints."""

from __future__ import annotations

from typing import Any

from ..errors import ApiError
from ..messages import Answer, json_answer, parse_number
from ..service import Call, Service
from ..store import consumer_groups as groups
from ..store.consumer_groups import Checkpoint, ConsumerGroup, GroupPlace
from .cursors import decode_cursor
from .json_body import parse_json, parse_json_list
from .names import check_name

_MAX_TIMEOUT_SECONDS = 86400
_MAX_HELD = 10_000


async def create_consumer_group(service: Service, call: Call) -> Answer:
    """Create a group: ``POST …/consumergroups`` with ``{"consumerGroup": …, "timeout": seconds, "order": …}``."""
    wanted = parse_json(call.body)
    group = ConsumerGroup(
        name=check_name("consumer group", wanted.get("consumerGroup")),
        timeout=_timeout(wanted.get("timeout")),
        in_order=_flag("order", wanted.get("order", False)),
    )
    await service.stored(groups.create, call.place, group)
    return Answer()


async def list_consumer_groups(service: Service, call: Call) -> Answer:
    """List the groups: ``GET /logstores/{logstore}/consumergroups``."""
    found = await service.stored(groups.groups, call.place)
    return json_answer(
        [{"name": group.name, "timeout": int(group.timeout), "order": group.in_order} for group in found]
    )


async def update_consumer_group(service: Service, call: Call) -> Answer:
    """Change a group: ``PUT …/consumergroups/{group}`` with ``timeout``, ``order``, or both."""
    wanted = parse_json(call.body)
    timeout = _timeout(wanted["timeout"]) if "timeout" in wanted else None
    in_order = _flag("order", wanted["order"]) if "order" in wanted else None
    await service.stored(groups.update, _where(call), timeout, in_order)
    return Answer()


async def delete_consumer_group(service: Service, call: Call) -> Answer:
    """Delete a group: ``DELETE …/consumergroups/{group}``."""
    await service.stored(groups.delete, _where(call))
    return Answer()


async def heartbeat(service: Service, call: Call) -> Answer:
    """Answer a heartbeat: ``POST …/consumergroups/{group}?type=heartbeat&consumer=…``.

    The body lists the shards that the consumer reads. The answer lists the shards assigned to it.
    """
    held = [parse_number("a shard", str(shard)) for shard in parse_json_list(call.body)]
    if len(held) > _MAX_HELD:
        raise ApiError("ParameterInvalid", f"the heartbeat names {len(held)} shards: at most {_MAX_HELD} are allowed")
    shards = await service.stored(groups.heartbeat, _where(call), _consumer(call), held, service.now())
    return json_answer(shards)


async def get_checkpoints(service: Service, call: Call) -> Answer:
    """Return the checkpoints: ``GET …/consumergroups/{group}[?shard=…]``; the cursor of a new shard is empty."""
    text = call.request.query.get("shard")
    shard = None if text is None else parse_number("shard", text)
    checkpoints = await service.stored(groups.checkpoints, _where(call), shard)
    return json_answer(
        [
            {
                "shard": one.shard,
                "checkpoint": one.cursor,
                "updateTime": int(one.updated * 1_000_000),
                "consumer": one.consumer,
            }
            for one in checkpoints
        ]
    )


async def update_checkpoint(service: Service, call: Call) -> Answer:
    """Save a checkpoint: ``POST …?type=checkpoint&consumer=…[&forceSuccess=true]`` with shard and checkpoint."""
    wanted = parse_json(call.body)
    cursor = str(wanted.get("checkpoint", ""))
    if cursor:
        decode_cursor(cursor)
    force = call.request.query.get("forceSuccess", "false").lower() == "true"
    checkpoint = Checkpoint(
        shard=parse_number("shard", str(wanted.get("shard"))),
        cursor=cursor,
        updated=service.now(),
        consumer=call.request.query.get("consumer", ""),
    )
    await service.stored(groups.save_checkpoint, _where(call), checkpoint, force)
    return Answer()


def _where(call: Call) -> GroupPlace:
    return GroupPlace(place=call.place, group=check_name("consumer group", call.request.path_params["group"]))


def _consumer(call: Call) -> str:
    name = call.request.query.get("consumer", "")
    if not 1 <= len(name) <= 256:
        raise ApiError("ParameterInvalid", f"consumer has {len(name)} characters: a heartbeat needs a name of 1 to 256")
    return name


def _timeout(value: Any) -> float:
    return float(parse_number("timeout (seconds)", str(value), 1, _MAX_TIMEOUT_SECONDS))


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ApiError("ParameterInvalid", f"{name} is {str(value)[:64]!r}: it must be true or false")
    return value

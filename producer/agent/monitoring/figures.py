"""Collect all figures of an agent for the monitoring.

Counters have Flume's names. All of Flume's counters exist, even those that are never counted here.
"""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any

from ...model.errors import ChannelError
from ...model.interfaces import ChannelStats
from ...runtime.process_memory import resident_bytes
from ..events.counters import Counters
from ..flow.channel import BatchChannel
from ..flow.refused import MOST_REASON, Refused
from ..run.agent import Agent
from ..run.blueprint import SinkPart
from ..run.supervisor import State
from .redaction import redacted, redacted_copy, redacted_event

SOURCE_COUNTERS = (
    "EventReceivedCount",
    "EventAcceptedCount",
    "AppendReceivedCount",
    "AppendAcceptedCount",
    "AppendBatchReceivedCount",
    "AppendBatchAcceptedCount",
    "OpenConnectionCount",
    "UnreadableCount",
    "EventDroppedCount",
    "EventUnparsedCount",
    "EventReadFail",
    "SkippedNulCount",
    "ReplacedCharacterCount",
    "ChannelWriteFail",
    "GenericProcessingFail",
    "InterceptionMicroseconds",
)
CHANNEL_COUNTERS = (
    "EventPutAttemptCount",
    "EventPutSuccessCount",
    "EventPutErrorCount",
    "EventTakeAttemptCount",
    "EventTakeSuccessCount",
    "EventTakeErrorCount",
    "CheckpointWriteErrorCount",
    "CheckpointBackupWriteErrorCount",
    "EventLostCount",
    "BatchLostCount",
)
SINK_COUNTERS = (
    "EventDrainAttemptCount",
    "EventDrainSuccessCount",
    "BatchEmptyCount",
    "BatchUnderflowCount",
    "BatchCompleteCount",
    "ConnectionCreatedCount",
    "ConnectionClosedCount",
    "ConnectionFailedCount",
    "EventWriteFail",
    "ChannelReadFail",
    "DeliveryMicroseconds",
)
#: Gauges: values that may also decrease.
GAUGES = frozenset({"CertificateExpiryTimestampSeconds", "OpenConnectionCount", "UnreadableCount"})

_WORKING = (State.RUNNING, State.FINISHED)
_NO_STATE = "in a group"
#: Maximum number of characters of an error.
_MOST_SHOWN = 2000
_STARTED = time.time()


def figures(agent: Agent, *, events: bool = False) -> dict[str, Any]:
    """Return all figures, as values that JSON can encode, without secrets.

    :param events: True to include a sample of refused events.
    """
    reasons = not_ready(agent)
    return {
        "agent": agent.config.name,
        "origin": agent.config.origin,
        "started": _STARTED,
        "time": time.time(),
        "ready": not reasons,
        "reasons": reasons,
        "notes": notes(agent),
        "config": {
            "trouble": None if agent.reloads.trouble is None else _shown(agent, agent.reloads.trouble),
            "succeeded": agent.reloads.succeeded,
        },
        "sources": [_source(agent, name) for name in agent.blueprint.sources],
        "channels": [_channel(agent, name, channel) for name, channel in dict(agent.channels).items()],
        "sinks": [sink for part in agent.blueprint.sinks.values() for sink in _sinks(agent, part, events=events)],
        "process": _process(),
    }


def not_ready(agent: Agent) -> list[str]:
    """Return the reasons why the agent is not ready; empty if it is."""
    reasons = [f"channel {name} is closed" for name, each in dict(agent.channels).items() if not each.stats().open]
    reasons += [f"channel {name} is not open" for name in agent.blueprint.channels if name not in agent.channels]
    for kind, parts in (("source", agent.sources), ("sink", agent.sinks)):
        running = dict(parts).items()
        reasons += [f"{kind} {name} {part.status()}" for name, part in running if part.state not in _WORKING]
        troubles = {name: agent.health_of(f"{kind}s.{name}").trouble() for name, _ in running}
        reasons += [f"{kind} {name} {trouble}" for name, trouble in troubles.items() if trouble]
    expected = len(agent.blueprint.sources) + len(agent.blueprint.sinks)
    if len(agent.sources) + len(agent.sinks) < expected:
        reasons.append("not all components have started")
    return [_shown(agent, reason) for reason in reasons]


def notes(agent: Agent) -> list[str]:
    """Return conditions to attend to although the agent is ready."""
    trouble = agent.reloads.trouble
    return [] if trouble is None else [_shown(agent, f"the file's configuration is not running: {trouble}")]


def _source(agent: Agent, name: str) -> dict[str, Any]:
    part, running = agent.blueprint.sources[name], agent.sources.get(name)
    config = agent.config.sources[name]
    lag = agent.lag(name)
    return {
        "name": name,
        "type": config.type,
        "channels": list(part.channels),
        "interceptors": [each.type for each in config.interceptors],
        "selector": config.selector.type,
        "state": State.NEW.value if running is None else running.state.value,
        "lag": None if lag is None else dataclasses.asdict(lag),
        **_counted(agent, agent.health_of(f"sources.{name}").counters, SOURCE_COUNTERS),
    }


def _sinks(agent: Agent, part: SinkPart, *, events: bool) -> list[dict[str, Any]]:
    """Return the rows of a group and its sinks, or of a single sink."""
    running = agent.sinks.get(part.name)
    state = State.NEW.value if running is None else running.state.value
    group = agent.config.groups.get(part.name)
    common = {"channel": part.channel, "dead_letters": part.dead_letters}

    def row(name: str, kind: str, of: str | None, state: str) -> dict[str, Any]:
        health = agent.health_of(f"sinks.{name}")
        counted = _counted(agent, health.counters, SINK_COUNTERS)
        counted["refused"] = _refused(agent, health.refused, events=events)
        delivers = health.trouble() is None
        known = {"name": name, "type": kind, "group": of, "is_group": name in agent.config.groups}
        return {**known, "state": state, "delivers": delivers, **common, **counted}

    if group is None:
        return [row(part.name, agent.config.sinks[part.name].type, None, state)]
    members = [row(each.name, agent.config.sinks[each.name].type, part.name, _NO_STATE) for each in part.sinks]
    return [row(part.name, f"{group.type} group", None, state), *members]


def _channel(agent: Agent, name: str, channel: BatchChannel) -> dict[str, Any]:
    try:
        stats = channel.stats()
        fill = channel.fill
    except ChannelError:
        stats, fill = ChannelStats(name=name, open=False), 0.0
    counted = _counted(agent, channel.counters, CHANNEL_COUNTERS)
    counted["counters"] |= {"EventPutErrorCount": stats.put_errors, "EventTakeErrorCount": stats.take_errors}
    if stats.file is not None:
        counted["counters"] |= {
            "CheckpointWriteErrorCount": stats.file.checkpoint_errors,
            "CheckpointBackupWriteErrorCount": stats.file.checkpoint_backup_errors,
        }
    config = agent.config.channels.get(name)
    return {
        "name": name,
        "type": "" if config is None else config.type,
        "open": stats.open,
        "events": channel.held,
        "batches": stats.size + stats.taken,
        "bytes": stats.bytes,
        "capacity": channel.capacity,
        "byte_capacity": stats.byte_capacity,
        "fill": fill,
        "oldest_seconds": stats.oldest_event_age,
        **counted,
    }


def _refused(agent: Agent, refused: Refused, *, events: bool) -> dict[str, Any]:
    reasons, older = refused.reasons()
    named = [{"reason": _reason(agent, reason), "events": count} for reason, count in reasons.items()]
    sample = [
        {"time": each.time, "reason": _reason(agent, each.reason), **redacted_event(each.event, agent.hidden)}
        for each in (refused.events() if events else ())
    ]
    return {"reasons": named, "older": older} | ({"sample": sample} if events else {})


def _reason(agent: Agent, reason: str) -> str:
    return redacted_copy(reason, agent.hidden, MOST_REASON // 2, is_cut=len(reason) >= MOST_REASON)


def _shown(agent: Agent, text: str) -> str:
    return redacted(text, agent.hidden)[:_MOST_SHOWN]


def _counted(agent: Agent, counters: Counters, names: tuple[str, ...]) -> dict[str, Any]:
    error = counters.last_error
    return {
        "counters": {**dict.fromkeys(names, 0), **counters.snapshot()},
        "error": None if error is None else _shown(agent, error),
    }


def _process() -> dict[str, float]:
    times = os.times()
    return {"cpu_seconds": times.user + times.system, "resident_bytes": resident_bytes()}

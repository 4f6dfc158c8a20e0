"""Format the figures as metrics of Prometheus, and as the JSON of Flume's monitoring."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .figures import GAUGES
from .helps import help_of

if TYPE_CHECKING:
    from ...wire.openmetrics import Metrics

_PREFIX = "loghub_agent"
_MICROSECONDS = "_microseconds"
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
_Labels = Mapping[str, str]


def flume_json(figures: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the JSON of Flume's ``/metrics``: a table for each component, whose values are texts."""
    started = str(int(figures["started"] * 1000))
    found: dict[str, dict[str, str]] = {}
    for known, rows in (("SOURCE", "sources"), ("CHANNEL", "channels"), ("SINK", "sinks")):
        for row in figures[rows]:
            kind = "SINK_GROUP" if row.get("is_group") else known
            values = {name: str(value) for name, value in row["counters"].items()}
            more = _of_channel(row) if kind == "CHANNEL" else {}
            found[f"{kind}.{row['name']}"] = {
                "Type": kind,
                "StartTime": started,
                "StopTime": "0",
                **values,
                **more,
            }
    return found


def _of_channel(row: Mapping[str, Any]) -> dict[str, str]:
    return {
        "ChannelSize": str(row["events"]),
        "ChannelCapacity": str(row["capacity"] or 0),
        "ChannelFillPercentage": str(100 * row["fill"]),
        "Open": str(row["open"]).lower(),
        "Closed": str(int(not row["open"])),
        "Unhealthy": str(int(not row["open"])),
    }


def prometheus(figures: Mapping[str, Any]) -> Metrics:
    """Return the figures as metrics."""
    from ...wire.openmetrics import Metrics  # of the extra

    metrics = Metrics()
    agent = {"agent": figures["agent"]}
    _add(metrics, "ready", "gauge", "1 if all components work, else 0.", agent, int(figures["ready"]))
    config = figures["config"]
    text = "1 if the file's configuration is running, else 0."
    _add(metrics, "config_last_reload_successful", "gauge", text, agent, int(config["trouble"] is None))
    text = "Time at which the running configuration was read, seconds since 1970."
    _add(metrics, "config_last_reload_success_timestamp_seconds", "gauge", text, agent, config["succeeded"])
    for kind in ("source", "sink"):
        for row in figures[f"{kind}s"]:
            labels = {**agent, kind: row["name"], "type": row["type"]}
            # A group's own counters have another name, since its members have counted the same events.
            named = {**agent, "sink_group": row["name"], "type": row["type"]} if row.get("is_group") else labels
            _counters(metrics, "sink_group" if row.get("is_group") else kind, named, row["counters"])
            if row.get("group") is None:
                help_text = f"1 if the {kind} works, or has nothing left to do, else 0."
                works = row["state"] in ("running", "finished") and row.get("delivers", True)
                _add(metrics, f"{kind}_up", "gauge", help_text, labels, int(works))
    for row in figures["sources"]:
        _lag(metrics, {**agent, "source": row["name"], "type": row["type"]}, row["lag"])
    for row in figures["channels"]:
        _channel(metrics, {**agent, "channel": row["name"], "type": row["type"]}, row)
    process = figures["process"]
    metrics.add("process_cpu_seconds_total", "counter", "CPU time of the process, seconds.", {}, process["cpu_seconds"])
    metrics.add(
        "process_resident_memory_bytes", "gauge", "Memory of the process, bytes.", {}, process["resident_bytes"]
    )
    metrics.add(
        "process_start_time_seconds", "gauge", "Start time of the process, seconds since 1970.", {}, figures["started"]
    )
    return metrics


def _channel(metrics: Metrics, labels: _Labels, row: Mapping[str, Any]) -> None:
    _counters(metrics, "channel", labels, row["counters"])
    oldest = row["oldest_seconds"]
    for name, text, value in (
        ("up", "1 if the channel is open, else 0.", int(row["open"])),
        ("events", "Events waiting for delivery.", row["events"]),
        ("bytes", "Bytes of the waiting events, with headers.", row["bytes"]),
        ("oldest_seconds", "Age of the oldest waiting event, seconds; 0 if there is none.", oldest or 0.0),
        ("fill_ratio", "Fill level from 0 to 1, by the nearest limit.", row["fill"]),
        ("capacity_events", "Most events in the channel; 0 for no limit.", row["capacity"] or 0),
        ("capacity_bytes", "Most bytes in the channel; 0 for no limit.", row["byte_capacity"] or 0),
    ):
        _add(metrics, f"channel_{name}", "gauge", text, labels, value)


def _lag(metrics: Metrics, labels: _Labels, lag: Mapping[str, float | None] | None) -> None:
    for name, value in (lag or {}).items():
        if value is not None:
            text = f"Lag of the source behind its input, {name}."
            _add(metrics, f"source_lag_{name}", "gauge", text, labels, value)


def _counters(metrics: Metrics, kind: str, labels: _Labels, counters: Mapping[str, int]) -> None:
    for name, value in counters.items():
        snake = _WORD.sub("_", name.removesuffix("Count")).lower()
        help_text = help_of(name)
        if name in GAUGES:
            _add(metrics, f"{kind}_{snake}", "gauge", help_text, labels, value)
        elif snake.endswith(_MICROSECONDS):
            seconds = f"{kind}_{snake.removesuffix(_MICROSECONDS)}_seconds_total"
            _add(metrics, seconds, "counter", help_text, labels, value / 1e6)
        else:
            _add(metrics, f"{kind}_{snake}_total", "counter", help_text, labels, value)


def _add(metrics: Metrics, name: str, kind: str, help_text: str, labels: _Labels, value: float) -> None:
    """Add a sample of a metric that has the agent's prefix."""
    metrics.add(f"{_PREFIX}_{name}", kind, help_text, labels, value)

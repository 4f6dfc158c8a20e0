"""Routes of the server: which operation answers which request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..service import Handler, Operation
from . import (
    admin,
    consumer_groups,
    context,
    get_logs,
    histograms,
    indexes,
    project_logs,
    pull_logs,
    put_logs,
    substores,
)

#: Returns True if a row is meant, from the query parameters and the project (empty for none).
Meant = Callable[[Mapping[str, str], str], bool]


@dataclass(frozen=True, slots=True)
class Row:
    """A route: method, path, operation, and a condition on further requests (None for all)."""

    method: str
    path: str
    operation: Operation
    is_meant: Meant | None = None


def _row(method: str, path: str, name: str, handler: Handler, is_meant: Meant | None = None) -> Row:
    return Row(method, path, Operation(name=name, handler=handler), is_meant)


def _with(name: str, *values: str | None) -> Meant:
    """Match requests in which the parameter has one of these values; None matches its absence."""
    return lambda query, _project: query.get(name) in values


def _lists_projects(query: Mapping[str, str], project: str) -> bool:
    # The first label of an endpoint's host looks like a project, so only the parameters distinguish the two.
    return not project or "size" in query or "offset" in query


_PUT_LOGS = Operation(
    name="PutLogs",
    handler=put_logs.put_logs,
    max_body=lambda limits: limits.wire_bytes,
    holds=put_logs.bytes_held,
)
_WRITE_METRICS = replace(_PUT_LOGS, takes_basic=True)
_PUT_LOGS_BY_KEY = replace(_PUT_LOGS, handler=put_logs.put_logs_by_key)
_PULL_LOGS = Operation(name="PullLogs", handler=pull_logs.pull_logs, holds=pull_logs.bytes_held)
_LIST_PROJECTS = Operation(name="ListProject", handler=admin.list_projects, needs_project=False)

_LOGSTORE = "/logstores/{logstore}"
_INDEX = f"{_LOGSTORE}/index"
_SUBSTORES = f"{_LOGSTORE}/substores"
_SHARDS = f"{_LOGSTORE}/shards"
_SHARD = f"{_SHARDS}/{{shard}}"
_GROUPS = f"{_LOGSTORE}/consumergroups"
_GROUP = f"{_GROUPS}/{{group}}"

#: The first matching row is used.
ROWS: list[Row] = [
    _row("POST", "/", "CreateProject", admin.create_project),
    Row("GET", "/", _LIST_PROJECTS, _lists_projects),
    _row("GET", "/", "GetProject", admin.get_project),
    _row("PUT", "/", "UpdateProject", admin.update_project),
    _row("DELETE", "/", "DeleteProject", admin.delete_project),
    _row("POST", "/logstores", "CreateLogstore", admin.create_logstore),
    _row("GET", "/logstores", "ListLogstores", admin.list_logstores),
    _row("GET", "/configs", "ListConfig", admin.list_configs),
    _row("GET", "/logs", "GetProjectLogs", project_logs.get_project_logs),
    Row("POST", _LOGSTORE, _PUT_LOGS),
    _row("GET", _LOGSTORE, "GetLogs", get_logs.get_logs, _with("type", "log")),
    _row("GET", _LOGSTORE, "GetHistograms", histograms.get_histograms, _with("type", "histogram")),
    _row("GET", _LOGSTORE, "GetContextLogs", context.get_context_logs, _with("type", "context_log")),
    _row("GET", _LOGSTORE, "GetLogstore", admin.get_logstore, _with("type", None)),
    _row("PUT", _LOGSTORE, "UpdateLogstore", admin.update_logstore),
    _row("DELETE", _LOGSTORE, "DeleteLogstore", admin.delete_logstore),
    _row("DELETE", f"{_LOGSTORE}/storage", "ClearLogStoreStorage", admin.clear_logstore),
    _row("GET", f"{_LOGSTORE}/meteringmode", "GetLogStoreMeteringMode", admin.get_metering_mode),
    _row("PUT", f"{_LOGSTORE}/meteringmode", "UpdateLogStoreMeteringMode", admin.update_metering_mode),
    Row("POST", "/prometheus/{project}/{logstore}/api/v1/write", _WRITE_METRICS),
    _row("POST", _SUBSTORES, "CreateSubStore", substores.create_substore),
    _row("GET", _SUBSTORES, "ListSubStore", substores.list_substores),
    _row("GET", f"{_SUBSTORES}/storage/ttl", "GetSubStoreTTL", substores.get_substore_ttl),
    _row("PUT", f"{_SUBSTORES}/storage/ttl", "UpdateSubStoreTTL", substores.update_substore_ttl),
    _row("GET", f"{_SUBSTORES}/{{substore}}", "GetSubStore", substores.get_substore),
    _row("PUT", f"{_SUBSTORES}/{{substore}}", "UpdateSubStore", substores.update_substore),
    _row("DELETE", f"{_SUBSTORES}/{{substore}}", "DeleteSubStore", substores.delete_substore),
    _row("POST", f"{_LOGSTORE}/logs", "GetLogs", get_logs.get_logs_by_json),
    _row("GET", _INDEX, "GetLogs", get_logs.get_logs, _with("type", "log")),
    _row("GET", _INDEX, "GetHistograms", histograms.get_histograms, _with("type", "histogram")),
    _row("GET", _INDEX, "GetIndex", indexes.get_index, _with("type", None)),
    _row("POST", _INDEX, "CreateIndex", indexes.create_index),
    _row("PUT", _INDEX, "UpdateIndex", indexes.update_index),
    _row("DELETE", _INDEX, "DeleteIndex", indexes.delete_index),
    _row("GET", _SHARDS, "ListShards", admin.list_shards),
    Row("POST", f"{_SHARDS}/lb", _PUT_LOGS),
    Row("POST", f"{_SHARDS}/route", _PUT_LOGS_BY_KEY),
    Row("GET", _SHARD, _PULL_LOGS, _with("type", "log", "logs")),
    _row("GET", _SHARD, "GetCursor", pull_logs.get_cursor, _with("type", "cursor")),
    _row("GET", _SHARD, "GetCursorTime", pull_logs.get_cursor_time, _with("type", "cursor_time")),
    _row("POST", _SHARD, "SplitShard", admin.split_shard, _with("action", "split")),
    _row("POST", _SHARD, "MergeShards", admin.merge_shards, _with("action", "merge")),
    _row("POST", _GROUPS, "CreateConsumerGroup", consumer_groups.create_consumer_group),
    _row("GET", _GROUPS, "ListConsumerGroup", consumer_groups.list_consumer_groups),
    _row("GET", _GROUP, "GetCheckPoint", consumer_groups.get_checkpoints),
    _row("POST", _GROUP, "HeartBeat", consumer_groups.heartbeat, _with("type", "heartbeat")),
    _row("POST", _GROUP, "UpdateCheckPoint", consumer_groups.update_checkpoint, _with("type", "checkpoint")),
    _row("PUT", _GROUP, "UpdateConsumerGroup", consumer_groups.update_consumer_group),
    _row("DELETE", _GROUP, "DeleteConsumerGroup", consumer_groups.delete_consumer_group),
]

"""Which request is which operation."""

from __future__ import annotations

from ..service import Operation
from . import admin, get_logs, pull_logs, put_logs

_LOGSTORE = "/logstores/{logstore}"

_PUT_LOGS = Operation(name="PutLogs", handler=put_logs.put_logs, max_body=put_logs.max_body, holds=put_logs.bytes_held)
_PUT_LOGS_BY_KEY = Operation(
    name="PutLogs", handler=put_logs.put_logs_by_key, max_body=put_logs.max_body, holds=put_logs.bytes_held
)

#: Method, path, and what is done then.
OPERATIONS: list[tuple[str, str, Operation]] = [
    ("POST", "/", Operation(name="CreateProject", handler=admin.create_project)),
    ("GET", "/", Operation(name="GetProject", handler=admin.get_project)),
    ("POST", "/logstores", Operation(name="CreateLogstore", handler=admin.create_logstore)),
    ("GET", "/logstores", Operation(name="ListLogstores", handler=admin.list_logstores)),
    ("POST", _LOGSTORE, _PUT_LOGS),
    ("GET", _LOGSTORE, Operation(name="GetLogstore", handler=admin.read_logstore)),
    ("POST", f"{_LOGSTORE}/logs", Operation(name="GetLogs", handler=get_logs.get_logs_by_json)),
    ("GET", f"{_LOGSTORE}/shards", Operation(name="ListShards", handler=admin.list_shards)),
    ("POST", f"{_LOGSTORE}/shards/lb", _PUT_LOGS),
    ("POST", f"{_LOGSTORE}/shards/route", _PUT_LOGS_BY_KEY),
    (
        "GET",
        f"{_LOGSTORE}/shards/{{shard}}",
        Operation(name="PullLogs", handler=pull_logs.read_shard, holds=pull_logs.bytes_held),
    ),
]

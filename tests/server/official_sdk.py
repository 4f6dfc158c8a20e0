"""The official Python SDK as a program: steps as JSON on stdin, their results as JSON on stdout.

It runs in a process of its own, with the embedded server as its HTTP proxy: the SDK prefixes the host of its URL with
the project, and ``my-project.127.0.0.1`` does not resolve. The SDK is not modified.

Input: ``{"access_key_id", "access_key_secret", "security_token", "sign_version", "steps": [[verb, arguments], …]}``.
Output: a list with ``{"ok": result}`` or ``{"error": [status, code, message]}`` for each step.
"""

import base64
import json
import sys
from typing import Any

from aliyun.log import GetLogsRequest, ListLogstoresRequest, LogClient, LogException, LogItem, PutLogsRequest

ENDPOINT = "http://loghub.test"


def put(
    client: LogClient,
    project: str,
    logstore: str,
    logs: list[dict[str, str]],
    topic: str = "",
    source: str = "10.0.0.1",
    time: int = 1_700_000_000,
    compress: bool = True,
    hash_key: str | None = None,
    tags: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Write logs with PutLogs and return the request id."""
    items = [LogItem(time + index, list(log.items()), time_nano_part=index + 1) for index, log in enumerate(logs)]
    request = PutLogsRequest(
        *(project, logstore, topic, source, items),
        hashKey=hash_key,
        compress=compress,
        logtags=list(tags.items()) if tags else None,
    )
    return {"request_id": client.put_logs(request).get_request_id()}


def pull(
    client: LogClient, project: str, logstore: str, compress: bool = True, count: int = 100
) -> list[dict[str, Any]]:
    """Read all LogGroups: ListShards, GetCursor, and PullLogs to the end of every shard."""
    groups: list[dict[str, Any]] = []
    for shard in client.list_shards(project, logstore).get_shards_info():
        number = shard["shardID"]
        cursor = client.get_begin_cursor(project, logstore, number).get_cursor()
        end = client.get_end_cursor(project, logstore, number).get_cursor()
        while cursor != end:
            answer = client.pull_logs(project, logstore, number, cursor, count, end, compress)
            groups += [_group(number, group) for group in answer.get_loggroup_list().LogGroups]
            cursor = answer.get_next_cursor()
    return groups


def pull_since(client: LogClient, project: str, logstore: str, shard: int, begin: int, end: int) -> int:
    """Read logs of a range of arrival times with the SDK's own loop; return their number."""
    answers = client.pull_log(project, logstore, shard, begin, end)
    return sum(answer.get_log_count() for answer in answers)


def get_logs(
    client: LogClient, project: str, logstore: str, begin: int, end: int, query: str = "", **others: Any
) -> list[dict[str, Any]]:
    """Search with GetLogs in the form of current SDKs."""
    request = GetLogsRequest(project, logstore, begin, end, query=query, **others)
    answer = client.get_logs(request)
    assert answer.is_completed()
    return [{"time": log.get_time(), "source": log.get_source(), **log.get_contents()} for log in answer.get_logs()]


def get_logs_by_get(client: LogClient, **arguments: Any) -> list[dict[str, Any]]:
    """Search with GetLogs in the form of older SDKs."""
    client._get_logs_v2_enabled = False
    return get_logs(client, **arguments)


def create_project(client: LogClient, project: str) -> None:
    client.create_project(project, "made by the official SDK")


def get_project(client: LogClient, project: str) -> str:
    """Return a project's description (GetProject)."""
    return str(client.get_project(project).description)


def create_logstore(client: LogClient, project: str, logstore: str, shard_count: int) -> None:
    client.create_logstore(project, logstore, 7, shard_count)


def get_logstore(client: LogClient, project: str, logstore: str) -> list[int]:
    """Return a logstore's time to live and number of shards (GetLogstore)."""
    answer = client.get_logstore(project, logstore)
    return [answer.ttl, answer.get_shard_count()]


def list_logstores(client: LogClient, project: str) -> list[str]:
    """List logstores with both calls of the SDK."""
    names = client.list_logstore(project).get_logstores()
    assert names == client.list_logstores(ListLogstoresRequest(project)).get_logstores()
    return list(names)


VERBS = {
    function.__name__: function
    for function in (
        *(put, pull, pull_since, get_logs, get_logs_by_get),
        *(create_project, get_project, create_logstore, get_logstore, list_logstores),
    )
}


def _group(shard: int, group: Any) -> dict[str, Any]:
    return {
        "shard": shard,
        "topic": group.Topic,
        "source": group.Source,
        "tags": {tag.Key: tag.Value for tag in group.LogTags},
        "logs": [
            {
                "time": log.Time,
                "time_ns": log.Time_ns,
                "contents": [[_text(content.Key), _text(content.Value)] for content in log.Contents],
            }
            for log in group.Logs
        ],
    }


def _text(value: str | bytes) -> Any:
    """Return text, or ``{"base64": …}`` for bytes that are not UTF-8."""
    if isinstance(value, str):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _run(client: LogClient, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"ok": VERBS[verb](client, **arguments)}
    except LogException as error:
        return {"error": [error.resp_status, error.get_error_code(), error.get_error_message()]}


def main() -> None:
    wanted = json.load(sys.stdin)
    client = LogClient(
        ENDPOINT,
        wanted["access_key_id"],
        wanted["access_key_secret"],
        wanted["security_token"],
        auth_version=wanted["sign_version"],
        region="cn-hangzhou",
    )
    json.dump([_run(client, verb, arguments) for verb, arguments in wanted["steps"]], sys.stdout)


if __name__ == "__main__":
    main()

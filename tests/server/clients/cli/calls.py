"""Run each command of the official CLI ``aliyunlog`` once: ``calls.py ID SECRET FOLDER``.

The embedded server is the CLI's HTTP proxy. Each command goes through the CLI's own entry point and arguments. The
output is ``{command: null | the error's code}``, with null for success. A failed ``assert`` ends the program.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from aliyun.log import LogClient, LogItem, PutLogsRequest
from aliyunlogcli.cli_core import main

KEY_ID, SECRET, FOLDER = sys.argv[1:]
ENDPOINT, P, L = "http://loghub.test", "my-project", "app-log"
T, BEGUN = 1_700_000_000, time.time()
OUTCOMES: dict[str, str | None] = {}


def execute(command: str, **arguments: object) -> tuple[int, str]:
    """Return a command's exit code and output."""
    words = [f"--{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in arguments.items()]
    account = [f"--access-id={KEY_ID}", f"--access-key={SECRET}", f"--region-endpoint={ENDPOINT}"]
    sys.argv = ["aliyunlog", "log", command, *words, *account]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        try:
            main()
            code: object = 0
        except SystemExit as ended:
            code = ended.code or 0
    return (code if isinstance(code, int) else 1), out.getvalue()


def run(command: str, **arguments: object) -> Any:
    """Run a command and return its output as JSON, or as a list of lines; record its success or refusal."""
    code, text = execute(command, **arguments)
    refused = re.search(r'"errorCode": ?"(\w+)"', text)
    if code and not refused:
        raise AssertionError(f"{command} ended with {code}: {text[-2000:]}")
    OUTCOMES[command] = refused[1] if refused else None
    shown = [] if code else [json.loads(line) for line in text.splitlines() if line.strip()]
    return shown[0] if len(shown) == 1 else shown


def of(command: str, **arguments: object) -> Any:
    """Run a command on the logstore, with the arguments of half of the commands."""
    return run(command, project=P, logstore=L, **arguments)


def of_name(command: str, **arguments: object) -> Any:
    """Run a command on the logstore, with the arguments of the other half."""
    return run(command, project_name=P, logstore_name=L, **arguments)


def projects_and_logstores() -> None:
    run("create_project", project_name=P, project_des="first")
    assert run("get_project", project_name=P)["description"] == "first"
    assert [one["projectName"] for one in run("list_project")["projects"]] == [P]
    of_name("create_logstore", ttl=7, shard_count=2)
    of_name("update_logstore", ttl=14)
    assert of_name("get_logstore")["ttl"] == 14
    assert run("list_logstore", project_name=P)["logstores"] == [L]
    detail = {"line": {"token": [" "], "caseSensitive": False}, "keys": {}}
    of_name("create_index", index_detail=detail)
    of_name("update_index", index_detail={**detail, "line": {"token": [";"], "caseSensitive": False}})
    assert of_name("get_index_config")["line"]["token"] == [";"]
    of_name("delete_index")


def logs() -> None:
    """Write logs with the SDK, since the CLI has no such command, and find them."""
    client = LogClient(ENDPOINT, KEY_ID, SECRET)
    items = [LogItem(T + number, [("message", text)]) for number, text in enumerate(("one", "two", "three"))]
    client.put_logs(PutLogsRequest(P, L, "web", "10.0.0.1", items, logtags=[("__pack_id__", "5FA51423DDB54FDA-1")]))
    request = {"project": P, "logstore": L, "fromTime": T, "toTime": T + 10, "topic": "", "query": "two or three"}
    between = {"from_time": str(T), "to_time": str(T + 10)}
    assert [log["message"] for log in of("get_log", query="two", **between)] == ["two"]
    assert len(run("get_logs", request={**request, "line": 10, "offset": 0, "reverse": "false"})) == 2
    spoken = {"from_time": "2023-11-14 22:13:20+00:00", "to_time": "2023-11-14 22:14:20+00:00"}
    assert sum(map(len, of("get_log_all", **spoken))) == 3
    assert sum(one["count"] for one in run("get_histograms", request=request)) == 2
    (row,) = of("execute_logstore_sql", sql="* | SELECT count(*) AS n", power_sql="false", **between)
    assert row["n"] == "3"
    (row,) = run("execute_project_sql", project=P, sql=f'SELECT count(*) AS n FROM "{L}"', power_sql="false")
    assert row["n"] == "3"
    (log,) = of("get_log", query="two|with_pack_meta", **between)
    where = {"pack_id": log["__tag__:__pack_id__"], "pack_meta": log["__pack_meta__"]}
    assert of("get_context_logs", **where, back_lines=1, forward_lines=1)["total_lines"] == 3


def shards() -> None:
    """Read the shards in every way, and change them."""
    assert len(of_name("list_shards")) == 2
    shard = {"shard_id": 0}
    begin = of_name("get_begin_cursor", **shard)["cursor"]
    assert of_name("get_cursor", **shard, start_time="begin")["cursor"] == begin
    of_name("get_end_cursor", **shard)
    assert BEGUN - 1 <= of_name("get_cursor_time", **shard, cursor=begin)["cursor_time"] <= time.time() + 1
    now = {"from_time": "1 hour ago", "to_time": "now"}
    assert "three" in str([of_name("pull_log", shard_id=number, **now) for number in (0, 1)])
    of_name("pull_logs", **shard, cursor=begin)
    assert of_name("pull_log_dump", **now, file_path=str(Path(FOLDER, "dump_{}.data")))["total_count"] == 3
    of_name("split_shard", shardId=1, split_hash="c" + "0" * 31)
    of_name("merge_shard", shardId=2)


def groups() -> None:
    """Use consumer groups, as far as the CLI supports them."""
    of("create_consumer_group", consumer_group="group", timeout=60)
    of("update_consumer_group", consumer_group="group", timeout=30, in_order="true")
    (group,) = of("list_consumer_group")
    assert (group["name"], group["timeout"]) == ("group", 30)
    cursor = of_name("get_end_cursor", shard_id=0)["cursor"]
    of("update_check_point", consumer_group="group", shard=0, check_point=cursor)
    of("get_check_point", consumer_group="group", shard=0)
    of("get_check_point_fixed", consumer_group="group", shard=0)
    of("delete_consumer_group", consumer_group="group")


def others() -> None:
    """Run the commands that are not about logs, and delete everything."""
    run("list_machine_group", project_name=P)
    run("list_dashboard", project=P)
    of_name("delete_logstore")
    run("delete_project", project_name=P)


for part in (projects_and_logstores, logs, shards, groups, others):
    part()
print(json.dumps(OUTCOMES))

"""Make each call of the official Python SDK once, with settings on stdin and outcomes on stdout.

It runs in a process of its own, with the embedded server as its HTTP proxy (:mod:`tests.server.official_sdk`). The
input is ``{"access_key_id", "access_key_secret"}``. The output is ``{call: null | [status, code]}`` in the order of the
calls, with null for success. A failed ``assert`` ends the program.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from aliyun.log import (
    GetHistogramsRequest,
    GetLogsRequest,
    GetProjectLogsRequest,
    IndexConfig,
    IndexKeyConfig,
    IndexLineConfig,
    ListTopicsRequest,
    LogClient,
    LogException,
    LogItem,
    PutLogsRequest,
)
from aliyun.log.consumer import ConsumerProcessorBase, ConsumerWorker, CursorPosition, LogHubConfig

ENDPOINT, P, L = "http://loghub.test", "my-project", "app-log"
T = 1_700_000_000
KEYS = json.load(sys.stdin)
CLIENT = LogClient(ENDPOINT, KEYS["access_key_id"], KEYS["access_key_secret"])
CALLS: dict[str, Callable[[], Any]] = {}


def call(function: Callable[[], Any]) -> Callable[[], Any]:
    CALLS[function.__name__] = function
    return function


def put(*messages: str, pack: int, time: int = T) -> None:
    items = [
        LogItem(time + number, [("message", text), ("latency", str(10 * number))])
        for number, text in enumerate(messages)
    ]
    CLIENT.put_logs(
        PutLogsRequest(P, L, "web", "10.0.0.1", items, logtags=[("__pack_id__", f"5FA51423DDB54FDA-{pack:X}")])
    )


@call
def create_project() -> None:
    CLIENT.create_project(P, "first")


@call
def update_project() -> None:
    CLIENT.update_project(P, "second")


@call
def get_project() -> None:
    assert CLIENT.get_project(P).description == "second"


@call
def list_project() -> None:
    answer = CLIENT.list_project(size=-1)
    assert [project["projectName"] for project in answer.get_projects()] == [P]


@call
def create_logstore() -> None:
    CLIENT.create_logstore(P, L, ttl=7, shard_count=2)


@call
def update_logstore() -> None:
    CLIENT.update_logstore(P, L, ttl=14, auto_split=True)


@call
def get_logstore() -> None:
    answer = CLIENT.get_logstore(P, L)
    assert (answer.get_ttl(), answer.get_shard_count(), answer.auto_split) == (14, 2, True)


@call
def get_logstore_metering_mode() -> None:
    assert CLIENT.get_logstore_metering_mode(P, L).get_metering_mode() == "ChargeByFunction"


@call
def update_logstore_metering_mode() -> None:
    CLIENT.update_logstore_metering_mode(P, L, "ChargeByDataIngest")
    assert CLIENT.get_logstore_metering_mode(P, L).get_metering_mode() == "ChargeByDataIngest"


@call
def list_logstore() -> None:
    assert CLIENT.list_logstore(P).get_logstores() == [L]


@call
def create_index() -> None:
    line = IndexLineConfig([" ", ","])
    keys = {"latency": IndexKeyConfig(index_type="long", doc_value=True)}
    CLIENT.create_index(P, L, IndexConfig(line_config=line, key_config_list=keys))


@call
def update_index() -> None:
    CLIENT.update_index(P, L, IndexConfig(line_config=IndexLineConfig([";"])))


@call
def get_index_config() -> None:
    assert CLIENT.get_index_config(P, L).get_index_config().line_config.token_list == [";"]


@call
def delete_index() -> None:
    CLIENT.delete_index(P, L)


@call
def put_logs() -> None:
    for pack, text in enumerate(("one", "two", "three")):
        put(f"{text} first", f"{text} second", pack=pack)


@call
def get_log() -> None:
    answer = CLIENT.get_log(P, L, T, T + 10, query="one and latency >= 10")
    assert [log.get_contents()["message"] for log in answer.get_logs()] == ["one second"]
    assert answer.is_completed()


@call
def get_logs() -> None:
    assert CLIENT.get_logs(GetLogsRequest(P, L, T, T + 10, query="second")).get_count() == 3


@call
def get_log_all() -> None:
    assert sum(page.get_count() for page in CLIENT.get_log_all(P, L, T, T + 10)) == 6


@call
def get_log_all_v2() -> None:
    query = "first or second | where message like 'one %' | extend more = cast(latency as bigint) + 1"
    for forward in (True, False):
        pages = CLIENT.get_log_all_v2(
            P, L, T, T + 10, query=query, scan=True, forward=forward, offset=0 if forward else 6
        )
        found = [
            (log.get_contents()["message"], log.get_contents()["more"]) for page in pages for log in page.get_logs()
        ]
        assert found == [("one first", "1"), ("one second", "11")]


@call
def get_logs_with_sql() -> None:
    query = "first or second | SELECT message, sum(latency) AS total GROUP BY message ORDER BY message LIMIT 2"
    answer = CLIENT.get_logs(GetLogsRequest(P, L, T, T + 10, query=query))
    assert answer.is_completed()
    assert [log.get_contents() for log in answer.get_logs()] == [
        {"message": "one first", "total": "0"},
        {"message": "one second", "total": "10"},
    ]
    assert (answer.get_has_sql(), answer.get_agg_query()) == (True, query.split("| ")[1])
    assert (answer.get_where_query(), answer.get_processed_rows()) == ("first or second", 6)
    assert answer.get_meta().get_keys() == ["message", "total"]
    CLIENT._get_logs_v2_enabled = False
    older = CLIENT.get_logs(GetLogsRequest(P, L, T, T + 10, query=query))
    CLIENT._get_logs_v2_enabled = True
    assert (older.get_has_sql(), older.get_agg_query(), older.get_count()) == (True, query.split("| ")[1], 2)


@call
def execute_logstore_sql() -> None:
    sql = f"SELECT count(*) AS n FROM log WHERE __time__ >= {T}"
    (log,) = CLIENT.execute_logstore_sql(P, L, T, T + 10, f"* | {sql}", False).get_logs()
    assert log.get_contents() == {"n": "6"}


@call
def get_histograms() -> None:
    answer = CLIENT.get_histograms(GetHistogramsRequest(P, L, T, T + 4, query="second or first"))
    assert answer.is_completed()
    assert [(one.get_from() - T, one.get_count()) for one in answer.get_histograms()] == [
        (0, 3),
        (1, 3),
        (2, 0),
        (3, 0),
    ]


@call
def get_context_logs() -> None:
    (log,) = CLIENT.get_log(P, L, T, T + 10, query="two and first|with_pack_meta").get_logs()
    where = (log.get_contents()["__tag__:__pack_id__"], log.get_contents()["__pack_meta__"])
    answer = CLIENT.get_context_logs(P, L, *where, 1, 2)
    assert (answer.get_total_lines(), answer.get_back_lines(), answer.get_forward_lines()) == (4, 1, 2)
    messages = [one.get_contents()["message"] for one in answer.get_logs()]
    assert messages == ["one second", "two first", "two second", "three first"]
    assert [one.get_contents()["__index_number__"] for one in answer.get_logs()] == ["-1", "0", "1", "2"]


@call
def list_shards() -> None:
    assert [shard["status"] for shard in CLIENT.list_shards(P, L).get_shards_info()] == ["readwrite"] * 2


@call
def get_cursor() -> None:
    begin = CLIENT.get_cursor(P, L, 0, "begin").get_cursor()
    assert CLIENT.get_cursor(P, L, 0, int(time.time()) - 60).get_cursor() == begin
    assert CLIENT.get_end_cursor(P, L, 0).get_cursor() != begin


@call
def get_cursor_time() -> None:
    begin = CLIENT.get_begin_cursor(P, L, 0).get_cursor()
    assert abs(CLIENT.get_cursor_time(P, L, 0, begin).get_cursor_time() - time.time()) < 60


@call
def pull_logs() -> None:
    answer = CLIENT.pull_logs(P, L, 0, CLIENT.get_begin_cursor(P, L, 0).get_cursor(), 1)
    assert answer.get_loggroup_count() == 1


@call
def split_shard() -> None:
    parts = CLIENT.split_shard(P, L, 1, "c" + "0" * 31).get_shards_info()
    assert [(one["shardID"], one["status"]) for one in parts] == [(1, "readonly"), (2, "readwrite"), (3, "readwrite")]


@call
def merge_shard() -> None:
    parts = CLIENT.merge_shard(P, L, 2).get_shards_info()
    assert [(one["shardID"], one["status"]) for one in parts] == [(4, "readwrite"), (2, "readonly"), (3, "readonly")]
    assert parts[0]["inclusiveBeginKey"] == "8" + "0" * 31


@call
def create_consumer_group() -> None:
    CLIENT.create_consumer_group(P, L, "group", 60, in_order=False)


@call
def update_consumer_group() -> None:
    CLIENT.update_consumer_group(P, L, "group", timeout=30, in_order=True)


@call
def list_consumer_group() -> None:
    (group,) = CLIENT.list_consumer_group(P, L).get_consumer_groups()
    assert (group.get_consumer_group_name(), group.get_timeout(), group.is_in_order()) == ("group", 30, True)


@call
def heart_beat() -> None:
    # In order, shards made from shard 1 are read after it.
    assert CLIENT.heart_beat(P, L, "group", "me", []).get_shards() == [0, 1]
    CLIENT.update_check_point(P, L, "group", 1, CLIENT.get_end_cursor(P, L, 1).get_cursor(), "me")
    assert CLIENT.heart_beat(P, L, "group", "me", [0, 1]).get_shards() == [0, 1, 2, 3, 4]


@call
def update_check_point() -> None:
    CLIENT.update_check_point(P, L, "group", 0, CLIENT.get_end_cursor(P, L, 0).get_cursor(), "me", force_success=False)


@call
def get_check_point() -> None:
    (one,) = CLIENT.get_check_point(P, L, "group", 0).get_consumer_group_check_points()
    assert (one["shard"], one["checkpoint"], one["consumer"]) == (0, CLIENT.get_end_cursor(P, L, 0).get_cursor(), "me")


@call
def get_check_point_fixed() -> None:
    CLIENT.update_check_point(P, L, "group", 0, CLIENT.get_begin_cursor(P, L, 0).get_cursor(), "", True)
    assert len(CLIENT.get_check_point_fixed(P, L, "group").get_consumer_group_check_points()) == 5


@call
def delete_consumer_group() -> None:
    CLIENT.delete_consumer_group(P, L, "group")


class Collector(ConsumerProcessorBase):
    """A consumer that collects its logs, as the SDK's own example prints them."""

    seen: list[str] = []  # noqa: RUF012
    enough = threading.Event()

    def process(self, log_groups: Any, check_point_tracker: Any) -> None:
        for group in log_groups.LogGroups:
            self.seen += [content.Value for log in group.Logs for content in log.Contents if content.Key == "message"]
        self.save_checkpoint(check_point_tracker, force=True)
        if len(self.seen) >= 6:
            self.enough.set()


@call
def ConsumerWorker_() -> None:  # noqa: N802
    option = LogHubConfig(
        *(ENDPOINT, KEYS["access_key_id"], KEYS["access_key_secret"], P, L, "readers", "reader-1"),
        cursor_position=CursorPosition.BEGIN_CURSOR,
        heartbeat_interval=1,
        data_fetch_interval=0.1,
    )
    worker = ConsumerWorker(Collector, consumer_option=option)
    worker.start()
    assert Collector.enough.wait(30)
    worker.shutdown()
    worker.join(30)
    assert sorted(Collector.seen) == sorted(
        f"{text} {word}" for text in ("one", "two", "three") for word in ("first", "second")
    )
    saved = CLIENT.get_check_point(P, L, "readers").get_consumer_group_check_points()
    ends = {shard: CLIENT.get_end_cursor(P, L, shard).get_cursor() for shard in (0, 1)}
    assert ends == {one["shard"]: one["checkpoint"] for one in saved if one["shard"] in (0, 1)}


@call
def delete_shard() -> None:
    CLIENT.delete_shard(P, L, 1)


@call
def list_topics() -> None:
    CLIENT.list_topics(ListTopicsRequest(P, L, "", 10))


@call
def get_project_logs() -> None:
    other = PutLogsRequest(P, "hosts", "web", "", [LogItem(T, [("message", "one first"), ("host", "h1")])])
    CLIENT.create_logstore(P, "hosts")
    CLIENT.put_logs(other)
    counted = CLIENT.get_project_logs(GetProjectLogsRequest(P, f"SELECT count(*) AS n FROM {L} WHERE __time__ > {T}"))
    assert [log.get_contents() for log in counted.get_logs()] == [{"n": "3"}]
    assert (counted.is_completed(), counted.get_has_sql(), counted.get_processed_rows()) == (True, True, 3)
    joined = f'SELECT host, latency FROM "{L}" a JOIN hosts h ON a.message = h.message WHERE a.__time__ <= {T}'
    (log,) = CLIENT.execute_project_sql(P, joined, False).get_logs()
    assert log.get_contents() == {"host": "h1", "latency": "0"}
    CLIENT.delete_logstore(P, "hosts")


@call
def pull_logs_with_query() -> None:
    begin, end = (CLIENT.get_cursor(P, L, 0, where).get_cursor() for where in ("begin", "end"))
    query = "* | where message like '% second' | extend doubled = cast(latency as bigint) * 2"
    answer = CLIENT.pull_logs(P, L, 0, begin, query=query)
    logs = answer.get_flatten_logs_json(decode_bytes=True)
    assert [(log["message"][-6:], log["latency"], log["doubled"]) for log in logs] == [("second", "10", "20")] * len(
        logs
    )
    counted = answer.get_raw_log_group_count_before_query()
    assert (answer.get_next_cursor(), counted) == (end, answer.get_loggroup_count())
    assert answer.get_raw_size_before_query() > 0
    every = CLIENT.pull_log(P, L, 0, int(time.time()) - 600, "end", query="* | where message = 'nothing'")
    assert sum(page.get_log_count() for page in every) == 0


@call
def list_logtail_config() -> None:
    assert CLIENT.list_logtail_config(P, size=-1).get_configs() == []


@call
def copy_logstore() -> None:
    CLIENT.copy_logstore(P, L, "copy")
    assert CLIENT.list_logstore(P).get_logstores() == [L, "copy"]
    CLIENT.delete_logstore(P, "copy")


@call
def list_machine_group() -> None:
    CLIENT.list_machine_group(P)


@call
def delete_logstore() -> None:
    CLIENT.delete_logstore(P, L)
    assert CLIENT.list_logstore(P).get_logstores() == []


@call
def delete_project() -> None:
    CLIENT.delete_project(P)
    assert CLIENT.list_project().get_count() == 0


def main() -> None:
    outcomes: dict[str, list[Any] | None] = {}
    for name, carry_out in CALLS.items():
        try:
            carry_out()
            outcomes[name.rstrip("_")] = None
        except LogException as error:
            outcomes[name.rstrip("_")] = [error.resp_status, error.get_error_code(), error.get_error_message()]
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()

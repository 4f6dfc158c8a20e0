"""Requests in the forms of the official Go and Java clients and the command line."""

import json

import pytest

from producer.server import LogHubServer

from ..client import LOGSTORE, PROJECT, Client, error_of, log_group

T = 1_700_000_000


def test_type_logs_reads_as_type_log_does(client: Client) -> None:
    """PullLogs accepts type=logs, the Go client's form, like type=log."""
    client.put(log_group("x"), path="/shards/route", params={"key": "00"})
    assert len(client.pull(0, client.cursor(0, "begin"), type="logs")[0]) == 1


@pytest.mark.usefixtures("own_key")
@pytest.mark.parametrize("host", ["loghub.test", "127.0.0.1", "cn-hangzhou.log.example.com"])
def test_projects_are_listed_where_the_host_names_none(client: Client, host: str) -> None:
    """Offset and size make a request ListProject, whatever the first label of its host; so does an address."""
    for name in ("b-1", "a-1", "a-2"):
        client.post_json("/", json.dumps({"projectName": name, "description": f"{name}!"}).encode())
    params = {"offset": "0", "size": "2", "projectName": "a-"}
    found = client.request("GET", "/", params=params, headers={"Host": host}).json()
    assert (found["count"], found["total"]) == (2, 2)
    assert [(one["projectName"], one["description"]) for one in found["projects"]] == [("a-1", "a-1!"), ("a-2", "a-2!")]


def test_histograms_work_below_the_index_java_and_below_the_logstore_go(client: Client) -> None:
    """Histograms work below the index (Java) and below the logstore (Go); their parts cover the range without gaps."""
    client.put(log_group("a", "b", time=T + 119))
    params = {"type": "histogram", "from": str(T + 1), "to": str(T + 3601), "query": "a or b"}
    found = client.get(f"/logstores/{LOGSTORE}", **params)
    assert found.json() == client.get(f"/logstores/{LOGSTORE}/index", **params).json()
    parts = found.json()
    assert (parts[0]["from"], parts[-1]["to"], found.headers["x-log-count"]) == (T + 1, T + 3601, "2")
    assert [part["to"] for part in parts[:-1]] == [part["from"] for part in parts[1:]]
    assert len(parts) <= 61
    assert [part["count"] for part in parts if part["count"]] == [2]
    empty = client.get(f"/logstores/{LOGSTORE}", **{**params, "to": params["from"]})
    assert empty.json() == []


def test_a_split_shard_is_still_read_and_written_no_more(server: LogHubServer, client: Client) -> None:
    """After a split keys go to the new shards, and the old shard is still readable."""
    shards = f"/logstores/{LOGSTORE}/shards"
    client.put(log_group("old"), path="/shards/route", params={"key": "00"})
    parts = client.request("POST", f"{shards}/0", params={"action": "split", "key": "4" + "0" * 31}).json()
    assert [(one["shardID"], one["inclusiveBeginKey"][0], one["exclusiveEndKey"][0]) for one in parts] == [
        *((0, "0", "8"), (2, "0", "4"), (3, "4", "8")),
    ]
    for key in ("00", "3f", "40", "7f", "80", "ff"):
        client.put(log_group(key), path="/shards/route", params={"key": key})
    held = {log.fields["message"]: log.shard for log in server.logs(PROJECT, LOGSTORE)}
    assert held == {"old": 0, "00": 2, "3f": 2, "40": 3, "7f": 3, "80": 1, "ff": 1}
    assert len(client.pull(0, client.cursor(0, "begin"))[0]) == 1
    for _ in range(3):
        client.put(log_group("any"))
    assert {log.shard for log in server.logs(PROJECT, LOGSTORE)[-3:]} == {1, 2, 3}
    assert client.get(f"/logstores/{LOGSTORE}").json()["shardCount"] == 3


def test_a_histogram_has_parts_as_long_as_the_request_says(client: Client) -> None:
    """GetHistogramsV2 (Go) sends interval in seconds, or 0 for none; too many parts are refused in words."""
    client.put(log_group("a", "b", time=T + 119))
    params = {"type": "histogram", "from": str(T), "to": str(T + 600), "query": "", "topic": ""}
    found = client.get(f"/logstores/{LOGSTORE}", interval="300", **params).json()
    assert [part["to"] - part["from"] for part in found] == [100, 300, 200]
    assert [part["count"] for part in found] == [0, 2, 0]
    assert len(client.get(f"/logstores/{LOGSTORE}", interval="0", **params).json()) == 41
    refused = client.get(f"/logstores/{LOGSTORE}", interval="1", **{**params, "to": str(T + 2001)})
    assert error_of(refused) == (400, "ParameterInvalid")
    assert "2001 parts: at most 2000 are allowed" in refused.text


def test_a_shard_is_split_into_as_many_parts_as_the_request_says(client: Client) -> None:
    """SplitNumShard (Go) sends shardCount; too many, or a key beside it, are refused without a split."""
    client.put(log_group("x"))
    path = f"/logstores/{LOGSTORE}/shards/1"
    for wrong in ({"shardCount": "1"}, {"shardCount": "256"}, {"shardCount": "2", "key": "c" + "0" * 31}):
        assert error_of(client.request("POST", path, params={"action": "split", **wrong})) == (400, "ParameterInvalid")
    parts = client.request("POST", path, params={"action": "split", "shardCount": "4"}).json()
    assert [(one["shardID"], one["inclusiveBeginKey"][0], one["exclusiveEndKey"][0]) for one in parts] == [
        *((1, "8", "f"), (2, "8", "9"), (3, "9", "b"), (4, "b", "d"), (5, "d", "f")),
    ]
    assert [one["inclusiveBeginKey"] for one in parts[2:]] == [one["exclusiveEndKey"] for one in parts[1:-1]]
    assert client.get(f"/logstores/{LOGSTORE}").json()["shardCount"] == 5


@pytest.mark.parametrize(("kind", "names"), [("None", ["logs"]), ("Metrics", ["metrics"]), ("Event", []), ("", 2)])
def test_logstores_of_one_kind_are_listed(client: Client, kind: str, names: list[str] | int) -> None:
    """ListLogStoreV2 and ListEventStore (Go) list one telemetryType; None lists logstores for logs."""
    for name, given in (("logs", ""), ("metrics", "Metrics")):
        client.post_json("/logstores", json.dumps({"logstoreName": name, "telemetryType": given}).encode())
    found = client.get("/logstores", offset="0", size="100", telemetryType=kind).json()
    assert (found["logstores"] == names) if isinstance(names, list) else found["total"] == names


@pytest.mark.parametrize(
    ("shard", "params"),
    [
        (0, {"action": "split", "key": "0" * 32}),
        (0, {"action": "split", "key": "8" + "0" * 31}),
        (0, {"action": "split", "key": "x"}),
        (1, {"action": "merge"}),
        (0, {"action": "burst"}),
    ],
)
def test_shards_that_cannot_be_divided_so_are_left_alone(client: Client, shard: int, params: dict[str, str]) -> None:
    """A key outside the shard, the last shard without a neighbour, and unknown actions are ParameterInvalid."""
    client.put(log_group("x"))
    answer = client.request("POST", f"/logstores/{LOGSTORE}/shards/{shard}", params=params)
    assert error_of(answer) == (400, "ParameterInvalid")
    assert len(client.get(f"/logstores/{LOGSTORE}/shards").json()) == 2


def test_a_merge_makes_a_shard_of_both_ranges_the_two_old_shards_become_readonly(client: Client) -> None:
    """A merge makes a shard of both ranges; the two old shards become readonly."""
    client.put(log_group("x"))
    merged = client.request("POST", f"/logstores/{LOGSTORE}/shards/0", params={"action": "merge"}).json()
    assert [(one["shardID"], one["status"]) for one in merged] == [(2, "readwrite"), (0, "readonly"), (1, "readonly")]
    assert (merged[0]["inclusiveBeginKey"], merged[0]["exclusiveEndKey"]) == ("0" * 32, "f" * 32)
    again = client.request("POST", f"/logstores/{LOGSTORE}/shards/0", params={"action": "split"})
    assert error_of(again) == (400, "ParameterInvalid")


def test_a_logstore_or_project_that_is_deleted_and_created_again_is_empty(server: LogHubServer, client: Client) -> None:
    """A logstore or project that is deleted and created again is empty."""
    client.put(log_group("x"), path="/shards/route", params={"key": "00", "seqid": "5"})
    client.post_json(f"/logstores/{LOGSTORE}/index", b"{}")
    assert client.request("DELETE", f"/logstores/{LOGSTORE}").status_code == 200
    assert error_of(client.get(f"/logstores/{LOGSTORE}")) == (404, "LogStoreNotExist")
    assert client.put(log_group("y"), path="/shards/route", params={"key": "00", "seqid": "1"}).status_code == 200
    assert [log.fields["message"] for log in server.logs(PROJECT, LOGSTORE)] == ["y"]
    assert error_of(client.get(f"/logstores/{LOGSTORE}/index")) == (404, "IndexConfigNotExist")
    assert client.request("DELETE", "/").status_code == 200
    assert error_of(client.get("/")) == (404, "ProjectNotExist")
    assert error_of(client.request("DELETE", "/")) == (404, "ProjectNotExist")


def test_an_index_is_created_once_replaced_and_returned_with_the_facts_that_clients_expect(client: Client) -> None:
    """An index is created once, replaced, and returned with the facts that clients expect."""
    client.put(log_group("x"))
    path, first = f"/logstores/{LOGSTORE}/index", {"line": {"token": [" "]}, "keys": {"a": {"type": "long"}}}
    headers = {"Content-Type": "application/json"}
    assert error_of(client.request("PUT", path, body=b"{}", headers=headers)) == (404, "IndexConfigNotExist")
    assert client.post_json(path, json.dumps(first).encode()).status_code == 200
    assert error_of(client.post_json(path, b"{}")) == (400, "IndexAlreadyExist")
    shown = client.get(path).json()
    assert (shown["line"], shown["keys"], shown["ttl"]) == (first["line"], first["keys"], 30)
    assert client.request("PUT", path, body=b'{"keys": {}}', headers=headers).status_code == 200
    assert "line" not in client.get(path).json()


def test_getcontextlogs_follows_a_pack_id_through_all_shards_in_its_order_without_other_senders_logs(
    client: Client,
) -> None:
    """GetContextLogs follows a pack id through all shards in its order, without other senders' logs."""
    for number in (9, 10, 11):
        client.put(log_group(f"{number}a", f"{number}b", time=T, tags={"__pack_id__": f"AB-CD-{number:X}"}))
        client.put(log_group(f"stranger {number}", time=T, tags={"__pack_id__": f"FF-{number:X}"}))
    query = {"type": "log", "from": str(T), "to": str(T + 9), "query": "10b | with_pack_meta"}
    (log,) = client.get(f"/logstores/{LOGSTORE}", **query).json()
    where = {"pack_id": log["__tag__:__pack_id__"], "pack_meta": log["__pack_meta__"], "type": "context_log"}
    found = client.get(f"/logstores/{LOGSTORE}", **where, back_lines="2", forward_lines="100").json()
    assert [(one["__index_number__"], one["message"]) for one in found["logs"]] == [
        *(("-2", "9b"), ("-1", "10a"), ("0", "10b"), ("1", "11a"), ("2", "11b")),
    ]
    assert (found["back_lines"], found["forward_lines"], found["total_lines"]) == (2, 2, 5)
    for wrong in ({"pack_id": "FF-9"}, {"pack_meta": "0|99|0"}, {"pack_meta": "x"}, {"back_lines": "101"}):
        assert error_of(client.get(f"/logstores/{LOGSTORE}", **{**where, **wrong})) == (400, "ParameterInvalid")


def test_a_metric_store_is_set_up(client: Client) -> None:
    """CreateMetricStore and UpdateMetricStore (Go, Java) create a substore, separate from the logstore's settings."""
    body = json.dumps({"logstoreName": "m", "ttl": 7, "shardCount": 2, "telemetryType": "Metrics"}).encode()
    client.post_json("/logstores", body)
    path, store = "/logstores/m/substores", {"name": "prom", "ttl": 7, "sortedKeyCount": 2, "timeIndex": 2, "keys": []}
    assert client.get(path).json() == {"substores": []}
    assert client.post_json(path, json.dumps(store).encode()).status_code == 200
    assert client.get(path).json() == {"substores": ["prom"]}
    assert client.get(f"{path}/prom").json() == store
    assert client.request("PUT", f"{path}/storage/ttl", params={"ttl": "9"}).status_code == 200
    assert client.get(f"{path}/storage/ttl").json() == {"ttl": 9}
    shown = client.get("/logstores/m").json()
    assert (shown["ttl"], shown["telemetryType"], "substores" in shown) == (9, "Metrics", False)
    changed = json.dumps({**store, "timeIndex": 3}).encode()
    headers = {"Content-Type": "application/json"}
    assert client.request("PUT", f"{path}/prom", body=changed, headers=headers).status_code == 200
    assert client.get(f"{path}/prom").json()["timeIndex"] == 3
    assert client.request("DELETE", f"{path}/prom").status_code == 200
    for method, wrong in (("GET", "/prom"), ("PUT", "/prom"), ("DELETE", "/prom")):
        answer = client.request(method, path + wrong, body=b"{}" if method == "PUT" else b"")
        assert error_of(answer) == (400, "ParameterInvalid")
    assert error_of(client.request("PUT", f"{path}/storage/ttl", params={"ttl": "0"})) == (400, "ParameterInvalid")


def test_clearlogstorestorage_java_deletes_the_logs_earlier_cursors_find_the_next_writes(
    server: LogHubServer, client: Client
) -> None:
    """ClearLogStoreStorage (Java) deletes the logs; earlier cursors find the next writes."""
    for text in ("old", "older"):
        client.put(log_group(text), path="/shards/route", params={"key": "00"})
    begin, end = client.cursor(0, "begin"), client.cursor(0, "end")
    assert client.request("DELETE", f"/logstores/{LOGSTORE}/storage").status_code == 200
    assert server.count(PROJECT, LOGSTORE) == 0
    groups, answer = client.pull(0, begin)
    assert (groups, answer.headers["x-log-cursor"]) == ([], end)
    client.put(log_group("new"), path="/shards/route", params={"key": "00"})
    assert [len(client.pull(0, cursor)[0]) for cursor in (begin, end, client.cursor(0, "begin"))] == [1, 1, 1]
    assert [log.fields["message"] for log in server.logs(PROJECT, LOGSTORE)] == ["new"]
    assert error_of(client.request("DELETE", "/logstores/nowhere/storage")) == (404, "LogStoreNotExist")

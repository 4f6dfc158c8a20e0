"""The console's JSON operations, and their authorization."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from producer.server import AccessKey, LogHubServer, faults

from ..client import LOGSTORE, PROJECT, Client, log_group

T = 1_700_000_000
HERE = {"project": PROJECT, "logstore": LOGSTORE}
RANGE = {**HERE, "from": str(T), "to": str(T + 1000)}


class Console:
    def __init__(self, server: LogHubServer) -> None:
        self.server = server
        self.session = requests.Session()
        self.session.trust_env = False

    def ask(self, path: str, method: str = "GET", *, body: Any = None, **params: Any) -> requests.Response:
        headers, auth = params.pop("headers", {}), params.pop("auth", None)
        url = f"{self.server.endpoint}/console/api/{path}"
        data = None if body is None else json.dumps(body)
        return self.session.request(method, url, params=params, data=data, headers=headers, auth=auth, timeout=20)

    def get(self, path: str, **params: Any) -> Any:
        answer = self.ask(path, **params)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def console(server: LogHubServer) -> Iterator[Console]:
    console = Console(server)
    yield console
    console.session.close()


def test_logstores_show_logs_bytes_times_and_rates_by_shard_also_for_empty_shards(
    console: Console, client: Client
) -> None:
    """Logstores show logs, bytes, times and rates by shard, also for empty shards."""
    raw = log_group("a", "b")
    for _ in range(3):
        client.put(raw, path="/shards/route", params={"key": "00"})
    (found,) = console.get("logstores")["logstores"]
    assert (found["project"], found["logstore"], found["ttl"]) == (PROJECT, LOGSTORE, 30)
    first, second = found["shards"]
    assert (first["shard"], first["status"], first["logs"], first["bytes"]) == (0, "readwrite", 6, 3 * len(raw))
    assert (first["logs_per_second"], first["bytes_per_second"]) == (6 / 60, 3 * len(raw) / 60)
    assert first["first"] <= first["last"]
    assert (found["from"], found["to"]) == (T, T + 1)
    assert (second["logs"], second["first"], second["logs_per_second"]) == (0, None, 0)


def test_a_search_returns_fields_and_places_of_logs_the_histogram_counts_them(console: Console, client: Client) -> None:
    """A search returns fields and places of logs, the histogram counts them, and fields have their commonest values."""
    client.put(log_group("a", "b", "a", time=T, topic="web"))
    (log,) = console.get("search", **RANGE, query="b")["logs"]
    assert (log["time"], log["fields"]["message"], log["index"]) == (T + 1, "b", 1)
    counted = console.get("histogram", **RANGE, query="a")
    assert (counted["total"], sum(part["count"] for part in counted["parts"])) == (2, 2)
    found = {one["name"]: one for one in console.get("fields", **RANGE, top="1")["fields"]}
    assert (found["message"]["logs"], found["message"]["values"], found["message"]["top"]) == (3, 2, [["a", 2]])
    assert found["__topic__"]["top"] == [["web", 3]]
    assert console.ask("search", **RANGE, query="(").status_code == 400
    assert console.ask("search", **{**RANGE, "logstore": "none"}).status_code == 404
    assert console.ask("search").status_code == 400


def test_fields_are_a_sample_of_many_logs(console: Console, client: Client) -> None:
    """Of more than 10,000 logs the last ones are sampled, and a field of many values takes bounded memory."""
    for number in range(3):
        client.put(log_group(*[str(one) for one in range(5_000)], time=T - 1000 * number))
    found = console.get("fields", **{**RANGE, "from": "0", "to": str(T + 9999)}, top="2")
    assert found["sampled"] == 10_000
    assert {one["name"]: one["values"] for one in found["fields"]}["message"] == 1000


def test_each_answer_of_the_tail_has_the_matching_logs_since_the_answer_before_whatever_their_times(
    console: Console, client: Client
) -> None:
    """Each answer of the tail has the matching logs since the answer before, whatever their times."""
    client.put(log_group("before"))
    after = console.get("tail", **HERE)["after"]
    assert console.get("tail", **HERE, after=after) == {"after": after, "logs": [], "skipped": False}
    client.put(log_group("one", time=5))
    client.put(log_group("two", "other"))
    found = console.get("tail", **HERE, after=after, query="one or two")
    assert [log["fields"]["message"] for log in found["logs"]] == ["one", "two"]
    assert console.get("tail", **HERE, after=found["after"])["logs"] == []


def test_a_log_is_shown_among_its_neighbours(console: Console, client: Client) -> None:
    """Neighbours of a log are those with its pack id; without one, those of its LogGroup."""
    for number in range(3):
        client.put(log_group(f"{number}a", f"{number}b", time=T, tags={"__pack_id__": f"AB-{number}"}))
    client.put(log_group("x", "y", "z", time=T + 9))
    for query, expected in (("1a", (["0b"], ["1b", "2a"])), ("y", (["x"], ["z"]))):
        (log,) = console.get("search", **RANGE, query=query)["logs"]
        where = {name: log[name] for name in ("shard", "position", "index")}
        found = console.get("neighbours", **HERE, **where, back="1", forward="2")
        assert found["log"] == log
        messages = tuple([one["fields"]["message"] for one in found[side]] for side in ("before", "after"))
        assert messages == expected


def test_faults_are_installed_and_removed(console: Console, client: Client) -> None:
    """A fault of the console affects matching requests, is listed with a test's faults, and can be removed."""
    console.server.faults.add(faults.delay(0), operation="GetCursor")
    wanted = {"kind": "answer", "status": 503, "code": "ServerBusy", "times": 2, "operation": "PutLogs"}
    number = console.ask("faults", "POST", body=wanted).json()["id"]
    assert [client.put(log_group("x")).status_code for _ in range(2)] == [503, 503]
    installed = {one["id"]: one for one in console.get("faults")["faults"]}
    assert (installed[number]["what"], installed[number]["for"]) == (
        "answer status=503 code=ServerBusy",
        {"operation": "PutLogs"},
    )
    assert (installed[number]["fired"], installed[number]["left"]) == (2, 0)
    assert sorted(one["what"] for one in installed.values()) == ["answer status=503 code=ServerBusy", "delay"]
    assert console.ask(f"faults/{number}", "DELETE").status_code == 200
    assert console.ask(f"faults/{number}", "DELETE").status_code == 400
    assert client.put(log_group("x")).status_code == 200


def test_every_kind_of_fault_can_be_installed(console: Console) -> None:
    """Each listed kind of fault has working settings, and values out of range are refused in words."""
    for kind in console.get("faults")["kinds"]:
        assert console.ask("faults", "POST", body={"kind": kind, "probability": 0.5}).status_code == 200
    for wrong in (
        {"kind": "flood"},
        {"kind": "answer", "status": 200},
        {"kind": "delay", "seconds": "1"},
        {"kind": "cut", "times": 0},
    ):
        assert console.ask("faults", "POST", body=wrong).status_code == 400


def test_requests_and_producers_are_listed(console: Console, client: Client) -> None:
    """Requests are listed newest first; clients that write are distinguished by user agent and address."""
    for agent in ("one/1", "two/2", "two/2"):
        client.put(log_group("x", "y"), headers={"User-Agent": agent})
    client.put(b"broken", headers={"User-Agent": "two/2", "x-producer-endpoint": "http://b; left http://a (away)"})
    found = console.get("requests", limit="3")["requests"]
    assert [(one["operation"], one["status"], one["logs"]) for one in found] == [
        *(("PutLogs", 400, 0), ("PutLogs", 200, 2), ("PutLogs", 200, 2)),
    ]
    assert found[0]["error"] == "PostBodyInvalid"
    assert found[0]["milliseconds"] > 0
    producers = console.get("producers")["producers"]
    assert [(one["user_agent"], one["address"], one["requests"], one["errors"], one["logs"]) for one in producers] == [
        *(("two/2", "127.0.0.1", 3, 1, 4), ("one/1", "127.0.0.1", 1, 0, 2)),
    ]
    assert [one["endpoint"] for one in producers] == ["http://b; left http://a (away)", ""]


def test_a_keys_id_and_secret_sign_in_as_user_and_password() -> None:
    """A key's id and secret sign in as user and password; wrong, disabled and temporary keys are refused."""
    keys = {
        "me": "secret",
        "off": AccessKey(secret="secret", enabled=False),
        "sts": AccessKey(secret="secret", security_token="token"),
    }
    with LogHubServer(access_keys=keys) as server:
        console = Console(server)
        refused = console.ask("logstores")
        assert (refused.status_code, 'scheme="Basic"' in refused.headers["WWW-Authenticate"]) == (401, True)
        assert [console.ask("logstores", auth=(key, "secret")).status_code for key in ("me", "off", "sts", "no")] == [
            *(200, 401, 401, 401)
        ]
        assert console.ask("logstores", auth=("me", "wrong")).status_code == 401
        assert console.ask("logstores", headers={"Authorization": "Basic %%%"}).status_code == 401
        assert requests.get(f"{server.endpoint}/healthz", timeout=60).status_code == 200
        console.session.close()


def test_no_page_of_another_site_can_use_the_console(console: Console) -> None:
    """A rebound host name is refused, and so is a change requested by another site's page."""
    assert console.ask("logstores", headers={"Host": "evil.example"}).status_code == 401
    assert console.ask("logstores", headers={"Host": "localhost:1"}).status_code == 200
    body = {"kind": "cut"}
    assert console.ask("faults", "POST", body=body, headers={"Origin": "http://evil.example"}).status_code == 401
    assert console.ask("faults", "POST", body=body, headers={"Origin": console.server.endpoint}).status_code == 200
    assert len(console.get("faults")["faults"]) == 1

import json

import pytest

from producer.server import LogHubServer
from producer.text.names import is_logstore_name, is_project_name

from ..client import LOGSTORE, PROJECT, Client, error_of, log_group


def create(client: Client, name: str = "made", **settings: object) -> object:
    body = json.dumps({"logstoreName": name, "ttl": 7, "shardCount": 3, **settings}).encode()
    return client.post_json("/logstores", body)


def test_a_project_is_created_once_and_described(client: Client) -> None:
    """CreateProject makes a project, GetProject shows it, and a second CreateProject is ProjectAlreadyExist."""
    body = json.dumps({"projectName": PROJECT, "description": "für Tests"}).encode()
    assert error_of(client.get("/")) == (404, "ProjectNotExist")
    assert client.post_json("/", body).status_code == 200
    shown = client.get("/").json()
    assert (shown["projectName"], shown["description"], shown["status"]) == (PROJECT, "für Tests", "Normal")
    assert error_of(client.post_json("/", body)) == (400, "ProjectAlreadyExist")


def test_a_logstore_is_created_once_and_described(client: Client) -> None:
    """CreateLogstore makes a logstore with shards, GetLogstore shows it, and a second one is LogStoreAlreadyExist."""
    assert create(client, mode="query").status_code == 200
    shown = client.get("/logstores/made").json()
    assert (shown["logstoreName"], shown["ttl"], shown["shardCount"], shown["mode"]) == ("made", 7, 3, "query")
    assert error_of(create(client)) == (400, "LogStoreAlreadyExist")


def test_logstores_are_listed_in_pages(client: Client) -> None:
    """ListLogstores returns sorted names and the total, by part of the name, offset and size."""
    for name in ("b-1", "a-1", "a-2"):
        create(client, name)
    assert client.get("/logstores").json() == {"count": 3, "total": 3, "logstores": ["a-1", "a-2", "b-1"]}
    page = client.get("/logstores", offset="1", size="1", logstoreName="a-").json()
    assert page == {"count": 1, "total": 2, "logstores": ["a-2"]}


def test_shards_divide_the_key_space_without_a_gap(client: Client) -> None:
    """ListShards returns ranges without gaps, from 000… to fff…."""
    create(client)
    shards = client.get("/logstores/made/shards").json()
    assert [shard["shardID"] for shard in shards] == [0, 1, 2]
    assert {"readwrite"} == {shard["status"] for shard in shards}
    begins, ends = ([shard[name] for shard in shards] for name in ("inclusiveBeginKey", "exclusiveEndKey"))
    assert (begins[0], ends[-1]) == ("0" * 32, "f" * 32)
    assert begins[1:] == ends[:-1]


def test_with_auto_create_a_write_creates_its_project_and_logstore_with_the_servers_number_of_shards(
    server: LogHubServer, client: Client
) -> None:
    """With auto_create a write creates its project and logstore, with the server's number of shards."""
    client.put(log_group("x"))
    assert client.get(f"/logstores/{LOGSTORE}").json()["shardCount"] == 2


def test_without_auto_create_a_logstore_is_not_created_in_a_missing_project() -> None:
    """Without auto_create a logstore is not created in a missing project."""
    with LogHubServer(auto_create=False) as server, Client(server) as client:
        assert error_of(create(client)) == (404, "ProjectNotExist")
        assert error_of(client.get("/logstores")) == (404, "ProjectNotExist")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "PostBodyInvalid"),
        (b"[1]", "PostBodyInvalid"),
        (b'{"ttl": 1}', "ParameterInvalid"),
        (b'{"logstoreName": 5}', "ParameterInvalid"),
        (b'{"logstoreName": "a/b"}', "LogStoreInfoInvalid"),
        (b'{"logstoreName": "App"}', "LogStoreInfoInvalid"),
        (b'{"logstoreName": "a-"}', "LogStoreInfoInvalid"),
        (b'{"logstoreName": "a.b"}', "LogStoreInfoInvalid"),
        (b'{"logstoreName": "%s"}' % (b"a" * 64), "LogStoreInfoInvalid"),
        (b'{"logstoreName": "a", "shardCount": 0}', "ParameterInvalid"),
        (b'{"logstoreName": "a", "shardCount": 257}', "ParameterInvalid"),
        (b'{"logstoreName": "a", "shardCount": "many"}', "ParameterInvalid"),
    ],
)
def test_a_logstore_out_of_rule_is_refused(client: Client, body: bytes, code: str) -> None:
    """Invalid names, shard counts and bodies are refused before anything is created."""
    assert (400, code) == error_of(client.post_json("/logstores", body))


def test_a_metric_store_is_a_logstore(client: Client) -> None:
    """A metric store's type is stored and returned, also after another change, and it takes logs."""
    body = b'{"logstoreName": "metrics", "ttl": 7, "shardCount": 1, "telemetryType": "Metrics"}'
    assert client.post_json("/logstores", body).status_code == 200
    headers = {"Content-Type": "application/json"}
    client.request("PUT", "/logstores/metrics", headers=headers, body=b'{"logstoreName": "metrics", "ttl": 9}')
    stored = client.get("/logstores/metrics").json()
    assert (stored["telemetryType"], stored["ttl"]) == ("Metrics", 9)
    assert client.put(log_group("x"), logstore="metrics").status_code == 200


_LOOKS: dict[str, dict[str, str]] = {
    "/shards": {},
    "/shards/0": {"type": "cursor", "from": "begin"},
    "/shards/0#": {"type": "log", "cursor": "MA==", "count": "1"},
    "": {"type": "log", "from": "0", "to": "9"},
    "#": {"type": "histogram", "from": "0", "to": "9"},
    "##": {},
    "/index": {},
    "/consumergroups": {},
}


@pytest.mark.parametrize("path", _LOOKS)
def test_even_with_auto_create_a_read_creates_nothing_listshards_then_says_that_the_first_write_does(
    client: Client, path: str
) -> None:
    """Even with auto_create a read creates nothing; ListShards then says that the first write does."""
    answer = client.get(f"/logstores/{LOGSTORE}{path.strip('#')}", **_LOOKS[path])
    assert error_of(answer) == (404, "ProjectNotExist")
    assert ("the first write creates it" in answer.json()["errorMessage"]) == (path == "/shards")
    assert error_of(client.get("/")) == (404, "ProjectNotExist")
    client.put(log_group("x"), logstore="another")
    answer = client.get(f"/logstores/{LOGSTORE}{path.strip('#')}", **_LOOKS[path])
    assert error_of(answer) == (404, "LogStoreNotExist")
    assert client.get("/logstores").json()["logstores"] == ["another"]


@pytest.mark.parametrize("name", ["App", "a.b", "_a", "a-", "a" * 64])
def test_a_write_creates_no_logstore_of_a_name_that_send_refuses(client: Client, name: str) -> None:
    """A write under an invalid name is LogStoreInfoInvalid, as in CreateLogstore, and creates nothing."""
    assert not is_logstore_name(name)
    body = log_group("x")
    assert error_of(client.put(body, logstore=name))[0] == 400
    assert error_of(client.get("/")) == (404, "ProjectNotExist")
    if name[0] != "_":
        assert error_of(client.put(body, logstore=name)) == (400, "LogStoreInfoInvalid")
        client.put(body)
        assert error_of(client.get(f"/logstores/{name}/shards")) == (404, "LogStoreNotExist")


@pytest.mark.parametrize("name", ["Shop", "my_project", "a.b", "a-", "a" * 64])
def test_a_project_of_a_name_that_send_refuses_is_not_created(server: LogHubServer, name: str) -> None:
    """An invalid project name is ParameterInvalid, with the rule in the message."""
    assert not is_project_name(name)
    with Client(server) as client:
        answer = client.post_json("/", json.dumps({"projectName": name, "description": ""}).encode())
        assert error_of(answer) == (400, "ParameterInvalid")
        assert "lower-case letters, digits and dashes" in answer.json()["errorMessage"]


@pytest.mark.parametrize("path", ["/logstores/none", "/logstores/none/shards"])
def test_reading_a_missing_logstore_is_refused_with_404(path: str) -> None:
    """Reading a missing logstore is refused with 404."""
    with LogHubServer(auto_create=False) as server, Client(server) as client:
        assert client.post_json("/", b'{"projectName": "my-project", "description": ""}').status_code == 200
        create(client)
        assert error_of(client.get(path)) == (404, "LogStoreNotExist")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/", rb'{"projectName": "p", "description": "\ud800"}'),
        ("/logstores", rb'{"logstoreName": "made", "mode": {"\udfff": 1}}'),
        (f"/logstores/{LOGSTORE}/logs", rb'{"from": 0, "to": 9, "topic": "a\ud800b"}'),
    ],
)
def test_half_of_a_surrogate_pair_in_json_is_refused(client: Client, path: str, body: bytes) -> None:
    """JSON text that is not Unicode is ParameterInvalid in every body; a whole surrogate pair is valid."""
    client.put(log_group("x"))
    answer = client.post_json(path, body)
    assert error_of(answer) == (400, "ParameterInvalid")
    assert "surrogate" in answer.text
    whole = client.post_json("/", rb'{"projectName": "whole", "description": "\ud83d\ude00"}')
    assert whole.status_code == 200

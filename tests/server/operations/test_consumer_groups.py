import json
from collections.abc import Iterator

import pytest
import requests

from producer.server import LogHubServer
from producer.server.store import consumer_groups

from ..client import LOGSTORE, Client, error_of, log_group

GROUPS = f"/logstores/{LOGSTORE}/consumergroups"
GROUP = f"{GROUPS}/readers"


@pytest.fixture
def server() -> Iterator[LogHubServer]:
    with LogHubServer(shards=4) as server:
        yield server


@pytest.fixture
def client(server: LogHubServer) -> Iterator[Client]:
    with Client(server) as client:
        client.put(log_group("x"))
        assert create(client).status_code == 200
        yield client


def create(client: Client, **settings: object) -> requests.Response:
    body = {"consumerGroup": "readers", "timeout": 60, "order": False, **settings}
    return client.post_json(GROUPS, json.dumps(body).encode())


def ask(client: Client, kind: str, consumer: str, content: object, **params: str) -> requests.Response:
    params = {"type": kind, "consumer": consumer, **params}
    body = json.dumps(content).encode()
    return client.request("POST", GROUP, params=params, body=body, headers={"Content-Type": "application/json"})


def beat(client: Client, consumer: str, *held: int) -> list[int]:
    answer = ask(client, "heartbeat", consumer, held)
    assert answer.status_code == 200, answer.text
    return list(answer.json())


def test_a_shard_is_given_to_another_only_when_its_consumer_has_let_it_go(client: Client) -> None:
    """A second consumer gets half of the shards, each only after the first one no longer lists it."""
    assert beat(client, "a") == [0, 1, 2, 3]
    assert beat(client, "b") == []
    assert beat(client, "a", 0, 1, 2, 3) == [0, 1]
    assert beat(client, "b") == []
    assert beat(client, "a", 0, 1, 3) == [0, 1]
    assert beat(client, "b") == [2]
    assert beat(client, "a", 0, 1) == [0, 1]
    assert beat(client, "b", 2) == [2, 3]


def test_a_consumer_without_a_heartbeat_for_its_groups_timeout_loses_its_shards_to_the_others(
    server: LogHubServer, client: Client
) -> None:
    """A consumer without a heartbeat for its group's timeout loses its shards to the others."""
    assert beat(client, "a") == [0, 1, 2, 3]
    server.clock_offset = client.clock_offset = 59.0
    assert beat(client, "b") == []
    server.clock_offset = client.clock_offset = 61.5
    assert beat(client, "b") == [0, 1, 2, 3]
    assert beat(client, "a", 0, 1, 2, 3) == []


def test_more_consumers_than_shards_leave_some_without(client: Client) -> None:
    """With five consumers and four shards, four have one each and one has none."""
    held: dict[str, list[int]] = {name: [] for name in "abcde"}
    for _ in range(4):
        held = {name: beat(client, name, *shards) for name, shards in held.items()}
    assert sorted(map(len, held.values())) == [0, 1, 1, 1, 1]
    assert sorted(shard for shards in held.values() for shard in shards) == [0, 1, 2, 3]


def test_only_its_consumer_may_save_the_checkpoint_of_a_shard(client: Client) -> None:
    """A checkpoint of another consumer is ConsumerNotMatch, of an unknown one ConsumerNotExsit, unless it is forced."""
    cursor = client.cursor(0, "end")
    assert beat(client, "a") == [0, 1, 2, 3]
    beat(client, "b")
    wanted = {"shard": 0, "checkpoint": cursor}
    assert error_of(ask(client, "checkpoint", "b", wanted, forceSuccess="false")) == (400, "ConsumerNotMatch")
    assert error_of(ask(client, "checkpoint", "stranger", wanted)) == (404, "ConsumerNotExsit")
    assert error_of(ask(client, "checkpoint", "a", {"shard": 0, "checkpoint": "?"})) == (400, "InvalidCursor")
    assert error_of(ask(client, "checkpoint", "a", {"shard": 9, "checkpoint": cursor})) == (404, "ShardNotExist")
    assert ask(client, "checkpoint", "stranger", wanted, forceSuccess="true").status_code == 200
    (saved,) = client.get(GROUP, shard="0").json()
    assert (saved["checkpoint"], saved["consumer"]) == (cursor, "stranger")
    assert [one["checkpoint"] for one in client.get(GROUP).json()] == [cursor, "", "", ""]


def test_creating_a_group_twice_is_consumergroupalreadyexist(client: Client) -> None:
    """Creating a group twice is ConsumerGroupAlreadyExist; using a missing one is ConsumerGroupNotExist."""
    assert error_of(create(client)) == (400, "ConsumerGroupAlreadyExist")
    assert error_of(create(client, consumerGroup="other", timeout=0)) == (400, "ParameterInvalid")
    assert error_of(create(client, consumerGroup="other", order="no")) == (400, "ParameterInvalid")
    assert client.request("DELETE", GROUP).status_code == 200
    for answer in (client.get(GROUP), client.request("DELETE", GROUP), ask(client, "heartbeat", "a", [])):
        assert error_of(answer) == (404, "ConsumerGroupNotExist")


def test_checkpoints_outlive_the_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Groups and checkpoints survive a restart; a consumer keeps the shards that it lists."""
    data = tmp_path_factory.mktemp("data")
    with LogHubServer(data=data, shards=2) as server, Client(server) as client:
        client.put(log_group("x"))
        create(client)
        cursor = client.cursor(1, "end")
        ask(client, "checkpoint", "a", {"shard": 1, "checkpoint": cursor}, forceSuccess="true")
    with LogHubServer(data=data) as server, Client(server) as client:
        assert client.get(GROUP, shard="1").json()[0]["checkpoint"] == cursor
        assert beat(client, "a", 1) == [0, 1]


def test_a_consumer_beyond_the_limit_is_refused_in_words(
    client: Client, server: LogHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer beyond the limit is refused in words; the others go on, and one that leaves makes room."""
    monkeypatch.setattr(consumer_groups, "MAX_CONSUMERS", 2)
    beat(client, "a"), beat(client, "b")
    refused = ask(client, "heartbeat", "c", [])
    assert error_of(refused) == (400, "ParameterInvalid")
    assert "2 consumers" in refused.json()["errorMessage"]
    beat(client, "a")
    server.clock_offset = 61
    with Client(server, clock_offset=61) as later:
        assert beat(later, "c") == [0, 1, 2, 3]


def split(client: Client, shard: int) -> None:
    path = f"/logstores/{LOGSTORE}/shards/{shard}"
    assert client.request("POST", path, params={"action": "split"}).status_code == 200


def test_in_order_parts_of_a_split_shard_are_assigned_when_its_checkpoint_is_at_the_end(client: Client) -> None:
    """In order, parts of a split shard are assigned when its checkpoint is at the end; for an empty shard at once."""
    shards = [client.put(log_group("x"), path="/shards/route", params={"key": "00"}) for _ in range(2)]
    assert {answer.status_code for answer in shards} == {200}
    client.request("PUT", GROUP, body=b'{"order": true}', headers={"Content-Type": "application/json"})
    assert beat(client, "a") == [0, 1, 2, 3]
    split(client, 0)
    split(client, 3)
    split(client, 4)
    assert beat(client, "a", 0, 1, 2, 3) == [0, 1, 2, 3, 6, 7]
    position = {"shard": 0, "checkpoint": client.cursor(0, "begin")}
    assert ask(client, "checkpoint", "a", position).status_code == 200
    assert beat(client, "a", 0, 1, 2, 3, 6, 7) == [0, 1, 2, 3, 6, 7]
    position = {"shard": 0, "checkpoint": client.cursor(0, "end")}
    assert ask(client, "checkpoint", "a", position).status_code == 200
    assert beat(client, "a", 0, 1, 2, 3, 6, 7) == list(range(10))
    assert create(client, consumerGroup="hasty").status_code == 200
    hasty = client.request("POST", f"{GROUPS}/hasty", params={"type": "heartbeat", "consumer": "b"}, body=b"[]")
    assert hasty.json() == list(range(10))

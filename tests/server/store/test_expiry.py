"""Expiry: LogGroups by their logstore's time to live, and sequence numbers with them."""

import json
from collections.abc import Iterator

import pytest

from producer.server import Limits, LogHubServer

from ..client import LOGSTORE, PROJECT, Client, error_of, log_group

DAY = 86400.0
T = 1_700_000_000


@pytest.fixture
def server() -> Iterator[LogHubServer]:
    with LogHubServer(limits=Limits(sequence_keys=3), shards=1) as server:
        yield server


def go_to(day: float, server: LogHubServer, client: Client) -> None:
    """Set the clocks of the server and its client so many days ahead."""
    server.clock_offset = client.clock_offset = day * DAY


def create(client: Client, ttl: object, logstore: str = LOGSTORE) -> None:
    body = json.dumps({"logstoreName": logstore, "ttl": ttl, "shardCount": 1}).encode()
    assert client.post_json("/logstores", body).status_code == 200


def messages(server: LogHubServer) -> list[object]:
    return [log.fields["message"] for log in server.logs(PROJECT, LOGSTORE)]


def rows(server: LogHubServer, table: str) -> int:
    query = f"SELECT COUNT(*) FROM {table}"
    return int(
        server._service.store._database.submit(lambda connection: connection.execute(query).fetchone()[0]).result()
    )


def search(client: Client) -> list[str]:
    answer = client.get(f"/logstores/{LOGSTORE}", type="log", **{"from": str(T), "to": str(T + 9)})
    return [log["message"] for log in answer.json()]


def test_logs_vanish_when_their_time_to_live_is_over(server: LogHubServer, client: Client) -> None:
    """After the time to live a LogGroup is invisible to every reader, and later ones are visible."""
    create(client, 7)
    client.put(log_group("old", time=T))
    begin = client.cursor(0, "begin")
    go_to(5, server, client)
    client.put(log_group("young", time=T))
    assert messages(server) == search(client) == ["old", "young"]

    go_to(7.01, server, client)
    assert messages(server) == search(client) == ["young"]
    assert server.count(PROJECT, LOGSTORE) == 1
    # An old cursor leads to the LogGroups that are left, and so does the beginning.
    for cursor in (begin, client.cursor(0, "begin"), client.cursor(0, str(T))):
        (group,), answer = client.pull(0, cursor)
        assert group.Logs[0].Contents[0].Value == b"young"
        assert client.cursor(0, "end") == answer.headers["x-log-cursor"]
    assert begin != client.cursor(0, "begin")

    go_to(13, server, client)
    assert messages(server) == search(client) == []
    groups, answer = client.pull(0, begin)
    assert (groups, answer.headers["x-log-end-of-cursor"]) == ([], "1")
    assert client.cursor(0, "begin") == client.cursor(0, "end") == answer.headers["x-log-cursor"]


def test_a_shard_whose_loggroups_have_all_expired_continues_its_positions(server: LogHubServer, client: Client) -> None:
    """A shard whose LogGroups have all expired continues its positions, so that no cursor is ambiguous."""
    create(client, 1)
    for _ in range(3):
        client.put(log_group("old"))
    end = client.cursor(0, "end")
    go_to(2, server, client)
    client.put(log_group("new"))
    assert rows(server, "log_groups") == 1
    (group,) = server.log_groups(PROJECT, LOGSTORE)
    assert group.position == 3
    assert [log.Contents[0].Value for (group,) in [client.pull(0, end)[0]] for log in group.Logs] == [b"new"]


def test_each_write_removes_more_expired_rows_of_its_logstore_than_it_adds_until_none_is_left(
    server: LogHubServer, client: Client
) -> None:
    """Each write removes more expired rows of its logstore than it adds, until none is left."""
    create(client, 1)
    create(client, 3650, "other")
    for _ in range(40):
        client.put(log_group("old"))
        client.put(log_group("old"), logstore="other")
    go_to(2, server, client)
    counts = []
    for _ in range(4):
        client.put(log_group("new"))
        counts.append(rows(server, "log_groups") - 40)
    assert counts == [24, 8, 3, 4]
    assert server.count(PROJECT, "other") == 40


def test_a_logstore_without_end_keeps_everything(server: LogHubServer, client: Client) -> None:
    """A ttl of 3650 days keeps logs for ever; the default is 30 days."""
    create(client, 3650, "kept")
    client.put(log_group("x"), logstore="kept")
    client.put(log_group("x"))
    shown = [client.get(f"/logstores/{name}").json()["ttl"] for name in ("kept", LOGSTORE)]
    assert shown == [3650, 30]
    for day, left in [(29.9, 1), (30.1, 0)]:
        go_to(day, server, client)
        assert left == server.count(PROJECT, LOGSTORE)
    go_to(36500, server, client)
    assert server.count(PROJECT, "kept") == 1


@pytest.mark.parametrize("ttl", [0, -1, 3651, "many", 1.5, None, True])
def test_a_time_to_live_out_of_rule_is_refused(client: Client, ttl: object) -> None:
    """A ttl must be 1 to 3650 whole days."""
    answer = client.post_json("/logstores", json.dumps({"logstoreName": "made", "ttl": ttl}).encode())
    assert error_of(answer) == (400, "ParameterInvalid")
    assert error_of(client.get("/logstores/made"))[0] == 404


def put_with_key(client: Client, key: str, sequence: int) -> int:
    answer = client.put(log_group("x"), path="/shards/route", params={"key": key, "seqid": str(sequence)})
    return answer.status_code


def test_the_sequence_keys_used_longest_ago_are_forgotten_first(server: LogHubServer, client: Client) -> None:
    """Beyond the limit of keys in a logstore, the least recently used is forgotten."""
    for offset, key in enumerate(["0a", "0b", "0c", "0a", "0d"]):
        go_to(offset / DAY, server, client)
        assert put_with_key(client, key, offset + 1) == 200
    assert rows(server, "sequences") == 3
    go_to(9 / DAY, server, client)
    assert [put_with_key(client, key, 1) for key in ("0a", "0c", "0d", "0b")] == [400, 400, 400, 200]
    assert rows(server, "sequences") == 3


def test_a_key_not_used_for_the_time_to_live_is_forgotten_together_with_the_logs_that_it_wrote(
    server: LogHubServer, client: Client
) -> None:
    """A key not used for the time to live is forgotten, together with the logs that it wrote."""
    create(client, 1)
    for key in ("0a", "0b"):
        assert put_with_key(client, key, 5) == 200
    go_to(0.9, server, client)
    assert [put_with_key(client, "0a", sequence) for sequence in (5, 6)] == [400, 200]
    go_to(1.5, server, client)
    assert [put_with_key(client, key, 5) for key in ("0a", "0b")] == [400, 200]
    go_to(3, server, client)
    assert put_with_key(client, "0c", 1) == 200
    assert rows(server, "sequences") == 1

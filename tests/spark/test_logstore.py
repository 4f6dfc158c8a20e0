"""The client for reading, against the embedded LogHub and its faults."""

from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from producer import Credentials, ProducerConfig, ProjectConfig
from producer.reading.errors import LogHubReadError
from producer.server import LogHubServer
from producer.server.faults import answer, cut, half_answer, raw_answer
from producer.spark.logstore import LogstoreClient, cursors_of
from producer.spark.options import Target
from producer.wire.cursors import position_of
from producer.wire.read_columns import ReadGroups

from .conftest import LOGSTORE, PROJECT, Put, plan_of, target_in

FAST = ProducerConfig(base_retry_backoff_ms=1, max_retry_backoff_ms=5, retries=3)


def texts(groups: ReadGroups) -> list[str]:
    found = groups.contents(0, sum(groups.sizes), pa.map_(pa.string(), pa.string()))
    return [value for log in found.to_pylist() for _, value in log]


def test_a_shard_is_read_from_cursor_to_cursor(client: LogstoreClient, put: Put) -> None:
    """Pulls follow each other up to the end cursor, with the given number of LogGroups."""
    for number in range(5):
        put(f"message {number}")
    begin, end = client.cursor("0", "begin"), client.cursor("0", "end")
    put("too late")
    seen, cursor, sizes = [], begin, []
    while True:
        pulled = client.pull_columns("0", cursor, 2, end)
        seen += texts(pulled.groups)
        sizes.append(len(pulled.groups.sizes))
        cursor = pulled.next_cursor
        if pulled.at_end:
            break
    assert seen == [f"message {number}" for number in range(5)]
    assert (sizes, cursor) == ([2, 2, 1], end)


def test_of_several_endpoints_the_first_that_answers_is_read(server: LogHubServer, put: Put) -> None:
    """The option ``endpoint`` may name several, and ``failover_ms`` bounds the wait for the first one."""
    put("message")
    several = f"http://127.0.0.1:1,{server.endpoint}"
    with plan_of(server, endpoint=several, failover_ms="500", retries="0").client() as client:
        assert texts(client.pull_columns("0", client.cursor("0", "begin"), 1).groups) == ["message"]


def test_shards_are_listed_in_the_order_of_their_numbers() -> None:
    """Shards are listed in the order of their numbers."""
    with LogHubServer(shards=12) as server, plan_of(server).client() as client:
        from tests.server.client import Client, log_group

        with Client(server, project=PROJECT) as writer:
            writer.put(log_group("x"), logstore=LOGSTORE)
        assert client.shards() == [str(number) for number in range(12)]


def test_a_cursor_has_the_time_of_receipt(server: LogHubServer, client: LogstoreClient, put: Put) -> None:
    """GetCursor and GetCursorTime are inverse to each other."""
    put("early")
    server.clock_offset = 100
    put("late")
    second = client.pull_columns("0", client.cursor("0", "begin"), 1).next_cursor
    assert client.cursor("0", client.cursor_time("0", second)) == second


@pytest.mark.parametrize(
    "fault",
    [
        answer(500, "InternalServerError"),
        answer(503, "ServerBusy"),
        answer(403, "ExceedQuota"),
        answer(200, "", body=b"<html>a portal</html>"),
        cut("after_body"),
        half_answer(0.9),
        raw_answer(),
    ],
    ids=["500", "busy", "quota", "portal", "reset", "half", "garbage"],
)
@pytest.mark.parametrize("operation", ["ListShards", "PullLogs"])
def test_a_request_that_fails_twice_for_a_transient_reason_succeeds(
    server: LogHubServer, client: LogstoreClient, put: Put, fault: object, operation: str
) -> None:
    """A request that fails twice for a transient reason succeeds."""
    put("a message")
    begin = client.cursor("0", "begin")
    installed = server.faults.add(fault, times=2, operation=operation)  # type: ignore[arg-type]
    assert client.shards() == ["0", "1"]
    assert texts(client.pull_columns("0", begin, 10).groups) == ["a message"]
    assert installed.fired == 2


def test_retries_are_bounded(server: LogHubServer, put: Put) -> None:
    """A server that stays busy is an error after ``retries`` retries, with their number, the code and the request
    id.
    """
    put("a message")
    installed = server.faults.add(answer(503, "ServerBusy", "come back later"))
    with LogstoreClient(target_in(server), FAST) as client, pytest.raises(LogHubReadError) as raised:
        client.shards()
    assert installed.fired == 4
    text = str(raised.value)
    for part in ("ListShards", f"{PROJECT}/{LOGSTORE}", server.endpoint, "503", "ServerBusy", "come back later"):
        assert part in text
    assert "after 4 attempts" in text
    assert "request id none" not in text


def test_a_refusal_is_not_tried_again(server: LogHubServer, put: Put) -> None:
    """A missing logstore is an error at once, and names the option."""
    put("a message")
    server.clear_requests()
    with LogstoreClient(target_in(server, "missing"), FAST) as client, pytest.raises(LogHubReadError) as raised:
        client.cursor("0", "begin")
    assert "status 404, LogStoreNotExist" in str(raised.value)
    assert "check the option logstore" in str(raised.value)
    assert len(server.requests) == 1


def test_a_missing_server_is_an_error_with_the_endpoint_and_advice() -> None:
    """A missing server is an error with the endpoint and advice."""
    project = ProjectConfig(PROJECT, endpoint="http://127.0.0.1:9", access_key_id="id", access_key_secret="secret")
    with LogstoreClient(Target(project, LOGSTORE), FAST) as client, pytest.raises(LogHubReadError) as raised:
        client.shards()
    assert "http://127.0.0.1:9: no answer" in str(raised.value)
    assert "check the option endpoint" in str(raised.value)


@dataclass
class Renewing:
    """A provider whose first key is invalid."""

    keys: list[Credentials]
    asked: list[int] = field(default_factory=list)

    def get_credentials(self) -> Credentials:
        self.asked.append(1)
        return self.keys[min(len(self.asked), len(self.keys)) - 1]


def test_refused_credentials_are_renewed(server: LogHubServer, put: Put) -> None:
    """After a 401 the provider is asked again, and the request is repeated."""
    put("a message")
    wrong = Credentials(access_key_id=server.access_key_id, access_key_secret="expired")
    right = Credentials(access_key_id=server.access_key_id, access_key_secret=server.access_key_secret)
    provider = Renewing([wrong, right])
    target = Target(ProjectConfig(PROJECT, endpoint=server.endpoint, credentials=provider), LOGSTORE)
    with LogstoreClient(target, FAST) as client:
        assert client.shards() == ["0", "1"]
    assert len(provider.asked) == 2


def test_wrong_credentials_are_an_error_without_the_secret(server: LogHubServer, put: Put) -> None:
    """Wrong credentials are an error without the secret."""
    put("a message")
    project = ProjectConfig(
        PROJECT, endpoint=server.endpoint, access_key_id=server.access_key_id, access_key_secret="my-wrong-secret"
    )
    with LogstoreClient(Target(project, LOGSTORE), FAST) as client, pytest.raises(LogHubReadError) as raised:
        client.shards()
    assert "status 401" in str(raised.value)
    assert "check the access key" in str(raised.value)
    assert "my-wrong-secret" not in str(raised.value)


def test_a_clock_that_is_wrong_is_learned(server: LogHubServer, put: Put) -> None:
    """A clock difference is learned from one refusal."""
    put("a message")
    server.clock_offset = 3600
    with LogstoreClient(target_in(server), FAST) as client:
        assert client.shards() == ["0", "1"]


def test_with_sign_version_v4_the_server_accepts_every_kind_of_request(server: LogHubServer, put: Put) -> None:
    """With ``sign_version`` v4 the server accepts every kind of request."""
    put("a message")
    with plan_of(server, sign_version="v4", region="cn-hangzhou").client() as client:
        begin = client.cursor("0", "begin")
        assert texts(client.pull_columns("0", begin, 10, client.cursor("0", "end")).groups) == ["a message"]
        assert client.cursor_time("0", begin) > 0


def test_each_log_group_has_its_own_cursor() -> None:
    """Each LogGroup has a cursor of its own, or its place after the answer's cursor."""
    assert cursors_of("MTI=", "MTU=", 3) == ["MTI=", "MTM=", "MTQ="]
    assert cursors_of("MTI=", "MTU=", 2) == ["MTI=#0", "MTI=#1"]
    assert cursors_of("opaque", "other", 1) == ["opaque#0"]
    assert (position_of("MTI="), position_of("opaque"), position_of("YWJj")) == (12, None, None)

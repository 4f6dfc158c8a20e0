import time
import tracemalloc
from unittest import mock

import pytest

from producer.server import Limits, LogHubServer
from producer.server.operations import pull_logs
from producer.server.operations.cursors import decode_cursor, encode_cursor
from producer.wire.schema import LogGroup

from ..client import LOGSTORE, Client, error_of, log_group

SHARD_0 = {"key": "00"}


def put_in_shard_0(client: Client, *raws: bytes) -> None:
    for raw in raws:
        assert client.put(raw, path="/shards/route", params=SHARD_0).status_code == 200


def texts(groups: list[LogGroup]) -> list[str]:
    return [content.Value.decode() for group in groups for log in group.Logs for content in log.Contents]


@pytest.mark.parametrize("encoding", ["lz4", "zstd", "deflate", "", "gzip, deflate, zstd", "zstd;q=1, lz4", "identity"])
def test_loggroups_come_lossless_in_the_first_supported_compression_of_accept_encoding(
    client: Client, encoding: str
) -> None:
    """LogGroups come lossless in the first supported compression of Accept-Encoding, else uncompressed."""
    raw = log_group("one", b"\xff\xfe", topic="web")
    put_in_shard_0(client, raw, log_group("two"))
    groups, answer = client.pull(0, client.cursor(0, "begin"), encoding=encoding)
    assert raw == groups[0].SerializeToString()
    assert [
        "2",
        encoding.split(";", maxsplit=1)[0] if encoding not in ("", "gzip, deflate, zstd", "identity") else None,
    ] == [
        answer.headers["x-log-count"],
        answer.headers.get("x-log-compresstype"),
    ]
    assert "Content-Encoding" not in answer.headers


def test_a_reader_walks_through_a_shard_to_its_end(client: Client) -> None:
    """x-log-cursor leads to the next LogGroup; at the end it stays, and new LogGroups appear after it."""
    put_in_shard_0(client, *(log_group(str(number)) for number in range(5)))
    cursor = client.cursor(0, "begin")
    seen: list[str] = []
    while True:
        groups, answer = client.pull(0, cursor, count="2")
        seen += texts(groups)
        if answer.headers["x-log-cursor"] == cursor:
            break
        cursor = answer.headers["x-log-cursor"]
    assert seen == ["0", "1", "2", "3", "4"]
    assert (answer.headers["x-log-count"], answer.headers["x-log-bodyrawsize"], answer.content) == ("0", "0", b"")
    assert cursor == client.cursor(0, "end")
    put_in_shard_0(client, log_group("late"))
    assert texts(client.pull(0, cursor)[0]) == ["late"]


def test_end_cursor_bounds_a_pull(client: Client) -> None:
    """A pull returns nothing at or after end_cursor, and the reader ends exactly there."""
    put_in_shard_0(client, *(log_group(str(number)) for number in range(3)))
    end = client.cursor(0, "end")
    put_in_shard_0(client, log_group("behind"))
    groups, answer = client.pull(0, client.cursor(0, "begin"), end_cursor=end)
    assert texts(groups) == ["0", "1", "2"]
    assert end == answer.headers["x-log-cursor"]


def test_a_cursor_by_time_points_at_the_first_loggroup_received_then_or_later_begin_before_all(client: Client) -> None:
    """A cursor by time points at the first LogGroup received then or later: begin before all, end after all."""
    now = int(time.time())
    for number in range(3):
        with mock.patch("producer.server.service.time.time", return_value=float(now + number * 10)):
            put_in_shard_0(client, log_group(str(number)))
    assert texts(client.pull(0, client.cursor(0, str(now + 5)))[0]) == ["1", "2"]
    assert texts(client.pull(0, client.cursor(0, str(now + 10)))[0]) == ["1", "2"]
    assert client.cursor(0, "begin") == client.cursor(0, str(now - 99))
    assert client.cursor(0, "end") == client.cursor(0, str(now + 99))
    answer = client.get(f"/logstores/{LOGSTORE}/shards/0", type="cursor_time", cursor=client.cursor(0, str(now + 5)))
    assert {"cursor_time": now + 10} == answer.json()


def test_an_answer_is_bounded_in_bytes_but_never_empty() -> None:
    """An answer stays within its limit of raw bytes; a single larger LogGroup is returned alone."""
    with LogHubServer(limits=Limits(pull_bytes=250)) as server, Client(server) as client:
        put_in_shard_0(client, *(log_group(str(number) * 70) for number in range(4)), log_group("x" * 900))
        cursor, counts = client.cursor(0, "begin"), []
        for _ in range(3):
            groups, answer = client.pull(0, cursor)
            counts.append(len(groups))
            cursor = answer.headers["x-log-cursor"]
        assert counts == [2, 2, 1]


@pytest.mark.parametrize(
    ("shard", "params", "expected"),
    [
        ("0", {"type": "log", "cursor": "!!"}, (400, "InvalidCursor")),
        ("0", {"type": "log"}, (400, "InvalidCursor")),
        ("0", {"type": "log", "cursor": "LTE="}, (400, "InvalidCursor")),
        ("0", {"type": "log", "cursor": "MA==", "count": "0"}, (400, "ParameterInvalid")),
        ("0", {"type": "log", "cursor": "MA==", "count": "1001"}, (400, "ParameterInvalid")),
        ("0", {"type": "log", "cursor": "MA==", "query": "x"}, (400, "ParameterInvalid")),
        ("0", {"type": "cursor", "from": "soon"}, (400, "ParameterInvalid")),
        ("0", {"type": "cursor"}, (400, "ParameterInvalid")),
        ("0", {"type": "other"}, (400, "ParameterInvalid")),
        ("0", {}, (400, "ParameterInvalid")),
        ("x", {"type": "log", "cursor": "MA=="}, (400, "ParameterInvalid")),
        ("2", {"type": "log", "cursor": "MA=="}, (404, "ShardNotExist")),
        ("2", {"type": "cursor", "from": "begin"}, (404, "ShardNotExist")),
    ],
)
def test_a_wrong_parameter_is_refused(
    client: Client, shard: str, params: dict[str, str], expected: tuple[int, str]
) -> None:
    """Invalid cursors, counts and shards are refused with their names."""
    put_in_shard_0(client, log_group("x"))
    assert expected == error_of(client.get(f"/logstores/{LOGSTORE}/shards/{shard}", **params))


def test_a_read_of_a_missing_logstore_is_refused_and_creates_nothing(client: Client) -> None:
    """A read of a missing logstore is refused and creates nothing."""
    answer = client.get("/logstores/none/shards/0", type="cursor", **{"from": "begin"})
    assert error_of(answer) == (404, "ProjectNotExist")
    put_in_shard_0(client, log_group("x"))
    answer = client.get("/logstores/none/shards/0", type="cursor", **{"from": "begin"})
    assert error_of(answer) == (404, "LogStoreNotExist")


@pytest.mark.parametrize("position", [0, 1, 12, 10**17])
def test_a_cursor_says_its_position(position: int) -> None:
    """Decoding an encoded cursor returns its position."""
    assert position == decode_cursor(encode_cursor(position))


def test_an_answer_is_joined_in_one_copy() -> None:
    """An answer counts once in the server's memory: no LogGroup is copied to get its head."""
    raws = [log_group("x" * (1 << 20)) for _ in range(10)]
    request = mock.Mock(headers={})
    tracemalloc.start()
    try:
        answer = pull_logs._list_answer(request, raws, {})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1.1 * len(answer.body)

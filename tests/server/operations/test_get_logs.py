import json

import pytest

from producer.wire.compression import decompress
from producer.wire.schema import LogGroup

from ..client import LOGSTORE, Client, error_of, log_group

T = 1_700_000_000


def search(client: Client, **params: str) -> list[str]:
    """Return the messages found by GET, and assert that POST finds the same."""
    wanted = {"from": str(T), "to": str(T + 1000), **params}
    answer = client.get(f"/logstores/{LOGSTORE}", type="log", **wanted)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-log-progress"] == "Complete"
    posted = client.post_json(f"/logstores/{LOGSTORE}/logs", json.dumps(wanted).encode())
    assert answer.json() == posted.json()["data"]
    assert len(answer.json()) == posted.json()["meta"]["count"] == int(answer.headers["x-log-count"])
    return [log["message"] for log in answer.json()]


def test_logs_of_from_to_come_sorted_by_time_over_all_shards_and_loggroups_reverse_inverts_the_order(
    client: Client,
) -> None:
    """Logs of [from, to) come sorted by time over all shards and LogGroups; reverse inverts the order."""
    client.put(log_group("c", time=T + 20))
    client.put(log_group("a", "b", time=T))
    client.put(log_group("early", time=T - 1))
    client.put(log_group("d", "late", time=T + 999))
    assert search(client) == ["a", "b", "c", "d"]
    assert search(client, reverse="true") == ["d", "c", "b", "a"]


def test_pages_follow_one_another(client: Client) -> None:
    """Pages by offset and line have no gap or overlap, across many LogGroups."""
    for number in range(0, 70, 2):
        client.put(log_group(str(number), str(number + 1), time=T + number))
    pages = [search(client, offset=str(offset), line="30") for offset in (0, 30, 60, 90)]
    assert [str(number) for number in range(70)] == [message for page in pages for message in page]


def test_equal_times_keep_the_order_of_arrival(client: Client) -> None:
    """Nanoseconds order the logs of one second; without them the order of arrival does."""
    group = LogGroup()
    for name, time_ns in [("third", 9), ("first", 1), ("second", 1)]:
        group.Logs.add(Time=T, Time_ns=time_ns).Contents.add(Key="message", Value=name.encode())
    client.put(group.SerializeToString())
    assert search(client) == ["first", "second", "third"]


def test_the_topic_narrows_a_search(client: Client) -> None:
    """A topic restricts the search to its LogGroups."""
    client.put(log_group("web", topic="web"))
    client.put(log_group("db", topic="db"))
    assert search(client, topic="db") == ["db"]
    assert {"web", "db"} == set(search(client))


def test_time_source_topic_and_tags_have_their_reserved_names_bytes_that_are_not_utf_8_are_replaced(
    client: Client,
) -> None:
    """Time, source, topic and tags have their reserved names; bytes that are not UTF-8 are replaced."""
    group = LogGroup(Topic="web", Source="10.1.1.1")
    group.Logs.add(Time=T, Time_ns=5).Contents.add(Key="message", Value=b"a\xffb")
    group.LogTags.add(Key="host", Value="h1")
    client.put(group.SerializeToString())
    answer = client.get(f"/logstores/{LOGSTORE}", type="log", **{"from": "0", "to": str(T + 1)})
    assert [
        {
            "__time__": str(T),
            "__time_ns_part__": "5",
            "__source__": "10.1.1.1",
            "__topic__": "web",
            "__tag__:host": "h1",
            "message": "a\ufffdb",
        }
    ] == answer.json()


@pytest.mark.parametrize("encoding", ["lz4", "zstd", "deflate"])
def test_the_post_form_compresses_its_answer(client: Client, encoding: str) -> None:
    """POST /logs answers in the compression of Accept-Encoding, with the raw size."""
    client.put(log_group("hello"))
    wanted = json.dumps({"from": 0, "to": T + 1, "line": 10, "offset": 0, "reverse": False}).encode()
    answer = client.post_json(f"/logstores/{LOGSTORE}/logs", wanted, {"Accept-Encoding": encoding})
    assert encoding == answer.headers["x-log-compresstype"]
    raw = decompress(answer.content, encoding, int(answer.headers["x-log-bodyrawsize"]))
    assert json.loads(raw)["data"][0]["message"] == "hello"


@pytest.mark.parametrize(
    "params",
    [
        {"to": "5"},
        {"from": "5"},
        {"from": "x", "to": "5"},
        {"from": "0", "to": "5", "line": "101"},
        {"from": "0", "to": "5", "offset": "-1"},
        {"from": "0", "to": "5", "query": "* | selct count(1)"},
        {"from": "0", "to": "5", "query": "(a"},
    ],
)
def test_a_search_that_makes_no_sense_is_refused(client: Client, params: dict[str, str]) -> None:
    """Missing times, numbers out of range and invalid queries are ParameterInvalid."""
    client.put(log_group("x"))
    assert error_of(client.get(f"/logstores/{LOGSTORE}", type="log", **params)) == (400, "ParameterInvalid")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        *((body, "PostBodyInvalid") for body in (b"", b"{", b"[]", b"[" * 60_000, b"\xff")),
        (b'{"from": 0, "to": 1, "query": 5}', "ParameterInvalid"),
    ],
)
def test_the_body_of_post_logs_must_be_a_json_object_and_its_query_text(client: Client, body: bytes, code: str) -> None:
    """The body of POST /logs must be a JSON object, and its query text."""
    assert error_of(client.post_json(f"/logstores/{LOGSTORE}/logs", body)) == (400, code)


def test_searching_a_missing_logstore_is_404(client: Client) -> None:
    """Searching a missing logstore is 404."""
    answer = client.get("/logstores/none", type="log", **{"from": "0", "to": "1"})
    assert error_of(answer) == (404, "ProjectNotExist")

"""A search is bounded in memory and delays no other client."""

import json
import random
import threading
import time

import pytest

from producer.server import Limits, LogHubServer
from producer.wire.schema import LogGroup
from tests.support.waiting import allowed

from ..client import LOGSTORE, Client, error_of, log_group
from ..process import MIB, ServerProcess

T = 1_700_000_000
SEARCH = f"/logstores/{LOGSTORE}/logs"


def test_a_query_of_10_mib_is_413_at_once_in_bounded_memory_and_delays_no_other_client() -> None:
    """A query of 10 MiB is 413 at once, in bounded memory, and delays no other client."""
    body = json.dumps({"from": 0, "to": 9, "query": "a or b " * (10 * MIB // 7)}).encode()
    with ServerProcess() as server, Client(server) as client, Client(server) as other:
        client.put(log_group("x"))
        before = server.peak()
        slow = threading.Thread(target=client.post_json, args=(SEARCH, body))
        slow.start()
        while slow.is_alive():
            started = time.monotonic()
            assert other.put(log_group("x")).status_code == 200
            assert time.monotonic() - started < allowed(2)
        assert error_of(client.post_json(SEARCH, body)) == (413, "PostBodyTooLarge")
        assert server.peak() - before < 64 * MIB


def test_a_page_behind_60_000_matching_logs_takes_no_memory_for_these() -> None:
    """A page after 60,000 matching logs takes no memory for these logs."""
    with ServerProcess() as server, Client(server) as client:
        for number in range(60):
            client.put(log_group(*["some text that matches, " * 15] * 1000, time=T + number * 1000))
        wanted = {"type": "log", "from": "0", "to": str(T * 2), "line": "1"}
        client.get(f"/logstores/{LOGSTORE}", **wanted, offset="0")
        before = server.peak()
        for offset, found in [("59999", 1), (str(10**15), 0)]:
            assert len(client.get(f"/logstores/{LOGSTORE}", **wanted, offset=offset, query="text").json()) == found
        assert server.peak() - before < 15 * MIB


def test_a_huge_log_is_searched_in_little_memory() -> None:
    """A log of 300,000 contents and a text of 5 MiB are searched without copies, and delay no other client."""
    contents = b"\x12\x06\x0a\x01k\x12\x01v" * 300_000
    many = b"\x0a" + _varint(len(contents) + 2) + b"\x08\x01" + contents
    with ServerProcess() as server, Client(server) as client, Client(server) as other:
        for raw in (many, log_group("one, two; " * (MIB // 2), time=1)):
            assert client.put(raw).status_code == 200
        before = server.peak()
        wanted = json.dumps({"from": 0, "to": 9, "line": 1, "query": "w1 or w2"}).encode()
        slow = threading.Thread(target=client.post_json, args=(SEARCH, wanted))
        slow.start()
        while slow.is_alive():
            started = time.monotonic()
            assert other.put(log_group("x")).status_code == 200
            assert time.monotonic() - started < allowed(2)
        assert server.peak() - before < 30 * MIB


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


#: Each takes from 2 seconds to hours with backtracking, or if character ranges are compiled.
SLOW_TO_READ = {
    "a range of commas": "in [" + "," * 8000,
    "a long way to 'as'": "* | parse-csv a" + " " * 8000 + "x",
    "ranges of characters": "* | parse-regexp a, '(?i)(" + "[\u0080-\U0010fff0]" * 700 + ")' as b",
    "a path of 900 steps": f"* | parse-json -path='${'.a' * 900}' message",
    "an index of 5,000 digits": f"* | parse-json -path='$[{'9' * 5000}]' a",
}


def test_no_query_takes_long_to_read() -> None:
    """Hostile queries of 8 KB are answered within 2 seconds."""
    with ServerProcess() as server, Client(server) as client:
        client.put(log_group('{"a":' * 900 + f'"{"x" * 1_000_000}"' + "}" * 900, time=5))
        for name, query in SLOW_TO_READ.items():
            started = time.monotonic()
            asked = {"from": 0, "to": 9, "query": query, "session": "mode=scan"}
            answer = client.post_json(SEARCH, json.dumps(asked, ensure_ascii=False).encode())
            assert answer.status_code in (200, 400), name
            assert time.monotonic() - started < allowed(2), name


def test_escaped_parentheses_and_those_in_a_class_open_no_group_an_unclosed_class_is_refused(client: Client) -> None:
    """Escaped parentheses and those in a class open no group; an unclosed class is refused."""
    client.put(log_group("(a]b"))
    wanted = {"from": T, "to": T + 9, "session": "mode=scan"}
    query = r"* | parse-regexp message, '([(\]])([]a]+)(?P<c>\]?b)' as x, y, z"
    answer = client.post_json(SEARCH, json.dumps({**wanted, "query": query}).encode())
    (log,) = answer.json()["data"]
    assert (log["x"], log["y"], log["z"]) == ("(", "a]", "b")
    refused = client.post_json(
        SEARCH, json.dumps({**wanted, "query": "* | parse-regexp message, '([a)' as x"}).encode()
    )
    assert error_of(refused) == (400, "ParameterInvalid")


@pytest.mark.parametrize("query", ["x" * 8193, " ".join(["x"] * 101), "(" + "x or " * 200 + "x)"])
def test_a_query_beyond_its_limits_is_refused_in_words(client: Client, query: str) -> None:
    """Too many characters or words are ParameterInvalid with both numbers, in both forms of a search."""
    client.put(log_group("x"))
    for answer in (
        client.get(f"/logstores/{LOGSTORE}", type="log", **{"from": "0", "to": "9", "query": query}),
        client.post_json(SEARCH, json.dumps({"from": 0, "to": 9, "query": query}).encode()),
    ):
        assert error_of(answer) == (400, "ParameterInvalid")
        assert "8192" in answer.text or "100" in answer.text


@pytest.mark.parametrize("reverse", ["false", "true"])
def test_a_deep_page_is_the_same_as_a_shallow_one(
    server: LogHubServer, client: Client, monkeypatch: pytest.MonkeyPatch, reverse: str
) -> None:
    """Deep pages, found by counting, are parts of the same order as shallow ones, whatever the times."""
    dice = random.Random(7)
    for _ in range(30):
        group = LogGroup()
        for _ in range(20):
            log = group.Logs.add(Time=dice.choice([0, 5, T, T + 1, T + 1, (1 << 32) - 1]))
            log.Time_ns = dice.choice([0, 0, 1, 999_999_999, (1 << 32) - 1])
            log.Contents.add(Key="id", Value=str(dice.random()).encode())
        client.put(group.SerializeToString())

    def page(offset: int) -> list[dict[str, str]]:
        wanted = {"from": "0", "to": str(1 << 33), "line": "7", "offset": str(offset), "reverse": reverse}
        return list(client.get(f"/logstores/{LOGSTORE}", type="log", **wanted).json())

    offsets = [0, 3, 100, 301, 592, 593, 599, 600, 10**6]
    shallow = [page(offset) for offset in offsets]
    assert [len(found) for found in shallow] == [7, 7, 7, 7, 7, 7, 1, 0, 0]
    monkeypatch.setattr("producer.server.operations.search._KEPT", 10)
    monkeypatch.setattr("producer.server.operations.search._BUCKETS", 5)
    assert [page(offset) for offset in offsets] == shallow


def test_logs_too_large_for_one_answer_are_refused_with_the_remedy_a_single_log_is_always_returned() -> None:
    """Logs too large for one answer are refused with the remedy; a single log is always returned."""
    with LogHubServer(limits=Limits(page_bytes=5000)) as server, Client(server) as client:
        client.put(log_group("x" * 3000, "y" * 3000, "z" * 9000))
        wanted = {"from": "0", "to": str(2 * T)}
        answer = client.get(f"/logstores/{LOGSTORE}", type="log", **wanted)
        assert error_of(answer) == (400, "ParameterInvalid")
        assert "line" in answer.text
        pages = [client.get(f"/logstores/{LOGSTORE}", type="log", **wanted, line="1", offset=str(n)) for n in range(3)]
        assert [len(page.json()) for page in pages] == [1, 1, 1]


def test_a_search_beyond_its_time_is_requesttimeout_with_the_remedy_and_frees_its_place() -> None:
    """A search beyond its time is RequestTimeout with the remedy, and frees its place."""
    with LogHubServer(limits=Limits(search_seconds=0.05, searches=1)) as server, Client(server) as client:
        for _ in range(30):
            client.put(log_group(*["some words to look at"] * 1000))
        wanted = {"from": "0", "to": str(2 * T), "query": " ".join(f"not w{n}" for n in range(40))}
        answer = client.get(f"/logstores/{LOGSTORE}", type="log", **wanted)
        assert error_of(answer) == (500, "RequestTimeout")
        assert "PullLogs" in answer.text
        # The thread of the first search finishes its current LogGroups.
        deadline = time.monotonic() + 10
        while client.get(f"/logstores/{LOGSTORE}", type="log", **{"from": "0", "to": "1"}).status_code != 200:
            assert time.monotonic() < deadline


def test_searches_wait_in_turn_and_writes_do_not_wait_for_them() -> None:
    """With one concurrent search and one in the queue, a third is 503 ServerBusy, and a write does not wait."""
    limits = Limits(searches=1, searches_waiting=1)
    wanted = {"from": "0", "to": str(2 * T)}
    with LogHubServer(limits=limits) as server, Client(server) as client:
        client.put(log_group("x"))
        busy, go_on = threading.Event(), threading.Event()
        server._service.searchers.submit(lambda: (busy.set(), go_on.wait(60)))
        busy.wait(60)
        statuses: list[int] = []

        def search() -> None:
            with Client(server) as other:
                statuses.append(other.get(f"/logstores/{LOGSTORE}", type="log", **wanted).status_code)

        searching = [threading.Thread(target=search) for _ in range(3)]
        for thread in searching:
            thread.start()
        deadline = time.monotonic() + 10
        while not statuses:
            assert time.monotonic() < deadline
            assert client.put(log_group("x")).status_code == 200
        go_on.set()
        for thread in searching:
            thread.join()
        assert statuses == [503, 200, 200]

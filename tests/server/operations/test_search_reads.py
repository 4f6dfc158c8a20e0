"""The LogGroups that a search decodes, and those that it skips."""

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from producer.server import LogHubServer
from producer.server.limits import Limits
from producer.server.operations.query import compile_query
from producer.server.store import reading
from producer.server.store.log_groups import StoredLogGroup

from ..client import LOGSTORE, PROJECT, Client, log_group

T = 1_700_000_040
GROUPS = 30
LOGS = 100


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the positions of decoded LogGroups; a step of a search returns one of them."""
    seen: list[int] = []
    scan = StoredLogGroup.scan

    def note(self: StoredLogGroup) -> Iterator[Any]:
        seen.append(self.position)
        return scan(self)

    monkeypatch.setattr(StoredLogGroup, "scan", note)
    monkeypatch.setattr(reading, "_BYTES_PER_STEP", 1)
    return seen


@pytest.fixture
def client(server: LogHubServer, client: Client) -> Client:
    """Return a client of 30 LogGroups of 100 logs, one log a second, in order."""
    for number in range(GROUPS):
        raw = log_group(*[f"log{number * LOGS + index}" for index in range(LOGS)], time=T + number * LOGS)
        client.put(raw, path="/shards/route", params={"key": "00"})
    return client


def ask(server: LogHubServer, operation: str, **params: object) -> Any:
    given = {"project": PROJECT, "logstore": LOGSTORE, "from": "0", "to": str(T + 10_000), **params}
    answer = requests.get(f"{server.endpoint}/console/api/{operation}", params=given, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.usefixtures("client")
def test_a_page_of_the_newest_logs_reads_from_the_end_only_as_far_as_needed(
    server: LogHubServer, decoded: list[int]
) -> None:
    """A page of the newest logs reads from the end only as far as needed; the oldest likewise from the start."""
    newest = ask(server, "search", line="5", reverse="true")["logs"]
    assert [log["fields"]["message"] for log in newest] == [f"log{GROUPS * LOGS - 1 - index}" for index in range(5)]
    assert max(decoded) == GROUPS - 1
    assert min(decoded) >= GROUPS - 4
    decoded.clear()
    oldest = ask(server, "search", line="5")["logs"]
    assert [log["fields"]["message"] for log in oldest] == [f"log{index}" for index in range(5)]
    assert max(decoded) <= 3


@pytest.mark.usefixtures("decoded")
def test_the_newest_logs_are_found_in_any_order_of_arrival_and_in_loggroups_with_old_and_new_logs(
    server: LogHubServer, client: Client
) -> None:
    """The newest logs are found in any order of arrival, and in LogGroups with old and new logs."""
    client.put(log_group("late", time=T + 5000), path="/shards/route", params={"key": "00"})
    client.put(log_group(*["x"] * 3, time=T - 10), path="/shards/route", params={"key": "00"})
    for number in range(3):
        client.put(log_group(*[f"last{number}"] * 200, time=T + 2000), path="/shards/route", params={"key": "00"})
    logs = ask(server, "search", line="3", reverse="true")["logs"]
    assert [log["fields"]["message"] for log in logs] == ["late", "log2999", "log2998"]


@pytest.mark.usefixtures("client")
def test_a_histogram_of_everything_counts_whole_log_groups(server: LogHubServer, decoded: list[int]) -> None:
    """If all logs match, only LogGroups across an edge of a part are decoded, and the counts are the same."""
    found = ask(server, "histogram", **{"from": str(T), "to": str(T + 3000)})
    assert {part["count"] for part in found["parts"]} == {60}
    assert found["total"] == 3000
    decoded.clear()
    coarse = ask(server, "histogram", **{"from": str(T + 50), "to": str(T + 300_000)})
    assert coarse["total"] == 2950
    assert set(decoded) == {0}
    assert ask(server, "histogram", **{"from": str(T + 50), "to": str(T + 300_000)}, query="log*")["total"] == 2950


@pytest.mark.usefixtures("client", "decoded")
def test_a_histogram_is_counted_in_parts(server: LogHubServer) -> None:
    """Each part of a histogram says where to continue; together they count each log once."""
    for query in ("", "log*", "log7"):
        total, answers, before = 0, 0, None
        while before is not None or not answers:
            found = ask(server, "histogram", query=query, seconds="0", **({} if before is None else {"before": before}))
            total, answers, before = total + found["total"], answers + 1, found["before"]
        assert answers >= (GROUPS if query else 1)
        assert total == {"log7": 1}.get(query, GROUPS * LOGS)


@pytest.mark.usefixtures("client")
def test_a_log_group_without_the_words_is_not_decoded(server: LogHubServer, decoded: list[int]) -> None:
    """A LogGroup without the words is skipped by its bytes; a query with "not" reads all."""
    assert ask(server, "search", query="message: LOG1234", reverse="true")["logs"][0]["index"] == 34
    assert decoded == [12]
    decoded.clear()
    ask(server, "histogram", query="log1234 or log77")
    assert set(decoded) == {12, 0, 7}
    decoded.clear()
    ask(server, "histogram", query="not log1234")
    assert set(decoded) == set(range(GROUPS))


_WORDS = [
    "fail",
    "Fail",
    "k",
    "i",
    '"one two"',
    "not fail",
    "(a or fail)",
    "a:fail",
    "n > 3",
    "fa*",
    "é",
    "__topic__: k",
    "404",
    "K-404x",
    '"req-1 i"',
    "--",
]
_TEXTS = ["fail", "FAIL over", "K", "\u212a", "\u0130", "one, two", "a", "4", "é", "fast", "404", "k-404X"]
_TEXTS += ["\u212a-404x", "K-4", "REQ-1", "req-1, I", "req-1 \u0130", "req-12", "--", "-"]


@given(st.lists(st.sampled_from(_WORDS), min_size=1, max_size=4), st.lists(st.sampled_from(_TEXTS), max_size=3))
def test_a_loggroup_with_a_match_is_never_skipped_also_for_letters_whose_lower_case_is_ascii(
    words: list[str], texts: list[str]
) -> None:
    """A LogGroup with a match is never skipped, also for letters whose lower case is ASCII."""
    query = compile_query(" ".join(words), Limits())
    raw = log_group(*texts, topic="k") if texts else log_group("none")
    logs = [[("__topic__", "k"), ("message", text)] for text in texts]
    if any(query(log) for log in logs):
        assert query.may_match(raw)


def test_every_letter_that_becomes_ascii_is_known() -> None:
    """Only two letters beyond ASCII have a lower case that is or begins with an ASCII letter."""
    folded = {chr(code) for code in range(128, 0x110000) if any(sign.isascii() for sign in chr(code).lower())}
    assert folded == {"\u0130", "\u212a"}
    assert {sign for letter in folded for sign in letter.lower() if sign.isascii()} == {"i", "k"}
    assert compile_query("k", Limits()).may_match(log_group("\u212a"))


def test_the_commonest_values_are_those_of_the_last_logs(server: LogHubServer, client: Client) -> None:
    """The commonest values are those of the last logs."""
    for number in range(3):
        client.put(log_group(*[f"word{number}"] * 6000))
    (field,) = [one for one in ask(server, "fields")["fields"] if one["name"] == "message"]
    assert field["top"][0] == ["word2", 6000]
    assert "word0" not in dict(field["top"])

"""GetLogs in scan mode: SPL over the logs that match the keywords."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from producer.server import Limits, LogHubServer
from producer.server.operations import scan
from producer.wire.schema import LogGroup

from ..client import LOGSTORE, Client, error_of

T = 1_700_000_000
COUNT = 60


def fill(client: Client) -> None:
    """Write sixty logs in LogGroups of seven; every third one is an error, half of the errors are of web."""
    for begin in range(0, COUNT, 7):
        group = LogGroup(Topic="app", Source="10.0.0.1")
        for number in range(begin, min(COUNT, begin + 7)):
            log = group.Logs.add(Time=T + number)
            for key, value in {
                "n": str(number),
                "level": "ERROR" if number % 3 == 0 else "INFO",
                "host": "web" if number % 2 else "db",
            }.items():
                log.Contents.add(Key=key, Value=value.encode())
        client.put(bytes(group.SerializeToString()))


@pytest.fixture(scope="module")
def logs() -> Iterator[Client]:
    """Yield a client of a server with these logs."""
    with LogHubServer() as server, Client(server) as client:
        fill(client)
        yield client


def ask(client: Client, query: str, **params: Any) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """Return the result of GetLogs in scan mode by POST, and assert that GET returns the same."""
    wanted = {"from": str(T), "to": str(T + 1000), "query": query, "session": "mode=scan", **params}
    posted = client.post_json(f"/logstores/{LOGSTORE}/logs", json.dumps(wanted).encode())
    assert posted.status_code == 200, posted.text
    meta = posted.json()["meta"]
    listed = client.get(f"/logstores/{LOGSTORE}", type="log", **{name: str(value) for name, value in wanted.items()})
    assert listed.json() == posted.json()["data"]
    info = json.loads(listed.headers["x-log-query-info"])
    assert (info["mode"], info["scanBytes"]) == (meta["mode"], meta["scanBytes"]) == (2, meta["scanBytes"])
    assert info["phraseQueryInfo"] == {name: json.dumps(value) for name, value in meta["phraseQueryInfo"].items()}
    return posted.json()["data"], meta


def numbers(found: list[dict[str, str]]) -> list[int]:
    return [int(log["n"]) for log in found]


def walk(client: Client, query: str, *, forward: bool, offset: int = 0, **params: Any) -> list[list[int]]:
    """Return the pages, requested as the SDKs do until the end."""
    pages = []
    while True:
        found, meta = ask(client, query, offset=offset, forward=forward, **params)
        pages.append(numbers(found))
        info = meta["phraseQueryInfo"]
        if info["scanAll"]:
            return pages
        offset = info["endOffset"] if forward else info["beginOffset"]


def test_spl_filters_the_matching_logs_and_may_change_fields_the_answer_has_the_number_scanned(logs: Client) -> None:
    """SPL filters the matching logs and may change fields; the answer has the number scanned; reverse inverts the
    order.
    """
    found, meta = ask(logs, "level: ERROR | where host = 'web' | extend twice = cast(n as bigint) * 2")
    assert numbers(found) == list(range(3, COUNT, 6))
    assert (found[0]["twice"], found[0]["__time__"], found[0]["__topic__"]) == ("6", str(T + 3), "app")
    assert meta["phraseQueryInfo"] == {"scanAll": True, "beginOffset": 0, "endOffset": COUNT // 3}
    assert (meta["count"], meta["processedRows"], meta["hasSQL"]) == (10, 20, False)
    backward, _ = ask(logs, "level: ERROR | where host = 'web'", reverse=True)
    assert numbers(backward) == list(range(57, 0, -6))


@pytest.mark.parametrize("look", [3, 1000])
@pytest.mark.parametrize("line", [1, 4, 100])
def test_pages_follow_one_another_forward_and_back(
    logs: Client, monkeypatch: pytest.MonkeyPatch, line: int, look: int
) -> None:
    """Each kept log is returned once and in order, whatever the page size, forward and back."""
    monkeypatch.setattr(scan, "_FIRST_LOGS", look)
    expected = list(range(3, COUNT, 6))
    pages = walk(logs, "level: ERROR | where host = 'web'", forward=True, line=line)
    assert [number for page in pages for number in page] == expected
    assert all(len(page) <= line for page in pages)
    pages = walk(logs, "level: ERROR | where host = 'web'", forward=False, line=line, offset=COUNT // 3)
    assert [number for page in pages[::-1] for number in page] == expected


def test_a_page_is_bounded_in_bytes() -> None:
    """Large logs are scanned in bounded pages, forward and back, and none is skipped."""
    with LogHubServer(limits=Limits(pull_bytes=500)) as server, Client(server) as client:
        fill(client)
        for forward, offset in ((True, 0), (False, COUNT)):
            pages = walk(client, "* | where host = 'db'", forward=forward, offset=offset)
            assert len(pages) > 2
            assert sorted(number for page in pages for number in page) == list(range(0, COUNT, 2))


def test_shared_tags_count_for_every_log_megabytes_of_them_with_thousands_of_logs_would_be_gigabytes() -> None:
    """Shared tags count for every log: megabytes of them with thousands of logs would be gigabytes."""
    group, most = LogGroup(), 50_000
    group.LogTags.add(Key="large", Value="t" * 10_000)
    for number in range(20):
        group.Logs.add(Time=T).Contents.add(Key="n", Value=str(number).encode())
    with LogHubServer(limits=Limits(pull_bytes=most)) as server, Client(server) as client:
        client.put(bytes(group.SerializeToString()))
        assert 10_000 < ask(client, "* | where n <> ''")[1]["scanBytes"] <= most + 11_000
        pages = walk(client, "* | where n <> ''", forward=True)
        assert [number for page in pages for number in page] == list(range(20))
        pages = walk(client, "* | where n <> ''", forward=False, offset=20)
        assert [number for page in pages[::-1] for number in page] == list(range(20))


def test_a_page_without_any_log_ends_only_at_the_end(logs: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer without logs is given at the end only: the Python SDK stops at the first one."""
    monkeypatch.setattr(scan, "_FIRST_LOGS", 2)
    found, meta = ask(logs, "* | where n = '59'")
    assert (numbers(found), meta["phraseQueryInfo"]["endOffset"]) == ([59], COUNT)
    found, meta = ask(logs, "* | where n = 'none'")
    assert (found, meta["phraseQueryInfo"]["scanAll"]) == ([], True)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("project n", {"n": "1"}),
        ("project number = n | where number = '1'", {"number": "1"}),
        ('project "__tag__:pod", n', {"n": "1", "__tag__:pod": "p-1"}),
        ("project __topic__, where_from = __source__", {"__topic__": "app", "where_from": "10.0.0.1"}),
        ("project n, __topic__ | project n | extend host = 'web'", {"n": "1", "host": "web"}),
        ('project n | project __topic__, "__tag__:zone"', {}),
        ("parse-kv kv, '&', '=' | project a", {"a": "b"}),
    ],
)
def test_project_keeps_the_time_and_the_named_fields_topic_source_and_tags_are_fields_like_others(
    query: str, expected: dict[str, str]
) -> None:
    """project keeps the time and the named fields; topic, source and tags are fields like others."""
    with LogHubServer() as server, Client(server) as client:
        group = LogGroup(Topic="app", Source="10.0.0.1")
        for key, value in (("pod", "p-1"), ("zone", "z"), ("__pack_id__", "1-2")):
            group.LogTags.add(Key=key, Value=value)
        log = group.Logs.add(Time=T, Time_ns=5)
        for key, text in {"n": "1", "kv": "a=b"}.items():
            log.Contents.add(Key=key, Value=text.encode())
        client.put(bytes(group.SerializeToString()))
        assert ask(client, f"* | {query}")[0] == [{"__time__": str(T), "__time_ns_part__": "5", **expected}]


def test_without_scan_mode_spl_is_refused_with_the_remedy_sql_works_in_both_modes(logs: Client) -> None:
    """Without scan mode SPL is refused with the remedy, SQL works in both modes, and invalid SPL is an error."""
    wanted = {"from": str(T), "to": str(T + 1000)}
    refused = logs.get(f"/logstores/{LOGSTORE}", type="log", query="* | where n = '1'", **wanted)
    assert error_of(refused) == (400, "ParameterInvalid")
    assert "session 'mode=scan'" in refused.json()["errorMessage"]
    scanning = {**wanted, "session": "mode=scan"}
    for select in ("select count(*) as n", "SELECT\ncount(*) as n", "/* all */ select count(*) as n"):
        rows = logs.get(f"/logstores/{LOGSTORE}", type="log", query=f"* | {select}", **scanning)
        assert rows.json() == [{"n": str(COUNT)}]
    wrong = logs.get(f"/logstores/{LOGSTORE}", type="log", query="* | stats count(*)", **scanning)
    assert error_of(wrong) == (400, "ParameterInvalid")
    assert "'stats' is not an operator" in wrong.json()["errorMessage"]

"""``producer tail`` and ``pull`` print the newest logs, new ones, and all of them, also while shards change."""

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from producer import Producer, ProjectConfig
from producer.cli import tail
from producer.cli.loghub import LogHub
from producer.cli.profiles import Settings
from producer.cli.tail import _fits, _Following, _pattern
from producer.reading.logstore import Page
from producer.server import LogHubServer
from producer.server.faults import answer
from producer.wire.read_log_group import Fields
from tests.runaway import ENDLESS, RUNAWAY

from ..server.client import Client
from .test_logs import Run, filled, hub, run, server

__all__ = ["filled", "hub", "run", "server"]  # fixtures


def send(server: LogHubServer, *numbers: int) -> None:
    with Producer(ProjectConfig("cli", **server.connection)) as producer:
        stream = producer.stream("cli", os.environ["LOGHUB_LOGSTORE"])
        stream.send_many([{"n": str(number), "half": str(number % 2)} for number in numbers])


def found(printed: tuple[int, str, str]) -> list[int]:
    return [int(json.loads(line)["n"]) for line in printed[1].splitlines()]


def test_tail_finds_more_than_a_page_of_the_newest_logs_that_match(run: Run, server: LogHubServer) -> None:
    """`tail` finds more than a page of the newest logs that match."""
    send(server, *range(250))
    assert found(run("tail", "-n", "240")) == list(range(10, 250))
    assert found(run("tail", "-n", "120", "--grep", "^1$")) == list(range(11, 250, 2))
    assert found(run("tail", "-n", "5", "--limit", "2")) == [245, 246]


def test_pull_prints_a_table_that_has_a_head(run: Run, filled: LogHubServer) -> None:
    """`pull` prints a table at the end, and every other format at once."""
    table = run("pull", "-o", "table")[1].splitlines()
    assert (table[0].split()[0], len(table)) == ("__time__", 4)


def test_tail_f_takes_cursors_before_it_searches_for_the_newest_logs_so_that_none_is_missed(
    run: Run, filled: LogHubServer
) -> None:
    """`tail -f` takes cursors before it searches for the newest logs, so that none is missed."""
    filled.clear_requests()
    assert run("tail", "-f", "-n", "3", "--limit", "3")[0] == 0
    asked = [request.operation for request in filled.requests]
    assert asked.index("GetLogs") > max(place for place, one in enumerate(asked) if one == "GetCursor")


def test_tail_f_waits_for_the_first_write_of_a_logstore_that_does_not_exist_and_prints_its_logs_once(
    run: Run, server: LogHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tail -f` waits for the first write of a logstore that does not exist, and prints its logs once."""
    with monkeypatch.context() as before:  # the project exists, whichever test runs first
        before.setenv("LOGHUB_LOGSTORE", "earlier")
        send(server, 0)
    monkeypatch.setattr(tail, "time", _Time(lambda _: send(server, 1, 2)))
    code, out, err = run("tail", "-f", "--limit", "2")
    assert (code, found((code, out, err))) == (0, [1, 2])
    assert err.endswith("does not exist in project cli: the first write creates it; waiting for its first write\n")
    monkeypatch.setenv("LOGHUB_LOGSTORE", "another")
    assert run("tail")[0] == 1
    server.faults.add(answer(404, "LogStoreNotExist", "deleted"), operation="ListShards")
    assert run("tail", "-f")[0] == 1


def settings(server: LogHubServer) -> Settings:
    return Settings(project="cli", logstore=os.environ["LOGHUB_LOGSTORE"], **server.connection)


def test_tail_f_reads_a_shard_that_a_split_creates_from_its_beginning(
    server: LogHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tail -f` reads a shard that a split creates from its beginning."""
    monkeypatch.setattr(tail, "_POLLS_PER_SHARD_LIST", 2)
    send(server, 0)
    with LogHub(settings(server), 60) as loghub, Client(server, "cli") as client:
        following = _Following(loghub)
        for shard in ("0", "1"):
            path = f"/logstores/{os.environ['LOGHUB_LOGSTORE']}/shards/{shard}"
            half = {"0": "40", "1": "c0"}[shard] + "0" * 30
            assert client.request("POST", path, params={"action": "split", "key": half}).status_code == 200
        send(server, 1, 2)
        logs = [log["n"] for _ in range(2) for log in following.poll()]
    assert sorted(logs) == ["1", "2"]


class _Shards:
    """Two shards with one log for each poll; the second may fail."""

    def __init__(self) -> None:
        self.reader = self
        self.logs = {"0": ["5", "9"], "1": ["1", "7"]}
        self.fails = False

    def shards(self) -> list[str]:
        return list(self.logs)

    def cursor(self, _shard: str, _start: str) -> str:
        return "0"

    def pull(self, shard: str, cursor: str) -> Page[list[Fields]]:
        if self.fails and shard == "1":
            raise ConnectionError
        logs = self.logs[shard][int(cursor) : int(cursor) + 1]
        return Page([{"__time__": time} for time in logs], str(int(cursor) + len(logs)), at_end=not logs)


def test_a_poll_returns_logs_in_order_of_time_and_pulls_again_what_it_got_before_another_shard_failed() -> None:
    """A poll returns logs in order of time, and pulls again what it got before another shard failed."""
    shards: Any = _Shards()
    following = _Following(shards)
    shards.fails = True
    with pytest.raises(ConnectionError):
        following.poll()
    shards.fails = False
    assert [[log["__time__"] for log in following.poll()] for _ in range(3)] == [["1", "5"], ["7", "9"], []]


def test_each_outage_is_reported_once(
    run: Run, filled: LogHubServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each outage is reported once."""
    waits: list[float] = []
    outages = iter(["first", "", "second"])

    def waited(seconds: float) -> None:
        waits.append(seconds)
        text = next(outages, None)
        if text is None:
            send(filled, 7)
        filled.faults.clear()
        if text:
            filled.faults.add(answer(500, "InternalServerError", text), operation="PullLogs", times=3)

    monkeypatch.setattr(tail, "time", _Time(waited))
    code, out, err = run("tail", "-f", "-n", "0", "--limit", "1", "--interval", "0.25")
    assert (code, found((code, out, err))) == (0, [7])
    assert [err.count(f"InternalServerError: {text}") for text in ("first", "second")] == [1, 1]
    assert set(waits) == {0.25}


def test_tail_f_pauses_only_after_a_poll_without_logs(
    run: Run, filled: LogHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tail -f` pauses only after a poll without logs."""
    pages = iter([[{"__time__": "1", "n": "1"}], [{"__time__": "2", "n": "2"}]])

    def polled(following: _Following) -> list[dict[str, str]]:
        following.at_end = False
        return next(pages)

    monkeypatch.setattr(tail, "time", _Time(lambda _: pytest.fail("it waited")))
    monkeypatch.setattr(tail, "_polled", polled)
    assert found(run("tail", "-f", "-n", "0", "--limit", "2")) == [1, 2]


class _Time:
    """The module ``time`` with another ``sleep``."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        import time

        self.time, self.sleep = time.time, sleep


def test_a_log_at_which_grep_runs_away_is_shown(quick_limit: None, caplog: pytest.LogCaptureFixture) -> None:
    """A log for which the pattern exceeds its time limit is printed and reported."""
    wanted = _pattern(RUNAWAY)
    assert [_fits({"a": text}, wanted) for text in ("aa", "b", ENDLESS)] == [True, False, True]
    assert caplog.messages[0].startswith("--grep: a search with")

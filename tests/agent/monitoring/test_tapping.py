"""``/tap``: the events that pass a component of a running agent."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from producer.agent.monitoring import MonitoringServer
from tests.support.waiting import eventually

from ..monitored import Monitored
from ..parts import plug_in

INTERCEPTORS = """
[[sources.r1.interceptors]]
type = "static"
key = "password"
value = "hunter two"
[[sources.r1.interceptors]]
type = "static"
name = "second"
key = "place"
value = "${env:PLACE}"
"""


class Watched(Monitored):
    """An agent whose monitoring may show events."""

    @contextmanager
    def tap(self, query: str, port: int | None = None) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", port or self.server.port, timeout=30)
        try:
            connection.request("GET", f"/tap?{query}")
            with connection.getresponse() as answer:
                yield answer
        finally:
            connection.close()

    def viewers(self, key: str) -> int:
        return len(self.agent.health_of(key).tap.viewers)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setenv("PLACE", "a-hidden-place")
    hubs = plug_in(monkeypatch, "a")
    with Watched(tmp_path, hubs, options="tap = true", interceptors=INTERCEPTORS) as watched:
        yield watched


def first_event(answer: http.client.HTTPResponse) -> Mapping[str, Any]:
    return next(line for line in map(json.loads, iter(answer.readline, b"")) if "body" in line)


def test_events_of_a_source_and_of_a_sink_are_shown_without_secrets(watched: Watched) -> None:
    """A client sees the events of a source after its interceptors, or of a sink, with secrets hidden; once it has left,
    the component has no viewer.
    """
    for name, key in (("r1", "sources.r1"), ("sinks.k1", "sinks.k1")):
        with watched.tap(f"name={name}") as answer:
            assert answer.status == 200
            eventually(lambda key=key: watched.viewers(key) == 1)
            watched.hub.lines.put(b"token=abcdef and Authorization: Bearer xyz123 at a-hidden-place \xff\n")
            assert first_event(answer) == {
                "headers": {"password": "***", "place": "${env:PLACE}"},
                "body": "token=*** and Authorization: Bearer *** at ${env:PLACE} \\xff",
                "size": 65,
            }
        eventually(lambda key=key: watched.viewers(key) == 0)


def test_a_sink_that_fails_is_seen_as_well(watched: Watched) -> None:
    """The events of a delivery are shown though the sink fails; each second a line has the number of events."""
    watched.hub.failing = True
    watched.hub.lines.put(b"stuck\n")
    with watched.tap("name=k1&rate=1") as answer:
        assert first_event(answer)["body"] == "stuck"
        eventually(lambda: json.loads(answer.readline()).get("passed", 0) > 0)


def test_a_tap_ends_when_the_configuration_no_longer_allows_it(watched: Watched) -> None:
    """Without ``tap = true`` events are refused, and a reload that removes it ends the answer."""
    with watched.tap("name=r1") as answer:
        assert "passed" in json.loads(answer.readline())
        watched.agent.reload(watched.config(options=""))
        assert answer.read().count(b"\n") <= 2
    with watched.tap("name=r1") as answer:
        assert (answer.status, answer.read()) == (403, b"Events are not shown: set tap = true under [agent].\n")


def test_events_are_shown_on_loopback_only(watched: Watched) -> None:
    """A server that other machines reach refuses to show events."""
    server = MonitoringServer(watched.agent, "0.0.0.0", 0)  # the case
    try:
        with watched.tap("name=r1", server.port) as answer:
            assert (answer.status, answer.read()[:30]) == (403, b"Events are shown only where th")
    finally:
        server.close()


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("name=r2", "name must be that of a source or a sink: r1, k1, sources.r1, sinks.k1, got 'r2'"),
        ("", "sinks.k1, got ''"),
        ("name=r1&rate=0", "rate must be from 1 to 100 events a second, got '0'"),
        ("name=r1&rate=1e9", "rate must be from 1 to 100 events a second, got '1e9'"),
    ],
)
def test_a_wrong_request_is_answered_with_what_is_possible(watched: Watched, query: str, told: str) -> None:
    """An unknown name or a rate out of range is answered with 400 and the possible values."""
    with watched.tap(query) as answer:
        assert answer.status == 400
        assert told in answer.read().decode()


def test_the_number_of_taps_is_limited(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit of taps a further one is refused; the others continue."""
    monkeypatch.setattr("producer.agent.monitoring.server._MOST_TAPS", 1)
    with watched.tap("name=r1") as first:
        eventually(lambda: watched.viewers("sources.r1") == 1)
        with watched.tap("name=k1") as second:
            assert (second.status, second.read()) == (503, b"The limit of 1 tap is reached.\n")
        assert "passed" in json.loads(first.readline())

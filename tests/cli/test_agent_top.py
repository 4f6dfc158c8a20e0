"""``producer agent top``: the figures of a running agent in a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from producer.agent.monitoring.figures import figures
from producer.cli import agent_top, main
from producer.server import LogHubServer
from tests.support.waiting import eventually

from ..agent.monitored import Monitored
from ..agent.parts import plug_in


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Monitored]:
    monkeypatch.setattr(agent_top, "INTERVAL", 0.01)
    with Monitored(tmp_path, plug_in(monkeypatch, "a")) as running:
        yield running


def row(text: str, name: str) -> list[str]:
    """Return the cells of a component's line."""
    (line,) = re.findall(rf"^{name} .*$", text, re.MULTILINE)
    return re.split(r"  +", line)


def test_once_prints_rates_lag_retries_and_dead_letters(
    running: Monitored, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """``--once`` prints each component with its totals: lag, retries, dead letters and the last error, escaped."""
    running.hub.failing = True
    running.hub.lines.put(b"one\ntwo\n")
    sink = running.agent.health_of("sinks.k1").counters
    eventually(lambda: sink.get("EventWriteFail"))
    running.hub.refusing, running.hub.failing = True, False
    eventually(lambda: sink.get("EventRefusedCount") == 2)
    sink.last_error = "\x1b[31mred"
    named = tmp_path / "agent.toml"
    named.write_text(f'[agent]\nmonitoring = "{running.address}"\n')
    assert main(["agent", "top", "--config", str(named), "--once"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"agent web at {running.address}: ready, up ")
    assert row(text, "r1")[:6] == ["r1", "feed", "running", "0", "2", "2 s, 0 events"]
    assert row(text, "dead")[:4] == ["dead", "memory", "open", "2"]
    retries = sink.get("EventWriteFail")
    assert row(text, "k1") == ["k1", "keep", "running", "0", "0", str(retries), "2", "0", "\\x1b[31mred"]


def test_rates_are_those_between_two_refreshes(running: Monitored) -> None:
    """A rate is the difference of two refreshes by their seconds, and never negative after a restart."""
    now = figures(running.agent)
    then = {**now, "time": now["time"] - 2, "sources": [{**now["sources"][0]}]}
    now["sources"][0]["counters"] = {**now["sources"][0]["counters"], "EventAcceptedCount": 5000}
    assert row("\n".join(agent_top.lines_of(then, now, "here")), "r1")[3:5] == ["2 500", "5 000"]
    assert row("\n".join(agent_top.lines_of({**now, "time": then["time"]}, then, "here")), "r1")[3] == "0"


def test_an_agent_that_restarts_is_waited_for(running: Monitored, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the agent does not answer, the screen says so; Ctrl-C ends the command with 0."""
    drawn: list[Sequence[str]] = []

    def draw(lines: Sequence[str]) -> None:
        drawn.append(lines)
        if len(drawn) == 1:
            running.server.close()
        elif len(drawn) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(agent_top, "_draw", draw)
    assert main(["agent", "top", "--monitoring", running.address]) == 0
    assert drawn[0][0].startswith("agent web at ")
    assert drawn[1] == drawn[2] == [f"no agent answers at {running.address}: Connection refused"]


def test_an_address_without_an_agent_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Where no agent answers, another server does, or the address is invalid, the message says so."""
    with LogHubServer() as server:
        address = server.endpoint.removeprefix("http://")
        assert main(["agent", "top", "--monitoring", address, "--once"]) == 1
        assert address in capsys.readouterr().err
    assert main(["agent", "top", "--monitoring", address, "--once"]) == 1
    assert f"no agent answers at {address}: Connection refused" in capsys.readouterr().err
    assert main(["agent", "top", "--monitoring", "here"]) == 2
    assert "--monitoring must be host:port" in capsys.readouterr().err
    (tmp_path / "agent.toml").write_text("[agent]\n")
    assert main(["agent", "top", "--config", str(tmp_path / "agent.toml")]) == 2
    assert "has no monitoring" in capsys.readouterr().err

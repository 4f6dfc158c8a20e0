from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from producer.agent import Agent
from producer.agent.config import parse_flume, parse_toml
from producer.agent.convert import convert
from producer.cli import main
from producer.server import LogHubServer

from .parts import until

EXAMPLES = Path(__file__).parents[2] / "examples/agent"
FILES = sorted(path for path in EXAMPLES.iterdir() if path.suffix in (".toml", ".properties"))
#: Directories of the examples, each as it is below a test's own.
_PLACES = re.compile(r"/(?=(?:var|srv|etc)/)")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LogHubServer]:
    """A LogHub whose address and keys stand in the environment."""
    with LogHubServer() as server:
        monkeypatch.setenv("LOGHUB_ENDPOINT", server.endpoint)
        monkeypatch.setenv("LOGHUB_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("LOGHUB_ACCESS_KEY_SECRET", server.access_key_secret)
        monkeypatch.setenv("NODE_NAME", "node-1")
        monkeypatch.setenv("S3_KEY", "a-key")
        monkeypatch.setenv("S3_SECRET", "a-secret")
        yield server


def moved(name: str, tmp_path: Path) -> str:
    """An example's text, with its directories in the test's own."""
    for secret in ("token", "secret"):
        path = tmp_path / "etc/loghub-agent" / secret
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("hush\n")
    return _PLACES.sub(f"{tmp_path}/", (EXAMPLES / name).read_text())


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def delivered(agent: Agent, ready: Callable[[], object]) -> None:
    """Run an agent until it is so."""
    agent.start()
    try:
        until(ready)
    finally:
        assert agent.stop(10)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_example_is_well(path: Path, tmp_path: Path, server: LogHubServer) -> None:
    """``producer agent check`` finds nothing wrong with it, whatever this machine lacks (1)."""
    example = tmp_path / path.name
    example.write_text(moved(path.name, tmp_path))
    assert main(["agent", "check", "--flume" if path.suffix == ".properties" else "--config", str(example)]) in (0, 1)


def test_every_example_is_in_the_list() -> None:
    """``examples/README.md`` names each of them."""
    text = (EXAMPLES.parent / "README.md").read_text()
    assert [path.name for path in FILES if f"(agent/{path.name})" not in text] == []


def test_access_logs_of_nginx_reach_loghub_with_their_fields(tmp_path: Path, server: LogHubServer) -> None:
    """``nginx.toml``: each line is a log with the fields of its line, and the file's path."""
    line = '192.0.2.{} - - [10/Oct/2026:13:55:36 +0000] "GET /a HTTP/1.1" 200 5 "-" "curl/8"\n'
    log = tmp_path / "var/log/nginx/access.log"
    written(log, "".join(line.format(number) for number in range(3)))
    agent = Agent(parse_toml(moved("nginx.toml", tmp_path)))
    delivered(agent, lambda: server.count("web", "nginx-access") == 3)
    logs = [dict(log.contents) for log in server.logs("web", "nginx-access")]
    assert {each["status"] for each in logs} == {"200"}
    assert sorted(each["content"][:11] for each in logs) == ["192.0.2.0 -", "192.0.2.1 -", "192.0.2.2 -"]


def test_flumes_example_runs_and_so_does_what_is_made_of_it(tmp_path: Path, server: LogHubServer) -> None:
    """``flume.properties``: from TAILDIR through the file channel into files; converted it goes on where it was."""
    log, archive = tmp_path / "var/log/app/web.log", tmp_path / "srv/archive"
    written(log, "one\ntwo\n")
    text = moved("flume.properties", tmp_path)
    flume = tmp_path / "flume.properties"
    flume.write_text(text)

    def lines() -> list[str]:
        return sorted(line for path in archive.glob("*") for line in path.read_text().splitlines())

    agent = Agent(replace(parse_flume(text, "a1"), state=tmp_path / "state"))
    delivered(agent, agent_has(agent, 2))
    assert lines() == ["one", "two"]
    with log.open("a") as file:
        file.write("three\n")
    agent = Agent(replace(parse_toml(convert(flume)[0]), state=tmp_path / "state"))
    delivered(agent, agent_has(agent, 1))
    assert lines() == ["one", "three", "two"]


def test_containers_logs_reach_loghub_whole(tmp_path: Path, server: LogHubServer) -> None:
    """``kubernetes.toml``: parts of a line are one log, with its stream, time, node and file."""
    log = tmp_path / "var/log/containers/web-1_shop_web-0123.log"
    written(log, "2026-10-06T00:17:09.5Z stderr P one \n2026-10-06T00:17:09.6Z stderr F log\n")
    text = moved("kubernetes.toml", tmp_path).replace('monitoring = "0.0.0.0:9171"\n', "")
    delivered(Agent(parse_toml(text)), lambda: server.count("cluster", "containers") == 1)
    (stored,) = server.logs("cluster", "containers")
    assert stored.time == 1791245829
    fields = dict(stored.contents)
    assert (fields["content"], fields["stream"], fields["node"], fields["file"]) == (
        "one log",
        "stderr",
        "node-1",
        str(log),
    )


def listening_on(agent: Agent, source: str) -> int:
    """The port of a source, once it listens."""
    until(lambda: source in agent._reading)
    server = agent._reading[source].server
    assert server.listening.wait(10)
    return int(server.addresses[0][1])


def test_two_tiers_deliver_through_the_collector_that_lives(tmp_path: Path, server: LogHubServer) -> None:
    """The edge finds nobody at the first collector; what the second one has taken is in LogHub."""
    text = moved("two-tiers-collector.toml", tmp_path / "collector").replace("port = 8443", "port = 0")
    collector = Agent(parse_toml(re.sub(r"^certificate.*\n", "", text, flags=re.MULTILINE)))
    collector.start()
    try:
        text = moved("two-tiers-edge.toml", tmp_path)
        second = f"http://127.0.0.1:{listening_on(collector, 'edges')}/"
        text = text.replace("https://collector-2.example.com:8443/", second)
        text = text.replace("https://collector-1.example.com:8443/", "http://127.0.0.1:1/")
        written(tmp_path / "var/log/app/a.log", "one\ntwo\n")
        delivered(Agent(parse_toml(text)), lambda: server.count("shop", "application") == 2)
    finally:
        assert collector.stop(10)
    logs = server.logs("shop", "application")
    assert sorted(dict(log.contents)["content"] for log in logs) == ["one", "two"]


def test_a_syslog_relay_sends_errors_apart(tmp_path: Path, server: LogHubServer) -> None:
    """All messages are in one logstore, those of severity 3 and worse in another one, too."""
    relay = Agent(parse_toml(moved("syslog-relay.toml", tmp_path).replace("port = 5140", "port = 0")))
    relay.start()
    try:
        with socket.create_connection(("127.0.0.1", listening_on(relay, "tcp")), 10) as device:
            device.sendall(b"<14>Oct 11 22:14:15 switch link up\n<11>Oct 11 22:14:16 switch fan failed\n")
        until(lambda: (server.count("network", "syslog"), server.count("network", "errors")) == (2, 1))
    finally:
        assert relay.stop(10)
    (log,) = server.logs("network", "errors")
    assert dict(log.contents)["content"].endswith("fan failed")


def test_a_spool_directory_is_emptied_into_files(tmp_path: Path, server: LogHubServer) -> None:
    """``spool.toml``: lines of both files are collected, other files stay, and what is done has another name."""
    inbox, collected = tmp_path / "srv/inbox", tmp_path / "srv/collected"
    written(inbox / "a.log", "one\n")
    written(inbox / "b.csv", "two\n")
    written(inbox / "c.txt", "stays\n")
    text = moved("spool.toml", tmp_path).replace("channels =", "settle = 0\nchannels =")
    agent = Agent(parse_toml(text))
    done = [inbox / "a.log.COMPLETED", inbox / "b.csv.COMPLETED"]
    delivered(agent, lambda: all(path.exists() for path in done) and agent_has(agent, 2, "files")())
    lines = "".join(path.read_text() for path in collected.iterdir()).split()
    assert sorted(lines) == ["one", "two"]
    assert (inbox / "c.txt").exists()


def agent_has(agent: Agent, count: int, sink: str = "k1") -> Callable[[], bool]:
    """Whether a sink of it has delivered so many."""
    return lambda: agent.counters[f"sinks.{sink}"].get("EventDrainSuccessCount") >= count

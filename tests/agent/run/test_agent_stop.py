"""Stopping or reloading an agent while a destination is away."""

import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer.agent import Agent, AgentConfig
from producer.agent.config import parse_toml
from producer.client import at_exit
from producer.server import LogHubServer

from ...support.waiting import Call, allowed, eventually
from ..parts import Hub, plug_in

CONFIG = """
[agent]
state = "{state}"
stop_timeout = 4
[sources.s]
type = "feed"
hub = "a"
channels = ["q"]
[channels.q]
type = "{kind}"
[sinks.k]
type = "loghub"
channel = "q"
project = "p"
logstore = "l"
endpoint = "{endpoint}"
access_key_id = "{key}"
access_key_secret = "{secret}"
"""


def config_of(state: Path, endpoint: str, kind: str = "file", key: str = "id", secret: str = "key") -> AgentConfig:
    return parse_toml(CONFIG.format(state=state, endpoint=endpoint, kind=kind, key=key, secret=secret))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    return plug_in(monkeypatch, "a")[0]


@pytest.fixture(params=["refuses", "hangs"])
def away(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the endpoint of a server that refuses connections, or never answers."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        if request.param == "hangs":
            bound.listen(64)
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def _begun(agent: Agent, hub: Hub) -> None:
    agent.start()
    for number in range(3):
        hub.lines.put(b"%d\n" % number)
    eventually(lambda: agent.channels["q"].held == 3)
    eventually(lambda: agent.health_of("sinks.k").counters.snapshot().get("EventDrainAttemptCount", 0))


def test_the_end_does_not_wait_for_a_destination_that_is_away(
    tmp_path: Path, hub: Hub, away: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With a file channel the agent stops in time, and reports the remaining events, not a loss."""
    agent = Agent(config_of(tmp_path, away))
    _begun(agent, hub)
    begun = time.monotonic()
    with caplog.at_level(logging.WARNING):
        assert agent.stop()
    assert time.monotonic() - begun < allowed(4)
    assert agent.remaining == {"q": 3}
    assert "lost" not in caplog.text


_SINKS = {
    "http": 'type = "http"\nendpoint = "{}/"',
    "otlp": 'type = "otlp"\nendpoint = "{}/"',
    "otlp-grpc": 'type = "otlp"\ntransport = "grpc"\nendpoint = "{}/"',
    "avro": 'type = "avro"\nhostname = "127.0.0.1"\nport = {}',
    "thrift": 'type = "thrift"\nhostname = "127.0.0.1"\nport = {}',
    "forward": 'type = "forward"\nhost = "127.0.0.1"\nport = {}',
    "thrift-handshake": 'type = "thrift"\nhostname = "127.0.0.1"\nport = {}\ntls = true\nconnect_timeout = 30',
    "forward-handshake": 'type = "forward"\nhost = "127.0.0.1"\nport = {}\ntls = true\nconnect_timeout = 30',
}


@pytest.mark.parametrize("away", ["hangs"], indirect=True)
@pytest.mark.parametrize("sink", _SINKS)
def test_a_receiver_that_does_not_answer_holds_no_end_up(tmp_path: Path, hub: Hub, away: str, sink: str) -> None:
    """Deliveries in flight are abandoned in time, and the remaining events are reported."""
    place = away if "endpoint" in _SINKS[sink] else away.rpartition(":")[2]
    head = CONFIG[: CONFIG.index("[sinks.k]")].format(state=tmp_path, kind="file")
    agent = Agent(parse_toml(f'{head}[sinks.k]\nchannel = "q"\n{_SINKS[sink].format(place)}\n'))
    _begun(agent, hub)
    begun = time.monotonic()
    assert agent.stop(4)  # the sink's own timeout is half a minute
    assert time.monotonic() - begun < allowed(10)
    assert agent.remaining == {"q": 3}


def test_a_stop_without_any_time_returns_the_events_to_the_channel_at_once(tmp_path: Path, hub: Hub, away: str) -> None:
    """A stop without any time returns the events to the channel at once."""
    agent = Agent(config_of(tmp_path, away))
    _begun(agent, hub)
    begun = time.monotonic()
    agent.stop(0)
    assert time.monotonic() - begun < allowed(2)
    assert agent.remaining == {"q": 3}
    assert not any(name == "agent-k" for name, _ in at_exit._draining.values())


@pytest.mark.parametrize("away", ["refuses"], indirect=True)
def test_events_in_memory_that_a_source_reads_again_are_reported_not_as_a_loss(
    tmp_path: Path, hub: Hub, away: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Events in memory that a source reads again are reported, not as a loss, and the stop is in order."""
    agent = Agent(config_of(tmp_path, away, kind="memory"))
    _begun(agent, hub)
    with caplog.at_level(logging.WARNING):
        assert agent.stop(0.5)
    assert "channel q: 3 events were not delivered in time: their sources read them again" in caplog.text
    assert "lost" not in caplog.text


@pytest.mark.parametrize("away", ["refuses"], indirect=True)
def test_an_end_that_loses_events_is_not_in_order(
    tmp_path: Path, hub: Hub, away: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A stop that loses events of memory is not in order, and reports their number."""
    hub.repeats = False
    agent = Agent(config_of(tmp_path, away, kind="memory"))
    _begun(agent, hub)
    with caplog.at_level(logging.WARNING):
        assert not agent.stop(0.5)
    assert "channel q: 3 events were not delivered in time; 3 of them are lost" in caplog.text


@pytest.mark.parametrize("away", ["refuses"], indirect=True)
def test_an_agent_can_be_stopped_again_after_a_component_was_late(
    tmp_path: Path, hub: Hub, away: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second stop raises nothing, and is not in order, if a late component has put events into a closed channel."""
    agent = Agent(config_of(tmp_path, away, kind="memory"))
    _begun(agent, hub)
    with monkeypatch.context() as patch:
        patch.setattr(agent.channels["q"], "discard", lambda: 0)  # as if the events came after it
        agent.stop(0)
    assert agent.channels["q"].held
    assert not agent.stop(1)


@pytest.mark.parametrize("away", ["refuses"], indirect=True)
def test_a_destination_that_is_away_shows_at_once(tmp_path: Path, hub: Hub, away: str) -> None:
    """A destination that is away shows in counters and the last error within seconds."""
    agent = Agent(config_of(tmp_path, away))
    try:
        _begun(agent, hub)
        eventually(lambda: agent.health_of("sinks.k").counters.get("EventWriteFail"), 5)
        assert agent.health_of("sinks.k").counters.get("ConnectionFailedCount")
        assert "no connection" in str(agent.health_of("sinks.k").counters.last_error)
    finally:
        agent.stop(0)


def test_after_a_corrected_endpoint_the_old_sink_abandons_its_delivery_and_the_new_one_makes_it(
    tmp_path: Path, hub: Hub, away: str
) -> None:
    """After a corrected endpoint, the old sink abandons its delivery and the new one makes it."""
    agent = Agent(config_of(tmp_path, away))
    try:
        _begun(agent, hub)
        with LogHubServer() as server:
            begun = time.monotonic()
            agent.reload(
                config_of(tmp_path, server.endpoint, key=server.access_key_id, secret=server.access_key_secret)
            )
            eventually(lambda: not agent.channels["q"].held)
            assert time.monotonic() - begun < allowed(4)
            assert sorted(dict(log.contents)["content"] for log in server.logs("p", "l")) == ["0", "1", "2"]
    finally:
        agent.stop(0)


def test_events_refused_during_the_stop_are_delivered_from_the_dead_letters_memory_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events refused during the stop are delivered from the dead letters' memory channel before it ends."""
    a, b = plug_in(monkeypatch, "a", "b")
    a.refusing = b.failing = True
    a.hanging.clear()
    agent = Agent(parse_toml(_LETTERS.format(state=tmp_path)))
    agent.start()
    a.lines.put(b"late\n")
    eventually(lambda: a.writing)
    ending = Call(lambda: agent.stop(60))
    eventually(lambda: agent.channels["q"].hurried)
    a.hanging.set()
    eventually(lambda: agent.channels["letters"].hurried)
    b.failing = False
    assert ending.result()
    assert b.delivered == [b"late"]


_LETTERS = """
[agent]
state = "{state}"
[sources.s]
type = "feed"
hub = "a"
channels = ["q"]
[channels.letters]
type = "memory"
[channels.q]
type = "memory"
[sinks.k]
type = "keep"
hub = "a"
channel = "q"
dead_letters = "letters"
[sinks.l]
type = "keep"
hub = "b"
channel = "letters"
"""


def test_a_forked_child_stops_nothing_of_its_parents_agent(tmp_path: Path, hub: Hub, away: str) -> None:
    """Stopping the copy of an agent in a child returns at once, and the parent's agent goes on."""
    agent = Agent(config_of(tmp_path, away))
    _begun(agent, hub)
    child = os.fork()
    if child == 0:
        begun = time.monotonic()
        stopped = agent.stop(60)
        os._exit(0 if stopped and time.monotonic() - begun < 30 else 1)
    assert Call(lambda: os.waitpid(child, 0)[1]).result() == 0
    hub.lines.put(b"3\n")
    eventually(lambda: agent.channels["q"].held == 4)
    assert agent.stop()

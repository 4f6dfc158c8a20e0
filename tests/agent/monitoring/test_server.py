import asyncio
import contextlib
import gzip
import http.client
import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from producer.agent.flow import health
from producer.agent.monitoring import MonitoringError, MonitoringServer, address_of, server
from producer.agent.monitoring.figures import CHANNEL_COUNTERS, SINK_COUNTERS, SOURCE_COUNTERS, figures
from producer.agent.monitoring.formats import flume_json, prometheus
from producer.agent.monitoring.helps import HELPS
from producer.model.errors import ChannelIOError
from tests.support.waiting import eventually

from ..monitored import CONFIG, Monitored
from ..parts import plug_in

#: A second sink, in a group with the first one.
GROUP = """
[sinks.k2]
type = "keep"
hub = "b"
channel = "c1"
[groups."g<b>"]
type = "failover"
sinks = ["k1", "k2"]
"""


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Monitored]:
    with Monitored(tmp_path, plug_in(monkeypatch, "a", "b"), CONFIG + GROUP, name="web <1>") as watched:
        yield watched


def test_metrics_json_and_metrics_for_clients_that_accept_json_have_a_table_of_flumes_counters(
    watched: Monitored,
) -> None:
    """``/metrics.json``, and ``/metrics`` for clients that accept JSON, have a table of Flume's counters for each
    component.
    """
    watched.hubs[0].lines.put(b"one\ntwo\n")
    eventually(lambda: watched.hubs[0].delivered == [b"one", b"two"])
    eventually(lambda: watched.agent.health_of("sinks.g<b>").counters.get("EventDrainSuccessCount") == 2)
    found = watched.json("/metrics.json")
    assert found.keys() == {"SOURCE.r1", "CHANNEL.c1", "CHANNEL.dead", "SINK_GROUP.g<b>", "SINK.k1", "SINK.k2"}
    assert watched.json("/metrics", Accept="application/json").keys() == found.keys()
    assert all(isinstance(value, str) for table in found.values() for value in table.values())
    assert set(SOURCE_COUNTERS) <= found["SOURCE.r1"].keys()
    assert {*CHANNEL_COUNTERS, "ChannelSize", "ChannelCapacity", "ChannelFillPercentage"} <= found["CHANNEL.c1"].keys()
    assert set(SINK_COUNTERS) <= found["SINK.k2"].keys()
    assert found["SOURCE.r1"]["EventReceivedCount"] == found["SOURCE.r1"]["EventAcceptedCount"] == "2"
    assert found["SOURCE.r1"]["Type"] == "SOURCE"
    assert found["CHANNEL.c1"]["EventPutSuccessCount"] == found["CHANNEL.c1"]["EventTakeSuccessCount"] == "2"
    assert (found["CHANNEL.c1"]["ChannelSize"], found["CHANNEL.c1"]["ChannelCapacity"]) == ("0", "100")
    assert found["SINK.k1"]["EventDrainSuccessCount"] == found["SINK_GROUP.g<b>"]["EventDrainSuccessCount"] == "2"


def test_prometheus_text_has_the_counters_and_the_lag_in_events_bytes_and_seconds(watched: Monitored) -> None:
    """Each Prometheus name has one head followed by its samples, and waiting events are their channel's lag."""
    watched.hubs[0].failing = watched.hubs[1].failing = True
    watched.hubs[0].lines.put(b"one\ntwo\nthree\n")
    eventually(lambda: watched.agent.channels["c1"].held == 3)
    watched.agent.health_of("sources.r1").counters.add(InterceptionMicroseconds=1_500_000)
    status, kind, text = watched.get("/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    samples = {
        sample.rsplit(" ", 1)[0]: float(sample.rsplit(" ", 1)[1]) for sample in text.splitlines() if sample[0] != "#"
    }
    channel = '{agent="web <1>",channel="c1",type="memory"}'
    assert samples[f"loghub_agent_channel_events{channel}"] == 3
    assert samples[f"loghub_agent_channel_bytes{channel}"] > 10
    assert samples[f"loghub_agent_channel_oldest_seconds{channel}"] >= 0
    assert samples[f"loghub_agent_channel_fill_ratio{channel}"] == 0.03
    sinks = {sample for sample in samples if sample.startswith("loghub_agent_sink_event_drain_attempt_total")}
    assert {re.search('sink="(.*?)"', sample)[1] for sample in sinks} == {"k1", "k2"}, "sums would count a group twice"  # type: ignore[index]
    assert 'loghub_agent_sink_group_event_drain_attempt_total{agent="web <1>",sink_group="g<b>"' in text
    source = '{agent="web <1>",source="r1",type="feed"}'
    assert samples[f"loghub_agent_source_event_accepted_total{source}"] == 3
    assert samples[f"loghub_agent_source_lag_seconds{source}"] == 1.5
    assert samples[f"loghub_agent_source_interception_seconds_total{source}"] == 1.5
    assert samples['loghub_agent_ready{agent="web <1>"}'] == 1
    names = re.findall(r"^# TYPE (\S+) (?:counter|gauge)$", text, re.MULTILINE)
    assert len(names) == len(set(names)) == text.count("# HELP")
    blocks = [re.match(r"[a-z_]+", line)[0] for line in text.splitlines() if not line.startswith("#")]  # type: ignore[index]
    assert [name for place, name in enumerate(blocks) if name not in blocks[:place]] == names
    assert samples["process_resident_memory_bytes"] > 1 << 20
    watched.hubs[0].failing = False


def test_scrapes_get_openmetrics_and_gzip_where_they_accept_them(watched: Monitored) -> None:
    """A scraper that accepts OpenMetrics gets it, and gzip if it accepts that."""
    connection = http.client.HTTPConnection("127.0.0.1", watched.server.port, timeout=10)
    with contextlib.closing(connection):
        accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
        connection.request("GET", "/metrics", headers={"Accept": accept, "Accept-Encoding": "gzip"})
        response = connection.getresponse()
        found = list(text_string_to_metric_families(gzip.decompress(response.read()).decode()))
    assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    (events,) = [family for family in found if family.name == "loghub_agent_source_event_accepted"]
    assert (events.type, events.samples[0].labels["agent"]) == ("counter", "web <1>")


def test_events_dropped_by_interceptors_count_for_their_source_in_both_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events dropped by interceptors count for their source in both formats, from the start on."""
    dropping = 'interceptors = [{type = "regex_filter", regex = "debug", exclude_events = true}]'
    with Monitored(tmp_path, plug_in(monkeypatch, "a"), interceptors=dropping) as watched:
        agent, hub = watched.agent, watched.hub
        dropped = [flume_json(figures(agent))["SOURCE.r1"].get("EventDroppedCount")]
        hub.lines.put(b"a debug line\none\ntwo debug\n")
        eventually(lambda: hub.delivered == [b"one"])
        dropped.append(flume_json(figures(agent))["SOURCE.r1"].get("EventDroppedCount"))
        assert dropped == ["0", "2"]
        (family,) = [one for one in prometheus(figures(agent)).collect() if one.name.endswith("source_event_dropped")]
        assert [sample.value for sample in family.samples] == [2]


_UNITS = re.compile(
    r"\b(events?|batch(es)?|bytes|seconds|connections|files|failures|deliveries|attempts|restarts|commits|takes|checkpoints"
    r"|objects|else 0|0 to 1|always 0)\b",
    re.IGNORECASE,
)


def test_each_counter_and_each_sample_says_its_unit(watched: Monitored) -> None:
    """Each counter has a help text that names its unit."""
    told = {}
    for line in watched.get("/metrics")[2].splitlines():
        if line.startswith("# HELP"):
            _, _, name, text = line.split(" ", 3)
            told[name] = text
    assert [name for name, text in told.items() if not _UNITS.search(text)] == []
    code = "".join(path.read_text() for path in Path(server.__file__).parents[1].rglob("*.py"))
    counted = {
        name for call in re.findall(r"counters\.(?:add|set)\((.*)\)", code) for name in re.findall(r"(\w+)=", call)
    }
    assert counted - HELPS.keys() == set()
    assert {*SOURCE_COUNTERS, *CHANNEL_COUNTERS, *SINK_COUNTERS} - HELPS.keys() == set()


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_requests_from_pages_of_other_sites_are_refused(watched: Monitored, headers: dict[str, str]) -> None:
    """Requests from pages of other sites, or with another Host than 127.0.0.1 and localhost, are refused."""
    status, kind, text = watched.get("/status.json", **headers)
    assert (status, kind.partition(";")[0]) == (403, "text/plain")
    assert text.startswith("Only 127.0.0.1 and localhost may be used here")
    here = f"localhost:{watched.server.port}"
    assert watched.get("/status.json", Host=here, Origin=f"http://{here}")[0] == 200


def test_health_says_why_an_agent_is_not_ready(watched: Monitored) -> None:
    """The agent is live while it answers, ready while all components run, and otherwise 503 has the reasons."""
    eventually(lambda: watched.json("/health/ready")["ready"])
    assert watched.get("/health/live")[0] == 200
    watched.agent.channels["dead"].close()
    status, _, text = watched.get("/health/ready")
    assert (status, json.loads(text)) == (503, {"ready": False, "reasons": ["channel dead is closed"]})
    watched.agent.stop(60)
    reasons = watched.json("/health/ready")["reasons"]
    assert "source r1 is stopped" in reasons
    assert "sink g<b> is stopped" in reasons
    assert watched.get("/health/live")[0] == 200


def test_other_paths_other_methods_and_invalid_http_get_an_explaining_answer_head_gets_only_the_head(
    watched: Monitored,
) -> None:
    """Other paths, other methods and invalid HTTP get an explaining answer; HEAD gets only the head."""
    assert watched.get("/nothing")[0] == 404
    assert watched.get("/metrics", "POST")[0] == 405
    assert watched.get("/metrics", "HEAD")[::2] == (200, "")
    with socket.create_connection(("127.0.0.1", watched.server.port), 10) as peer:
        peer.sendall(b"\x16\x03\x01\r\n\r\n")
        assert peer.recv(100).startswith(b"HTTP/1.1 400 ")
    # The server does not read the request to its end, so that the connection may be reset.
    where = ("127.0.0.1", watched.server.port)
    with contextlib.suppress(ConnectionError), socket.create_connection(where, 10) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nx: " + b"x" * (40 << 10))
        assert peer.recv(100).startswith(b"HTTP/1.1 431 ")


def test_peers_that_say_nothing_do_not_hold_others_up(watched: Monitored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent clients are disconnected after a while, and delay others no longer than that."""
    monkeypatch.setattr(server, "_PATIENCE", 0.2)
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 3)
    peers = [socket.create_connection(("127.0.0.1", watched.server.port), 10) for _ in range(6)]
    for peer in peers:
        assert peer.recv(1) == b""
        peer.close()
    assert watched.get("/health/live")[0] == 200


def test_with_too_many_connections_the_oldest_one_is_closed_so_that_a_new_client_is_answered_at_once(
    watched: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With too many connections the oldest one is closed, so that a new client is answered at once."""
    monkeypatch.setattr(server, "_PATIENCE", 60.0)
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 3)
    with contextlib.ExitStack() as open_ones:
        peers = [socket.create_connection(("127.0.0.1", watched.server.port), 10) for _ in range(3)]
        for peer in peers:
            open_ones.enter_context(peer).sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        eventually(lambda: len(watched.server._serving) == 3)
        assert watched.get("/health/live")[0] == 200
        assert peers[0].recv(1) == b""
        peers[2].sendall(b"\r\n")
        assert peers[2].recv(12) == b"HTTP/1.1 200"


def test_a_peer_that_does_not_read_its_answer_is_let_go(watched: Monitored, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not read its answer is disconnected after a while."""
    monkeypatch.setattr(server, "_PATIENCE", 0.2)
    monkeypatch.setattr(server, "flume_json", lambda _figures: "x" * (1 << 20))
    listener = watched.server._server.sockets[0]  # type: ignore[union-attr]
    with socket.socket(fileno=os.dup(listener.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    monkeypatch.setattr(asyncio.StreamWriter, "drain", _at_once)
    opened = _open_files()
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", watched.server.port))
        peer.sendall(b"GET /metrics.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert peer.recv(12) == b"HTTP/1.1 200"
        eventually(lambda: _open_files() == opened + 1)


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def _at_once(_writer: asyncio.StreamWriter) -> None:
    """Return at once, as for an answer that fits into the buffers."""


def test_port_port_and_host_port_are_addresses_any_other_text_is_refused() -> None:
    """``port``, ``:port`` and ``host:port`` are addresses; any other text is refused."""
    assert address_of("9000") == address_of(":9000") == ("127.0.0.1", 9000)
    assert address_of("0.0.0.0:80") == ("0.0.0.0", 80)
    assert address_of("[::1]:80") == ("::1", 80)
    for wrong in ("", "host", "host:", "1:99999", "a:-1"):
        with pytest.raises(ValueError, match="must be host:port"):
            address_of(wrong)


def test_a_port_in_use_is_reported_with_the_address_and_the_reason(watched: Monitored) -> None:
    """A port in use is reported with the address and the reason."""
    with pytest.raises(MonitoringError, match=rf"cannot listen on 127.0.0.1:{watched.server.port}: .*in use"):
        MonitoringServer(watched.agent, port=watched.server.port)


def test_it_can_be_made_where_a_loop_runs(watched: Monitored) -> None:
    """An asyncio program can start and stop the server."""

    async def serve() -> None:
        monitoring = MonitoringServer(watched.agent, port=0)
        try:
            reader, writer = await asyncio.open_connection(monitoring.host, monitoring.port)
            writer.write(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            writer.close()
            await writer.wait_closed()
        finally:
            monitoring.close()

    asyncio.run(serve())


def test_after_a_time_of_failures_only_the_agent_is_not_ready_with_the_reason_until_the_sink_delivers(
    watched: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a time of failures only, the agent is not ready, with the reason, until the sink delivers."""
    monkeypatch.setattr(health, "FAILING", 0.0)
    watched.hubs[0].failing = watched.hubs[1].failing = True
    watched.hubs[0].lines.put(b"one\n")
    eventually(lambda: watched.get("/health/ready")[0] == 503)
    (reason,) = watched.json("/health/ready")["reasons"]
    assert re.match(r"sink g<b> has delivered nothing for \d+ s: SinkError: no sink of the group", reason)
    assert re.search(r'^loghub_agent_sink_up\{.*sink="g<b>".*\} 0.0$', watched.get("/metrics")[2], re.MULTILINE)
    watched.hubs[0].failing = watched.hubs[1].failing = False
    eventually(lambda: watched.get("/health/ready")[0] == 200)  # the sinks back off for up to 30 s


def test_an_agent_whose_channel_takes_nothing_as_on_a_read_only_disk_is_not_ready(
    watched: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent whose channel takes nothing, as on a read-only disk, is not ready."""

    def broken(*_: object, **__: object) -> None:
        raise ChannelIOError("c1", "read-only file system")

    monkeypatch.setattr(health, "FAILING", 0.0)
    with monkeypatch.context() as patches:
        patches.setattr(watched.agent.channels["c1"], "put", broken)
        watched.hubs[0].lines.put(b"one\n")
        eventually(lambda: watched.get("/health/ready")[0] == 503)
        (reason,) = watched.json("/health/ready")["reasons"]
    assert re.match(r"source r1 has put nothing into its channels for \d+ s: ChannelIOError: .*read-only", reason)
    eventually(lambda: watched.get("/health/ready")[0] == 200)
    assert watched.agent.health_of("sources.r1").counters.get("EventAcceptedCount") == 1

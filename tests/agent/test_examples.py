import json
import os
import re
import socket
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import yaml
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from producer.agent import Agent
from producer.agent.config import parse_flume, parse_toml
from producer.agent.run.blueprint import draw
from producer.agent.run.convert import convert
from producer.cli import main
from producer.server import LogHubServer
from tests.support.waiting import eventually

from .sinks.log_stores import Elasticsearch, Loki, running
from .sources.cloud import cloud_server
from .sources.listeners import serving
from .sources.test_journald import Journal
from .sources.test_prometheus_remote_write import packed, post, series

EXAMPLES = Path(__file__).parents[2] / "examples/agent"
FILES = sorted(path for path in EXAMPLES.iterdir() if path.suffix in (".toml", ".properties"))
#: The configuration of the DaemonSet.
NODE = EXAMPLES.parent / "deploy/kubernetes/base/agent.toml"
#: Directories of the examples, and their names below a test's own.
_PLACES = re.compile(r"/(?=(?:var|srv|etc)/)")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LogHubServer]:
    """Run a LogHub whose address and keys are in the environment."""
    with LogHubServer() as server:
        monkeypatch.setenv("LOGHUB_ENDPOINT", server.endpoint)
        monkeypatch.setenv("LOGHUB_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("LOGHUB_ACCESS_KEY_SECRET", server.access_key_secret)
        monkeypatch.setenv("NODE_NAME", "node-1")
        monkeypatch.setenv("BEIJING_ACCESS_KEY_ID", "beijing-id")
        monkeypatch.setenv("S3_KEY", "a-key")
        monkeypatch.setenv("S3_SECRET", "a-secret")
        yield server


def moved(name: str, tmp_path: Path) -> str:
    """Return an example's text with its directories below the test's own."""
    for secret in ("token", "secret", "beijing-secret"):
        path = tmp_path / "etc/loghub-agent" / secret
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("hush\n")
    return _PLACES.sub(f"{tmp_path}/", (EXAMPLES / name).read_text())


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def delivered(agent: Agent, ready: Callable[[], object]) -> None:
    agent.start()
    try:
        eventually(ready)
    finally:
        assert agent.stop(60)


@pytest.mark.parametrize("path", [*FILES, NODE], ids=lambda path: path.name)
def test_every_example_is_well(path: Path, tmp_path: Path, server: LogHubServer) -> None:
    """``producer agent check`` finds every example valid, whatever resources this machine lacks."""
    example = tmp_path / path.name
    example.write_text(moved(str(path), tmp_path))
    assert main(["agent", "check", "--flume" if path.suffix == ".properties" else "--config", str(example)]) in (0, 1)


def test_every_example_is_in_the_list() -> None:
    """``examples/README.md`` names each example."""
    text = (EXAMPLES.parent / "README.md").read_text()
    assert [path.name for path in FILES if f"(agent/{path.name})" not in text] == []


def test_access_logs_of_nginx_reach_loghub_with_their_fields(tmp_path: Path, server: LogHubServer) -> None:
    """``nginx.toml`` makes a log of each line, with its fields and the file's path."""
    line = '192.0.2.{} - - [10/Oct/2026:13:55:36 +0000] "GET /a HTTP/1.1" 200 5 "-" "curl/8"\n'
    log = tmp_path / "var/log/nginx/access.log"
    written(log, "".join(line.format(number) for number in range(3)))
    agent = Agent(parse_toml(moved("nginx.toml", tmp_path)))
    delivered(agent, lambda: server.count("web", "nginx-access") == 3)
    logs = [dict(log.contents) for log in server.logs("web", "nginx-access")]
    assert {each["status"] for each in logs} == {"200"}
    assert sorted(each["content"][:11] for each in logs) == ["192.0.2.0 -", "192.0.2.1 -", "192.0.2.2 -"]


def test_lines_of_json_and_of_grok_patterns_reach_loghub_with_their_fields_and_times(
    tmp_path: Path, server: LogHubServer
) -> None:
    """``formats.toml`` makes logs of JSON and of grok patterns, with the fields and the time of each line."""
    logs = tmp_path / "srv/app/logs"
    written(logs / "a.json", '{"ts": 1790000000123, "http": {"status": 200}}\n')
    written(logs / "a.log", "[2026-09-21 22:13:20] WARN slow\norder-7 paid\n")
    agent = Agent(parse_toml(moved("formats.toml", tmp_path)))
    delivered(agent, lambda: server.count("shop", "formats") == 3)
    found = {dict(log.contents)["content"][:5]: log for log in server.logs("shop", "formats")}
    fields = {start: dict(log.contents) for start, log in found.items()}
    assert (fields['{"ts"']["http.status"], found['{"ts"'].time) == ("200", 1_790_000_000)
    assert (fields["[2026"]["level"], fields["[2026"]["message"]) == ("WARN", "slow")
    assert found["[2026"].time == 1_790_000_000
    assert fields["order"].items() >= {"order": "order-7", "message": "paid"}.items()


def test_flume_properties_delivers_from_taildir_through_a_file_channel_into_files(
    tmp_path: Path, server: LogHubServer
) -> None:
    """``flume.properties`` delivers from TAILDIR through a file channel into files; the converted file continues its
    state.
    """
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
    """The configuration of the DaemonSet joins parts of a line to one log, with its stream, time, node and pod."""
    log = tmp_path / f"var/log/containers/web-1_shop_app-{'3f' * 32}.log"
    written(log, "2026-10-06T00:17:09.5Z stderr P one \n2026-10-06T00:17:09.6Z stderr F log\n")
    text = moved(str(NODE), tmp_path).replace('monitoring = "0.0.0.0:9180"\n', "")
    delivered(Agent(parse_toml(text)), lambda: server.count("cluster", "containers") == 1)
    (stored,) = server.logs("cluster", "containers")
    assert stored.time == 1791245829
    fields = dict(stored.contents)
    assert [fields[name] for name in ("content", "stream", "node")] == ["one log", "stderr", "node-1"]
    assert [fields[name] for name in ("namespace", "pod", "container")] == ["shop", "web-1", "app"]


def test_the_daemonsets_comments_are_valid_and_the_interceptor_of_pods_has_the_rights_it_needs(
    server: LogHubServer,
) -> None:
    """The lines for the journal and for labels of pods are valid without their comment signs, and have their rights."""
    config = parse_toml(re.sub("^#(?! )", "", NODE.read_text(), flags=re.MULTILINE))
    assert [each.type for each in config.sources["containers"].interceptors] == ["static", "kubernetes"]
    assert config.sources["journal"].options["root"] == "/host"
    draw(config)
    component = EXAMPLES.parent / "deploy/kubernetes/pods"
    account, role, binding = yaml.safe_load_all((component / "access.yaml").read_text())
    patch = yaml.safe_load((component / "service-account.yaml").read_text())["spec"]["template"]["spec"]
    assert patch == {"serviceAccountName": account["metadata"]["name"], "automountServiceAccountToken": True}
    assert binding["subjects"][0]["name"] == account["metadata"]["name"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]


def test_metrics_reach_a_metric_store_as_by_its_own_remote_write(tmp_path: Path, server: LogHubServer) -> None:
    """``metrics.toml`` stores the same logs as the remote write of the metric store itself."""
    up = series((1_700_000_000_123, 1.5), (1_700_000_001_000, 2.0), __name__="up", job="api")
    body = packed(up, series((1_700_000_002_000, 3.0), __name__="x"))
    agent = Agent(parse_toml(moved("metrics.toml", tmp_path).replace("port = 9201", "port = 0")))
    agent.start()
    try:
        assert post(("127.0.0.1", listening_on(agent, "prometheus")), body).status_code == 204
        eventually(lambda: server.count("shop", "metrics") == 3)
    finally:
        assert agent.stop(60)
    host, port = server.endpoint.removeprefix("http://").split(":")
    key = f"{server.access_key_id}:{server.access_key_secret}".encode()
    own = {"Authorization": f"Basic {b64encode(key).decode()}"}
    assert post((host, int(port)), body, "/prometheus/shop/own/api/v1/write", **own).status_code == 200
    logs = [server.logs("shop", name) for name in ("metrics", "own")]
    ours, its_own = (sorted((log.time, sorted(log.contents)) for log in each) for each in logs)
    assert ours == its_own


def listening_on(agent: Agent, source: str) -> int:
    """Return the port of a source once it listens."""
    eventually(lambda: source in agent._reading)
    server = agent._reading[source]
    assert server.listening.wait(60)
    return int(server.addresses[0][1])


def test_two_tiers_deliver_through_the_collector_that_lives(tmp_path: Path, server: LogHubServer) -> None:
    """With the first collector down, the second one delivers to LogHub."""
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
        assert collector.stop(60)
    logs = server.logs("shop", "application")
    assert sorted(dict(log.contents)["content"] for log in logs) == ["one", "two"]


def test_a_syslog_relay_sends_errors_apart(tmp_path: Path, server: LogHubServer) -> None:
    """All messages are in one logstore, and those of severity 3 or worse also in another one."""
    relay = Agent(parse_toml(moved("syslog-relay.toml", tmp_path).replace("port = 5140", "port = 0")))
    relay.start()
    try:
        with socket.create_connection(("127.0.0.1", listening_on(relay, "tcp")), 10) as device:
            device.sendall(b"<14>Oct 11 22:14:15 switch link up\n<11>Oct 11 22:14:16 switch fan failed\n")
        eventually(lambda: (server.count("network", "syslog"), server.count("network", "errors")) == (2, 1))
    finally:
        assert relay.stop(60)
    (log,) = server.logs("network", "errors")
    assert dict(log.contents)["content"].endswith("fan failed")


def test_a_spool_directory_is_emptied_into_files(tmp_path: Path, server: LogHubServer) -> None:
    """``spool.toml`` collects the lines of both files, leaves other files, and renames completed ones."""
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


def test_objects_of_a_queue_reach_loghub_with_the_fields_of_their_lines(
    tmp_path: Path, server: LogHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``s3.toml`` makes a log of each JSON line of an object, by AWS's own variables for the key and the endpoint."""
    with cloud_server() as cloud:
        for name, value in (("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b"), ("ENDPOINT_URL_S3", cloud.url)):
            monkeypatch.setenv(f"AWS_{name}", value)
        bucket = cloud.bucket()
        queue = cloud.queue(bucket)
        cloud.put(bucket, "a/b.json", b'{"status": 200}\n{"status": 500}\n')
        cloud.put(bucket, "c.tmp", b"ignored\n")
        text = moved("s3.toml", tmp_path).replace("https://sqs.eu-west-1.amazonaws.com/123456789012/logs", queue)
        agent = Agent(parse_toml(text))
        delivered(agent, lambda: server.count("shop", "objects") == 2 and cloud.waiting(queue) == (0, 0))
    logs = [dict(log.contents) for log in server.logs("shop", "objects")]
    assert sorted((each["key"], each["status"]) for each in logs) == [("a/b.json", "200"), ("a/b.json", "500")]


def test_application_toml_makes_one_redacted_log_of_a_stack_trace(tmp_path: Path, server: LogHubServer) -> None:
    """``application.toml`` makes one redacted log of a stack trace, with its level and the application's topic."""
    trace = "2026-10-10 13:55:36 ERROR no card 4111 1111 1111 1111 of a@example.com\n  at pay\n  at main\n"
    written(tmp_path / "srv/app/logs/web/app.log", trace)
    text = moved("application.toml", tmp_path).replace("channels =", "multiline_timeout = 0\nchannels =")
    delivered(Agent(parse_toml(text)), lambda: server.count("shop", "application") == 1)
    (log,) = server.logs("shop", "application")
    assert (log.topic, log.fields["level"]) == ("backend", "ERROR")
    content = str(log.fields["content"])
    assert content.endswith("\n  at pay\n  at main")
    assert not re.search("4111|example", content)


def test_errors_have_a_logstore_of_their_own(tmp_path: Path, server: LogHubServer) -> None:
    """``by-level.toml`` puts errors into one logstore, and all other logs into another."""
    written(tmp_path / "var/log/app/a.log", "a FATAL end\nan INFO\nan ERROR\n")
    agent = Agent(parse_toml(moved("by-level.toml", tmp_path)))
    delivered(agent, lambda: (server.count("shop", "errors"), server.count("shop", "application")) == (2, 1))
    assert [log.fields["content"] for log in server.logs("shop", "application")] == ["an INFO"]


def test_archive_toml_puts_each_line_into_loghub_and_into_a_file_complete_when_the_agent_has_ended(
    tmp_path: Path, server: LogHubServer
) -> None:
    """``archive.toml`` puts each line into LogHub and into a file, complete when the agent has ended."""
    written(tmp_path / "var/log/app/a.log", "one\ntwo\n")
    agent = Agent(parse_toml(moved("archive.toml", tmp_path)))
    delivered(agent, lambda: server.count("shop", "application") == 2 and agent_has(agent, 2, "files")())
    (kept,) = (tmp_path / "srv/archive").glob("app-*.log")
    assert kept.read_text() == "one\ntwo\n"


def test_another_region_takes_over(tmp_path: Path, server: LogHubServer) -> None:
    """``regions.toml`` delivers to the project of another region, with its own key, once the first one is away."""
    with LogHubServer(access_keys={"beijing-id": "beijing-secret"}) as beijing:
        text = moved("regions.toml", tmp_path)
        for name, endpoint in (
            ("cn-hangzhou-intranet", "http://127.0.0.1:1"),
            ("cn-hangzhou", server.endpoint),
            ("cn-beijing", beijing.endpoint),
        ):
            text = text.replace(f"https://{name}.log.aliyuncs.com", endpoint)
        written(tmp_path / "etc/loghub-agent/secret", server.access_key_secret)
        written(tmp_path / "etc/loghub-agent/beijing-secret", "beijing-secret")
        written(tmp_path / "var/log/app/a.log", "one\n")
        agent = Agent(parse_toml(text))
        agent.start()
        try:
            eventually(lambda: server.count("shop-hangzhou", "application") == 1)
            server.stop()
            written(tmp_path / "var/log/app/b.log", "two\n")
            eventually(lambda: beijing.count("shop-beijing", "application") == 1)
        finally:
            assert agent.stop(60)
        assert [log.fields["content"] for log in beijing.logs("shop-beijing", "application")] == ["two"]


def test_the_journal_comes_through_a_command(
    tmp_path: Path, server: LogHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``command.toml`` makes a log of each line of a command."""
    journal = Journal(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    journal.say("one", "two")
    agent = Agent(parse_toml(moved("command.toml", tmp_path)))
    delivered(agent, lambda: server.count("machines", "journal") == 2)
    logs = [json.loads(str(log.fields["content"])) for log in server.logs("machines", "journal")]
    assert [log["MESSAGE"] for log in logs] == ["one", "two"]
    assert journal.called == ["--follow --lines=0 --output=json"]


def test_warnings_reach_a_web_server_each_once(tmp_path: Path, server: LogHubServer) -> None:
    """``webhook.toml`` sends new warnings once, and neither older lines, others nor repetitions."""
    folder = tmp_path / "var/log/app"
    written(folder / "a.log", "ERROR of yesterday\n")
    with serving("http", format="lines") as hook:
        host, port = hook.address
        text = moved("webhook.toml", tmp_path).replace("https://hooks.example.com", f"http://{host}:{port}")
        agent = Agent(parse_toml(text))

        def taken() -> bool:
            with (folder / "a.log").open("a") as file:
                file.write("a WARN\nan INFO\na WARN\n")
            return bool(hook.outlet.bodies)

        delivered(agent, taken)
        assert hook.outlet.bodies == [b"a WARN"]


def test_logs_spans_and_metrics_by_grpc_have_a_logstore_each(tmp_path: Path, server: LogHubServer) -> None:
    """``otel.toml`` stores the logs, the spans and the data points of an exporter by gRPC in a logstore each."""
    logs, spans, metrics = ExportLogsServiceRequest(), ExportTraceServiceRequest(), ExportMetricsServiceRequest()
    logs.resource_logs.add().scope_logs.add().log_records.add().body.string_value = "sold out"
    spans.resource_spans.add().scope_spans.add().spans.add().name = "GET /"
    metric = metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="sales")
    metric.sum.data_points.add().as_int = 7
    agent = Agent(parse_toml(moved("otel.toml", tmp_path).replace("4317", "0")))
    agent.start()
    try:
        eventually(lambda: "otel" in agent._reading and agent._reading["otel"].addresses)
        port = agent._reading["otel"].addresses[0][1]
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            LogsServiceStub(channel).Export(logs)
            TraceServiceStub(channel).Export(spans)
            MetricsServiceStub(channel).Export(metrics)
        eventually(lambda: all(server.count("shop", name) == 1 for name in ("logs", "traces", "metrics")))
    finally:
        assert agent.stop(60)
    log, span, point = (server.logs("shop", name)[0].fields for name in ("logs", "traces", "metrics"))
    assert [fields["content"] for fields in (log, span, point)] == ["sold out", "GET /", "sales"]
    assert (span["signal"], point["value"]) == ("traces", "7")


def test_lines_are_stored_once_in_elasticsearch_and_pushed_to_loki(tmp_path: Path, server: LogHubServer) -> None:
    """``search.toml`` stores JSON lines in an index of their day, and in Loki; a refused one becomes a dead letter."""
    day = '{{"ts": 1790000000123, "level": "{}"}}\n'
    written(tmp_path / "var/log/shop/a.json", "".join(map(day.format, ("INFO", "WARN", "BAD"))))
    with running(Elasticsearch()) as search, running(Loki()) as loki:
        search.judge = lambda document: (400, "document_parsing_exception") if document["level"] == "BAD" else None
        text = moved("search.toml", tmp_path)
        text = text.replace("https://es.example.com:9200", search.url).replace("https://loki.example.com", loki.url)
        agent = Agent(parse_toml(text))
        dead = tmp_path / "var/lib/loghub-agent/refused"
        delivered(agent, lambda: len(loki.entries) == 3 and len(search.documents) == 2 and any(dead.glob("*")))
        assert {index for index, _ in search.documents} == {"logs-shop-2026.09.21"}
        assert search.stored("level") == ["INFO", "WARN"]
        assert {labels["level"] for labels, *_ in loki.entries} == {"INFO", "WARN", "BAD"}
        assert search.requests[0].headers["Authorization"] == "ApiKey hush"
    (letter,) = [line for path in dead.iterdir() for line in path.read_text().splitlines()]
    assert "document_parsing_exception" in json.loads(letter)["headers"]["dead_letter_reason"]


def test_a_channel_is_measured(tmp_path: Path) -> None:
    """``measure.toml`` ends after all events, here fewer."""
    text = moved("measure.toml", tmp_path).replace("1000000", "5000")
    agent = Agent(replace(parse_toml(text), state=tmp_path))
    delivered(agent, lambda: agent.finished() and agent.delivered())
    assert agent_has(agent, 5000, "nowhere")()


def test_every_example_is_run() -> None:
    """Each example runs in this module or in ``test_examples_kafka``."""
    tests = "".join(
        Path(__file__).with_name(name).read_text() for name in ("test_examples.py", "test_examples_kafka.py")
    )
    assert [path.name for path in FILES if f'moved("{path.name}"' not in tests] == []


def agent_has(agent: Agent, count: int, sink: str = "k1") -> Callable[[], bool]:
    """Return a test whether a sink has delivered so many events."""
    return lambda: agent.health_of(f"sinks.{sink}").counters.get("EventDrainSuccessCount") >= count

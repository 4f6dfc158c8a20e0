"""OpenTelemetry logs by gRPC: our sink to our source, each against grpcio, and hostile calls."""

import shutil
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
import trustme
from google.rpc.code_pb2 import RESOURCE_EXHAUSTED
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import (
    LogsServiceServicer,
    LogsServiceStub,
    add_LogsServiceServicer_to_server,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from producer.agent import Stop
from producer.agent.config.extras import extras_of
from producer.agent.config.options import AgentConfigError, read_options
from producer.agent.config.toml_file import parse_toml
from producer.agent.events.batch import EventBatch
from producer.agent.events.counters import Counters
from producer.agent.events.interfaces import RefusedError, Sink, SinkError
from producer.agent.protocols import grpc_statuses, tls_files
from producer.agent.protocols.grpc_statuses import OF_LOGS, pause_of, retry_metadata
from producer.agent.protocols.otlp import request_with
from producer.agent.sinks.otlp import OtlpSink
from producer.agent.sources import otlp_grpc
from tests.agent.components import lines, made
from tests.agent.doubles import context
from tests.agent.sinks.proxies import proxy
from tests.agent.sources.listeners import Served, serving
from tests.support.waiting import PATIENCE, Call, eventually, passed

from .network_conformance import ListeningSourceConformance, ReceivedSinkConformance

_GRPC = {"transport": "grpc"}


def _request(*bodies: bytes) -> ExportLogsServiceRequest:
    return request_with([EventBatch.of_bodies(list(bodies))], {})


@contextmanager
def _channel(served: Served, **options: Any) -> Iterator[grpc.Channel]:
    host, port = served.address
    with grpc.insecure_channel(f"{host}:{port}", **options) as channel:
        yield channel


class TestSource(ListeningSourceConformance):
    source = "otlp", {**_GRPC, "put_timeout": 0.05}

    def send(self, address: tuple[str, int], number: int, body: bytes) -> None:
        with grpc.insecure_channel(f"{address[0]}:{address[1]}") as channel:
            LogsServiceStub(channel).Export(_request(body), timeout=PATIENCE)


class TestSink(ReceivedSinkConformance):
    """The conformance tests of sinks, with our source as the receiver."""

    receiver = "otlp", {**_GRPC, "retry_after": 0, "put_timeout": 0.0}

    def make(self) -> Sink:
        host, port = self.address
        return OtlpSink(OtlpSink.Options(endpoint=f"http://{host}:{port}", transport="grpc"), self.context)


def _error(call: Callable[[], object]) -> Any:
    with pytest.raises(grpc.RpcError) as raised:
        call()
    return raised.value


def test_a_refused_call_gets_the_code_of_the_specification_and_other_calls_are_served() -> None:
    """A refused call gets the specification's code, RetryInfo only if it may be sent again, and others are served."""
    with serving("otlp", **_GRPC, max_body=200_000, retry_after=7) as served, _channel(served) as channel:
        raw = channel.unary_unary(OF_LOGS)
        packed = {"compression": grpc.Compression.Gzip}
        refused = [
            (lambda: raw(b"\xff"), "INVALID_ARGUMENT"),
            (lambda: raw(b"\x1f\x8bnot gzip"), "INVALID_ARGUMENT"),
            (lambda: raw(b"\0" * 300_000), "RESOURCE_EXHAUSTED"),
            (lambda: raw(b"\0" * 300_000, **packed), "INVALID_ARGUMENT"),
            (lambda: channel.stream_unary(OF_LOGS)(iter(())), "INVALID_ARGUMENT"),
            (lambda: TraceServiceStub(channel).Export(ExportTraceServiceRequest()), "UNIMPLEMENTED"),
            (lambda: MetricsServiceStub(channel).Export(ExportMetricsServiceRequest()), "UNIMPLEMENTED"),
            (lambda: channel.unary_unary("/a.B/C")(b""), "UNIMPLEMENTED"),
        ]
        for call, code in refused:
            error = _error(call)
            assert (error.code().name, pause_of(error.trailing_metadata())) == (code, None), error.details()
        served.outlet.room.clear()
        error = _error(lambda: LogsServiceStub(channel).Export(_request(b"a")))
        assert (error.code().name, pause_of(error.trailing_metadata())) == ("UNAVAILABLE", 7.0)
        served.outlet.room.set()
        for compression in grpc.Compression:
            assert LogsServiceStub(channel).Export(_request(b"a"), compression=compression) == (
                ExportLogsServiceResponse()
            )
        served.got(b"a", b"a", b"a")


def test_a_call_without_the_credentials_is_refused() -> None:
    """A call without the credentials is refused before its message is read."""
    with serving("otlp", **_GRPC, user="u", password="secret") as served, _channel(served) as channel:
        for metadata in ((), (("authorization", "Bearer secret"),)):
            error = _error(lambda: channel.unary_unary(OF_LOGS)(b"\xff", metadata=metadata))
            assert error.code().name == "UNAUTHENTICATED"
        LogsServiceStub(channel).Export(_request(b"a"), metadata=(("authorization", "Basic dTpzZWNyZXQ="),))
        served.got(b"a")


def test_a_compressed_bomb_is_refused_after_max_body_bytes() -> None:
    """A call whose 100 kB unpack to 100 MB is refused when ``max_body`` bytes are unpacked."""
    with serving("otlp", **_GRPC, max_body=1 << 20) as served, _channel(served) as channel:
        raw = channel.unary_unary(OF_LOGS)
        _error(lambda: raw(b"\0" * (2 << 20), compression=grpc.Compression.Gzip))
        bomb = b"\0" * 100_000_000
        tracemalloc.start()
        try:
            error = _error(lambda: raw(bomb, compression=grpc.Compression.Gzip))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert error.details() == "the body has more than 1048576 bytes (max_body)"
    assert peak < 8 << 20


def _never_ending(over: threading.Event) -> Iterator[bytes]:
    over.wait(PATIENCE)
    yield b""


@contextmanager
def _hanging(address: str, count: int) -> Iterator[list[Any]]:
    """Begin calls from an address that send no message."""
    over = threading.Event()
    with ExitStack() as opened:
        opened.callback(over.set)
        calls = []
        for number in range(count):
            own = (("own", number), ("grpc.use_local_subchannel_pool", 1))
            channel = opened.enter_context(grpc.insecure_channel(address, own))
            calls.append(channel.stream_unary(OF_LOGS).future(_never_ending(over)))
        yield calls


def test_an_address_has_at_most_half_of_the_calls_and_a_call_without_a_message_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One address has at most half of all calls; more are sent again, and calls without a message are cancelled."""
    monkeypatch.setattr(otlp_grpc, "_CALLS", 8)
    monkeypatch.setattr(otlp_grpc, "_CHECK_SECONDS", 0.05)
    with serving("otlp", **_GRPC, bind="::", request_timeout=0.5) as served:
        port = served.address[1]
        with _hanging(f"127.0.0.1:{port}", 6) as calls:
            eventually(lambda: sum(call.done() for call in calls) == 2, "the calls beyond half of all")
            assert {call.code().name for call in calls if call.done()} == {"UNAVAILABLE"}
            with grpc.insecure_channel(f"[::1]:{port}") as other:
                LogsServiceStub(other).Export(_request(b"a"))
            eventually(lambda: all(call.done() for call in calls), "the end of the calls without a message")
            assert {call.code().name for call in calls} == {"UNAVAILABLE", "CANCELLED"}
            with grpc.insecure_channel(f"127.0.0.1:{port}") as same:
                LogsServiceStub(same).Export(_request(b"b"))
        served.got(b"a", b"b")
        budget = served.source._limits.budget
        assert budget.left == budget.size


def test_peers_are_served_beside_noise_and_silent_connections() -> None:
    """Peers are served while others send noise, incomplete frames or nothing."""
    begins = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    noise = [
        b"",
        begins,
        begins + b"\0\0\0\4\0\0\0\0\0",
        b"POST / HTTP/1.1\r\n\r\n",
        b"\xff" * 5000,
        begins + b"\xff" * 5000,
    ]
    with serving("otlp", **_GRPC) as served, ExitStack() as opened:
        for sent in noise * 5:
            opened.enter_context(served.connect()).sendall(sent)
        with _channel(served) as channel:
            LogsServiceStub(channel).Export(_request(b"a"))
        served.got(b"a")


def test_a_call_in_progress_ends_before_the_source_and_a_hanging_one_does_not_hold_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stopped source answers the call whose events it puts, and cancels one whose message has not arrived."""
    putting, free = threading.Event(), threading.Event()

    def put(*_given: object, **_named: object) -> None:
        putting.set()
        assert free.wait(PATIENCE)

    with ExitStack() as opened:
        served = opened.enter_context(serving("otlp", **_GRPC))
        monkeypatch.setattr(served.outlet, "put", put)
        (hanging,) = opened.enter_context(_hanging(f"127.0.0.1:{served.address[1]}", 1))
        eventually(lambda: served.source._calls._receiving)
        channel = opened.enter_context(_channel(served))
        call = LogsServiceStub(channel).Export.future(_request(b"a"))
        passed(putting)
        stopping = Call(served.stop.set)
        eventually(hanging.done)
        free.set()
        assert call.result(PATIENCE) == ExportLogsServiceResponse()
        stopping.result()


def test_a_unix_socket_has_its_permissions_and_an_address_in_use_is_named() -> None:
    """A Unix socket has its permissions and is removed; an address in use is named in the error."""
    with TemporaryDirectory(prefix="s") as folder:
        path = Path(folder) / "otlp"
        with serving("otlp", **_GRPC, bind=f"unix:{path}", socket_mode="600") as served:
            assert (served.address, path.stat().st_mode & 0o777) == ((str(path), 0), 0o600)
            with grpc.insecure_channel(f"unix:{path}") as channel:
                LogsServiceStub(channel).Export(_request(b"a"))
            served.got(b"a")
            with pytest.raises(OSError, match=f"{path}: it is in use"):
                made("sources", "otlp", **_GRPC, bind=f"unix:{path}").run(served.outlet, Stop())
            assert path.exists()
        assert not path.exists()
    with serving("otlp", **_GRPC) as served:
        port = served.address[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port}: Address already in use"):
            made("sources", "otlp", **_GRPC, port=port).run(served.outlet, Stop())


def test_both_sides_use_renewed_certificates_and_the_source_requires_the_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source requires client certificates, and both sides use renewed files for new connections."""
    monkeypatch.setattr(tls_files, "_CHECK_SECONDS", 0.0)
    own, other = trustme.CA(), trustme.CA()
    for folder, authority in (("own", own), ("other", other)):
        (tmp_path / folder).mkdir()
        for name in ("localhost", "client"):
            issued = authority.issue_cert(name)
            issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / folder / f"{name}.pem")
        authority.cert_pem.write_to_path(tmp_path / folder / "authority.pem")

    def use(folder: str, *names: str) -> None:
        for name in names:
            shutil.copy(tmp_path / folder / name, tmp_path / name)

    use("own", "localhost.pem", "client.pem")
    shutil.copy(tmp_path / "own" / "authority.pem", tmp_path / "of-server.pem")
    shutil.copy(tmp_path / "own" / "authority.pem", tmp_path / "of-client.pem")
    of_server = {"certificate": str(tmp_path / "localhost.pem"), "client_authorities": str(tmp_path / "of-server.pem")}
    with serving("otlp", **_GRPC, **of_server) as served, ExitStack() as opened:
        to = {
            **_GRPC,
            "endpoint": f"https://localhost:{served.address[1]}",
            "authorities": str(tmp_path / "of-client.pem"),
        }

        def sink(**options: Any) -> Any:
            sink = made("sinks", "otlp", **to, **options)
            opened.callback(sink.close)
            return sink

        with_own = {"certificate": str(tmp_path / "client.pem")}
        known = sink(**with_own)
        known.write([lines("a")])
        with pytest.raises(SinkError, match="UNAVAILABLE"):
            sink().write([lines("no certificate")])
        use("other", "localhost.pem", "client.pem")
        shutil.copy(tmp_path / "other" / "authority.pem", tmp_path / "of-server.pem")
        with pytest.raises(SinkError, match="UNAVAILABLE"):
            sink(**with_own).write([lines("does not know the new authority")])
        shutil.copy(tmp_path / "other" / "authority.pem", tmp_path / "of-client.pem")
        known.write([lines("b")])
        served.got(b"a", b"b")


def test_events_go_through_a_tunnel_and_no_message_has_its_password(tmp_path: Path) -> None:
    """Calls pass a tunnel with a password; a refusal of the proxy sends events back, and does not show it."""
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    with serving("otlp", **_GRPC, certificate=str(tmp_path / "own.pem")) as served, proxy() as near:
        endpoint, trusted = f"https://localhost:{served.address[1]}", str(tmp_path / "authority.pem")
        sink = _sink(tmp_path, endpoint, authorities=trusted, proxy=near.url())
        sink.write([lines("a")])
        sink.close()
        sink = _sink(tmp_path, endpoint, authorities=trusted, proxy=near.url("me:wrong-password@"))
        with pytest.raises(SinkError) as refused:
            sink.write([lines("b")])
        sink.close()
        assert served.outlet.bodies == [b"a"]
        assert {first.split()[0] for first in near.asked} == {b"CONNECT"}
    assert "wrong-password" not in f"{refused.value!r} {refused.value}"


class _Collector(LogsServiceServicer):
    """Receiver of grpcio that answers each call with the next of its answers, then accepts."""

    def __init__(self) -> None:
        self.answers: list[Callable[[grpc.ServicerContext], Any]] = []
        self.calls: list[tuple[int, dict[str, Any]]] = []

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802  # its name
        records = sum(len(scope.log_records) for each in request.resource_logs for scope in each.scope_logs)
        self.calls.append((records, dict(context.invocation_metadata())))
        return self.answers.pop(0)(context) if self.answers else ExportLogsServiceResponse()


def _refusal(code: str, words: str = "no", pause: float | None = None) -> Callable[[grpc.ServicerContext], Any]:
    def answer(context: grpc.ServicerContext) -> Any:
        if pause is not None:
            context.set_trailing_metadata(retry_metadata(RESOURCE_EXHAUSTED, words, pause))
        context.abort(grpc.StatusCode[code], words)

    return answer


@pytest.fixture
def collector() -> Iterator[tuple[_Collector, str]]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        server, collector = grpc.server(pool), _Collector()
        add_LogsServiceServicer_to_server(collector, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield collector, f"http://127.0.0.1:{port}"
        server.stop(0).wait()


def _sink(state: Path, endpoint: str, counters: Counters | None = None, **options: Any) -> OtlpSink:
    chosen = read_options(OtlpSink.Options, {**_GRPC, "endpoint": endpoint, **options}, "sinks.k")
    return OtlpSink(chosen, replace(context(state), counters=counters or Counters()))


def test_the_status_code_decides_which_events_are_refused_and_which_are_retried(
    collector: tuple[_Collector, str], tmp_path: Path
) -> None:
    """An invalid or too large request is halved until its event is refused; other failures are retried."""
    receiver, endpoint = collector
    large = "SERVER: Received message larger than max (5 vs. 4)"
    for code, words in (("INVALID_ARGUMENT", "no"), ("RESOURCE_EXHAUSTED", large), ("OUT_OF_RANGE", "too large")):
        receiver.answers = [_refusal(code, words)] * 2
        sink = _sink(tmp_path, endpoint)
        with pytest.raises(RefusedError, match=f"{code}: ") as raised:
            sink.write([lines("a", "b")])
        assert [batch.bodies() for batch in raised.value.batches] == [[b"a"]]
        sink.close()
    back_again = ("UNAVAILABLE", "UNAUTHENTICATED", "UNIMPLEMENTED", "INTERNAL", "ABORTED", "RESOURCE_EXHAUSTED")
    for code in back_again:
        receiver.answers = [_refusal(code)]
        sink = _sink(tmp_path, endpoint)
        with pytest.raises(SinkError, match=f"{code}: no") as back:
            sink.write([lines("a")])
        assert not isinstance(back.value, RefusedError)
        sink.close()
    assert [count for count, _ in receiver.calls] == [*([2, 1, 1] * 3), *([1] * 6)]


def test_after_a_call_without_an_answer_the_next_one_gets_a_new_connection(tmp_path: Path) -> None:
    """A peer that has vanished without a word, or a connection that a firewall has dropped, costs one call."""
    with serving("otlp", **_GRPC) as served, _first_connection_silenced(served.address) as (silence, port):
        sink = _sink(tmp_path, f"http://127.0.0.1:{port}", connect_timeout=0.5, request_timeout=0.5)
        sink.write([lines("a")])
        silence.set()
        with pytest.raises(SinkError, match="DEADLINE_EXCEEDED"):
            sink.write([lines("b")])

        failures: list[str] = []

        def delivered() -> bool:
            try:
                sink.write([lines("b")])
            except SinkError as error:
                failures.append(str(error))
                return False
            return True

        eventually(delivered, "the events on a new connection")
        sink.close()
        assert all("asked for a pause" in each for each in failures)
        served.got(b"a", b"b")


@contextmanager
def _first_connection_silenced(address: tuple[str, int]) -> Iterator[tuple[threading.Event, int]]:
    """Pass connections on; once the event is set, what comes on the first one is dropped."""
    silence, all_of_them = threading.Event(), ExitStack()

    def copy(source: socket.socket, target: socket.socket, silent: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if not silent.is_set():
                    target.sendall(data)

    def accept() -> None:
        silent = silence
        with suppress(OSError):
            while True:
                near = all_of_them.enter_context(listener.accept()[0])
                far = all_of_them.enter_context(socket.create_connection(address))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=copy, args=(*pair, silent), daemon=True).start()
                silent = threading.Event()

    with socket.create_server(("127.0.0.1", 0)) as listener, all_of_them:
        threading.Thread(target=accept, daemon=True).start()
        yield silence, listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_only_the_event_that_is_too_large_for_the_source_is_refused(tmp_path: Path) -> None:
    """A call that is too large is halved until only the single event that is too large is refused."""
    texts, large = [f"{number:0300}".encode() for number in range(99)], b"x" * 30_000
    with serving("otlp", **_GRPC, max_body=20_000) as served:
        host, port = served.address
        sink = _sink(tmp_path, f"http://{host}:{port}", compress=False)
        with pytest.raises(RefusedError, match="answered 413: 'RESOURCE_EXHAUSTED: ") as raised:
            sink.write([EventBatch.of_bodies([*texts[:7], large, *texts[7:]])])
        sink.close()
        served.got(*texts)
    assert [batch.bodies() for batch in raised.value.batches] == [[large]]


def test_the_pause_of_retry_info_is_kept(collector: tuple[_Collector, str], tmp_path: Path) -> None:
    """A call that RESOURCE_EXHAUSTED with RetryInfo refuses goes back, and none follows during the pause."""
    receiver, endpoint = collector
    receiver.answers = [_refusal("RESOURCE_EXHAUSTED", pause=99.5)]
    sink = _sink(tmp_path, endpoint)
    for words in ("answered 429", r"asked for a pause, which lasts another 1?\d\d"):
        with pytest.raises(SinkError, match=words):
            sink.write([lines("a")])
    sink.close()
    assert len(receiver.calls) == 1


def test_a_partial_rejection_is_counted_and_secrets_are_sent_and_not_shown(
    collector: tuple[_Collector, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A partial rejection is counted and logged; token and headers are metadata, and hidden in messages."""
    receiver, endpoint = collector
    partial = ExportLogsServiceResponse()
    partial.partial_success.rejected_log_records, partial.partial_success.error_message = 1, "too old"
    receiver.answers = [lambda _context: partial, _refusal("UNAVAILABLE", "not for hidden-key or hidden-token")]
    counters = Counters()
    sink = _sink(tmp_path, endpoint, counters, token="hidden-token", headers={"X-Key": "hidden-key"})
    sink.write([lines("a", "b")])
    assert counters.get("EventRefusedCount") == 1
    assert "rejected 1 of the events without naming them: too old" in caplog.text
    with pytest.raises(SinkError, match=r"not for \*\*\* or \*\*\*"):
        sink.write([lines("c")])
    sink.close()
    metadata = receiver.calls[0][1]
    assert (metadata["authorization"], metadata["x-key"]) == ("Bearer hidden-token", "hidden-key")
    assert not {"host", "content-encoding", "accept"} & metadata.keys()


@pytest.mark.parametrize(
    ("part", "options", "words"),
    [
        ("sources", {"path": "/own"}, "path: needs transport = http"),
        ("sources", {"max_connections_per_peer": 5}, "max_connections_per_peer: needs transport = http"),
        ("sources", {"signals": ["logs", "profiles"]}, "signals: must name some of logs, traces, metrics"),
        ("sources", {"path": "/v1/traces", "signals": ["logs", "traces"]}, "path: must not be that of traces"),
        ("sources", {"signals": []}, "signals: must name some of"),
        ("sinks", {"endpoint": "http://a/v1/logs"}, "endpoint: must have no path with transport = grpc"),
        ("sinks", {"endpoint": "https://a", "verify": False}, "verify: must be true with transport = grpc"),
    ],
)
def test_options_that_have_no_meaning_with_grpc_are_refused(part: str, options: dict[str, Any], words: str) -> None:
    """Options that have no meaning with gRPC are refused before anything starts."""
    with pytest.raises(AgentConfigError, match=words):
        made(part, "otlp", **_GRPC, **options)


def test_without_grpcio_the_error_names_the_extra_which_an_installation_for_the_configuration_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without grpcio the error names the extra, which the list for the configuration has; http needs none."""
    text = (
        '[sources.s]\ntype = "otlp"\ntransport = "grpc"\nchannels = ["c"]\n[channels.c]\ntype = "memory"\n'
        '[sinks.k]\ntype = "null"\nchannel = "c"\n'
    )
    assert extras_of(parse_toml(text)) == ["agent", "otlp", "otlp-grpc"]
    monkeypatch.setattr(grpc_statuses, "is_installed", lambda package: package != "grpc")
    for part, given in (("sources", {}), ("sinks", {"endpoint": "http://a"})):
        with pytest.raises(AgentConfigError, match=r"transport: grpc needs the Python package grpcio: .*otlp-grpc"):
            made(part, "otlp", **_GRPC, **given)
    assert made("sources", "otlp")._source._rules.port == 4318
    monkeypatch.undo()
    assert made("sources", "otlp", **_GRPC)._source._options.port == 4317

"""OpenTelemetry logs by HTTP: our sink to our source, and requests made by hand."""

import gzip
import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse

from producer.agent.config.options import read_options
from producer.agent.events.batch import EventBatch
from producer.agent.events.counters import Counters
from producer.agent.events.interfaces import RefusedError, Sink
from producer.agent.protocols.otlp import batches_of_protobuf, request_with
from producer.agent.protocols.reckoning import Reckoning
from producer.agent.sinks.otlp import OtlpSink
from producer.model.errors import ConfigError
from tests.agent.doubles import context
from tests.agent.sources.listeners import serving
from tests.support.waiting import PATIENCE

from .network_conformance import ListeningSourceConformance, ReceivedSinkConformance

STAMP = "1700000000123"
PROTOBUF, JSON = {"Content-Type": "application/x-protobuf"}, {"Content-Type": "application/json; charset=utf-8"}

#: The request in the specification.
REQUEST = {
    "resourceLogs": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
            "scopeLogs": [
                {
                    "scope": {"name": "lib"},
                    "logRecords": [
                        {
                            "timeUnixNano": "1700000000123456789",
                            "severityNumber": 9,
                            "severityText": "Information",
                            "traceId": "5b8efff798038103d269b633813fc60c",
                            "spanId": "eee19b7ec3c1b174",
                            "body": {"stringValue": "Example log record"},
                            "attributes": [
                                {"key": "n", "value": {"intValue": "5"}},
                                {"key": "l", "value": {"arrayValue": {"values": [{"boolValue": True}, {}]}}},
                                {"key": "b", "value": {"bytesValue": "/w=="}},
                            ],
                        },
                        {
                            "observedTimeUnixNano": "1700000000123000000",
                            "body": {"kvlistValue": {"values": [{"key": "a", "value": {"doubleValue": 1.5}}]}},
                            "unknown": 1,
                        },
                        {"body": {"bytesValue": "/wA="}},
                        {},
                    ],
                }
            ],
        }
    ]
}
_SHARED = {"resource.service.name": "shop", "scope": "lib"}
EVENTS = [
    (
        {
            **_SHARED,
            "timestamp": STAMP,
            "severity": "Information",
            "severity_number": "9",
            "trace_id": "5b8efff798038103d269b633813fc60c",
            "span_id": "eee19b7ec3c1b174",
            "n": "5",
            "l": "[true, null]",
            "b": '"/w=="',
        },
        b"Example log record",
    ),
    ({**_SHARED, "timestamp": STAMP}, b'{"a": 1.5}'),
    (_SHARED, b"\xff\x00"),
    (_SHARED, b""),
]


def post(
    address: tuple[str, int], body: bytes, headers: dict[str, str], path: str = "/v1/logs"
) -> tuple[int, bytes, str | None]:
    """Send a request; return status, body and content type of the answer."""
    connection = HTTPConnection(*address, timeout=PATIENCE)
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader("Content-Type")
    finally:
        connection.close()


def as_protobuf(given: Any) -> bytes:
    """Return a request in protobuf, whose IDs are bytes."""
    changed = json.loads(json.dumps(given))
    for of_resource in changed["resourceLogs"]:
        for record in (record for scope in of_resource["scopeLogs"] for record in scope["logRecords"]):
            ids = {
                name: b64encode(bytes.fromhex(record[name])).decode()
                for name in ("traceId", "spanId")
                if name in record
            }
            record.update(ids)
    return ParseDict(changed, ExportLogsServiceRequest(), ignore_unknown_fields=True).SerializeToString()


class TestSource(ListeningSourceConformance):
    source = "otlp", {"put_timeout": 0.05}

    def send(self, address: tuple[str, int], number: int, body: bytes) -> None:
        request = request_with([EventBatch.of_bodies([body])], {}).SerializeToString()
        while post(address, request, PROTOBUF)[0] != 200:
            pass


class TestSink(ReceivedSinkConformance):
    """The conformance tests of sinks, with our source as the receiver."""

    receiver = "otlp", {"retry_after": 0, "put_timeout": 0.0}

    def make(self) -> Sink:
        host, port = self.address
        return OtlpSink(OtlpSink.Options(endpoint=f"http://{host}:{port}"), self.context)


def test_json_requests_have_hexadecimal_ids() -> None:
    """JSON requests have hexadecimal IDs; values other than text become JSON, and unknown fields are ignored."""
    with serving("otlp") as served:
        assert post(served.address, json.dumps(REQUEST).encode(), JSON) == (200, b"{}", "application/json")
        assert served.outlet.events == EVENTS


def test_protobuf_requests_are_accepted_and_answered() -> None:
    """Protobuf requests are accepted, compressed or not, and answered with an empty response."""
    body = as_protobuf(REQUEST)
    with serving("otlp") as served:
        assert post(served.address, body, PROTOBUF) == (200, b"", PROTOBUF["Content-Type"])
        assert ExportLogsServiceResponse.FromString(b"") == ExportLogsServiceResponse()
        assert post(served.address, gzip.compress(body), PROTOBUF | {"Content-Encoding": "gzip"})[0] == 200
        assert post(served.address, b"", PROTOBUF)[0] == 200
        assert served.outlet.events == EVENTS * 2


@pytest.mark.parametrize(
    ("body", "headers", "path", "status"),
    [
        (b"\xff", PROTOBUF, "/v1/logs", 400),
        (b"{", JSON, "/v1/logs", 400),
        (b"[]", JSON, "/v1/logs", 400),
        (b'{"resourceLogs": [1]}', JSON, "/v1/logs", 400),
        (b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"traceId": "xyz"}]}]}]}', JSON, "/v1/logs", 400),
        (b"[" * 100_000, JSON, "/v1/logs", 400),
        (b"", {"Content-Type": "text/plain"}, "/v1/logs", 415),
        (b"", PROTOBUF, "/v1/traces", 404),
        (gzip.compress(b"\0" * 300_000, mtime=0), PROTOBUF | {"Content-Encoding": "gzip"}, "/v1/logs", 413),
    ],
)
def test_an_invalid_request_is_refused_with_its_status_and_other_clients_are_served(
    body: bytes, headers: dict[str, str], path: str, status: int
) -> None:
    """An invalid request is refused with its status, and other clients are served."""
    with serving("otlp", max_body=200_000) as served:
        assert post(served.address, body, headers, path)[0] == status
        assert post(served.address, b"", PROTOBUF)[0] == 200
        assert served.outlet.events == []


@pytest.mark.parametrize("kind", ["application/x-protobuf", "application/json"])
def test_a_request_whose_decoding_would_need_too_much_memory_gets_413_before_it_is_read(kind: str) -> None:
    """A request whose decoding would need too much memory gets 413 before it is read."""
    count = 10_000
    if kind.endswith("json"):
        records = ",".join(["{}"] * count)
        body = f'{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{records}]}}]}}]}}'.encode()
    else:
        request = ExportLogsServiceRequest()
        logs = request.resource_logs.add().scope_logs.add().log_records
        for _ in range(count):
            logs.add()
        body = request.SerializeToString()
    with serving("otlp", max_memory=1 << 20) as served:
        assert post(served.address, body, {"Content-Type": kind})[0] == 413
        assert post(served.address, json.dumps(REQUEST).encode(), JSON)[0] == 200
        assert served.outlet.events == EVENTS


def test_events_come_through_both() -> None:
    """OpenTelemetry's fields survive; invalid IDs, times and numbers are left out."""
    events = [
        ({**_SHARED, "timestamp": STAMP, "severity": "WARN", "severity_number": "13", "n": "1"}, b"one"),
        (
            {"resource.service.name": "other", "trace_id": "00" * 16, "span_id": "0f" * 8},
            b"two \xff",
        ),
        ({**_SHARED, "timestamp": "soon", "trace_id": "abc", "odd": "\udcff"}, b"three"),
        ({**_SHARED, "timestamp": "99999999999999", "severity_number": "9" * 14}, b"four"),
    ]
    request = request_with([EventBatch.of_events(events)], {"host": "h"})
    (batch,) = batches_of_protobuf(request.SerializeToString(), Reckoning(lambda _size: None))
    found = list(batch.events())
    host = {"resource.host": "h"}
    assert found == [
        (host | events[0][0], b"one"),
        ({**host, **_SHARED, "odd": "?"}, b"three"),
        (host | _SHARED, b"four"),
        (host | events[1][0], b"two \xff"),
    ]


@contextmanager
def receiver(status: int, body: bytes) -> Iterator[tuple[str, list[str]]]:
    """Run a server that sends this answer; yield its URL, and the paths of its requests."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            paths.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", paths
        server.shutdown()
        thread.join()


def sink(state: Path, counters: Counters | None = None, **options: Any) -> OtlpSink:
    chosen = read_options(OtlpSink.Options, options, "sinks.k")
    return OtlpSink(chosen, replace(context(state), counters=counters or Counters()))


def test_a_request_that_is_too_large_is_halved(tmp_path: Path) -> None:
    """A request that is too large is halved until only the single event that is too large is refused."""
    texts = [f"{number:0300}".encode() for number in range(200)]
    large = b"x" * 30_000
    with serving("otlp", max_body=20_000) as served:
        host, port = served.address
        made_sink = sink(tmp_path, endpoint=f"http://{host}:{port}", compress=False)
        with pytest.raises(RefusedError, match=r"answered 413: 'the body has more than 20000 bytes") as raised:
            made_sink.write([EventBatch.of_bodies([*texts[:77], large, *texts[77:]], {"host": "h"})])
        made_sink.close()
        served.got(*texts)
    assert [batch.bodies() for batch in raised.value.batches] == [[large]]


def test_a_partial_rejection_is_logged_and_the_request_is_not_sent_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A partial rejection is logged, and the request is not sent again."""
    answer = ExportLogsServiceResponse()
    answer.partial_success.rejected_log_records, answer.partial_success.error_message = 1, "too old"
    counters = Counters()
    with receiver(200, answer.SerializeToString()) as (url, paths):
        made_sink = sink(tmp_path, counters, endpoint=f"{url}/own/path")
        made_sink.write([EventBatch.of_lines(b"a\nb\n")])
        made_sink.close()
    assert paths == ["/own/path"]
    assert counters.get("EventRefusedCount") == 1
    assert "rejected 1 of the events without naming them: too old" in caplog.text


def test_the_status_decides_about_refusals_as_for_the_sink_http(tmp_path: Path) -> None:
    """The status decides about refusals as for the sink http; an answer that is not OTLP does not fail the delivery."""
    batches = [EventBatch.of_lines(b"a\n")]
    with receiver(400, b"") as (url, paths):
        refusing = sink(tmp_path, endpoint=url)
        with pytest.raises(RefusedError) as raised:
            refusing.write(batches)
        refusing.close()
    assert raised.value.batches == batches
    assert paths == ["/v1/logs"]
    with receiver(200, b"\xff fine") as (url, _):
        taking = sink(tmp_path, endpoint=url)
        taking.write(batches)
        taking.close()


@pytest.mark.parametrize(
    "options",
    [{"endpoint": "grpc://a"}, {"endpoint": "http://u:p@a"}, {"endpoint": "http://a", "refused": ("4",)}],
)
def test_invalid_options_are_refused_before_anything_starts_as_for_the_sink_http(options: dict[str, Any]) -> None:
    """Invalid options are refused before anything starts, as for the sink http."""
    with pytest.raises(ConfigError):
        OtlpSink.Options(**options)

"""The source ``otlp`` with OpenTelemetry's own exporters, over HTTP and gRPC."""

import json
from collections.abc import Mapping
from typing import Any

import grpc
import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from tests.agent.sources.listeners import Served, serving

_TRANSPORTS = ["http", "grpc"]
_EXPORTERS: Mapping[tuple[str, str], Any] = {
    ("http", "logs"): HttpLogs,
    ("http", "traces"): HttpSpans,
    ("http", "metrics"): HttpMetrics,
    ("grpc", "logs"): GrpcLogs,
    ("grpc", "traces"): GrpcSpans,
    ("grpc", "metrics"): GrpcMetrics,
}
_RESOURCE = Resource({"service.name": "shop"})
_SHARED = {"resource.service.name": "shop", "scope": "checkout"}
_TIME = 1_700_000_000_123_456_789
_STAMP = str(_TIME // 1_000_000)


def _exporter(transport: str, signal: str, served: Served) -> Any:
    """Return an exporter with compression and a token."""
    host, port = served.address
    make = _EXPORTERS[transport, signal]
    headers = {"authorization": "Bearer a secret"}
    if transport == "http":
        return make(f"http://{host}:{port}/v1/{signal}", headers=headers, compression=Compression.Gzip)
    return make(f"{host}:{port}", insecure=True, headers=headers, compression=grpc.Compression.Gzip)


@pytest.mark.parametrize("transport", _TRANSPORTS)
def test_opentelemetrys_exporter_compressed_and_with_a_token_delivers_each_record_as_an_event(transport: str) -> None:
    """OpenTelemetry's exporter, compressed and with a token, delivers each record as an event."""
    with serving("otlp", transport=transport, token="a secret") as served:
        provider = LoggerProvider(_RESOURCE, shutdown_on_exit=False)
        provider.add_log_record_processor(SimpleLogRecordProcessor(_exporter(transport, "logs", served)))
        record = LogRecord(
            timestamp=_TIME,
            severity_number=SeverityNumber.WARN,
            severity_text="WARN",
            body="sold out",
            event_name="sale",
            attributes={"item": 7},
        )
        provider.get_logger("checkout").emit(record)
        provider.shutdown()
        ((headers, body),) = served.outlet.events
        assert body == b"sold out"
        assert headers.pop("observed_timestamp").isdecimal()
        assert headers == {
            **_SHARED,
            "timestamp": _STAMP,
            "severity": "WARN",
            "severity_number": "13",
            "event_name": "sale",
            "item": "7",
        }


@pytest.mark.parametrize("transport", _TRANSPORTS)
def test_where_asked_each_span_of_an_exporter_is_an_event_with_its_events_and_links(transport: str) -> None:
    """Where asked, each span of an exporter is an event, with its events and links as JSON."""
    with serving("otlp", transport=transport, signals=["traces"], token="a secret") as served:
        provider = TracerProvider(resource=_RESOURCE, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(_exporter(transport, "traces", served)))
        tracer = provider.get_tracer("checkout")
        with tracer.start_as_current_span("parent") as parent:
            linked = Link(parent.get_span_context(), {"why": "test"})
            span = tracer.start_span(
                "GET /", kind=SpanKind.SERVER, links=[linked], start_time=_TIME, attributes={"kind": 1}
            )
            span.add_event("retry", {"n": [1, 2]}, timestamp=_TIME + 1)
            span.set_status(Status(StatusCode.ERROR, "sold out"))
            span.end(_TIME + 2_000_000)
        provider.shutdown()
        (headers, body), (of_parent, _) = served.outlet.events
    ids = {name: of_parent[name] for name in ("trace_id", "span_id")}
    assert json.loads(headers.pop("links")) == [{**ids, "trace_state": "", "attributes": {"why": "test"}}]
    assert json.loads(headers.pop("events")) == [
        {"time_unix_nano": _TIME + 1, "name": "retry", "attributes": {"n": [1, 2]}}
    ]
    assert (len(headers.pop("span_id")), headers.pop("flags").isdecimal()) == (16, True)
    assert body == b"GET /"
    assert headers == {
        **_SHARED,
        "signal": "traces",
        "trace_id": ids["trace_id"],
        "parent_span_id": ids["span_id"],
        "kind": "server",
        "status": "error",
        "status_message": "sold out",
        "timestamp": _STAMP,
        "end_timestamp": str(int(_STAMP) + 2),
        "duration_nanoseconds": "2000000",
        "field_kind": "1",
    }
    assert "parent_span_id" not in of_parent


@pytest.mark.parametrize("transport", _TRANSPORTS)
def test_where_asked_each_data_point_of_an_exporter_is_an_event(transport: str) -> None:
    """Where asked, each data point of an exporter is an event."""
    with serving("otlp", transport=transport, signals=["logs", "metrics"], token="a secret") as served:
        reader = PeriodicExportingMetricReader(_exporter(transport, "metrics", served), 1e9)
        provider = MeterProvider([reader], _RESOURCE, shutdown_on_exit=False)
        meter = provider.get_meter("checkout")
        counter = meter.create_counter("sales", "1")
        counter.add(3, {"item": "a"})
        counter.add(4, {"item": "b"})
        meter.create_histogram("time", "ms", explicit_bucket_boundaries_advisory=[5, 10]).record(7)
        provider.shutdown()
        events = served.outlet.events
    assert [body for _, body in events] == [b"sales", b"sales", b"time"]
    for headers, _ in events:
        assert all(headers.pop(name).isdecimal() for name in ("timestamp", "start_timestamp"))
    of_all = {**_SHARED, "signal": "metrics", "temporality": "cumulative"}
    of_sum = {**of_all, "type": "sum", "unit": "1", "monotonic": "true"}
    values = {"count": "1", "sum": "7.0", "min": "7.0", "max": "7.0", "bounds": "[5.0, 10.0]", "buckets": "[0, 1, 0]"}
    assert [headers for headers, _ in events] == [
        {**of_sum, "item": "a", "value": "3"},
        {**of_sum, "item": "b", "value": "4"},
        {**of_all, "type": "histogram", "unit": "ms", **values},
    ]


@pytest.mark.parametrize("transport", _TRANSPORTS)
def test_an_exporter_whose_signal_is_not_accepted_fails_at_once(transport: str) -> None:
    """An exporter whose signal is not accepted fails at once: it is not asked to send again."""
    with serving("otlp", transport=transport, token="a secret") as served:
        exporter = _exporter(transport, "traces", served)
        span = TracerProvider(shutdown_on_exit=False).get_tracer("a").start_span("b")
        assert exporter.export([span]) is SpanExportResult.FAILURE
        exporter.shutdown()
        assert served.outlet.events == []

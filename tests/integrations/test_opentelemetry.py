"""The exporters and instruments under the real OpenTelemetry SDK and a real server."""

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanKind, Status, StatusCode

from producer import Producer, ProducerConfig
from producer.integrations.logging import LogHubHandler
from producer.integrations.opentelemetry import LogHubLogExporter, LogHubSpanExporter, observe, trace_context
from producer.model.interfaces import Delivery, Receipt
from producer.model.metrics import LATENCY_BOUNDS
from producer.server import LogHubServer
from producer.server.store.log_groups import StoredLog
from producer.testing import RecordingSink
from tests.integrations.conftest import PROJECT
from tests.support.waiting import eventually

Arrived = Callable[[], list[StoredLog]]
RESOURCE = Resource({"service.name": "shop", "host.name": "box", "k8s.pod.name": "shop-1"})


def test_a_span_arrives_in_the_schema_of_traces(producer: Producer, logstore: str, arrived: Arrived) -> None:
    """A span arrives with every field of LogHub's traces, times in microseconds, and the rest as JSON."""
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(BatchSpanProcessor(LogHubSpanExporter(producer, PROJECT, logstore)))
    tracer = provider.get_tracer("shop.web", "1.2")
    with tracer.start_as_current_span("GET /cart", kind=SpanKind.SERVER) as parent:
        link = trace.Link(parent.get_span_context(), {"why": "retry"})
        with tracer.start_as_current_span("SELECT", kind=SpanKind.CLIENT, links=[link], attributes={"rows": 3}) as span:
            span.add_event("slow", {"ms": 31})
            span.set_status(Status(StatusCode.ERROR, "timeout"))
    assert provider.force_flush()
    child, root = arrived()
    provider.shutdown()
    ids = {
        "traceID": f"{parent.get_span_context().trace_id:032x}",
        "spanID": f"{parent.get_span_context().span_id:016x}",
    }
    assert (root.fields["name"], root.fields["kind"], root.fields["parentSpanID"]) == ("GET /cart", "SERVER", "")
    assert (root.fields["traceID"], root.fields["spanID"]) == (ids["traceID"], ids["spanID"])
    assert (root.fields["statusCode"], root.fields["links"], root.fields["attribute"]) == ("UNSET", "[]", "{}")
    fields: dict[str, Any] = dict(child.fields)
    assert (fields["traceID"], fields["parentSpanID"]) == (ids["traceID"], ids["spanID"])
    assert (fields["statusCode"], fields["statusMessage"]) == ("ERROR", "timeout")
    assert (fields["service"], fields["host"], fields["otlp.name"]) == ("shop", "box", "shop.web")
    assert json.loads(fields["resource"]) == {"k8s.pod.name": "shop-1"}
    assert json.loads(fields["attribute"]) == {"rows": 3}
    assert json.loads(fields["links"]) == [{**ids, "attribute": {"why": "retry"}}]
    [event] = json.loads(fields["logs"])
    assert (event["name"], event["attribute"]) == ("slow", {"ms": 31})
    assert int(fields["end"]) - int(fields["start"]) == pytest.approx(int(fields["duration"]), abs=1)
    assert int(fields["start"]) == child.time * 1_000_000 + child.time_ns // 1000
    assert abs(int(fields["start"]) / 1e6 - time.time()) < 60


def test_a_span_with_an_invalid_value_arrives_and_so_do_the_others_of_its_batch(
    producer: Producer, logstore: str, arrived: Arrived
) -> None:
    """A span with an invalid value arrives, and so do the others of its batch."""

    class Unspeakable:
        def __repr__(self) -> str:
            raise LookupError

    odd = ReadableSpan("odd", attributes={"a": Unspeakable()})  # type: ignore[dict-item]
    exporter = LogHubSpanExporter(producer, PROJECT, logstore)
    assert exporter.export([odd, ReadableSpan("other")]) is SpanExportResult.SUCCESS
    first, second = arrived()
    assert (first.fields["name"], second.fields["name"]) == ("odd", "other")
    assert "whose repr raised LookupError" in str(first.fields["attribute"])


def test_a_log_record_arrives_with_its_trace(producer: Producer, logstore: str, arrived: Arrived) -> None:
    """A log record arrives with body, severity, attributes, resource, scope and span."""
    provider = LoggerProvider(resource=RESOURCE)
    provider.add_log_record_processor(BatchLogRecordProcessor(LogHubLogExporter(producer, PROJECT, logstore)))
    with TracerProvider().get_tracer("t").start_as_current_span("work") as span:
        record = LogRecord(
            timestamp=1_700_000_000_123_456_789,
            severity_text="WARN",
            severity_number=SeverityNumber.WARN,
            body={"paid": 17},
            attributes={"user": 7, "host": "mine"},
        )
        provider.get_logger("shop.web").emit(record)
    assert provider.force_flush()
    [log] = arrived()
    provider.shutdown()
    assert (log.time, log.time_ns) == (1_700_000_000, 123_456_789)
    assert log.fields["message"] == '{"paid":17}'
    assert (log.fields["severity_text"], log.fields["severity_number"]) == ("WARNING", "13")
    assert (log.fields["user"], log.fields["host"], log.fields["attribute.host"]) == ("7", "box", "mine")
    assert log.fields["traceID"] == f"{span.get_span_context().trace_id:032x}"
    assert log.fields["spanID"] == f"{span.get_span_context().span_id:016x}"
    assert log.fields["otlp.name"] == "shop.web"


def test_an_export_that_is_not_accepted_fails_and_shutdown_closes_an_own_producer_after_delivery(
    reach: dict[str, Any], loghub: LogHubServer, logstore: str
) -> None:
    """An export that is not accepted fails, and shutdown closes an own producer after delivery."""
    config = {"name": "own-otel", "linger_ms": 100}
    exporter = LogHubSpanExporter(project=PROJECT, logstore=logstore, config=config, **reach)
    span = TracerProvider().get_tracer("t").start_span("once")
    assert exporter.export([span]) is SpanExportResult.SUCCESS  # type: ignore[list-item]
    assert exporter.force_flush(20_000)
    assert loghub.count(PROJECT, logstore) == 1
    exporter.shutdown()
    exporter.shutdown()
    assert exporter.export([span]) is SpanExportResult.FAILURE  # type: ignore[list-item]
    eventually(lambda: not [one for one in threading.enumerate() if one.name.startswith("own-otel-")])
    closed = Producer(sink=RecordingSink())
    late = LogHubSpanExporter(closed, PROJECT, logstore)
    closed.close()
    assert (late.export([span]), late.dropped) == (SpanExportResult.FAILURE, 1)  # type: ignore[list-item]


def test_after_its_shutdown_an_exporter_takes_nothing(
    producer: Producer, logstore: str, arrived: Arrived, loghub: LogHubServer
) -> None:
    """After shutdown an export fails, also with a shared producer, which stays open."""
    exporter = LogHubSpanExporter(producer, PROJECT, logstore)
    span = TracerProvider().get_tracer("t").start_span("once")
    assert exporter.export([span]) is SpanExportResult.SUCCESS  # type: ignore[list-item]
    exporter.shutdown()
    assert loghub.count(PROJECT, logstore) == 1
    assert exporter.export([span]) is SpanExportResult.FAILURE  # type: ignore[list-item]
    assert (len(arrived()), producer.closed) == (1, False)


def test_records_of_logging_carry_the_trace(producer: Producer, logstore: str, arrived: Arrived) -> None:
    """Records of ``logging`` have the current trace with ``context=trace_context``, and none outside a span."""
    handler = LogHubHandler(producer, PROJECT, logstore, context=trace_context)
    record = logging.LogRecord("app", 20, __file__, 1, "x", (), None)
    with TracerProvider().get_tracer("t").start_as_current_span("work") as span:
        handler.handle(record)
    handler.handle(record)
    inside, outside = arrived()
    assert inside.fields["traceID"] == f"{span.get_span_context().trace_id:032x}"
    assert "traceID" not in outside.fields


_LIMITS = (*(f"{bound:g}" for bound in LATENCY_BOUNDS), "+Inf")


def test_figures_are_instruments(producer: Producer, logstore: str, arrived: Arrived) -> None:
    """Metrics are counters and gauges with units and the attribute ``producer``."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    observe(producer, meter=provider.get_meter("test"))
    producer.stream(PROJECT, logstore).send_many([{"n": n} for n in range(7)])
    arrived()
    data = reader.get_metrics_data()
    assert data is not None
    found = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    provider.shutdown()
    [point] = found["loghub.producer.logs.delivered"].data.data_points
    assert (point.value, point.attributes) == (7, {"producer": producer.name})  # type: ignore[union-attr]
    assert found["loghub.producer.memory.used"].unit == "By"
    [there] = producer.stats().destinations
    [count] = found["loghub.producer.destination.request.duration.count"].data.data_points
    assert (count.value, count.attributes) == (  # type: ignore[union-attr]
        there.latency.count,
        {"producer": producer.name, "destination": there.name},
    )
    [seconds] = found["loghub.producer.destination.request.duration.sum"].data.data_points
    assert seconds.value == there.latency.seconds  # type: ignore[union-attr]
    last = max(found["loghub.producer.destination.request.duration.bucket"].data.data_points, key=lambda p: p.value)  # type: ignore[union-attr]
    assert (last.value, last.attributes["le"]) in {(count.value, le) for le in _LIMITS}  # type: ignore[union-attr,index]
    assert {p.attributes["stage"] for p in found["loghub.producer.memory.used"].data.data_points} > {"open", "sending"}  # type: ignore[index]


class Telling(RecordingSink):
    """A sink that logs and makes a span with each batch, like an instrumented library."""

    def __init__(self, tracer: trace.Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def write(self, delivery: Delivery) -> Receipt:
        logging.getLogger("urllib3.connectionpool").warning("on the producer's thread")
        with self._tracer.start_as_current_span("POST"):
            return super().write(delivery)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_producers_work_causes_no_log_records_and_spans_that_are_exported_callbacks_do() -> None:
    """A producer's work causes no log records and spans that are exported; callbacks do."""
    traces, logs = TracerProvider(sampler=ALWAYS_ON), LoggerProvider()
    sink = Telling(traces.get_tracer("urllib3"))
    producer = Producer(sink=sink, config=ProducerConfig(linger_ms=1))
    traces.add_span_processor(BatchSpanProcessor(LogHubSpanExporter(producer, "p", "spans")))
    logs.add_log_record_processor(BatchLogRecordProcessor(LogHubLogExporter(producer, "p", "logs")))
    handler = LoggingHandler(logger_provider=logs)
    logging.getLogger().addHandler(handler)
    try:
        logging.getLogger("app").warning("the application's")
        producer.send("p", "l", {"n": 1}, callback=lambda _: logging.getLogger("app").error("a callback's")).result(9)
        for _ in range(3):
            assert logs.force_flush()
            assert traces.force_flush()
            producer.flush(9)
    finally:
        logging.getLogger().removeHandler(handler)
    assert producer.stats().delivered == 3
    written = b"".join(sink.records())
    assert b"a callback's" in written
    assert b"WARNING" in written, "levels have the names that all integrations give them"
    traces.shutdown()
    logs.shutdown()
    producer.close()

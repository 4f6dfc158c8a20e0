"""Spans and metrics as events: every type of data point, in protobuf and in JSON."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from producer.agent.protocols.otlp import OtlpError, batches_of_json, batches_of_protobuf
from producer.agent.protocols.reckoning import Reckoning

_NANOSECONDS = 1_700_000_000_123_456_789
_TIMES = {"time_unix_nano": _NANOSECONDS, "start_time_unix_nano": _NANOSECONDS - 1_000_000_000}
_STAMPS = {"timestamp": "1700000000123", "start_timestamp": "1699999999123"}
_DELTA = 1
_TRACE, _SPAN = bytes(range(16)), bytes(range(8))

Event = tuple[dict[str, str], bytes]


def _events(batches: Iterable[Any]) -> list[Event]:
    return [event for batch in batches for event in batch.events()]


def _of_both(request: Any, signal: str) -> list[Event]:
    """Return the events of a request, which are the same in protobuf and in JSON."""
    found = _events(batches_of_protobuf(request.SerializeToString(), Reckoning(lambda _size: None), signal))
    given = MessageToDict(request)
    for each in _objects(given):
        for name, value in (("traceId", _TRACE), ("spanId", _SPAN), ("parentSpanId", _SPAN)):
            if name in each:
                each[name] = value.hex()
    body = json.dumps(given).encode()
    assert _events(batches_of_json(body, Reckoning(lambda _size: None), signal)) == found
    return found


def _objects(value: Any) -> Iterable[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(each)


def _gauge(metric: Metric) -> None:
    metric.gauge.data_points.add(as_double=float("nan"), flags=1, **_TIMES)


def _sum(metric: Metric) -> None:
    metric.sum.aggregation_temporality, metric.sum.is_monotonic = _DELTA, True
    point = metric.sum.data_points.add(as_int=-7, **_TIMES)
    point.attributes.add(key="type").value.string_value = "theirs"
    point.exemplars.add(as_int=1, trace_id=_TRACE, span_id=_SPAN)


def _histogram(metric: Metric) -> None:
    metric.histogram.aggregation_temporality = _DELTA
    metric.histogram.data_points.add(count=3, sum=4.5, min=1, bucket_counts=[1, 2], explicit_bounds=[2.5], **_TIMES)


def _exponential(metric: Metric) -> None:
    point = metric.exponential_histogram.data_points.add(count=3, scale=-1, zero_count=1, **_TIMES)
    point.positive.offset = 2
    point.positive.bucket_counts.extend([0, 2])


def _summary(metric: Metric) -> None:
    point = metric.summary.data_points.add(count=3, sum=4.5, **_TIMES)
    point.quantile_values.add(quantile=0.5, value=1.5)


@pytest.mark.parametrize(
    ("fill", "wanted"),
    [
        (_gauge, {"type": "gauge", "value": "NaN", "flags": "1"}),
        (_sum, {"type": "sum", "temporality": "delta", "monotonic": "true", "value": "-7", "field_type": "theirs"}),
        (
            _histogram,
            {
                "type": "histogram",
                "temporality": "delta",
                "count": "3",
                "sum": "4.5",
                "min": "1.0",
                "bounds": "[2.5]",
                "buckets": "[1, 2]",
            },
        ),
        (
            _exponential,
            {
                "type": "exponential_histogram",
                "count": "3",
                "scale": "-1",
                "zero_count": "1",
                "positive": '{"offset": 2, "buckets": [0, 2]}',
            },
        ),
        (
            _summary,
            {"type": "summary", "count": "3", "sum": "4.5", "quantiles": '[{"quantile": 0.5, "value": 1.5}]'},
        ),
    ],
)
def test_a_data_point_of_each_type_is_an_event(fill: Callable[[Metric], None], wanted: dict[str, str]) -> None:
    """A data point of each type is an event with its values, the same from protobuf and from JSON."""
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    metrics.add(name="empty")
    fill(metrics.add(name="m", unit="s", description="left out"))
    assert _of_both(request, "metrics") == [({"signal": "metrics", "unit": "s", **_STAMPS, **wanted}, b"m")]


def test_a_span_with_unknown_values_and_without_times_keeps_its_other_fields() -> None:
    """A span with unknown numbers, without times and with a link keeps its fields; ids in JSON are hexadecimal."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    span = spans.add(name="a", trace_id=_TRACE, span_id=_SPAN, parent_span_id=_SPAN, dropped_events_count=3)
    span.links.add(trace_id=_TRACE, span_id=_SPAN, trace_state="x=1")
    spans.add(end_time_unix_nano=_NANOSECONDS, kind=99)  # type: ignore[arg-type]  # of a later version
    ids = {"trace_id": _TRACE.hex(), "span_id": _SPAN.hex()}
    links = json.dumps([{**ids, "trace_state": "x=1", "attributes": {}}])
    assert _of_both(request, "traces") == [
        ({"signal": "traces", **ids, "parent_span_id": _SPAN.hex(), "links": links, "dropped_events_count": "3"}, b"a"),
        ({"signal": "traces", "kind": "99", "end_timestamp": "1700000000123"}, b""),
    ]


@pytest.mark.parametrize(
    "body",
    [
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [%s]}]}]}' % each
        for each in (b"null", b"1", b'{"links": [{"traceId": "xyz"}]}')
    ],
)
def test_an_invalid_span_in_json_refuses_the_request(body: bytes) -> None:
    """An invalid span in JSON refuses the whole request."""
    with pytest.raises(OtlpError):
        list(batches_of_json(body, Reckoning(lambda _size: None), "traces"))

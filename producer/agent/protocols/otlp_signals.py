"""Conversion of OpenTelemetry's spans and metrics to events.

A span is one event. Its body is the span's name; its attributes are headers, as those of a log record. The headers
``trace_id``, ``span_id``, ``parent_span_id``, ``trace_state``, ``kind`` (``server``), ``status`` (``error``),
``status_message``, ``timestamp`` and ``end_timestamp`` (milliseconds) and ``duration_nanoseconds`` have its fields.
``events`` and ``links`` are lists in JSON.

A data point of a metric is one event. Its body is the metric's name. The headers ``type`` (``gauge``, ``sum``,
``histogram``, ``exponential_histogram``, ``summary``), ``unit``, ``temporality``, ``monotonic``, ``timestamp`` and
``start_timestamp`` have its fields. A gauge or a sum has its number in ``value``. Other types have ``count``, ``sum``,
``min`` and ``max``, and in JSON ``bounds``, ``buckets``, ``positive``, ``negative`` or ``quantiles``. Exemplars and
descriptions are dropped.

The header ``signal`` is ``traces`` or ``metrics``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from .fields import json_of, text_of, with_own
from .otlp_values import attributes_of, if_any, milliseconds, plain_attributes

#: Maximum bytes of memory per byte of a metric: histograms become texts in JSON.
METRIC_OF_BYTE = 24
_POINT_TYPES = ("gauge", "sum", "histogram", "exponential_histogram", "summary")
Fields = Mapping[str, str]


def events_of_span(span: Any, shared: Fields) -> Iterator[tuple[dict[str, str], bytes]]:
    """Yield the event of a span.

    :param shared: headers of its resource and scope.
    """
    own = {
        "signal": "traces",
        **_ids(span),
        "parent_span_id": span.parent_span_id.hex(),
        "kind": _name(Span.SpanKind, span.kind, "SPAN_KIND_"),
        "status": _name(Status.StatusCode, span.status.code, "STATUS_CODE_"),
        "status_message": span.status.message,
        "timestamp": milliseconds(span.start_time_unix_nano),
        "end_timestamp": milliseconds(span.end_time_unix_nano),
        "duration_nanoseconds": _duration(span),
        "events": _list([_event(each) for each in span.events]),
        "links": _list([{**_ids(each), "attributes": plain_attributes(each.attributes)} for each in span.links]),
        "flags": if_any(getattr(span, "flags", 0)),
        "dropped_attributes_count": if_any(span.dropped_attributes_count),
        "dropped_events_count": if_any(span.dropped_events_count),
        "dropped_links_count": if_any(span.dropped_links_count),
    }
    yield _headers(span.attributes, own, shared), span.name.encode()


def events_of_metric(metric: Any, shared: Fields) -> Iterator[tuple[dict[str, str], bytes]]:
    """Yield the event of each data point of a metric.

    :param shared: headers of its resource and scope.
    """
    kind, name = metric.WhichOneof("data"), metric.name.encode()
    if kind not in _POINT_TYPES:
        return
    data = getattr(metric, kind)
    temporality = getattr(data, "aggregation_temporality", 0)
    of_metric = {
        "signal": "metrics",
        "type": kind,
        "unit": metric.unit,
        "temporality": _name(AggregationTemporality, temporality, "AGGREGATION_TEMPORALITY_"),
        "monotonic": "true" if getattr(data, "is_monotonic", False) else "",
    }
    for point in data.data_points:
        own = {
            **of_metric,
            "timestamp": milliseconds(point.time_unix_nano),
            "start_timestamp": milliseconds(point.start_time_unix_nano),
            "flags": if_any(point.flags),
            **(_value(point) if kind in ("gauge", "sum") else _distribution(point, kind)),
        }
        yield _headers(point.attributes, own, shared), name


def _value(point: Any) -> dict[str, str]:
    which = point.WhichOneof("value")
    return {"value": "" if which is None else text_of(getattr(point, which))}


def _distribution(point: Any, kind: str) -> dict[str, str]:
    """Return the count and the values of a histogram or a summary."""
    found = {"count": str(point.count)}
    if kind == "summary":
        pairs = [{"quantile": each.quantile, "value": each.value} for each in point.quantile_values]
        return {**found, "sum": text_of(point.sum), "quantiles": _list(pairs)}
    found |= {name: text_of(getattr(point, name)) for name in ("sum", "min", "max") if point.HasField(name)}
    if kind == "histogram":
        return {**found, "bounds": _list([*point.explicit_bounds]), "buckets": _list([*point.bucket_counts])}
    sides = {side: _buckets(getattr(point, side)) for side in ("positive", "negative") if point.HasField(side)}
    return {**found, "scale": str(point.scale), "zero_count": str(point.zero_count), **sides}


def _buckets(side: Any) -> str:
    return json_of({"offset": side.offset, "buckets": [*side.bucket_counts]})


def _headers(attributes: Any, own: Fields, shared: Fields) -> dict[str, str]:
    found = {**shared, **{name: text for name, text in own.items() if text}}
    return with_own(attributes_of(attributes), found)


def _ids(given: Any) -> dict[str, str]:
    """Return the ids of a span or a link."""
    return {"trace_id": given.trace_id.hex(), "span_id": given.span_id.hex(), "trace_state": given.trace_state}


def _event(event: Any) -> dict[str, Any]:
    return {
        "time_unix_nano": event.time_unix_nano,
        "name": event.name,
        "attributes": plain_attributes(event.attributes),
    }


def _duration(span: Any) -> str:
    known = 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    return str(span.end_time_unix_nano - span.start_time_unix_nano) if known else ""


def _list(found: list[Any]) -> str:
    return json_of(found) if found else ""


def _name(enum: Any, number: int, prefix: str) -> str:
    """Return the name of a value in lower case, the number of an unknown one; empty for 0, the unspecified one."""
    if not number:
        return ""
    return enum.Name(number).removeprefix(prefix).lower() if number in enum.values() else str(number)

"""Exporters of OpenTelemetry's log records and spans, and instruments for a producer's metrics.

::

    exporter = LogHubSpanExporter(producer, "my-project", "my-app-traces")
    tracer_provider.add_span_processor(BatchSpanProcessor(exporter))
    logger_provider.add_log_record_processor(BatchLogRecordProcessor(LogHubLogExporter(producer, "my-project", "logs")))
    observe(producer)

An export succeeds once the producer has enqueued the logs, which it then delivers with retries. ``force_flush`` waits
for delivery. Spans have the fields of "Trace data formats" of Simple Log Service, and log records those of
OpenTelemetry's "Logs Data Model".
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

try:
    from opentelemetry import metrics, trace
except ModuleNotFoundError as error:
    from ..text.extras import missing

    raise missing(error, "opentelemetry") from error
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from ..client.producer import Producer
from ..model.errors import ProducerClosedError
from ..model.metrics import Stats
from ..model.records import LogItem
from ..runtime.internal_threads import TRACE_ID
from .feedback import feeds_back
from .figures import FIGURES, LATENCY, Sample, Watched, buckets, latencies
from .outlet import HasOutlet, OnFull, OutletOptionsWithFallback
from .severity import severity_text
from .values import repr_of

__all__ = ["LogHubLogExporter", "LogHubSpanExporter", "observe", "trace_context"]

#: The attributes of a resource that have a field of their own.
_PLACES = {"host.name": "host", "service.name": "service"}


class _Exporter(HasOutlet):
    """Base of the exporters."""

    def __init__(
        self,
        producer: Producer | None = None,
        project: str | None = None,
        logstore: str | None = None,
        *,
        on_full: OnFull = "wait",
        **options: Unpack[OutletOptionsWithFallback],
    ) -> None:
        self._outlet = self._open_outlet(producer, project, logstore, on_full=on_full, **options)
        self._ended = False

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait until everything exported is delivered or has failed. Return False after a timeout.

        :param timeout_millis: the limit, milliseconds.
        """
        return self._outlet.flush(timeout_millis / 1000)

    def shutdown(self) -> None:
        """Wait for delivery, and close the exporter's own producer, if any. May be called repeatedly.

        A later export fails, as OpenTelemetry specifies, and its logs count as dropped.
        """
        if not self._ended:
            self._ended = True
            self._outlet.flush()
            self._outlet.close()

    def _send(self, items: Iterable[Any], log_of: Callable[[Any], LogItem]) -> bool:
        """Send a log of each item. Return True if the producer accepted all."""
        before = self._outlet.dropped
        for item in items:
            if self._ended:
                self._outlet.drop(ProducerClosedError("the exporter was shut down"))
                continue
            try:
                self._outlet.send(log_of(item))
            except Exception as error:  # noqa: BLE001  # one invalid item must not stop the others
                self._outlet.drop(error)
        return self._outlet.dropped == before


class LogHubLogExporter(_Exporter, LogRecordExporter):
    """An exporter of log records.

    The fields are ``message`` (the body), ``severity_text``, ``severity_number``, ``event_name``, ``traceID``,
    ``spanID``, each attribute by its name (``attribute.NAME`` if a field has the name), ``host``, ``service``,
    ``resource`` (its other attributes as JSON), ``otlp.name`` and ``otlp.version`` (the scope). The parameters are
    those of :class:`~producer.integrations.outlet.Outlet`.

    :raises ConfigError: an option is invalid.
    """

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        taken = self._send((one for one in batch if not _feeds_back(one)), _log_of_record)
        return LogRecordExportResult.SUCCESS if taken else LogRecordExportResult.FAILURE


class LogHubSpanExporter(_Exporter, SpanExporter):
    """An exporter of spans in the schema of LogHub's traces.

    The fields are ``host``, ``service``, ``resource``, ``otlp.name``, ``otlp.version``, ``name``, ``kind``,
    ``traceID``, ``spanID``, ``parentSpanID``, ``traceState``, ``links``, ``logs`` (the events), ``attribute``,
    ``start``, ``end`` and ``duration`` (microseconds), ``statusCode`` and ``statusMessage``. The parameters are those
    of :class:`~producer.integrations.outlet.Outlet`.

    :raises ConfigError: an option is invalid.
    """

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        taken = self._send((span for span in spans if not _span_feeds_back(span)), _log_of_span)
        return SpanExportResult.SUCCESS if taken else SpanExportResult.FAILURE


def _feeds_back(readable: ReadableLogRecord) -> bool:
    """Return True if a producer's work caused the record, which arrives on a thread of the SDK."""
    scope = readable.instrumentation_scope
    return readable.log_record.trace_id == TRACE_ID or feeds_back("" if scope is None else scope.name, None)


def _span_feeds_back(span: ReadableSpan) -> bool:
    """Return True if a producer's work caused the span."""
    context = span.get_span_context()
    return context is not None and context.trace_id == TRACE_ID


def _log_of_record(readable: ReadableLogRecord) -> LogItem:
    record = readable.log_record
    fields: dict[str, Any] = {
        "message": record.body,
        "severity_text": record.severity_text and severity_text(record.severity_text),
        "severity_number": None if record.severity_number is None else record.severity_number.value,
        "event_name": record.event_name,
        "traceID": _trace_id(record.trace_id),
        "spanID": _span_id(record.span_id),
        **_origin(readable.resource, readable.instrumentation_scope),
    }
    for name, value in (record.attributes or {}).items():
        fields[f"attribute.{name}" if name in fields else name] = value
    return _item(fields, record.timestamp or record.observed_timestamp or time.time_ns())


def _log_of_span(span: ReadableSpan) -> LogItem:
    context, parent = span.get_span_context(), span.parent
    start, end = span.start_time or 0, span.end_time or span.start_time or 0
    return _item(
        {
            **_origin(span.resource, span.instrumentation_scope),
            "name": span.name,
            "kind": span.kind.name,
            "traceID": context and _trace_id(context.trace_id),
            "spanID": context and _span_id(context.span_id),
            "parentSpanID": _span_id(parent.span_id) if parent is not None else "",
            "traceState": context and context.trace_state.to_header(),
            "links": _json([_link(link.context, link.attributes) for link in span.links]),
            "logs": _json([_event(one.name, one.timestamp, one.attributes) for one in span.events]),
            "attribute": _json(dict(span.attributes or {})),
            "start": start // 1000,
            "end": end // 1000,
            "duration": (end - start) // 1000,
            "statusCode": span.status.status_code.name,
            "statusMessage": span.status.description or "",
        },
        start,
    )


def _link(context: trace.SpanContext, attributes: Mapping[str, Any] | None) -> Mapping[str, Any]:
    ids = {"traceID": _trace_id(context.trace_id), "spanID": _span_id(context.span_id)}
    return {**ids, "attribute": dict(attributes or {})}


def _event(name: str, moment: int, attributes: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return {"name": name, "time": moment, "attribute": dict(attributes or {})}


def _origin(resource: Resource | None, scope: Any) -> dict[str, Any]:
    """Return the fields of a resource and a scope."""
    attributes = dict(resource.attributes) if resource is not None else {}
    origin: dict[str, Any] = {field: attributes.pop(name, "") for name, field in _PLACES.items()}
    origin["resource"] = _json(attributes)
    if scope is not None:
        origin["otlp.name"], origin["otlp.version"] = scope.name, scope.version or ""
    return origin


def _item(fields: dict[str, Any], moment: int) -> LogItem:
    return LogItem(fields, moment // 1_000_000_000, moment % 1_000_000_000)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=repr_of)


def _trace_id(number: int | None) -> str | None:
    return trace.format_trace_id(number) if number else None


def _span_id(number: int | None) -> str | None:
    return trace.format_span_id(number) if number else None


def trace_context() -> dict[str, str]:
    """Return ``traceID`` and ``spanID`` of the current span; an empty dictionary if there is none.

    For ``LogHubHandler(..., context=trace_context)``.
    """
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"traceID": trace.format_trace_id(context.trace_id), "spanID": trace.format_span_id(context.span_id)}


def observe(*producers: Producer, meter: metrics.Meter | None = None) -> None:
    """Make observable instruments for the metrics of producers.

    Their names begin with ``loghub.producer.``, and their attribute ``producer`` is the producer's name. They keep no
    producer alive. OpenTelemetry has no observable histogram, so the duration of requests is counters: ``.bucket`` with
    the attribute ``le`` as in Prometheus, ``.sum`` and ``.count``.

    :param producers: the producers to observe.
    :param meter: the meter of the instruments; None for that of the global provider.
    """
    own = metrics.get_meter("loghub") if meter is None else meter
    watched = Watched(producers)
    for figure in FIGURES:
        make = own.create_observable_counter if figure.grows else own.create_observable_gauge
        name = f"loghub.producer.{figure.name}"
        make(name, callbacks=[_reader(watched, figure.read)], unit=figure.unit, description=figure.help)
    name, unit, words = LATENCY
    for part, unit_of_part in (("bucket", "{request}"), ("count", "{request}"), ("sum", unit)):
        callbacks = [_reader(watched, partial(_latency_samples, part))]
        own.create_observable_counter(f"loghub.producer.{name}.{part}", callbacks, unit_of_part, words)


def _latency_samples(part: str, stats: Stats) -> Iterator[Sample]:
    for labels, latency in latencies(stats):
        if part == "bucket":
            yield from (({**labels, "le": limit}, total) for limit, total in buckets(latency))
        else:
            yield labels, latency.count if part == "count" else latency.seconds


def _reader(
    watched: Watched, samples: Callable[[Stats], Iterable[Sample]]
) -> Callable[[metrics.CallbackOptions], Iterable[metrics.Observation]]:
    def read(_options: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        for name, stats in watched.stats():
            for labels, value in samples(stats):
                yield metrics.Observation(value, {"producer": name, **labels})

    return read

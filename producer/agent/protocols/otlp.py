"""Conversion between OpenTelemetry's logs (OTLP) and events. :mod:`.otlp_signals` converts spans and metrics.

The body of a log record is the event's body (as JSON if it is not text). Its attributes are headers, those of its
resource with the prefix ``resource.``, those of its scope with ``scope.``. The headers ``timestamp`` (milliseconds),
``severity``, ``severity_number``, ``trace_id``, ``span_id``, ``event_name`` and ``scope`` have the record's fields.
There are headers for the less usual fields, too (``observed_timestamp``, ``flags``, ``dropped_attributes_count``,
``scope_version``, ``schema_url``). An attribute with such a name becomes ``field_NAME``. Events are converted to
records in the same way.

A request is parsed one record at a time (:mod:`.reckoning`), since an object of many bytes may be made of two.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ..events.batch import EventBatch, Headers, batches_of
from .calls import valid_text
from .fields import with_own
from .messages import OF_BYTE, MessageError, Parts, Schema
from .otlp_signals import METRIC_OF_BYTE, events_of_metric, events_of_span
from .otlp_values import attributes_of, if_any, milliseconds, value_text
from .reckoning import Reckoning, of_json, size_of

_RESOURCE, _SCOPE = "resource.", "scope."
_OWN = frozenset(
    {"timestamp", "severity", "severity_number", "trace_id", "span_id", "event_name", "scope"},
)
_MOST_DIGITS = 14
#: Memory of a resource or a scope, in events.
_AS_EVENTS = 10
#: Fields that are messages, by number, within the parts that are parsed whole.
_ANY: Schema = {}
_KEY_VALUE: Schema = {2: _ANY}
_ANY |= {5: {1: _ANY}, 6: {1: _KEY_VALUE}}
_RESOURCES: Schema = {1: _KEY_VALUE, 3: {}}
_SCOPES: Schema = {3: _KEY_VALUE}
_RECORDS: Schema = {5: _ANY, 6: _KEY_VALUE}
_SPANS: Schema = {9: _KEY_VALUE, 11: {3: _KEY_VALUE}, 13: {4: _KEY_VALUE}, 15: {}}
_NUMBERS: Schema = {7: _KEY_VALUE, 5: {7: _KEY_VALUE}}
_HISTOGRAMS: Schema = {9: _KEY_VALUE, 8: {7: _KEY_VALUE}}
_EXPONENTIALS: Schema = {1: _KEY_VALUE, 8: {}, 9: {}, 11: {7: _KEY_VALUE}}
_SUMMARIES: Schema = {7: _KEY_VALUE, 6: {}}
_METRICS: Schema = {
    5: {1: _NUMBERS},
    7: {1: _NUMBERS},
    9: {1: _HISTOGRAMS},
    10: {1: _EXPONENTIALS},
    11: {1: _SUMMARIES},
    12: _KEY_VALUE,
}
#: Fields of JSON whose bytes are hexadecimal.
_IDS = ("traceId", "spanId", "parentSpanId")


class OtlpError(Exception):
    """Raised for an invalid OTLP request."""


class _Group(NamedTuple):
    """The records of one scope of one resource."""

    resource: Any
    scope: Any
    schema: str
    records: Iterable[Any]


class _Signal(NamedTuple):
    """A signal's messages; those of all signals have the same field numbers.

    :ivar names: the fields of resources, scopes and records in JSON.
    :ivar kind: the message type of a record.
    :ivar schema: the record's fields that are messages.
    :ivar events: makes the events of a record with shared headers.
    :ivar of_byte: the maximum bytes of memory per byte of a record.
    """

    names: tuple[str, str, str]
    kind: Any
    schema: Schema
    events: Callable[[Any, Mapping[str, str]], Iterable[tuple[dict[str, str], bytes]]]
    of_byte: int = OF_BYTE


def batches_of_protobuf(body: bytes, reckoning: Reckoning, signal: str = "logs") -> Iterator[EventBatch]:
    """Yield the events of a request in protobuf.

    :param signal: ``logs``, ``traces`` or ``metrics``.
    :raises OtlpError: the request is invalid.
    """
    of = _SIGNALS[signal]
    try:
        yield from batches_of(_events(_groups(memoryview(body), reckoning, of), reckoning, of))
    except (DecodeError, MessageError) as error:
        raise OtlpError(f"invalid OTLP request: {error}") from error


def batches_of_json(body: bytes, reckoning: Reckoning, signal: str = "logs") -> Iterator[EventBatch]:
    """Yield the events of a request in OTLP's JSON, where ids are hexadecimal.

    :param signal: ``logs``, ``traces`` or ``metrics``.
    :raises OtlpError: the request is invalid.
    """
    of = _SIGNALS[signal]
    try:
        text = body.decode(json.detect_encoding(body))
        reckoning.need(of_json(text))
        reckoning.settle()
        yield from batches_of(_events(_groups_of_json(json.loads(text, object_pairs_hook=_object), of), reckoning, of))
    except (ValueError, TypeError, AttributeError, ParseError, RecursionError) as error:
        raise OtlpError(f"invalid OTLP request: {error}") from error


def _groups(request: memoryview, reckoning: Reckoning, signal: _Signal) -> Iterator[_Group]:
    parts = Parts(reckoning)

    def read(kind: Any, found: Iterable[memoryview], schema: Schema, of_byte: int = OF_BYTE) -> Any:
        data = b"".join(found)  # repeated parts of one message are merged
        parts.reckon(data, schema, of_byte)
        return kind.FromString(data)

    for of_resource in parts.of(request, 1):
        reckoning.count(_AS_EVENTS)
        resource = read(Resource, parts.of(of_resource, 1), _RESOURCES)
        schema = b"".join(parts.of(of_resource, 3))
        for of_scope in parts.of(of_resource, 2):
            reckoning.count(_AS_EVENTS)
            scope = read(InstrumentationScope, parts.of(of_scope, 1), _SCOPES)
            own = b"".join(parts.of(of_scope, 3)) or schema
            records = (read(signal.kind, (record,), signal.schema, signal.of_byte) for record in parts.of(of_scope, 2))
            yield _Group(resource, scope, own.decode("utf-8", "backslashreplace"), records)


def _groups_of_json(given: Any, signal: _Signal) -> Iterator[_Group]:
    of_resources, of_scopes, of_records = signal.names
    for of_resource in given.get(of_resources) or ():
        resource = _parsed(of_resource.get("resource"), Resource())
        for of_scope in of_resource.get(of_scopes) or ():
            scope = _parsed(of_scope.get("scope"), InstrumentationScope())
            schema = of_scope.get("schemaUrl") or of_resource.get("schemaUrl") or ""
            records = (_message(record, signal.kind()) for record in of_scope.get(of_records) or ())
            yield _Group(resource, scope, str(schema), records)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dict of pairs, with ids in base64, as protobuf's JSON has them.

    :raises ValueError: a name is repeated, so one of its values would be lost.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a field twice")
    for name in _IDS:
        if found.get(name):
            found[name] = b64encode(bytes.fromhex(found[name])).decode()
    return found


def _parsed(given: Any, message: Any) -> Any:
    return message if given is None else _message(given, message)


def _message(given: Any, message: Any) -> Any:
    return ParseDict(given, message, ignore_unknown_fields=True)


def _events(groups: Iterable[_Group], reckoning: Reckoning, signal: _Signal) -> Iterator[tuple[Headers, bytes]]:
    for group in groups:
        shared = _shared(group)
        size = size_of(shared)
        for record in group.records:
            for headers, body in signal.events(record, shared):
                reckoning.event(headers, body, size)
                yield headers, body
    reckoning.settle()


def _events_of_log(record: Any, shared: Mapping[str, str]) -> Iterator[tuple[dict[str, str], bytes]]:
    yield _headers(record, shared), _body(record.body)


#: The requests by the names of their signals.
_SIGNALS: Mapping[str, _Signal] = {
    "logs": _Signal(("resourceLogs", "scopeLogs", "logRecords"), LogRecord, _RECORDS, _events_of_log),
    "traces": _Signal(("resourceSpans", "scopeSpans", "spans"), Span, _SPANS, events_of_span),
    "metrics": _Signal(
        ("resourceMetrics", "scopeMetrics", "metrics"), Metric, _METRICS, events_of_metric, METRIC_OF_BYTE
    ),
}


def _shared(group: _Group) -> dict[str, str]:
    scope = group.scope
    attributes = attributes_of(group.resource.attributes, _RESOURCE) | attributes_of(scope.attributes, _SCOPE)
    own = {"scope": scope.name, "scope_version": scope.version, "schema_url": group.schema}
    return with_own(attributes, {name: text for name, text in own.items() if text})


def request_with(batches: Sequence[EventBatch], resource: Mapping[str, str]) -> Any:
    """Return a request with events, in order within each resource and scope.

    :param resource: attributes of all resources.
    """
    request = ExportLogsServiceRequest()
    scopes: dict[Any, Any] = {}
    resources: dict[Any, Any] = {}
    for batch in batches:
        for headers, body in batch.events():
            own = {**resource, **{k[len(_RESOURCE) :]: v for k, v in headers.items() if k.startswith(_RESOURCE)}}
            key = tuple(own.items())
            if key not in resources:
                resources[key] = request.resource_logs.add()
                resources[key].resource.attributes.extend(_key_values(own))
            place = key, headers.get("scope")
            if place not in scopes:
                scopes[place] = resources[key].scope_logs.add()
                scopes[place].scope.name = headers.get("scope", "")
            _fill(scopes[place].log_records.add(), headers, body)
    return request


def rejected(answer: bytes) -> tuple[int, str]:
    """Return the number of records that an answer rejects, and the reason; 0 if it is not an OTLP answer."""
    try:
        said = ExportLogsServiceResponse.FromString(answer).partial_success
    except DecodeError:
        return 0, ""
    return said.rejected_log_records, said.error_message


def _headers(record: Any, shared: Mapping[str, str]) -> dict[str, str]:
    own = {
        "timestamp": milliseconds(record.time_unix_nano or record.observed_time_unix_nano),
        "observed_timestamp": milliseconds(record.observed_time_unix_nano) if record.time_unix_nano else "",
        "severity": record.severity_text,
        "severity_number": if_any(record.severity_number),
        "trace_id": record.trace_id.hex(),
        "span_id": record.span_id.hex(),
        "event_name": getattr(record, "event_name", ""),
        "flags": if_any(record.flags),
        "dropped_attributes_count": if_any(record.dropped_attributes_count),
    }
    ours = {**shared, **{name: text for name, text in own.items() if text}}
    return with_own(attributes_of(record.attributes), ours)


def _fill(record: Any, headers: Headers, body: bytes) -> None:
    record.time_unix_nano = _number(headers.get("timestamp")) * 1_000_000
    record.severity_text = headers.get("severity", "")
    record.severity_number = min(_number(headers.get("severity_number")), 24)
    record.trace_id, record.span_id = _id(headers.get("trace_id"), 16), _id(headers.get("span_id"), 8)
    if "event_name" in headers and hasattr(record, "event_name"):
        record.event_name = valid_text(headers["event_name"])
    others = {k: v for k, v in headers.items() if k not in _OWN and not k.startswith(_RESOURCE)}
    record.attributes.extend(_key_values(others))
    try:
        record.body.string_value = body.decode()
    except UnicodeDecodeError:
        record.body.bytes_value = body


def _key_values(values: Headers) -> list[Any]:
    return [
        KeyValue(key=valid_text(name), value=AnyValue(string_value=valid_text(text))) for name, text in values.items()
    ]


def _body(value: Any) -> bytes:
    kind = value.WhichOneof("value")
    if kind == "bytes_value":
        return bytes(value.bytes_value)
    return (value_text(value) or "").encode()


def _number(text: str | None) -> int:
    usable = text is not None and text.isascii() and text.isdecimal() and len(text) < _MOST_DIGITS
    return int(text or 0) if usable else 0


def _id(text: str | None, size: int) -> bytes:
    """Return an id's bytes; empty unless it is complete, since another size makes a record invalid."""
    try:
        found = bytes.fromhex(text or "")
    except ValueError:
        return b""
    return found if len(found) == size else b""

"""Conversion between OpenTelemetry's logs (OTLP) and events.

The body of a log record is the event's body (as JSON if it is not text). Its attributes are headers, those of its
resource with the prefix ``resource.``, those of its scope with ``scope.``. The headers ``timestamp`` (milliseconds),
``severity``, ``severity_number``, ``trace_id``, ``span_id``, ``event_name`` and ``scope`` have the record's fields.
There are headers for the less usual fields, too (``observed_timestamp``, ``flags``, ``dropped_attributes_count``,
``scope_version``, ``schema_url``). An attribute with such a name becomes ``field_NAME``. Events are converted to
records in the same way.

A request of a peer is parsed one record at a time (:mod:`.reckoning`), since a message may have only two bytes.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ..events.batch import EventBatch, Headers, batches_of
from .fields import json_of, text_of, unique_names, with_own
from .messages import MessageError, Parts, Schema
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
_ATTRIBUTES: Schema = {1: _KEY_VALUE}
_RESOURCES: Schema = {1: _KEY_VALUE, 3: {}}
_SCOPES: Schema = {3: _KEY_VALUE}
_RECORDS: Schema = {5: _ANY, 6: _KEY_VALUE}


class NoLogsError(Exception):
    """Raised for an invalid OTLP request."""


class _Group(NamedTuple):
    """The records of one scope of one resource."""

    resource: Any
    scope: Any
    schema: str
    records: Iterable[Any]


def batches_of_protobuf(body: bytes, reckoning: Reckoning) -> Iterator[EventBatch]:
    """Yield the events of a request in protobuf.

    :raises NoLogsError: the request is invalid.
    """
    try:
        yield from batches_of(_events(_groups(memoryview(body), reckoning), reckoning))
    except (DecodeError, MessageError) as error:
        raise NoLogsError(f"invalid OTLP request: {error}") from error


def batches_of_json(body: bytes, reckoning: Reckoning) -> Iterator[EventBatch]:
    """Yield the events of a request in OTLP's JSON, where ids are hexadecimal.

    :raises NoLogsError: the request is invalid.
    """
    try:
        text = body.decode(json.detect_encoding(body))
        reckoning.need(of_json(text))
        reckoning.settle()
        yield from batches_of(_events(_groups_of_json(json.loads(text, object_pairs_hook=_once)), reckoning))
    except (ValueError, TypeError, AttributeError, ParseError, RecursionError) as error:
        raise NoLogsError(f"invalid OTLP request: {error}") from error


def _groups(request: memoryview, reckoning: Reckoning) -> Iterator[_Group]:
    parts = Parts(reckoning)

    def read(kind: Any, found: Iterable[memoryview], schema: Schema) -> Any:
        data = b"".join(found)  # repeated parts of one message are merged
        parts.reckon(data, schema)
        return kind.FromString(data)

    for of_resource in parts.of(request, 1):
        reckoning.count(_AS_EVENTS)
        resource = read(Resource, parts.of(of_resource, 1), _RESOURCES)
        schema = b"".join(parts.of(of_resource, 3))
        for of_scope in parts.of(of_resource, 2):
            reckoning.count(_AS_EVENTS)
            scope = read(InstrumentationScope, parts.of(of_scope, 1), _SCOPES)
            own = b"".join(parts.of(of_scope, 3)) or schema
            records = (read(LogRecord, (record,), _RECORDS) for record in parts.of(of_scope, 2))
            yield _Group(resource, scope, own.decode("utf-8", "backslashreplace"), records)


def _groups_of_json(given: Any) -> Iterator[_Group]:
    for of_resource in given.get("resourceLogs") or ():
        resource = _parsed(of_resource.get("resource"), Resource())
        for of_scope in of_resource.get("scopeLogs") or ():
            scope = _parsed(of_scope.get("scope"), InstrumentationScope())
            schema = of_scope.get("schemaUrl") or of_resource.get("schemaUrl") or ""
            yield _Group(resource, scope, str(schema), map(_record, of_scope.get("logRecords") or ()))


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dict of pairs.

    :raises ValueError: a name is repeated, so one of its values would be lost.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a field twice")
    return found


def _record(given: dict[str, Any]) -> Any:
    for name in ("traceId", "spanId"):
        if given.get(name):
            given[name] = b64encode(bytes.fromhex(given[name])).decode()
    return _parsed(given, LogRecord())


def _parsed(given: Any, message: Any) -> Any:
    return message if given is None else ParseDict(given, message, ignore_unknown_fields=True)


def _events(groups: Iterable[_Group], reckoning: Reckoning) -> Iterator[tuple[Headers, bytes]]:
    for group in groups:
        shared = _shared(group)
        size = size_of(shared)
        for record in group.records:
            headers, body = _headers(record, shared), _body(record.body)
            reckoning.event(headers, body, size)
            yield headers, body
    reckoning.settle()


def _shared(group: _Group) -> dict[str, str]:
    scope = group.scope
    attributes = _attributes(group.resource.attributes, _RESOURCE) | _attributes(scope.attributes, _SCOPE)
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
        "timestamp": _milliseconds(record.time_unix_nano or record.observed_time_unix_nano),
        "observed_timestamp": _milliseconds(record.observed_time_unix_nano) if record.time_unix_nano else "",
        "severity": record.severity_text,
        "severity_number": _if_any(record.severity_number),
        "trace_id": record.trace_id.hex(),
        "span_id": record.span_id.hex(),
        "event_name": getattr(record, "event_name", ""),
        "flags": _if_any(record.flags),
        "dropped_attributes_count": _if_any(record.dropped_attributes_count),
    }
    ours = {**shared, **{name: text for name, text in own.items() if text}}
    return with_own(_attributes(record.attributes), ours)


def _milliseconds(nanoseconds: int) -> str:
    return str(nanoseconds // 1_000_000) if nanoseconds else ""


def _if_any(number: int) -> str:
    return str(number) if number else ""


def _fill(record: Any, headers: Headers, body: bytes) -> None:
    record.time_unix_nano = _number(headers.get("timestamp")) * 1_000_000
    record.severity_text = headers.get("severity", "")
    record.severity_number = min(_number(headers.get("severity_number")), 24)
    record.trace_id, record.span_id = _id(headers.get("trace_id"), 16), _id(headers.get("span_id"), 8)
    if "event_name" in headers and hasattr(record, "event_name"):
        record.event_name = _valid(headers["event_name"])
    others = {k: v for k, v in headers.items() if k not in _OWN and not k.startswith(_RESOURCE)}
    record.attributes.extend(_key_values(others))
    try:
        record.body.string_value = body.decode()
    except UnicodeDecodeError:
        record.body.bytes_value = body


def _key_values(values: Headers) -> list[Any]:
    return [KeyValue(key=_valid(name), value=AnyValue(string_value=_valid(text))) for name, text in values.items()]


def _valid(text: str) -> str:
    """Replace invalid characters, which headers keep as they arrived."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _attributes(pairs: Iterable[Any], prefix: str = "") -> dict[str, str]:
    texts = [(prefix + pair.key, text) for pair in pairs if (text := _text(pair.value)) is not None]
    found: dict[str, str] = unique_names(texts)
    return found


def _body(value: Any) -> bytes:
    kind = value.WhichOneof("value")
    if kind == "bytes_value":
        return bytes(value.bytes_value)
    return (_text(value) or "").encode()


def _text(value: Any) -> str | None:
    if value.WhichOneof("value") == "string_value":
        return str(value.string_value)
    plain = _plain(value)
    return None if plain is None else text_of(plain) if isinstance(plain, float) else json_of(plain)


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    found = getattr(value, kind)
    if kind == "array_value":
        return [_plain(each) for each in found.values]
    if kind == "kvlist_value":
        return unique_names([(pair.key, _plain(pair.value)) for pair in found.values])
    return b64encode(found).decode() if kind == "bytes_value" else found


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

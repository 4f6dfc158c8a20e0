"""OpenTelemetry's logs (OTLP) and events: what is a body, what is a header.

The body of a log record is the event's body (as JSON, where it is no text), its attributes are headers, those of its
resource with ``resource.`` before their names. ``timestamp`` (milliseconds), ``severity``, ``severity_number``,
``trace_id``, ``span_id``, ``event_name`` and ``scope`` are headers of these names. The other way likewise.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from ..batch import EventBatch, Headers, batches_of

_RESOURCE = "resource."
_OWN = frozenset(
    {"timestamp", "severity", "severity_number", "trace_id", "span_id", "event_name", "scope"},
)
_MOST_DIGITS = 15


class NoLogsError(Exception):
    """It is no request of OTLP's."""


def request_of(body: bytes) -> Any:
    """A request in protobuf.

    :raises NoLogsError: it is none.
    """
    try:
        return ExportLogsServiceRequest.FromString(body)
    except DecodeError as error:
        raise NoLogsError(f"no request of OTLP: {error}") from error


def request_of_json(body: bytes) -> Any:
    """A request in OTLP's JSON, in which ids are hexadecimal.

    :raises NoLogsError: it is none.
    """
    try:
        given = json.loads(body)
        for record in _records(given):
            for name in ("traceId", "spanId"):
                if record.get(name):
                    record[name] = b64encode(bytes.fromhex(record[name])).decode()
        return ParseDict(given, ExportLogsServiceRequest(), ignore_unknown_fields=True)
    except (ValueError, TypeError, AttributeError, ParseError, RecursionError) as error:
        raise NoLogsError(f"no request of OTLP: {error}") from error


def _records(given: Any) -> Iterable[dict[str, Any]]:
    return (
        record
        for resource in given.get("resourceLogs") or ()
        for scope in resource.get("scopeLogs") or ()
        for record in scope.get("logRecords") or ()
    )


def events_of(request: Any) -> Iterator[EventBatch]:
    """The events of a request."""
    events: list[tuple[Headers, bytes]] = []
    for of_resource in request.resource_logs:
        resource = {f"{_RESOURCE}{name}": text for name, text in _attributes(of_resource.resource.attributes)}
        for of_scope in of_resource.scope_logs:
            shared = resource | ({"scope": of_scope.scope.name} if of_scope.scope.name else {})
            events += [(shared | _headers(record), _body(record.body)) for record in of_scope.log_records]
    return batches_of(events)


def request_with(batches: Sequence[EventBatch], resource: Mapping[str, str]) -> Any:
    """A request with these events, in their order as far as their resources and scopes are the same.

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
    """How many records an answer says were rejected, and why; none if it is no answer of OTLP's."""
    try:
        said = ExportLogsServiceResponse.FromString(answer).partial_success
    except DecodeError:
        return 0, ""
    return said.rejected_log_records, said.error_message


def _headers(record: Any) -> dict[str, str]:
    headers = dict(_attributes(record.attributes))
    nanoseconds = record.time_unix_nano or record.observed_time_unix_nano
    if nanoseconds:
        headers["timestamp"] = str(nanoseconds // 1_000_000)
    own = {
        "severity": record.severity_text,
        "severity_number": str(record.severity_number) if record.severity_number else "",
        "trace_id": record.trace_id.hex(),
        "span_id": record.span_id.hex(),
        "event_name": getattr(record, "event_name", ""),
    }
    return headers | {name: text for name, text in own.items() if text}


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
    """Without what is no text: such bytes are kept in headers as they came."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _attributes(pairs: Iterable[Any]) -> Iterable[tuple[str, str]]:
    return ((pair.key, _text(pair.value)) for pair in pairs)


def _body(value: Any) -> bytes:
    kind = value.WhichOneof("value")
    if kind == "bytes_value":
        return bytes(value.bytes_value)
    return b"" if kind is None else _text(value).encode()


def _text(value: Any) -> str:
    if value.WhichOneof("value") == "string_value":
        return str(value.string_value)
    plain = _plain(value)
    return "" if plain is None else json.dumps(plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    found = getattr(value, kind)
    if kind == "array_value":
        return [_plain(each) for each in found.values]
    if kind == "kvlist_value":
        return {pair.key: _plain(pair.value) for pair in found.values}
    return b64encode(found).decode() if kind == "bytes_value" else found


def _number(text: str | None) -> int:
    usable = text is not None and text.isascii() and text.isdecimal() and len(text) < _MOST_DIGITS
    return int(text or 0) if usable else 0


def _id(text: str | None, size: int) -> bytes:
    """None but a whole one is sent: others make a record invalid."""
    try:
        found = bytes.fromhex(text or "")
    except ValueError:
        return b""
    return found if len(found) == size else b""

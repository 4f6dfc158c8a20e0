"""The documented table of converted values: each row, and more cases, are sent to the real sources."""

import gzip
import json
import re
import socket
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from thrift.Thrift import TType

from producer.agent.protocols import avro
from producer.agent.protocols.avro_encoding import long, text
from producer.agent.protocols.forward import event_time, packed
from producer.wire.zstd import zstd
from tests.agent.test_thrift import framed

from .listeners import Served, all_of, serving

_DOCUMENT = Path(__file__).parents[3] / "docs" / "agent" / "sources" / "index.md"
_TIME = 1_700_000_000
_STAMP = f"{_TIME}000"
_OURS = {"tag": "t", "timestamp": _STAMP}
_JSON, _PROTOBUF = "application/json", "application/x-protobuf"

Event = tuple[dict[str, str], bytes]
#: The test of each row, by the row's first two cells; and of conversions that the page leaves out.
_ROWS: dict[tuple[str, str], Callable[[], None]] = {}


def _row(senders: str, sends: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def keep(test: Callable[[], None]) -> Callable[[], None]:
        _ROWS[senders, sends] = test
        return test

    return keep


def _answer(served: Served, sent: bytes) -> bytes:
    with served.connect() as peer:
        peer.sendall(sent)
        peer.shutdown(socket.SHUT_WR)
        return all_of(peer)


def _forwarded(*entries: Any, field: str | None = "m", **option: Any) -> list[Event]:
    """Return the events of entries that the source acknowledged."""
    with serving("forward", **({"field": field} if field else {})) as served:
        content = b"".join(entry if isinstance(entry, bytes) else msgpack.packb(entry) for entry in entries)
        assert _answer(served, packed(["t", content, {"chunk": "c", **option}])) == packed({"ack": "c"})
        return served.outlet.events


def _posted(source: str, body: bytes, path: str = "/", more: str = "", **options: Any) -> tuple[int, list[Event]]:
    """Return the source's status, and its events."""
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    with serving(source, **options) as served:
        return int(_answer(served, head.encode() + body)[9:12]), served.outlet.events


def _http(body: bytes | list[Any], more: str = "", **options: Any) -> tuple[int, list[Event]]:
    return _posted("http", body if isinstance(body, bytes) else json.dumps(body).encode(), more=more, **options)


def _otlp(body: bytes, kind: str = _PROTOBUF, path: str = "/v1/logs", more: str = "") -> tuple[int, list[Event]]:
    return _posted("otlp", body, path, f"Content-Type: {kind}\r\n{more}")


def _otlp_json(record: dict[str, Any], **scope: Any) -> tuple[int, list[Event]]:
    given = {"resourceLogs": [{"scopeLogs": [{**scope, "logRecords": [record]}]}]}
    return _otlp(json.dumps(given).encode(), _JSON)


def _request(**attributes: AnyValue) -> bytes:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add()
    record.time_unix_nano = _TIME * 10**9
    for name, value in attributes.items():
        record.attributes.add(key=name.partition("__")[0], value=value)
    return request.SerializeToString()


@_row("all", "a field without a value (null) in headers")
def _nulls() -> None:
    record = {"m": "body", "none": None}
    assert _forwarded([_TIME, record]) == [(_OURS, b"body")]
    assert _forwarded([_TIME, record], field=None) == [(_OURS, b'{"m": "body", "none": null}')]
    assert _http([{"headers": {"none": None}, "body": '{"none": null}'}]) == (200, [({}, b'{"none": null}')])
    assert _otlp(_request(none=AnyValue())) == (200, [({"timestamp": _STAMP}, b"")])


@_row("`forward`", "seconds, `EventTime`, MessagePack's own time")
def _times() -> None:
    for time in (_TIME, float(_TIME), event_time(_TIME * 1000), msgpack.Timestamp(_TIME, 5), None):
        wanted = {"tag": "t"} if time is None else _OURS
        assert _forwarded([time, {"m": "a"}]) == [(wanted, b"a")], time
    later = msgpack.ExtType(0, _TIME.to_bytes(4, "big") + (123_456_789).to_bytes(4, "big"))
    assert _forwarded([later, {"m": "a"}]) == [({"tag": "t", "timestamp": f"{_TIME}123"}, b"a")]


@_row("`forward`", "a time that is none of these, such as a text")
def _other_times() -> None:
    for time, wanted in (("2026-01-01", "2026-01-01"), (float("nan"), "NaN"), ({"a": 1}, '{"a": 1}'), (True, "true")):
        assert _forwarded([time, {"m": "a"}]) == [({"tag": "t", "time": wanted}, b"a")]


@_row("`forward`", "`[time, metadata]` (Fluent Bit 5)")
def _metadata() -> None:
    entries = [[[event_time(_TIME * 1000), each], {"m": "a"}] for each in ({}, {"otlp": {"severity_number": 9}})]
    assert _forwarded(*entries, fluent_signal=0) == [
        (_OURS, b"a"),
        ({**_OURS, "metadata": '{"otlp": {"severity_number": 9}}'}, b"a"),
    ]


@_row("`forward`", "the begin of a group (Fluent Bit)")
def _groups() -> None:
    begin, end = (msgpack.ExtType(0, mark + bytes(4)) for mark in (b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe"))
    record = {"resource": {"attributes": {"service.name": "shop"}}}
    entries = [[[begin, {"schema": "otlp"}], record], [[_TIME, {}], {"m": "a"}], [[end, {}], {}], [_TIME, {"m": "b"}]]
    group = json.dumps({"metadata": {"schema": "otlp"}, **record})
    assert _forwarded(*entries) == [({**_OURS, "group": group}, b"a"), (_OURS, b"b")]


def _entry(*pairs: tuple[Any, Any]) -> bytes:
    """Pack an entry whose record may have repeated names, and names that a dict cannot have."""
    packer = msgpack.Packer(autoreset=False)
    packer.pack_array_header(2)
    packer.pack(_TIME)
    packer.pack_map_pairs([("m", "body"), *pairs])
    return packer.bytes()


@_row("`forward`", "names that are bytes, numbers or lists")
def _names() -> None:
    entry = _entry((b"bytes", 1), (7, 2), (["l"], 3), (b"\xff", 4), (None, 5), ("deep", {b"k": 6}))
    ((headers, _),) = _forwarded(entry)
    names = {"bytes": "1", "7": "2", '["l"]': "3", "\udcff": "4", "null": "5", "deep": '{"k": 6}'}
    assert headers == {**_OURS, **names}
    ((_, body),) = _forwarded(entry, field=None)
    assert json.loads(body) == {"m": "body", "bytes": 1, "7": 2, '["l"]': 3, "\udcff": 4, "null": 5, "deep": {"k": 6}}


@_row("`forward`, `gelf`, `http`, `otlp`", "several fields of one name")
def _repeated() -> None:
    wanted = {"a": "1", "a_2": "2", "a_3": "3"}
    assert _forwarded(_entry(("a", 1), ("a", 2), (b"a", 3))) == [({**_OURS, **wanted}, b"body")]
    assert _http(b'[{"headers": {"a": 1, "a": 2, "a": "3"}}]') == (200, [(wanted, b"")])
    values = {f"a__{number}": AnyValue(int_value=number) for number in (1, 2, 3)}
    assert _otlp(_request(**values)) == (200, [({**wanted, "timestamp": _STAMP}, b"")])  # for gelf see test_gelf.py


@_row("`forward`, `gelf`, `otlp`, `kafka`", "a field named as a header of ours, such as `timestamp`")
def _own_names() -> None:
    assert _forwarded([_TIME, {"m": "a", "timestamp": "x", "tag": 5}]) == [
        ({**_OURS, "field_timestamp": "x", "field_tag": "5"}, b"a")
    ]
    status, ((headers, _),) = _otlp(_request(timestamp=AnyValue(string_value="x")))
    assert (status, headers) == (200, {"timestamp": _STAMP, "field_timestamp": "x"})  # for the others see their tests


@_row("`forward`, `http`, `otlp`", "NaN and infinities")
def _not_finite() -> None:
    nan, above, below = (float(each) for each in ("nan", "inf", "-inf"))
    values = {"a": nan, "b": above, "c": below, "l": [nan]}
    wanted = {"a": "NaN", "b": "Infinity", "c": "-Infinity", "l": '["NaN"]'}
    assert _forwarded([_TIME, {"m": "", **values}]) == [({**_OURS, **wanted}, b"")]
    ((_, body),) = _forwarded([_TIME, values], field=None)
    assert json.loads(body, parse_constant=pytest.fail) == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "l": ["NaN"]}
    assert _http([{"headers": values}]) == (200, [(wanted, b"")])
    del values["l"], wanted["l"]
    request = _request(**{name: AnyValue(double_value=value) for name, value in values.items()})
    assert _otlp(request) == (200, [({**wanted, "timestamp": _STAMP}, b"")])
    attributes = [{"key": name, "value": {"doubleValue": value}} for name, value in wanted.items()]
    assert _otlp_json({"attributes": attributes}) == (200, [(wanted, b"")])


@_row("`forward`, `http`", "integers beyond 64 bits")
def _integers() -> None:
    assert _forwarded([_TIME, {"m": 2**64 - 1, "n": -(2**63)}]) == [
        ({**_OURS, "n": str(-(2**63))}, b"%d" % (2**64 - 1))
    ]
    assert _http([{"headers": {"n": 10**60, "l": [10**60]}}]) == (200, [({"n": f"{10**60}", "l": f"[{10**60}]"}, b"")])


@_row("`forward`, `http`", "bytes that are not UTF-8, half a character")
def _bytes() -> None:
    record = {"m": b"\xff\0\xc3\xbc", "h": b"a\xff"}
    assert _forwarded([_TIME, record]) == [({**_OURS, "h": "a\udcff"}, b"\xff\0\xc3\xbc")]
    assert _forwarded([_TIME, record], field=None) == [(_OURS, '{"m": "\\udcff\\u0000ü", "h": "a\\udcff"}'.encode())]
    body = b'[{"headers": {"a": "\\ud800"}, "body": "\\ud800x"}]'
    assert _http(body) == (200, [({"a": "\ud800"}, b"\\ud800x")])


@_row("`forward`", "MessagePack's extensions")
def _extensions() -> None:
    record = {"m": msgpack.ExtType(7, b"x"), "n": msgpack.ExtType(5, b"\xff")}
    assert _forwarded([_TIME, record]) == [({**_OURS, "n": '[5, "\udcff"]'}, b'[7, "x"]')]


@_row("`forward`", "gzip, zstd")
def _forward_packings() -> None:
    for kind, pack in (("gzip", gzip.compress), ("zstd", zstd.compress)):
        content = b"".join(pack(msgpack.packb([_TIME, {"m": each}])) for each in "ab")
        assert [body for _, body in _forwarded(content, compressed=kind)] == [b"a", b"b"]


@_row("`forward`", "other compressions, metrics, traces")
def _other_forward() -> None:
    for option in ({"compressed": "lz4"}, {"fluent_signal": 1}, {"fluent_signal": 2}, {"fluent_signal": 3}):
        with serving("forward") as served:
            assert _answer(served, packed(["t", msgpack.packb([_TIME, {}]), {**option, "chunk": "c"}])) == b""
            assert served.outlet.batches == []


_PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}


@_row("`http`, `otlp`", "gzip, deflate, zstd")
def _post_packings() -> None:
    for kind, pack in _PACKINGS.items():
        packed_so = f"Content-Encoding: {kind}\r\n"
        assert _http(pack(b'[{"body": "a"}]'), packed_so) == (200, [({}, b"a")])
        assert _otlp(pack(_request()), more=packed_so) == (200, [({"timestamp": _STAMP}, b"")])


@_row("`http`, `otlp`", "other compressions (snappy, br, lz4)")
def _other_packings() -> None:
    for kind in ("snappy", "br", "lz4", "gzip, gzip"):
        packed_so = f"Content-Encoding: {kind}\r\n"
        assert _http(b'[{"body": "a"}]', packed_so) == (415, [])
        assert _otlp(_request(), more=packed_so) == (415, [])


@_row("`http`", "an event of JSON with other keys than `headers` and `body`, or a body that is no text")
def _other_keys() -> None:
    for event in ({"headers": {}, "time": 1}, {"body": 0}, {"body": False}, {"body": []}, {"headers": 0}):
        assert _http([{"body": "a"}, event]) == (400, []), event


@_row("`otlp`", "bytes, lists and maps as values")
def _values() -> None:
    values = {
        "b": {"bytesValue": "/w=="},
        "l": {"arrayValue": {"values": [{"boolValue": True}, {"bytesValue": "/w=="}, {}]}},
        "m": {"kvlistValue": {"values": [{"key": "a", "value": {"doubleValue": 1.5}}]}},
    }
    wanted = {"b": '"/w=="', "l": '[true, "/w==", null]', "m": '{"a": 1.5}'}
    attributes = [{"key": name, "value": value} for name, value in values.items()]
    assert _otlp_json({"attributes": attributes, "body": {"bytesValue": "/wA="}}) == (200, [(wanted, b"\xff\0")])
    assert _otlp_json({"body": values["m"]}) == (200, [({}, b'{"a": 1.5}')])


@_row("`otlp`", "scope, schema, flags, observed time, dropped attributes")
def _other_of_a_record() -> None:
    record = {
        "timeUnixNano": f"{_TIME}123456789",
        "observedTimeUnixNano": f"{_TIME + 1}000000000",
        "flags": 1,
        "droppedAttributesCount": 2,
    }
    scope = {"name": "lib", "version": "1", "attributes": [{"key": "a", "value": {"intValue": "5"}}]}
    wanted = {
        "timestamp": f"{_TIME}123",
        "observed_timestamp": f"{_TIME + 1}000",
        "flags": "1",
        "dropped_attributes_count": "2",
        "scope": "lib",
        "scope_version": "1",
        "scope.a": "5",
        "schema_url": "url",
    }
    assert _otlp_json(record, scope=scope, schemaUrl="url") == (200, [(wanted, b"")])


@_row("`otlp`", "JSON with a field twice, half a character (`\\ud800`), integers beyond 64 bits")
def _not_otlp() -> None:
    for value in ('"stringValue": "a", "stringValue": "b"', '"stringValue": "\\ud800"', f'"intValue": "{2**63}"'):
        body = b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {%b}}]}]}]}' % value.encode()
        assert _otlp(body, _JSON) == (400, []), value


@_row("`otlp`", "JSON fields that OTLP does not have")
def _unknown() -> None:
    assert _otlp_json({"body": {"stringValue": "a"}, "newer": {"x": [1]}}, later=1) == (200, [({}, b"a")])


@_row("`otlp`", "metrics, traces, without `signals`; gRPC to `http`")
def _other_signals() -> None:
    for path in ("/v1/metrics", "/v1/traces", "/v1development/profiles"):
        assert _otlp(b"", path=path) == (404, [])
    with serving("otlp") as served:
        assert _answer(served, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").startswith(b"HTTP/1.1 505 ")


@_row("`avro`, `thrift`", "headers that are not UTF-8")
def _flume_headers() -> None:
    call = avro.greeting_call()[:-1] + text("appendBatch") + long(1) + long(1) + b"\2\xff\2\xff\0\0"
    with serving("avro") as served:
        assert _answer(served, avro.framed(1, call)) == b""
        assert served.outlet.batches == []

    def write(out: Any) -> None:
        out.writeFieldBegin("events", TType.LIST, 1)
        out.writeListBegin(TType.STRUCT, 1)
        out.writeStructBegin("ThriftFlumeEvent")
        out.writeFieldBegin("headers", TType.MAP, 1)
        out.writeMapBegin(TType.STRING, TType.STRING, 1)
        out.writeBinary(b"a")
        out.writeBinary(b"x\xff")

    with serving("thrift") as served:
        assert b"appendBatch" in _answer(served, framed(write, end=b"\x18\x01a\0\0"))
        assert served.outlet.events == [({"a": "x\ufffd"}, b"a")]


@_row("`syslog_tcp`, `syslog_udp` (rsyslog, syslog-ng)", "any bytes")
def _syslog() -> None:
    for sent, body in (
        (b"<13>a\xff\x01\xc3\xbc", b"a\xff\x01\xc3\xbc"),
        (b"\xfe\x01", b"\xfe\x01"),
        (b"<13> a ", b" a "),
    ):
        with serving("syslog_tcp") as served:
            _answer(served, sent + b"\n")
            served.got(body)
        with serving("syslog_udp") as served, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.sendto(sent, served.address)
            served.got(body)


@_row("`syslog_tcp`", "rsyslog's compression")
def _packed_syslog() -> None:
    packed_so = zlib.compress(b"<13>Nov 11 22:14:15 box app: x\n", 9)
    for sent in (packed_so, zlib.compress(b"<13>a", 1)):
        with serving("syslog_tcp") as served:
            assert _answer(served, sent) == b""
            assert served.outlet.batches == []
    with serving("syslog_tcp") as served:
        _answer(served, b"%d z%b" % (len(packed_so) + 1, packed_so))
        assert served.outlet.events == [({"flume.syslog.status": "Invalid"}, b"z" + packed_so)]


def test_each_row_of_the_table_has_a_test() -> None:
    """Each row has a test: a new or changed row needs a new one."""
    table = _DOCUMENT.read_text(encoding="utf-8").partition("## What arrives")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \|$", table, re.MULTILINE)[1:]
    assert len(rows) == len({*rows})
    assert rows
    assert {*rows} <= {*_ROWS}


@pytest.mark.parametrize("row", _ROWS, ids=" ".join)
def test_a_value_arrives_as_the_row_says_or_is_refused_as_it_says(row: tuple[str, str]) -> None:
    """A value arrives as the row says, or is refused as it says."""
    _ROWS[row]()

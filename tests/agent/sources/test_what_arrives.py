"""The table of what arrives: each row of the document has a test."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path

import msgpack
import pytest

from producer.agent.protocols.forward import packed

from .listeners import Served, all_of, serving

_DOCUMENT = Path(__file__).parents[3] / "docs" / "agent-sources.md"
_TIME = 1_700_000_000
#: Rows that other tests hold, by the module that does.
_ELSEWHERE = {
    "`[time, metadata]` (Fluent Bit 5)": "tests/agent/test_forward.py",
    "the begin of a group (Fluent Bit)": "tests/agent/test_forward.py",
    "names that are bytes, numbers or lists": "tests/agent/test_forward.py",
    "several fields of one name": "tests/agent/sources/test_http_json.py",
    "a field named as a header of ours, such as `timestamp`": "tests/agent/test_forward.py",
    "NaN and infinities": "tests/agent/test_forward.py",
    "integers beyond 64 bits": "tests/agent/sources/test_http_json.py",
    "bytes that are not UTF-8": "tests/agent/test_forward.py",
    "MessagePack's extensions": "tests/agent/test_forward.py",
    "seconds, `EventTime`, MessagePack's own time": "tests/agent/test_forward.py",
    "a time that is none of these, such as a text": "tests/agent/test_forward.py",
    "gzip, zstd": "tests/agent/test_forward.py",
    "gzip, deflate, zstd": "tests/agent/sources/test_http.py",
    "other compressions (snappy, br, lz4)": "tests/agent/sources/test_http.py",
    "an event of JSON with other keys than `headers` and `body`": "tests/agent/sources/test_http_json.py",
    "bytes, lists and maps as values": "tests/agent/test_otlp.py",
    "JSON fields that OTLP does not have": "tests/agent/test_otlp.py",
    "metrics, traces": "tests/agent/test_otlp.py",
    "headers that are not UTF-8": "tests/agent/test_avro.py",
    "any bytes": "tests/agent/sources/test_syslog.py",
}


def _answer(served: Served, sent: bytes) -> bytes:
    with served.connect() as peer:
        peer.sendall(sent)
        peer.shutdown(socket.SHUT_WR)
        return all_of(peer)


def _nulls() -> None:
    record = {"m": "body", "none": None}
    for field, wanted in (("m", b"body"), (None, b'{"m": "body", "none": null}')):
        with serving("forward", **({"field": field} if field else {})) as served:
            assert _answer(served, packed(["t", _TIME, record, {"chunk": "c"}])) == packed({"ack": "c"})
            assert served.outlet.events == [({"tag": "t", "timestamp": f"{_TIME}000"}, wanted)]


def _other_forward() -> None:
    for option in ({"compressed": "lz4"}, {"fluent_signal": 1}, {"fluent_signal": 2}):
        with serving("forward") as served:
            assert _answer(served, packed(["t", msgpack.packb([_TIME, {}]), {**option, "chunk": "c"}])) == b""
            assert served.outlet.batches == []


def _other_of_a_record() -> None:
    record = {
        "timeUnixNano": "1700000000000000000",
        "observedTimeUnixNano": "1700000001000000000",
        "flags": 1,
        "droppedAttributesCount": 2,
        "attributes": [{"key": "timestamp", "value": {"doubleValue": "NaN"}}],
    }
    scope = {"name": "lib", "version": "1", "attributes": [{"key": "a", "value": {"intValue": "5"}}]}
    given = {"resourceLogs": [{"scopeLogs": [{"scope": scope, "schemaUrl": "url", "logRecords": [record]}]}]}
    body = json.dumps(given).encode()
    head = b"POST /v1/logs HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with serving("otlp") as served:
        assert _answer(served, head % len(body) + body).startswith(b"HTTP/1.1 200 ")
        ((headers, _),) = served.outlet.events
    assert headers == {
        "timestamp": "1700000000000",
        "observed_timestamp": "1700000001000",
        "flags": "1",
        "dropped_attributes_count": "2",
        "field_timestamp": "NaN",
        "scope": "lib",
        "scope_version": "1",
        "scope.a": "5",
        "schema_url": "url",
    }


def _grpc() -> None:
    with serving("otlp") as served:
        assert _answer(served, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").startswith(b"HTTP/1.1 505 ")


_HERE: dict[str, Callable[[], None]] = {
    "a field without a value (null) in headers": _nulls,
    "other compressions, metrics, traces": _other_forward,
    "scope, schema, flags, observed time, dropped attributes": _other_of_a_record,
    "gRPC": _grpc,
}


def test_each_row_of_the_table_has_a_test() -> None:
    """A row that is new, or worded anew, is tested anew."""
    text = _DOCUMENT.read_text(encoding="utf-8").partition("### What arrives")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE)[1:]
    assert {*rows} == {*_HERE, *_ELSEWHERE}
    assert all((_DOCUMENT.parents[1] / place).exists() for place in _ELSEWHERE.values())


@pytest.mark.parametrize("row", _HERE)
def test_what_the_table_says_is_so(row: str) -> None:
    """What the sender sends becomes what the row says, or is refused as it says."""
    _HERE[row]()

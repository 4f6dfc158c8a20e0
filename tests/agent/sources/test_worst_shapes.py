"""Small messages that would become gigabytes: the worst shapes of each protocol, against the memory it may have."""

from __future__ import annotations

import gzip
import multiprocessing
import re
import socket
import struct
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
import pytest

from producer.agent.events.batch import EventBatch
from producer.agent.protocols.avro import FLUME_HASH, framed
from producer.agent.protocols.avro_encoding import long, text
from producer.agent.protocols.batches import pack
from producer.wire.protobuf import delimited
from tests.support.waiting import PATIENCE

from .listeners import all_of, serving

_MIB = 1 << 20
#: What each source may have, and a message.
_MEMORY, _MESSAGE = 16 * _MIB, 2 * _MIB
#: What a process may grow beside that: an interpreter's own, and what the C library keeps.
_BESIDE = 24 * _MIB
_APART = 200.0


def _filled(piece: bytes, size: int = _MESSAGE - 4096) -> bytes:
    return piece * (size // len(piece))


def _posted(body: bytes, path: str = "/", kind: str = "text/plain") -> bytes:
    packed = gzip.compress(body, 6)
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Encoding: gzip\r\n"
    return f"{head}Content-Length: {len(packed)}\r\n\r\n".encode() + packed


def _protobuf(*fields: int, piece: bytes) -> bytes:
    """Pieces within messages, in these fields from without to within."""
    body = _filled(piece)
    for number in reversed(fields):
        body = delimited(number << 3 | 2, body)
    return _posted(body, "/v1/logs", "application/x-protobuf")


def _json(body: str) -> bytes:
    return _posted(body.encode(), "/v1/logs", "application/json")


def _forward(content: bytes, **option: Any) -> bytes:
    return msgpack.packb(["t", content, option], use_bin_type=True)


def _array(piece: bytes, count: int) -> bytes:
    return b"\xdd" + struct.pack(">I", count) + piece * count


def _entry(value: bytes) -> bytes:
    return b"\x92\x00\x81\xa1a" + value


def _thrift(content: bytes) -> bytes:
    call = b"\x82\x21\x01\x0bappendBatch" + content
    return struct.pack(">I", len(call)) + call


def _avro(content: bytes) -> bytes:
    return framed(1, FLUME_HASH + b"\0" + FLUME_HASH + b"\0\0" + text("appendBatch") + content)


_MANY = _MESSAGE - 4096
_EMPTY_MAPS = _array(b"\x80", 131_000)
_NESTED = _array(_array(b"\x90", 120_000), (_MANY - 1000) // 120_005)
_HEADERS = b"".join(b"\x03%03d\0" % (number % 1000) for number in range(400_000))[: _MANY // 2]
#: By source its options, and what is sent to it.
_SHAPES: Mapping[str, tuple[str, dict[str, Any], Callable[[], bytes]]] = {
    "http lines": ("http", {"format": "lines"}, lambda: _posted(_filled(b"a\n"))),
    "http empty lines": ("http", {"format": "lines"}, lambda: _posted(_filled(b"\n"))),
    "http json of empty events": ("http", {}, lambda: _posted(b"[" + _filled(b"{},") + b"{}]")),
    "http json of one event": ("http", {}, lambda: _posted(b'[{"headers":{"a":[' + _filled(b"{},") + b"{}]}}]")),
    "http json of lists": ("http", {}, lambda: _posted(_filled(b"["))),
    "http json of headers": (
        "http",
        {},
        lambda: _posted(b"[" + b",".join(b'{"headers":{"%d":""}}' % n for n in range(90_000)) + b"]"),
    ),
    "http json with emoji": ("http", {}, lambda: _posted(b'[{"body":"' + "😀".encode() + _filled(b"a") + b'"}]')),
    "http batches": (
        "http",
        {"format": "batches"},
        lambda: _posted(pack([EventBatch.of_lines(_filled(b"\n"))])),
    ),
    "http batches of one with headers": (
        "http",
        {"format": "batches"},
        lambda: _posted(pack([EventBatch.of_bodies([b""], {f"{n:x}": "" for n in range(140_000)})])),
    ),
    "http batches of one with columns": (
        "http",
        {"format": "batches"},
        lambda: _posted(pack([EventBatch.of_bodies([b""], {}, {f"{n:x}": [""] for n in range(50_000)})])),
    ),
    "http batches of ends": (
        "http",
        {"format": "batches"},
        lambda: _posted(pack([EventBatch.of_bodies([b""] * 250_000)])),
    ),
    "http batches of objects": (
        "http",
        {"format": "batches"},
        lambda: _posted(struct.pack("<II", _MANY // 3 * 3, 0) + b"[" + b"{}," * (_MANY // 3 - 1) + b"{}"),
    ),
    "otlp resources": ("otlp", {}, lambda: _protobuf(piece=b"\x0a\x00")),
    "otlp scopes": ("otlp", {}, lambda: _protobuf(1, piece=b"\x12\x00")),
    "otlp records": ("otlp", {}, lambda: _protobuf(1, 2, piece=b"\x12\x00")),
    "otlp records with overlong tags": ("otlp", {}, lambda: _protobuf(1, 2, piece=b"\x92\x00\x00")),
    "otlp attributes of a record": ("otlp", {}, lambda: _protobuf(1, 2, 2, piece=b"\x32\x00")),
    "otlp attributes of a resource": ("otlp", {}, lambda: _protobuf(1, 1, piece=b"\x0a\x00")),
    "otlp entities of a resource": ("otlp", {}, lambda: _protobuf(1, 1, piece=b"\x1a\x00")),
    "otlp attributes of a scope": ("otlp", {}, lambda: _protobuf(1, 2, 1, piece=b"\x1a\x00")),
    "otlp values of a body": ("otlp", {}, lambda: _protobuf(1, 2, 2, 5, 5, piece=b"\x0a\x00")),
    "otlp unknown fields": ("otlp", {}, lambda: _protobuf(1, 2, piece=b"\x78\x00")),
    "otlp json records": (
        "otlp",
        {},
        lambda: _json('{"resourceLogs":[{"scopeLogs":[{"logRecords":[' + "{}," * 600_000 + "{}]}]}]}"),
    ),
    "forward empty maps": ("forward", {}, lambda: _forward(_filled(_entry(_EMPTY_MAPS)))),
    "forward nested arrays": ("forward", {}, lambda: _forward(_entry(_NESTED))),
    "forward empty events": ("forward", {}, lambda: _forward(_filled(b"\x92\x00\x80"))),
    "forward plain": ("forward", {}, lambda: b"\x92\xa1t" + _array(b"\x92\x00\x80", 600_000)),
    "forward plain with large events": ("forward", {}, lambda: b"\x92\xa1t" + _array(_entry(_EMPTY_MAPS), 15)),
    "forward gzip": (
        "forward",
        {},
        lambda: _forward(gzip.compress(_filled(_entry(_EMPTY_MAPS)), 6), compressed="gzip"),
    ),
    "forward gzip members": ("forward", {}, lambda: _forward(_filled(gzip.compress(b"")), compressed="gzip")),
    "forward options": ("forward", {}, lambda: b"\x93\xa1t\x90\x81\xa1a" + _NESTED),
    "thrift empty events": ("thrift", {}, lambda: _thrift(b"\x19\xfc\xff\xff\x07" + b"\x1b\x00\x18\x00\x00" * 131_071)),
    "thrift headers": (
        "thrift",
        {},
        lambda: _thrift(
            b"\x19\xfc\xff\x7f"
            + (b"\x1b\xe8\x07\x88" + b"".join(b"\x03%03d\x00" % number for number in range(1000)) + b"\x18\x00\x00")
            * 400
        ),
    ),
    "avro empty events": ("avro", {}, lambda: _avro(long(131_072) + b"\0\0" * 131_072 + b"\0")),
    "avro headers": ("avro", {}, lambda: _avro(long(100) + long(1000) + _HEADERS)),
    "avro deflate": (
        "avro",
        {"compression_type": "deflate"},
        lambda: zlib.compress(_avro(long(131_072) + _filled(b"\x02\x04ab\0\0"))),
    ),
    "syslog lines": ("syslog_tcp", {}, lambda: _filled(b"a\n")),
    "syslog empty lines": ("syslog_tcp", {}, lambda: _filled(b"\n")),
    "netcat lines": ("netcat", {}, lambda: _filled(b"a\n")),
}


def _peak() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def _options(kind: str) -> dict[str, Any]:
    if kind in ("http", "otlp"):
        return {"max_body": _MESSAGE, "max_memory": _MEMORY}
    return {"max_frame": _MESSAGE, "max_memory": _MEMORY} if kind in ("forward", "thrift", "avro") else {}


def _attacked(name: str, pipe: Any) -> None:
    """Say by how much the process grows when three peers send a shape."""
    kind, options, shape = _SHAPES[name]
    sent = shape()
    with serving(kind, **_options(kind), **options) as served:
        served.outlet.put = lambda _batch, _timeout, **_more: None
        served.outlet.put_until = lambda _batch, _stop: True
        with served.connect() as warm, suppress(OSError):
            warm.sendall(sent[:100])
            warm.shutdown(socket.SHUT_WR)
            all_of(warm)
        before = _peak()
        peers = [served.connect() for _ in range(1 if kind == "forward" else 2)]
        for peer in peers:
            peer.settimeout(PATIENCE)
            with suppress(OSError):
                peer.sendall(sent)
                peer.shutdown(socket.SHUT_WR)
        for peer in peers:
            with peer, suppress(OSError):
                all_of(peer)
        pipe.send(_peak() - before)


@pytest.mark.parametrize("name", _SHAPES)
def test_the_worst_shapes_take_no_more_memory_than_a_source_may_have(name: str) -> None:
    """Each message is as large as it may be: it is refused, or taken, within bounds."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux's /proc to measure memory")
    # The allocator of a process that was forked from a large one is noisy: one growth of three is within the bound.
    assert any(_growth(name) < _MEMORY + _BESIDE for _ in range(3))


def _growth(name: str) -> int:
    """Return how far the peak memory of a process grows that is sent a shape, bytes."""
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    process = multiprocessing.get_context("fork").Process(target=_attacked, args=(name, theirs))
    process.start()
    try:
        assert ours.poll(_APART), "no answer"
        return int(ours.recv())
    finally:
        process.kill()
        process.join()

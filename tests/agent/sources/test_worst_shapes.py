"""Small messages that would take gigabytes: the worst shapes of each protocol, against the memory limit."""

import gzip
import multiprocessing
import re
import socket
import struct
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count, islice
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgpack
import pytest
from confluent_kafka import TopicPartition
from cramjam import snappy

from producer.agent.config.limits import give_back
from producer.agent.events.batch import EventBatch
from producer.agent.protocols.avro import FLUME_HASH, framed
from producer.agent.protocols.avro_encoding import long, text
from producer.agent.protocols.batches import pack
from producer.agent.sinks.objects import ObjectsSink
from producer.agent.sinks.objects.columns import Columns
from producer.agent.sinks.objects.tables import parquet_file
from producer.agent.sources import kafka, loghub
from producer.agent.sources.journald import JournalError
from producer.agent.testing import RecordingOutlet
from producer.reading.logstore import Page
from producer.runtime.clock import Stop
from producer.testing import ManualClock
from producer.wire.cursors import cursor_at, position_of
from producer.wire.protobuf import delimited
from tests.agent.components import made
from tests.agent.doubles import context
from tests.support.waiting import PATIENCE, Call, eventually

from .listeners import all_of, serving

_MIB = 1 << 20
#: The memory limits of each source and of a message.
_MEMORY, _MESSAGE = 16 * _MIB, 2 * _MIB
#: Additional growth of a process: the interpreter's objects, and what the C library retains for each thread (31.5 MiB
#: measured, with two peers).
_BESIDE = 32 * _MIB
_APART = 200.0


def _filled(piece: bytes, size: int = _MESSAGE - 4096) -> bytes:
    return piece * (size // len(piece))


def _posted(body: bytes, path: str = "/", kind: str = "text/plain") -> bytes:
    packed = gzip.compress(body, 6)
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Encoding: gzip\r\n"
    return f"{head}Content-Length: {len(packed)}\r\n\r\n".encode() + packed


def _protobuf(*fields: int, piece: bytes, signal: str = "logs") -> bytes:
    """Nest pieces in messages, in these fields from the outside in."""
    body = _filled(piece)
    for number in reversed(fields):
        body = delimited(number << 3 | 2, body)
    return _posted(body, f"/v1/{signal}", "application/x-protobuf")


def _metric(*fields: int, piece: bytes) -> bytes:
    """Nest pieces in a metric's data."""
    return _protobuf(1, 2, 2, *fields, piece=piece, signal="metrics")


def _json(body: str, signal: str = "logs") -> bytes:
    return _posted(body.encode(), f"/v1/{signal}", "application/json")


def _written(body: bytes) -> bytes:
    """Return a request of remote write."""
    block = bytes(snappy.compress_raw(body))
    head = "POST /api/v1/write HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-protobuf\r\n"
    return f"{head}Content-Encoding: snappy\r\nContent-Length: {len(block)}\r\n\r\n".encode() + block


def _series(*content: bytes) -> bytes:
    """Return a request with one time series that has a name."""
    name = delimited(0x0A, delimited(0x0A, b"__name__") + delimited(0x12, b"a"))
    return _written(delimited(0x0A, b"".join((name, *content))))


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
#: Signals of the source ``otlp``.
_ALL = {"signals": ["logs", "traces", "metrics"]}
#: Options of each source, and the bytes sent to it.
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
    "otlp events of a span": ("otlp", _ALL, lambda: _protobuf(1, 2, 2, piece=b"\x5a\x00", signal="traces")),
    "otlp points of a metric": ("otlp", _ALL, lambda: _metric(5, piece=b"\x0a\x00")),
    "otlp exponential buckets": ("otlp", _ALL, lambda: _metric(10, 1, 8, 2, piece=b"\xff\x01")),
    "otlp buckets of a metric": ("otlp", _ALL, lambda: _metric(9, 1, 6, piece=b"\xff" * 8)),
    "otlp quantiles of a metric": ("otlp", _ALL, lambda: _metric(11, 1, piece=b"\x32\x00")),
    "otlp json buckets": (
        "otlp",
        _ALL,
        lambda: _json(
            '{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"histogram":{"dataPoints":[{"explicitBounds":['
            + "1," * 900_000
            + "1]}]}}]}]}]}",
            "metrics",
        ),
    ),
    "remote write series": ("prometheus_remote_write", {}, lambda: _written(_filled(b"\x0a\x00"))),
    "remote write series of one sample": (
        "prometheus_remote_write",
        {},
        lambda: _written(_filled(delimited(0x0A, b"\x0a\x0d\x0a\x08__name__\x12\x01a\x12\x00"))),
    ),
    "remote write empty labels": ("prometheus_remote_write", {}, lambda: _series(_filled(b"\x0a\x00"))),
    "remote write labels": (
        "prometheus_remote_write",
        {},
        lambda: _series(*(b"\x0a\x0a\x0a\x08%08x" % number for number in range(60_000))),
    ),
    "remote write samples": ("prometheus_remote_write", {}, lambda: _series(_filled(b"\x12\x00"))),
    "remote write fewer samples": ("prometheus_remote_write", {}, lambda: _series(b"\x12\x00" * 60_000)),
    "remote write exemplars": ("prometheus_remote_write", {}, lambda: _series(_filled(b"\x1a\x02\x0a\x00"))),
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
    "gelf messages": ("gelf", {"transport": "tcp"}, lambda: b'{"_":""}\0' * 60_000),
    "gelf objects": ("gelf", {"transport": "tcp"}, lambda: b'{"a":[' + _filled(b"{},") + b"{}]}\0"),
    "gelf fields": (
        "gelf",
        {"transport": "tcp"},
        lambda: b"\0".join(b'{"%06d":"","a":1}' % number for number in range(20_000)) + b"\0",
    ),
    "netcat lines": ("netcat", {}, lambda: _filled(b"a\n")),
}


def _begun() -> int:
    """Return the process's memory from which its peak grows; earlier peaks are reset."""
    give_back()
    with suppress(OSError):  # a system where the peak cannot be reset
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def _options(kind: str) -> dict[str, Any]:
    if kind in ("http", "otlp", "gelf", "prometheus_remote_write"):
        return {"max_body": _MESSAGE, "max_memory": _MEMORY}
    return {"max_frame": _MESSAGE, "max_memory": _MEMORY} if kind in ("forward", "thrift", "avro") else {}


def _attacked(name: str, pipe: Any) -> None:
    """Send the growth of the process when three peers send a shape."""
    kind, options, shape = _SHAPES[name]
    sent = shape()
    with serving(kind, **_options(kind), **options) as served:
        served.outlet.put = lambda _batch, _timeout, **_more: None
        served.outlet.put_until = lambda _batch, _stop: True
        with served.connect() as warm, suppress(OSError):
            warm.sendall(sent[:100])
            warm.shutdown(socket.SHUT_WR)
            all_of(warm)
        before = _begun()
        peers = [served.connect() for _ in range(1 if kind == "forward" else 2)]
        for peer in peers:
            peer.settimeout(PATIENCE)
            with suppress(OSError):
                peer.sendall(sent)
                peer.shutdown(socket.SHUT_WR)
        for peer in peers:
            with peer, suppress(OSError):
                all_of(peer)
        pipe.send(_peak() - before - (_MEMORY + _BESIDE))


#: Answers to a source of ``loghub``.
_PULLED: Mapping[str, Callable[[], bytes]] = {
    "loghub empty logs": lambda: delimited(0x0A, _filled(b"\x0a\x00")),
    "loghub logs of many fields": lambda: delimited(
        0x0A, delimited(0x0A, b"".join(b"\x12\x06\x0a\x04%04x" % number for number in range(1 << 16)) * 3)
    ),
    "loghub empty groups": lambda: _filled(b"\x0a\x00"),
    "loghub tags": lambda: delimited(
        0x0A,
        b"".join(b"\x32\x06\x0a\x04%04x" % number for number in range(1 << 16))
        + b"".join(b"\x32\x07\x0a\x05%05x" % number for number in range(1 << 17))
        + delimited(0x0A, b""),
    ),
    "loghub empty tags": lambda: delimited(0x0A, _filled(b"\x32\x00") + delimited(0x0A, b"")),
}


class _Reader:
    def __init__(self, body: bytes) -> None:
        self._bodies = [body]

    def pull(self, _shard: str, cursor: str, read: Callable[[bytes], Any], _count: int, **_more: Any) -> Page[Any]:
        number = position_of(cursor) or 0
        content = read(self._bodies.pop() if self._bodies else b"")
        return Page(content, cursor_at(number + len(content)), not content)


def _pulled(name: str, pipe: Any) -> None:
    """Send the growth of the process when a source pulls a shape."""
    reader = _Reader(_PULLED[name]())
    given = {"project": "p", "logstore": "l", "endpoint": "http://127.0.0.1:1", "access_key_id": "a"}
    options = loghub.LogHubSource.Options(**given, access_key_secret="b", shards=(0,), max_memory=_MEMORY)
    logstore: Any = loghub.Logstore(reader, _MEMORY // 4)  # type: ignore[arg-type]
    shards = loghub.OwnShards(options, logstore, "begin", ManualClock())
    pulling = loghub._Pulling(options, logstore, shards, RecordingOutlet(), Stop())
    pulling._next["0"], pulling._stops["0"] = 0, []
    before = _begun()
    with suppress(loghub.LogGroupTooLargeError, ValueError):
        pulling._advance("0")
    pipe.send(_peak() - before - (_MEMORY + _BESIDE))


class _Message:
    """A Kafka message with only headers, which become objects when they are read."""

    def __init__(self, offset: int, headers: int) -> None:
        self._offset, self._count = offset, headers
        self._headers: list[tuple[str, bytes]] | None = None

    def __getattr__(self, name: str) -> Callable[[], Any]:
        known = {"topic": "t", "partition": 0, "offset": self._offset, "timestamp": (0, 0)}
        return lambda: known.get(name)

    def headers(self) -> list[tuple[str, bytes]]:
        if self._headers is None:
            self._headers = [("a", b"") for _ in range(self._count)]
        return self._headers


class _Consumer:
    """A client that always has another message."""

    def __init__(self, headers: int) -> None:
        self._headers, self._offset = headers, 0

    def committed(self, partitions: list[Any], timeout: float) -> list[Any]:
        return [TopicPartition("t", 0, 0)]

    def get_watermark_offsets(self, _partition: Any, *, cached: bool) -> tuple[int, int]:
        return 0, 10

    def commit(self, offsets: list[Any], asynchronous: bool) -> None:
        pass

    def consume(self, count: int, timeout: float) -> list[_Message]:
        first, self._offset = self._offset, self._offset + count
        return [_Message(number, self._headers) for number in range(first, first + count)]


#: Headers of each message in a topic.
_CONSUMED = {"kafka headers": (1 << 20) // 3, "kafka messages without values": 0, "kafka few headers": 3000}


def _consumed(name: str, pipe: Any) -> None:
    """Send the growth of the process when a Kafka source takes messages of at most 1 MiB."""
    options = kafka.KafkaSource.Options(
        bootstrap_servers="b", topics=("t",), config={"queued.max.messages.kbytes": "1"}
    )
    consumer, outlet = _Consumer(_CONSUMED[name]), RecordingOutlet()
    reading = kafka._Reading(options, context(Path("unused")), consumer, outlet, Stop())
    reading._assigned(consumer, [TopicPartition("t", 0)])
    before = _begun()
    assert reading.look()
    assert outlet.committed
    pipe.send(_peak() - before - (options.holds() + _BESIDE))


class _Dropping(RecordingOutlet):
    """Outlet that accepts all batches, and keeps the positions."""

    def put(self, batch: EventBatch, timeout: float | None = None, *, refuse: bool = True) -> None:
        super().put(batch, timeout, refuse=refuse)
        self.committed.clear()


def _zeros(count: int) -> str:
    return f"head -c {count} /dev/zero"


_LONG = 24 * _MIB


def _journal_entry(count: int) -> bytes:
    return b'{"__CURSOR":"a","MESSAGE":[' + b"255," * count + b"255]}\n"


#: Options of each source, and the file that it reads, if any; exec writes its own output.
_LOCAL: Mapping[str, tuple[str, dict[str, Any], Callable[[], bytes]]] = {
    "exec one line": ("exec", {"command": _zeros(_LONG)}, bytes),
    "exec empty lines": ("exec", {"command": "yes '' | head -c 8388608", "shell": "/bin/sh -c"}, bytes),
    "exec utf-16": ("exec", {"command": _zeros(_LONG), "encoding": "utf-16"}, bytes),
    "journald large entry": ("journald", {}, lambda: _journal_entry(_MIB - 100)),
    "journald too large an entry": ("journald", {}, lambda: _journal_entry(6 * _MIB)),
    "journald entry without an end": ("journald", {}, lambda: b"[" * _LONG),
    "journald small entries": ("journald", {"fields": ["all"]}, lambda: b'{"__CURSOR":"a","a":"b"}\n' * 60_000),
    "spooldir one line": ("spooldir", {}, lambda: b"a" * _LONG),
    "spooldir one line of utf-16": ("spooldir", {"encoding": "utf-16"}, lambda: b"a\0" * (_LONG // 2)),
    "spooldir empty lines of utf-32": ("spooldir", {"encoding": "utf-32"}, lambda: b"\n\0\0\0" * _MIB),
    "spooldir empty lines": ("spooldir", {"max_line_length": 10}, lambda: b"\n" * (2 * _MIB)),
    "taildir one line": ("taildir", {}, lambda: b"a" * _LONG),
    "taildir empty lines": ("taildir", {"byte_offset_header": True}, lambda: b"\n" * (2 * _MIB)),
    "taildir empty cri lines": ("taildir", {"line_format": "cri"}, lambda: b"\n" * (_MIB // 2)),
    "taildir short multi-line events": (
        "taildir",
        {"line_format": "containers", "multiline_start": "a"},
        lambda: b"a stdout F\nb stderr F a\n\n" * (_MIB // 16),
    ),
    "taildir parts of docker without an end": (
        "taildir",
        {"line_format": "docker"},
        lambda: b'{"log":"","stream":"stdout","time":""}\n' * (_MIB // 16),
    ),
}


def _read(name: str, pipe: Any) -> None:
    """Send the growth of the process when a source reads a shape on this machine."""
    kind, options, content = _LOCAL[name]
    with TemporaryDirectory() as folder:
        (file := Path(folder, "in", "a")).parent.mkdir()
        file.write_bytes(content())
        given = {"journald": {"command": f"{folder}/journalctl"}, "spooldir": {"spool_directory": str(file.parent)}}
        given |= {"taildir": {"paths": [str(file)]}, "exec": {}}
        if kind == "journald":
            Path(folder, "journalctl").write_text(f"#!/bin/sh\ncat {file}\n")
            Path(folder, "journalctl").chmod(0o755)
        quick = {"settle": 0.001} if kind in ("spooldir", "taildir") else {}
        source, outlet, stop = made("sources", kind, folder, **given[kind], **quick, **options), _Dropping(), Stop()
        before = _begun()
        call = Call(lambda: source.run(outlet, stop))
        size = file.stat().st_size

        def is_read() -> bool:
            done = not file.exists() if kind == "spooldir" else max(outlet._ends.values(), default=0) >= size
            return call.done or (kind in ("spooldir", "taildir") and done)

        eventually(is_read, name, _APART)
        grown = _peak() - before
        stop.set()
        with suppress(JournalError):
            call.result()
    pipe.send(grown - (_MEMORY + _BESIDE))


class _Flood:
    """A socket that always has another datagram."""

    family = socket.AF_INET

    def __init__(self, size: int) -> None:
        self._size = size

    def recvfrom(self, _most: int) -> tuple[bytes, tuple[str, int]]:
        return bytes(self._size), ("127.0.0.1", 1)


_DATAGRAMS = {
    f"{kind} datagrams of {size} bytes": (kind, size) for kind in ("netcatudp", "syslog_udp") for size in (65_000, 1)
}


def _flooded(name: str, pipe: Any) -> None:
    """Send the growth of the process when a source has endless datagrams to read."""
    kind, size = _DATAGRAMS[name]
    source = made("sources", kind, port=0, batch_size=1_000_000)
    before = _begun()
    list(source._batches(source._read(_Flood(size))))
    pipe.send(_peak() - before - (_MEMORY + _BESIDE))


#: Bodies for a Parquet file, beside few distinct bytes: fields of many names, of few, and none.
_ROWS: Mapping[str, Callable[[int], bytes]] = {
    "parquet of many names": lambda row: b"{%s}" % b",".join(b'"%d":1' % (row * 100 + n) for n in range(100)),
    "parquet of many columns": lambda row: b"{%s}" % b",".join(b'"%d":1' % (row * 7 % 997 + n) for n in range(20)),
    "parquet of long lists": lambda row: b'{"%d":[%s]}' % (row % 9, b",".join([b"[1]"] * 1000)),
}


def _tabled(name: str, pipe: Any) -> None:
    """Send the growth of the process when a sink writes a Parquet file."""
    options = ObjectsSink.Options(path="/unused", format="parquet", body="json", roll_size=4 * _MIB)
    rows = map(_ROWS[name], count())
    batches = [EventBatch.of_bodies(list(islice(rows, 100)))]
    parquet_file(batches, Columns(options.column_rules, {}), options.column_rules, "none")  # imports
    before = _begun()
    while sum(batch.size for batch in batches) < options.roll_size:
        batches.append(EventBatch.of_bodies(list(islice(rows, 100))))
    parquet_file(batches, Columns(options.column_rules, {}), options.column_rules, "none")
    pipe.send(_peak() - before - options.holds())


_ALL = {
    **dict.fromkeys(_ROWS, _tabled),
    **dict.fromkeys(_SHAPES, _attacked),
    **dict.fromkeys(_PULLED, _pulled),
    **dict.fromkeys(_CONSUMED, _consumed),
    **dict.fromkeys(_LOCAL, _read),
    **dict.fromkeys(_DATAGRAMS, _flooded),
}


@pytest.mark.parametrize("name", _ALL)
def test_the_worst_shapes_take_no_more_memory_than_a_component_may_have(name: str) -> None:
    """A message of the maximum size is refused, or accepted, within the memory limit."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux's /proc to measure memory")
    # The allocator's growth is noisy: one of three runs within the limit is enough.
    assert any(_excess(name) < 0 for _ in range(3))


def _run(name: str, answer: Connection) -> None:
    _ALL[name](name, answer)


def _excess(name: str) -> int:
    """Return the bytes by which a process's peak exceeds its limit when a shape is sent."""
    context = multiprocessing.get_context("forkserver")  # a small process, whose allocator is less noisy
    context.set_forkserver_preload([__name__])
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(name, theirs))
    process.start()
    theirs.close()  # otherwise the end of the process is not seen
    try:
        assert ours.poll(_APART), "no answer"
        return int(ours.recv())
    finally:
        process.kill()
        process.join()

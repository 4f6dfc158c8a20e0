"""Flume's Thrift protocol: our sink to our source, and calls written by Thrift's library."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TApplicationException, TMessageType, TType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TFramedTransport, TMemoryBuffer

from producer.agent.config import parse_flume
from producer.agent.config.options import read_options
from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import Sink, SinkError
from producer.agent.protocols.thrift import Status
from producer.agent.sinks.thrift import ThriftSink
from producer.agent.sources.thrift import ThriftSource
from tests.agent.doubles import context
from tests.agent.sources.listeners import all_of, serving
from tests.support.waiting import PATIENCE, Call, eventually

from .network_conformance import ListeningSourceConformance, ReceivedSinkConformance

EVENTS = [({"a": "1", "ü": ""}, b"one"), ({}, b"\xff\x00two")]


class Client:
    """A client of Flume's protocol, written field by field with Thrift's library in pure Python."""

    def __init__(self, address: tuple[str, int], protocol: Any = TCompactProtocol) -> None:
        plain = TSocket(*address)
        plain.setTimeout(PATIENCE * 1000)
        self._transport = TFramedTransport(plain)
        self._transport.open()
        self._protocol = protocol(self._transport)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    def append(self, event: tuple[Mapping[str, str], bytes]) -> int:
        return self.call("append", lambda out: (out.writeFieldBegin("event", TType.STRUCT, 1), _event(out, event)))

    def append_batch(self, events: Sequence[tuple[Mapping[str, str], bytes]]) -> int:
        def write(out: Any) -> None:
            out.writeFieldBegin("events", TType.LIST, 1)
            out.writeListBegin(TType.STRUCT, len(events))
            for event in events:
                _event(out, event)
            out.writeListEnd()

        return self.call("appendBatch", write)

    def call(self, name: str, write: Callable[[Any], object]) -> int:
        self._protocol.writeMessageBegin(name, TMessageType.CALL, 7)
        _arguments(self._protocol, write)
        self._protocol.writeMessageEnd()
        self._transport.flush()
        assert self._protocol.readMessageBegin() == (name, TMessageType.REPLY, 7)
        return _status(self._protocol)


def _arguments(out: Any, write: Callable[[Any], object]) -> None:
    out.writeStructBegin("args")
    write(out)
    out.writeFieldEnd()
    out.writeFieldStop()
    out.writeStructEnd()


def _event(out: Any, event: tuple[Mapping[str, str], bytes]) -> None:
    headers, body = event
    out.writeStructBegin("ThriftFlumeEvent")
    out.writeFieldBegin("headers", TType.MAP, 1)
    out.writeMapBegin(TType.STRING, TType.STRING, len(headers))
    for name, value in headers.items():
        out.writeString(name)
        out.writeString(value)
    out.writeMapEnd()
    out.writeFieldEnd()
    out.writeFieldBegin("body", TType.STRING, 2)
    out.writeBinary(body)
    out.writeFieldEnd()
    out.writeFieldStop()
    out.writeStructEnd()


def _status(given: Any) -> int:
    given.readStructBegin()
    assert given.readFieldBegin()[1:] == (TType.I32, 0)
    status: int = given.readI32()
    given.readFieldEnd()
    assert given.readFieldBegin()[1] == TType.STOP
    given.readStructEnd()
    given.readMessageEnd()
    return status


def framed(write: Callable[[Any], object], name: str = "appendBatch", end: bytes = b"") -> bytes:
    """Return a frame with a call, complete or cut off, followed by further bytes."""
    buffer = TMemoryBuffer()
    out = TCompactProtocol(buffer)
    out.writeMessageBegin(name, TMessageType.CALL, 1)
    out.writeStructBegin("args")
    write(out)
    return _frame(buffer.getvalue() + end)


def _frame(message: bytes) -> bytes:
    return struct.pack(">I", len(message)) + message


@contextmanager
def sink(address: tuple[str, int], state: Path, **options: Any) -> Iterator[ThriftSink]:
    given = {"hostname": address[0], "port": address[1], "request_timeout": 5.0, **options}
    thrift = ThriftSink(read_options(ThriftSink.Options, given, "sinks.k"), context(state))
    try:
        yield thrift
    finally:
        thrift.close()


class TestSource(ListeningSourceConformance):
    source = "thrift", {"put_timeout": 0.05}

    def send(self, address: tuple[str, int], number: int, body: bytes) -> None:
        with Client(address) as client:
            while client.append(({}, body)) == Status.FAILED:
                pass


class TestSink(ReceivedSinkConformance):
    """The conformance tests of sinks, with our source as the receiver."""

    receiver = "thrift", {"put_timeout": 0.0}

    def make(self) -> Sink:
        host, port = self.address
        return ThriftSink(ThriftSink.Options(hostname=host, port=port), self.context)


@pytest.mark.parametrize("protocol", [TCompactProtocol, TBinaryProtocol])
def test_calls_of_both_protocols_are_accepted(protocol: Any) -> None:
    """Single events and lists are accepted in both protocols, and answered in the client's after the commit."""
    with serving("thrift") as served, Client(served.address, protocol) as client:
        assert client.append(EVENTS[0]) == Status.OK
        assert client.append_batch(EVENTS) == Status.OK
        assert client.append_batch([]) == Status.OK
        assert served.outlet.events == [EVENTS[0], *EVENTS]
        assert [batch.count for batch in served.outlet.batches] == [1, 2]


def test_a_full_channel_is_failed_until_there_is_room() -> None:
    """A full channel fails the call until there is room, so that Flume's sink retries."""
    with serving("thrift", put_timeout=0.0) as served, Client(served.address) as client:
        served.outlet.room.clear()
        assert client.append_batch(EVENTS) == Status.FAILED
        served.outlet.room.set()
        assert client.append_batch(EVENTS) == Status.OK
        assert served.outlet.events == EVENTS


def test_an_unknown_call_gets_thrifts_error_and_the_connection_continues() -> None:
    """An unknown call gets Thrift's error, and the connection continues."""
    with serving("thrift") as served, served.connect() as peer:
        peer.sendall(framed(lambda out: None, "shout", b"\0"))
        size = struct.unpack(">I", peer.recv(4))[0]
        given = TCompactProtocol(TMemoryBuffer(peer.recv(size)))
        assert given.readMessageBegin()[:2] == ("shout", TMessageType.EXCEPTION)
        error = TApplicationException()
        error.read(given)
        assert error.type == TApplicationException.UNKNOWN_METHOD


def _lacking(out: Any) -> None:
    out.writeFieldBegin("events", TType.LIST, 1)
    out.writeListBegin(TType.STRUCT, 1)
    out.writeStructBegin("ThriftFlumeEvent")
    out.writeFieldStop()


def _long(out: Any) -> None:
    out.writeFieldBegin("events", TType.LIST, 1)
    out.writeListBegin(TType.STRUCT, 1 << 30)


def _no_text(out: Any) -> None:
    out.writeFieldBegin("events", TType.LIST, 1)
    out.writeListBegin(TType.STRUCT, 1)
    out.writeStructBegin("ThriftFlumeEvent")
    out.writeFieldBegin("headers", TType.MAP, 1)
    out.writeMapBegin(TType.STRING, TType.STRING, 1)
    out.writeBinary(b"\xff")
    out.writeBinary(b"\xff")


_CALL = framed(lambda out: None)[4:]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (_frame(b"GET / HTTP/1.1\r\n"), "neither Thrift's compact nor its binary protocol"),
        (_frame(b""), "neither Thrift's compact nor its binary protocol"),
        (b"GET / HTTP/1.1\r\n", "exceeds max_frame"),
        (_frame(b"\x82"), "invalid Thrift call"),
        (_frame(b"\x80\x01\x00\x01\x7f\xff\xff\xff"), "invalid Thrift call"),
        (framed(lambda out: None, end=b"\0"), "lacks its headers or its body"),
        (framed(_lacking, end=b"\0"), "lacks its headers or its body"),
        (framed(_long), "invalid Thrift call"),
        (framed(_no_text), "invalid Thrift call"),
        (_frame(_CALL + b"\x5c" + b"\x1c" * 3000), "invalid Thrift call"),
        (_frame(_CALL + b"\x19\xfc\xff\xff\xff\xff\x0f"), "invalid Thrift call"),
    ],
)
def test_a_hostile_peer_loses_its_connection(sent: bytes, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """A hostile client loses its connection, and no other client is affected."""
    with serving("thrift", max_frame=4096) as served:
        with served.connect() as peer:
            peer.sendall(sent)
            assert all_of(peer) == b""
        eventually(lambda: said in caplog.text, said)
        with Client(served.address) as other:
            assert other.append(EVENTS[0]) == Status.OK
        eventually(lambda: served.source._budget.left == 128 << 20)
        assert served.outlet.events == [EVENTS[0]]


def test_calls_that_do_not_come_whole_are_bounded_together(caplog: pytest.LogCaptureFixture) -> None:
    """Incomplete calls are limited together, in memory and time."""
    with serving("thrift", max_memory=1500, frame_timeout=0.2) as served:
        with served.connect() as slow, served.connect() as more:
            call = _frame(b"x" * 1000)
            slow.sendall(call[:100])
            eventually(lambda: served.source._budget.left < 1500)
            assert served.source._budget.left >= 1400  # the announced bytes have not arrived yet
            slow.sendall(call[100:-1])
            eventually(lambda: served.source._budget.left == 498)
            more.sendall(_frame(b"x" * 1000)[:-1])
            assert all_of(more) == b""
            assert "no memory is free for its call: max_memory is 1500" in caplog.text
            assert all_of(slow) == b""
        eventually(lambda: served.source._budget.left == 1500)


@pytest.mark.parametrize("protocol", ["compact", "binary"])
def test_a_body_and_its_headers_come_through_both(protocol: str, tmp_path: Path) -> None:
    """Bodies and headers arrive over one connection; invalid text is decoded as far as possible."""
    with serving("thrift") as served, sink(served.address, tmp_path, protocol=protocol) as thrift:
        thrift.write([EventBatch.of_events(EVENTS), EventBatch.of_lines(b"a\nb\n", {"odd": "\udcff"})])
        thrift.write([EventBatch.of_lines(b"c\n")])
        assert served.outlet.events == [*EVENTS, ({"odd": "?"}, b"a"), ({"odd": "?"}, b"b"), ({}, b"c")]
        assert thrift._counters.get("ConnectionCreatedCount") == 1


@pytest.mark.parametrize("most", [{"batch_size": 2}, {"most_bytes": 5}])
def test_a_call_has_no_more_than_the_receiver_takes(most: dict[str, int], tmp_path: Path) -> None:
    """Calls keep to the receiver's limits in events and bytes, as Flume's channels require."""
    batches = [EventBatch.of_lines(b"1a\n2a\n3a\n"), EventBatch.of_lines(b"4a\n")]
    with serving("thrift") as served, sink(served.address, tmp_path, **most) as thrift:
        thrift.write(batches)
        assert [batch.bodies() for batch in served.outlet.batches] == [[b"1a", b"2a"], [b"3a", b"4a"]]


def test_batches_of_one_call_keep_their_own_headers(tmp_path: Path) -> None:
    """Batches in one call keep their shared and single headers."""
    shared = [EventBatch.of_lines(b"1\n2\n", {"n": "a"}), EventBatch.of_lines(b"3\n", {"n": "b", "u": "\udcff"})]
    batches = [*shared, EventBatch.of_events([({"n": "c"}, b"4"), ({}, b"5")]), EventBatch.of_lines(b"6\n")]
    with serving("thrift") as served, sink(served.address, tmp_path) as thrift:
        thrift.write(batches)
        expected = [({"n": "a"}, b"1"), ({"n": "a"}, b"2"), ({"n": "b", "u": "?"}, b"3"), ({"n": "c"}, b"4")]
        assert served.outlet.events == [*expected, ({}, b"5"), ({}, b"6")]


@contextmanager
def speaking(replies: bytes) -> Iterator[tuple[str, int]]:
    """Run a receiver that sends this, whatever it receives, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1 << 16)
                peer.sendall(replies)

        call = Call(serve)
        yield listener.getsockname()
        call.result()


def _answered(number: int, status: int, kind: int = TMessageType.REPLY) -> bytes:
    buffer = TMemoryBuffer()
    out = TCompactProtocol(buffer)
    out.writeMessageBegin("appendBatch", kind, number)
    if kind == TMessageType.EXCEPTION:
        TApplicationException(TApplicationException.INTERNAL_ERROR, "a bug").write(out)
    else:
        _arguments(out, lambda out: (out.writeFieldBegin("success", TType.I32, 0), out.writeI32(status)))
    return _frame(buffer.getvalue())


@pytest.mark.parametrize(
    ("replies", "said"),
    [
        (b"", "closed the connection before it acknowledged"),
        (_answered(1, 1), "the receiver answered FAILED"),
        (_answered(1, 99), "the receiver answered UNKNOWN"),
        (_answered(2, 0), "belongs to another call"),
        (_answered(1, 0, TMessageType.EXCEPTION), "answered with an error: a bug"),
        (b"HTTP/1.1 400 Bad Request", "has 1213486160 bytes"),
        (_frame(b"\x82\x41"), "does not speak Thrift"),
    ],
)
def test_without_an_ok_nothing_is_delivered(replies: bytes, said: str, tmp_path: Path) -> None:
    """Without the answer OK the delivery fails with the reason."""
    with (
        speaking(replies) as address,
        sink(address, tmp_path) as thrift,
        pytest.raises(SinkError, match=said),
    ):
        thrift.write([EventBatch.of_lines(b"a\n")])


def test_a_connection_that_the_receiver_closed_or_older_than_connection_reset_interval_is_replaced(
    tmp_path: Path,
) -> None:
    """A connection that the receiver closed, or older than connection_reset_interval, is replaced."""
    with serving("thrift", silence=0.05) as served, sink(served.address, tmp_path) as thrift:
        thrift.write([EventBatch.of_lines(b"a\n")])
        assert thrift._peer is not None
        eventually(thrift._peer.is_gone)
        thrift.write([EventBatch.of_lines(b"b\n")])
        served.got(b"a", b"b")
    with serving("thrift") as served, sink(served.address, tmp_path, connection_reset_interval=1e-9) as thrift:
        thrift.write([EventBatch.of_lines(b"a\n")])
        thrift.write([EventBatch.of_lines(b"b\n")])
        assert thrift._counters.get("ConnectionCreatedCount") == 2


def test_the_receivers_certificate_is_verified(tmp_path: Path) -> None:
    """The receiver's certificate is verified."""
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    with serving("thrift", certificate=str(tmp_path / "server.pem")) as served:
        address = "localhost", served.address[1]
        with sink(address, tmp_path, tls=True, authorities=str(tmp_path / "authority.pem")) as thrift:
            thrift.write([EventBatch.of_lines(b"a\n")])
        with sink(address, tmp_path, tls=True) as thrift, pytest.raises(SinkError, match="certificate"):
            thrift.write([EventBatch.of_lines(b"b\n")])
        served.got(b"a")


def test_keys_of_flumes_source_and_sink_are_accepted_the_sink_keeps_flumes_batch_size() -> None:
    """Keys of Flume's source and sink are accepted; the sink keeps Flume's batch size."""
    config = parse_flume(
        """
a1.sources = r1
a1.channels = c1
a1.sinks = k1
a1.sources.r1.type = thrift
a1.sources.r1.channels = c1
a1.sources.r1.bind = 0.0.0.0
a1.sources.r1.port = 4353
a1.sources.r1.threads = 5
a1.sources.r1.protocol = binary
a1.channels.c1.type = memory
a1.sinks.k1.type = org.apache.flume.sink.ThriftSink
a1.sinks.k1.channel = c1
a1.sinks.k1.hostname = collector
a1.sinks.k1.port = 4353
a1.sinks.k1.connect-timeout = 3000
a1.sinks.k1.request-timeout = 4000
a1.sinks.k1.reset-connection-interval = 60
a1.sinks.k1.protocol = binary
a1.sources.r1.ssl = false
a1.sources.r1.keystore = /k.jks
a1.sinks.k1.ssl = false
a1.sinks.k1.truststore-password = x
"""
    )
    assert not config.problems
    source = read_options(ThriftSource.Options, config.sources["r1"].options, "sources.r1")
    assert (source.bind, source.port) == ("0.0.0.0", 4353)
    options = read_options(ThriftSink.Options, config.sinks["k1"].options, "sinks.k1")
    assert (options.hostname, options.connect_timeout, options.request_timeout) == ("collector", 3.0, 4.0)
    assert (options.connection_reset_interval, options.protocol, options.batch_size) == (60.0, "binary", 100)


def test_a_receiver_with_client_authorities_serves_a_sink_with_their_certificate_and_no_other(tmp_path: Path) -> None:
    """A receiver with client authorities serves a sink with their certificate, and no other."""
    authority = trustme.CA()
    for name in ("localhost", "client"):
        path = tmp_path / f"{name}.pem"
        authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(path)
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    ours = {"certificate": str(tmp_path / "localhost.pem"), "client_authorities": str(tmp_path / "authority.pem")}
    with serving("thrift", **ours) as served:
        address = "localhost", served.address[1]
        tls = {"tls": True, "authorities": str(tmp_path / "authority.pem")}
        with sink(address, tmp_path, **tls, certificate=str(tmp_path / "client.pem")) as thrift:
            thrift.write([EventBatch.of_lines(b"a\n")])
        with sink(address, tmp_path, **tls) as thrift, pytest.raises(SinkError, match="localhost"):
            thrift.write([EventBatch.of_lines(b"b\n")])
        served.got(b"a")

"""Flume's Avro protocol: our sink to our source, and requests recorded from Flume 1.11."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from producer.agent.config.options import read_options
from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import Sink, SinkError
from producer.agent.protocols import avro, avro_encoding
from producer.agent.protocols.avro import Match, Status
from producer.agent.protocols.avro_encoding import long, text
from producer.agent.sinks.avro import AvroSink
from producer.runtime.clock import Clock
from producer.testing import ManualClock
from tests.agent.doubles import context
from tests.agent.sources.listeners import all_of, serving
from tests.support.waiting import PATIENCE, Call, eventually

from .network_conformance import ListeningSourceConformance, ReceivedSinkConformance

EVENTS = [({"a": "1", "ü": ""}, b"one"), ({}, b"\xff\x00two")]

#: What NettyAvroRpcClient of Flume 1.11 sends: a handshake and ``append`` of the first event; ``appendBatch`` of both.
FLUMES_APPEND = bytes.fromhex(
    "00000001000000020000002b86aadae2c45474c0fe93ffd0f2350a650086aadae2c45474c0fe93ffd0f2350a650200000c617070656e64"
    "0000000e040261023104c3bc0000066f6e65"
)
FLUMES_BATCH = bytes.fromhex(
    "00000002000000020000000d0016617070656e6442617463680000001704040261023104c3bc0000066f6e65000aff0074776f00"
)


class Client:
    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=PATIENCE)
        try:
            self.said(avro.greeting_call())
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def said(self, message: bytes) -> bytes:
        self._socket.sendall(avro.framed(7, message))
        return answered(self._socket, 7)

    def append_batch(self, *bodies: bytes) -> Status:
        events = avro_encoding.events_of(EventBatch.of_bodies(bodies), bodies)
        return avro.read_answer(self.said(avro.batch_call(events)))


def answered(peer: socket.socket, number: int) -> bytes:
    """Return the message of a frame with one buffer."""
    assert struct.unpack(">II", received(peer, 8)) == (number, 1)
    return received(peer, struct.unpack(">I", received(peer, 4))[0])


def received(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        assert more
        data += more
    return data


@contextmanager
def sink(address: tuple[str, int], state: Path, clock: Clock | None = None, **options: Any) -> Iterator[AvroSink]:
    given = {"hostname": address[0], "port": address[1], "request_timeout": 5.0, **options}
    made_of = AvroSink(read_options(AvroSink.Options, given, "sinks.k"), context(state, clock=clock))
    try:
        yield made_of
    finally:
        made_of.close()


class TestSource(ListeningSourceConformance):
    source = "avro", {"put_timeout": 0.05}

    def send(self, address: tuple[str, int], number: int, body: bytes) -> None:
        with Client(address) as client:
            while client.append_batch(body) == Status.FAILED:
                pass


class TestSink(ReceivedSinkConformance):
    """The conformance tests of sinks, with our source as the receiver."""

    receiver = "avro", {"put_timeout": 0.0}

    def make(self) -> Sink:
        host, port = self.address
        return AvroSink(AvroSink.Options(hostname=host, port=port), self.context)


def test_flumes_handshake_and_both_its_calls_become_batches_and_are_answered_under_their_numbers() -> None:
    """Flume's handshake and both its calls become batches, and are answered under their numbers."""
    with serving("avro") as served, served.connect() as peer:
        peer.sendall(FLUMES_APPEND)
        assert answered(peer, 1) == b"\0\0\0\0" + b"\0\0\0"  # handshake BOTH; no metadata, no error, OK
        peer.sendall(FLUMES_BATCH)
        assert answered(peer, 2) == b"\0\0\0"
        assert served.outlet.events == [EVENTS[0], *EVENTS]
        assert [batch.count for batch in served.outlet.batches] == [1, 2]


def test_a_full_channel_is_failed_until_there_is_room() -> None:
    """A full channel fails the call until there is room, so that Flume's sink retries."""
    with serving("avro", put_timeout=0.0) as served, Client(served.address) as client:
        served.outlet.room.clear()
        assert client.append_batch(b"one") == Status.FAILED
        served.outlet.room.set()
        assert client.append_batch(b"one") == Status.OK
        served.got(b"one")


def test_an_unknown_call_gets_avros_error_and_the_connection_continues() -> None:
    """An unknown call gets Avro's error, and the connection continues."""
    with serving("avro") as served, Client(served.address) as client:
        with pytest.raises(ValueError, match="unknown message shout"):
            avro.read_answer(client.said(b"\0" + text("shout")))
        assert client.append_batch(b"one") == Status.OK


def _other(protocol: Any) -> bytes:
    """Return a handshake of a client with another text of the protocol."""
    return b"\1" * 16 + b"\2" + text(json.dumps(protocol)) + b"\1" * 16 + b"\0" + b"\0" + text("")


def _protocol(change: Callable[[Any], object] = lambda _protocol: None) -> Any:
    protocol = json.loads(avro.PROTOCOL)
    change(protocol)
    return protocol


def _inline(protocol: Any) -> None:
    """Rewrite the protocol as other tools do: types where they are used, comments and properties."""
    status, event = protocol["types"]
    event["fields"][0]["type"]["values"] = {"type": "string", "avro.java.string": "String"}
    protocol["types"] = [{**status, "doc": "how it went"}]
    protocol["messages"]["append"]["request"][0]["type"] = event
    protocol["messages"]["appendBatch"]["request"][0]["type"]["items"] = event


@pytest.mark.parametrize("change", [lambda _: None, _inline])
def test_a_client_with_another_text_of_the_protocol_is_asked_for_it_and_served_if_it_is_compatible(
    change: Callable[[Any], None],
) -> None:
    """A client with another text of the protocol is asked for it, and served if it is compatible."""
    with serving("avro") as served, served.connect() as peer:
        peer.sendall(avro.framed(1, b"\1" * 16 + b"\0" + b"\1" * 16 + b"\0\0" + text("append") + b"\0\0"))
        assert avro.read_greeting(answered(peer, 1)) == (Match.NONE, avro.OUR_HASH)
        peer.sendall(avro.framed(2, _other(_protocol(change))))
        assert avro.read_greeting(answered(peer, 2)) == (Match.CLIENT, avro.OUR_HASH)
        peer.sendall(FLUMES_BATCH)
        assert answered(peer, 2) == b"\0\0\0"
        assert served.outlet.events == EVENTS


def _swapped(protocol: Any) -> None:
    protocol["types"][1]["fields"].reverse()


def _no_bytes(protocol: Any) -> None:
    protocol["types"][1]["fields"][1]["type"] = "string"


def _renamed(protocol: Any) -> None:
    protocol["types"][0]["symbols"] = ["FAILED", "OK", "UNKNOWN"]


def _without(protocol: Any) -> None:
    protocol["messages"] = {}


_GREETING = avro.greeting_call()
_BATCH = text("appendBatch")
_FRAME = struct.Struct(">II")


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "exceeds max_frame"),
        (_FRAME.pack(1, 1 << 31), "exceeds max_frame"),
        (_FRAME.pack(1, 60) + struct.pack(">I", 0) * 59 + struct.pack(">I", 4096), "exceeds max_frame"),
        (_FRAME.pack(1, 0), "invalid Avro call"),
        (avro.framed(1, _GREETING[:20]), "invalid Avro call"),
        (avro.framed(1, avro.FLUME_HASH + b"\4"), "an unknown alternative"),
        (avro.framed(1, _GREETING[:-1] + b"\xff" * 20), "more than 64 bits"),
        (avro.framed(1, _GREETING[:-1] + b"\x01"), "within a value"),
        (avro.framed(1, _GREETING[:-1] + _BATCH + long(1 << 40)), "too many items"),
        (avro.framed(1, _GREETING[:-1] + _BATCH + long(1) + long(1 << 40)), "too many items"),
        (avro.framed(1, _GREETING[:-1] + _BATCH + long(1) + b"\0" + long(1 << 40)), "within a value"),
        (avro.framed(1, _GREETING[:-1] + _BATCH + long(1) + long(1) + b"\2\xff\2\xff\0\0"), "not UTF-8"),
        (avro.framed(1, _GREETING[:-2] + long(1 << 40)), "too many items"),
        (avro.framed(1, _other(_protocol(_swapped))), "is not Flume's"),
        (avro.framed(1, _other(_protocol(_no_bytes))), "is not Flume's"),
        (avro.framed(1, _other(_protocol(_renamed))), "is not Flume's"),
        (avro.framed(1, _other(_protocol(_without))), "is not Flume's"),
        (avro.framed(1, _other([])), "cannot be read"),
        (avro.framed(1, b"\1" * 16 + b"\2" + text("[" * 3000) + b"\1" * 16 + b"\0\0" + text("")), "cannot be read"),
    ],
)
def test_a_hostile_peer_loses_its_connection(sent: bytes, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """A hostile client loses its connection, and no other client is affected."""
    with serving("avro", max_frame=4096) as served:
        with served.connect() as peer:
            peer.sendall(sent)
            assert all_of(peer) == b""
        eventually(lambda: said in caplog.text, said)
        with Client(served.address) as other:
            assert other.append_batch(b"one") == Status.OK
        eventually(lambda: served.source._budget.left == 128 << 20)
        served.got(b"one")


def test_calls_that_do_not_come_whole_are_bounded_together(caplog: pytest.LogCaptureFixture) -> None:
    """Incomplete calls are limited together, in memory and time."""
    with serving("avro", max_memory=1500, frame_timeout=0.2) as served:
        with served.connect() as slow, served.connect() as more:
            slow.sendall(avro.framed(1, b"x" * 936)[:-1])
            eventually(lambda: served.source._budget.left == 490)
            more.sendall(avro.framed(1, b"x" * 936)[:-1])
            assert all_of(more) == b""
            assert "no memory is free for its call: max_memory is 1500" in caplog.text
            assert all_of(slow) == b""
        eventually(lambda: served.source._budget.left == 1500)


def test_a_body_and_its_headers_come_through(tmp_path: Path) -> None:
    """Bodies and headers arrive over one connection; invalid text is decoded as far as possible."""
    batches = [EventBatch.of_events(EVENTS), EventBatch.of_lines(b"a\nb\n", {"odd": "\udcff"})]
    batches.append(EventBatch.of_events([({"n": "1", "m": "2"}, b"c"), ({"n": "3"}, b"d")]))
    with serving("avro") as served, sink(served.address, tmp_path) as ours:
        ours.write(batches)
        ours.write([EventBatch.of_lines(b"e\n")])
        expected = [
            *EVENTS,
            ({"odd": "?"}, b"a"),
            ({"odd": "?"}, b"b"),
            ({"n": "1", "m": "2"}, b"c"),
            ({"n": "3"}, b"d"),
        ]
        assert served.outlet.events == [*expected, ({}, b"e")]
        assert ours._counters.get("ConnectionCreatedCount") == 1


def test_a_call_has_no_more_events_than_the_receiver_takes(tmp_path: Path) -> None:
    """Batches are split and joined to the receiver's limit, and acknowledged whole batches are not sent again."""
    batches = [EventBatch.of_lines(b"1\n2\n3\n"), EventBatch.of_lines(b"4\n"), EventBatch.of_lines(b"5\n6\n")]
    with serving("avro", put_timeout=0.0) as served, sink(served.address, tmp_path, batch_size=2) as ours:
        ours.write(batches)
        assert [batch.bodies() for batch in served.outlet.batches] == [[b"1", b"2"], [b"3", b"4"], [b"5", b"6"]]
        original = served.outlet.put

        def put(batch: EventBatch, timeout: float | None = None, **_named: bool) -> None:
            if batch.bodies() == [b"5", b"6"]:
                served.outlet.room.clear()
            original(batch, timeout)

        with patch.object(served.outlet, "put", put), pytest.raises(SinkError, match="FAILED") as failed:
            ours.write(batches)
        assert failed.value.later == batches[2:]


def test_a_batch_larger_than_the_receivers_channel_comes_once(tmp_path: Path) -> None:
    """A retry continues after the last acknowledged call, also over another connection; a new delivery is complete."""
    large, next_one = EventBatch.of_lines(b"1\n2\n3\n4\n5\n").numbered(7), EventBatch.of_lines(b"6\n").numbered(8)
    with serving("avro", put_timeout=0.0) as served, sink(served.address, tmp_path, batch_size=2) as ours:
        original = served.outlet.put

        def put(batch: EventBatch, timeout: float | None = None, **_named: bool) -> None:
            original(batch, timeout)
            served.outlet.room.clear()

        with patch.object(served.outlet, "put", put):
            for _ in range(2):
                with pytest.raises(SinkError, match="FAILED") as failed:
                    ours.write([large, next_one])
                assert failed.value.later == [large, next_one]
                served.outlet.room.set()
            ours.close()
            ours.write([large, next_one])
        served.outlet.room.set()
        assert [batch.bodies() for batch in served.outlet.batches] == [[b"1", b"2"], [b"3", b"4"], [b"5", b"6"]]
        ours.write([large])
        assert len(served.outlet.events) == 11


def test_each_call_has_its_own_timeout_so_that_a_delivery_of_many_calls_may_take_longer(tmp_path: Path) -> None:
    """Each call has its own timeout, so that a delivery of many calls may take longer."""
    clock = ManualClock()
    with serving("avro") as served, sink(served.address, tmp_path, clock, batch_size=1) as ours:
        original = served.outlet.put

        def put(batch: EventBatch, timeout: float | None = None, **_named: bool) -> None:
            clock.advance(4.0)
            original(batch, timeout)

        with patch.object(served.outlet, "put", put):
            ours.write([EventBatch.of_lines(b"1\n2\n3\n4\n")])
        assert len(served.outlet.events) == 4


@contextmanager
def speaking(*answers: bytes) -> Iterator[tuple[tuple[str, int], list[bytes]]]:
    """Run a receiver that sends one answer for each message and then closes; yield its address and the messages."""
    told: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                for answer in answers:
                    told.append(peer.recv(1 << 16))
                    peer.sendall(answer)
                with suppress(ConnectionError):  # the client may close before it has read the rest
                    told.append(peer.recv(1 << 16))

        call = Call(serve)
        yield listener.getsockname(), told
        call.result()


_BOTH = avro.framed(1, b"\0\0\0\0")
_ERROR = b"\0\1" + long(0) + text("a bug")


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([], "closed the connection before it acknowledged"),
        ([_BOTH], "closed the connection before it acknowledged"),
        ([_BOTH, avro.framed(2, b"\0\0\2")], "the receiver answered FAILED"),
        ([_BOTH, avro.framed(2, b"\0\0\4")], "the receiver answered UNKNOWN"),
        ([_BOTH, avro.framed(2, b"\0\0\6")], "does not speak Avro"),
        ([_BOTH, avro.framed(2, b"\0")], "does not speak Avro"),
        ([_BOTH, avro.framed(3, b"\0\0\0")], "belongs to another call"),
        ([_BOTH, avro.framed(2, _ERROR)], "answered with an error: a bug"),
        ([b"HTTP/1.1 400 Bad Request"], "has 791752241 parts"),
        ([_FRAME.pack(1, 1) + b"\xff" * 4], "has 4294967295 bytes"),
        ([avro.framed(1, b"\6\0\0\0")], "does not speak Avro"),
        ([avro.framed(1, b"\4\0\0\0"), avro.framed(2, b"\4\0\0\0")], "does not support Flume's Avro protocol"),
        ([avro.framed(1, b"\2\2" + text(json.dumps(_protocol(_renamed))) + b"\0\0")], "is not Flume's"),
    ],
)
def test_without_an_ok_nothing_is_delivered(answers: Sequence[bytes], said: str, tmp_path: Path) -> None:
    """Without the answer OK the delivery fails with the reason."""
    with speaking(*answers) as (address, _), sink(address, tmp_path) as ours, pytest.raises(SinkError, match=said):
        ours.write([EventBatch.of_lines(b"a\n")])


def test_a_receiver_with_another_text_gets_ours(tmp_path: Path) -> None:
    """A receiver that asks for the protocol gets our text, with the receiver's hash."""
    theirs = b"\4\2" + text(avro.PROTOCOL) + b"\2" + b"\5" * 16 + b"\0"
    answers = avro.framed(1, theirs), avro.framed(2, b"\0\0\0\0"), avro.framed(3, b"\0\0\0")
    with speaking(*answers) as (address, told), sink(address, tmp_path) as ours:
        ours.write([EventBatch.of_lines(b"a\n")])
        assert told[1] == avro.framed(2, avro.greeting_call(b"\5" * 16, explicit=True))


def test_a_connection_that_the_receiver_closed_or_older_than_reset_connection_interval_is_replaced(
    tmp_path: Path,
) -> None:
    """A connection that the receiver closed, or older than reset_connection_interval, is replaced."""
    with serving("avro", silence=0.05) as served, sink(served.address, tmp_path) as ours:
        ours.write([EventBatch.of_lines(b"a\n")])
        assert ours._peer is not None
        eventually(ours._peer.is_gone)
        ours.write([EventBatch.of_lines(b"b\n")])
        served.got(b"a", b"b")
    with serving("avro") as served, sink(served.address, tmp_path, reset_connection_interval=1e-9) as ours:
        ours.write([EventBatch.of_lines(b"a\n")])
        ours.write([EventBatch.of_lines(b"b\n")])
        assert ours._counters.get("ConnectionCreatedCount") == 2

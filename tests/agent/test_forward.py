"""Fluentd's forward protocol: our sink to our source, another client, and messages made by hand."""

from __future__ import annotations

import gzip
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest
import trustme
from fluent.sender import FluentSender

from producer.agent.config.options import read_options
from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import Sink, SinkError
from producer.agent.protocols.forward import event_time, key_digest
from producer.agent.sinks.forward import ForwardSink
from producer.runtime.clock import Stop
from tests.agent.doubles import context
from tests.agent.sources.listeners import all_of, serving
from tests.support.waiting import PATIENCE, Call, eventually, passed

from .network_conformance import ListeningSourceConformance, ReceivedSinkConformance

TIME = 1_700_000_000
STAMP = f"{TIME}000"


def packed(*values: Any) -> bytes:
    return b"".join(msgpack.packb(value) for value in values)


def answers(peer: socket.socket, count: int) -> list[Any]:
    unpacker, found = msgpack.Unpacker(), list[Any]()
    while len(found) < count:
        data = peer.recv(1 << 16)
        assert data, "it closed"
        unpacker.feed(data)
        found += list(unpacker)
    return found


@contextmanager
def sink(address: tuple[str, int], state: Path, **options: Any) -> Iterator[ForwardSink]:
    given = {"host": address[0], "port": address[1], "timeout": 5.0, **options}
    forward = ForwardSink(read_options(ForwardSink.Options, given, "sinks.k"), context(state))
    try:
        yield forward
    finally:
        forward.close()


class TestSource(ListeningSourceConformance):
    source = "forward", {"field": "m"}

    def send(self, address: tuple[str, int], number: int, body: bytes) -> None:
        with socket.create_connection(address, PATIENCE) as peer:
            peer.sendall(packed(["t", TIME, {"m": body.decode()}, {"chunk": str(number)}]))
            assert answers(peer, 1) == [{"ack": str(number)}]


class TestSink(ReceivedSinkConformance):
    """The conformance tests of sinks, with our source as the receiver."""

    receiver = "forward", {"field": "message"}

    def make(self) -> Sink:
        host, port = self.address
        return ForwardSink(ForwardSink.Options(host=host, port=port, timeout=0.3), self.context)


def test_fluent_loggers_events_arrive_with_their_times_each_a_record_as_json_with_its_tag() -> None:
    """fluent-logger's events arrive with their times, each a record as JSON, with its tag."""
    with serving("forward") as served:
        host, port = served.address
        sender = FluentSender("app", host=host, port=port, nanosecond_precision=True)
        assert sender.emit_with_time("web", 1_700_000_000.25, {"from": "a", "n": 1})
        assert sender.emit_with_time("web", TIME, {"deep": {"er": [None, "ü"]}})
        served.got(b'{"from": "a", "n": 1}', '{"deep": {"er": [null, "ü"]}}'.encode())
        sender.close()
        headers = {"tag": "app.web", "timestamp": "1700000000250"}
        assert [each for each, _ in served.outlet.events] == [headers, {"tag": "app.web", "timestamp": STAMP}]


_ENTRIES = [[TIME, {"m": "a", "x": 1}], [event_time(TIME * 1000), {"m": "b", "none": None}]]


@pytest.mark.parametrize(
    "message",
    [
        [b"t", _ENTRIES, {"chunk": "c", "size": 2}],
        ["t", packed(*_ENTRIES), {"chunk": "c"}],
        [
            "t",
            gzip.compress(packed(_ENTRIES[0]), mtime=0) + gzip.compress(packed(_ENTRIES[1]), mtime=0),
            {"chunk": "c", "compressed": "gzip"},
        ],
    ],
    ids=["forward", "packed", "packed with gzip"],
)
def test_messages_of_all_modes_are_accepted_and_acknowledged_once(message: Any) -> None:
    """In all modes fields become headers, one the body, and the chunk is acknowledged once, after the commit."""
    with serving("forward", field="m") as served, served.connect() as peer:
        served.outlet.room.clear()
        peer.sendall(packed(None, message))
        eventually(lambda: served.outlet.waiting)
        peer.settimeout(0.05)
        with pytest.raises(TimeoutError):
            peer.recv(1)
        peer.settimeout(PATIENCE)
        served.outlet.room.set()
        assert answers(peer, 1) == [{"ack": "c"}]
        common = {"tag": "t", "timestamp": STAMP}
        assert served.outlet.events == [({"x": "1", **common}, b"a"), (common, b"b")]


def test_a_large_message_becomes_several_batches() -> None:
    """A large message becomes several batches, and is acknowledged once all are committed."""
    texts = [b"%d" % number for number in range(23_000)]
    entries = [[TIME, {"m": text.decode()}] for text in texts]
    with serving("forward", field="m") as served, served.connect() as peer:
        for content in (packed(*entries), entries):
            peer.sendall(packed(["t", content, {"chunk": "c"}]))
            assert answers(peer, 1) == [{"ack": "c"}]
        assert served.outlet.bodies == texts * 2
        assert max(batch.count for batch in served.outlet.batches) == 10_000


def test_large_messages_that_wait_for_their_turn_do_not_delay_the_end_of_the_source() -> None:
    """Large messages that wait for their turn do not delay the end of the source."""
    large = packed(["t", [[TIME, {"m": "x" * 1000}]] * 20])
    with serving("forward", field="m") as served, served.connect() as peer, served.connect() as small:
        assert served.source._turns[True].acquire(blocking=False)
        peer.sendall(large)
        small.sendall(packed(["t", TIME, {"m": "small"}, {"chunk": "c"}]))
        assert answers(small, 1) == [{"ack": "c"}]
        assert served.outlet.bodies == [b"small"]


def test_a_record_without_the_field_is_json() -> None:
    """A record without the body's field is JSON; invalid text is decoded as far as possible."""
    with serving("forward", field="log") as served, served.connect() as peer:
        peer.sendall(packed(["t", None, {"b": b"\xff\x00", 7: 1.5}]))
        served.got(rb'{"b": "\udcff\u0000", "7": 1.5}')
        assert served.outlet.events[0][0] == {"tag": "t"}


def test_a_message_not_committed_before_the_end_is_not_acknowledged_although_its_connection_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A message not committed before the end is not acknowledged, although its connection is open."""
    with serving("forward", field="m") as served, served.connect() as peer:
        monkeypatch.setattr(served.outlet, "put_until", lambda _batch, _stop: False)
        peer.sendall(packed(["t", _ENTRIES, {"chunk": "c"}]))
        assert all_of(peer) == b""


def test_a_message_may_come_in_pieces() -> None:
    """A message may arrive byte by byte; without a request it is not acknowledged."""
    with serving("forward", field="m") as served, served.connect() as peer:
        for byte in packed(["t", _ENTRIES], ["t", TIME, {"m": "c"}]):
            peer.sendall(bytes([byte]))
        served.got(b"a", b"b", b"c")
        peer.shutdown(socket.SHUT_WR)
        assert all_of(peer) == b""


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\xc1", "invalid MessagePack"),
        (b"\x91" * 5000, "invalid MessagePack"),
        (b"\xdd\x00\x02\x00\x01" + b"\xc0" * ((1 << 17) + 1), "an invalid message"),
        (packed({"not": "a message"}), "an invalid message"),
        (packed([1, 2]), "an invalid message"),
        (packed(["t", [[TIME]]]), "a time and a record"),
        (packed(["t", [*_ENTRIES, [TIME]]]), "a time and a record"),
        (packed(["t", packed(*_ENTRIES, [TIME])]), "a time and a record"),
        (packed(["t", packed(_ENTRIES[0])[:-1]]), "incomplete"),
        (packed(["t", b"plain", {"compressed": "gzip"}]), "invalid gzip"),
        (packed(["t", gzip.compress(b"x" * 5000, mtime=0), {"compressed": "gzip"}]), "exceeds 4096 bytes, unpacked"),
        (packed(["t", gzip.compress(packed(*_ENTRIES), mtime=0)[:-9], {"compressed": "gzip"}]), "incomplete"),
        (packed(["t", b"", {"compressed": "zstd"}]), "incomplete"),
        (packed(["t", b"", {"compressed": "snappy"}]), "gzip and zstd are supported"),
        (packed(["t", packed(_ENTRIES[0]), {"fluent_signal": 1}]), "it sends metrics"),
        (packed(["t", TIME, {"m": "x" * 5000}])[:-1], "more than 4096 bytes"),
        (b"\xdc\xff\xff" + packed(*range(100)) * 50, "more than 4096 bytes"),
    ],
)
def test_a_hostile_peer_loses_its_connection(sent: bytes, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """A hostile client loses its connection; earlier messages are committed, and nothing of the invalid one."""
    with serving("forward", field="m", max_frame=max(4096, 200_000 * (len(sent) > 100_000))) as served:
        with served.connect() as peer:
            peer.sendall(packed(["t", _ENTRIES, {"chunk": "c"}]) + sent)
            assert all_of(peer) in (packed({"ack": "c"}), b"")
        served.got(b"a", b"b")
        eventually(lambda: said in caplog.text, said)
        with served.connect() as other:
            other.sendall(packed(["t", TIME, {"m": "c"}, {"chunk": "d"}]))
            assert answers(other, 1) == [{"ack": "d"}]
        eventually(lambda: served.source._budget.left == 64 << 20)


def test_a_message_of_more_than_max_frame_is_refused_as_soon_as_it_has_more(caplog: pytest.LogCaptureFixture) -> None:
    """A message above max_frame is refused at once, without waiting for memory."""
    with serving("forward", max_frame=4 << 20, max_memory=32 << 20) as served, served.connect() as peer:
        peer.sendall(packed(["t", TIME, {"m": "x" * (6 << 20)}])[: 5 << 20])
        assert all_of(peer) == b""
        assert "more than 4194304 bytes (max_frame)" in caplog.text
        eventually(lambda: served.source._budget.left == 16 << 20)


def test_empty_maps_which_grow_72_times_are_refused_before_decoding(caplog: pytest.LogCaptureFixture) -> None:
    """Empty maps, which grow 72 times, are refused before decoding; texts of the same size are accepted."""
    large = {"m": "x" * 300_000}
    for content in ([[TIME, large]], packed([TIME, large])):
        with serving("forward", field="m", max_memory=16 << 20) as served, served.connect() as peer:
            peer.sendall(packed(["t", content, {"chunk": "c"}]))
            assert answers(peer, 1) == [{"ack": "c"}]
            assert served.outlet.bodies == [b"x" * 300_000]
    for message in (["t", [[TIME, {"a": [{}] * 100_000}]]], ["t", packed([TIME, {"a": [{}] * 100_000}])]):
        with serving("forward", max_memory=16 << 20) as served, served.connect() as peer:  # each logs a client once
            peer.sendall(packed(message))
            assert all_of(peer) == b""
            assert served.outlet.bodies == []
    assert caplog.text.count("one of its events needs more than 4194304 bytes of memory (max_memory)") == 2


def test_messages_that_do_not_come_whole_are_bounded_together(caplog: pytest.LogCaptureFixture) -> None:
    """Incomplete messages are limited together, in memory and time."""
    with serving("forward", max_memory=2048, frame_timeout=0.05) as served:
        with served.connect() as peer:
            peer.sendall(packed(["t", TIME, {"m": "x" * 2000}])[:-1])
            assert all_of(peer) == b""
        assert "send more than 2048 bytes (max_memory)" in caplog.text
        for half in (packed(["t", TIME, {"m": "x" * 500}])[:-1], b"\xdd\xff\xff\xff\xff"):
            with served.connect() as slow:
                slow.sendall(half)
                assert all_of(slow) == b""
        eventually(lambda: served.source._budget.left == 1024)


def test_a_message_that_waits_for_a_channel_counts_as_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that waits for a channel counts as memory; another one waits until it fits, without loss."""
    large = packed(["t", TIME, {"m": "x" * 700}, {"chunk": "c"}])
    with (
        serving("forward", field="m", max_memory=4096) as served,
        served.connect() as first,
        served.connect() as second,
    ):
        served.outlet.room.clear()
        first.sendall(large)
        eventually(lambda: served.outlet.waiting == 1)
        assert served.source._budget.left == 2048 - 2 * len(large)
        take, refused = served.source._budget.take, threading.Event()

        def taking(*given: Any, **more: Any) -> bool:
            fits: bool = take(*given, **more)
            if not fits:
                refused.set()
            return fits

        monkeypatch.setattr(served.source._budget, "take", taking)
        second.sendall(large)
        passed(refused)
        assert served.outlet.waiting == 1
        served.outlet.room.set()
        assert answers(first, 1) == answers(second, 1) == [{"ack": "c"}]
        eventually(lambda: served.source._budget.left == 2048)


def test_messages_that_wait_for_each_others_memory_are_not_held_up() -> None:
    """If two messages wait for each other's memory, the younger one's connection ends, and its sender retries."""
    message = packed(["t", TIME, {"m": "x" * 900}, {"chunk": "c"}])
    with (
        serving("forward", field="m", max_frame=1024, max_memory=4096) as served,
        served.connect() as older,
        served.connect() as younger,
    ):
        for number, peer in enumerate((older, younger), 1):
            peer.sendall(message[:500])
            eventually(lambda: served.source._budget.left == 2048 - 1000 * number)
        older.sendall(message[500:])
        assert answers(older, 1) == [{"ack": "c"}]
        assert all_of(younger) == b""
        with served.connect() as again:
            again.sendall(message)
            assert answers(again, 1) == [{"ack": "c"}]
        eventually(lambda: served.source._budget.left == 2048)


def test_small_messages_that_wait_for_a_channel_are_counted() -> None:
    """Events with a long tag count with their tags, and are not built without memory."""
    message = packed(["t" * 2000, packed(*[[TIME, {}]] * 80), {"chunk": "c"}])
    with serving("forward", max_memory=1 << 20, max_frame=1 << 17) as served, ExitStack() as opened:
        budget, peers = served.source._budget, []
        served.outlet.room.clear()
        for _ in range(6):
            before, peer = budget.left, opened.enter_context(served.connect())
            peers.append(peer)
            peer.sendall(message)
            eventually(lambda: budget.left <= before - 2 * len(message))
        assert budget.size - budget.left > 80 * 2000
        assert served.outlet.waiting <= 2  # one that is counted, and one being decoded
        served.outlet.room.set()
        assert [answers(peer, 1) for peer in peers] == [[{"ack": "c"}]] * 6
        eventually(lambda: budget.left == budget.size)


def test_the_time_limit_applies_to_each_message_not_to_a_connection_with_messages_in_pieces() -> None:
    """The time limit applies to each message, not to a connection with messages in pieces."""
    message = packed(["t", TIME, {"m": "a"}, {"chunk": "c"}])
    with serving("forward", field="m", frame_timeout=0.2) as served, served.connect() as peer:
        peer.sendall(message[:9])
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            peer.sendall(message[9:] + message[:9])
            assert answers(peer, 1) == [{"ack": "c"}]


_LARGE = packed(["t", packed([TIME, {"m": "x" * (4 << 20)}]), {"chunk": "c"}])


def test_a_partly_received_message_counts_twice_as_received_and_as_scanned_and_needs_no_more_memory() -> None:
    """A partly received message counts twice, as received and as scanned, and needs no more memory."""
    with serving("forward", field="m", max_frame=len(_LARGE)) as served, served.connect() as peer, _traced() as taken:
        peer.sendall(memoryview(_LARGE)[:-1])
        eventually(lambda: served.source._budget.size - served.source._budget.left == 2 * (len(_LARGE) - 1))
        assert taken() < 2 * len(_LARGE) + (2 << 20)


def test_a_connection_keeps_no_memory_of_completed_messages_and_one_copy_of_a_waiting_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection keeps no memory of completed messages, and one copy of a waiting one."""
    asked, free = threading.Event(), threading.Event()

    def put(_batch: EventBatch, _stop: Stop) -> bool:
        asked.set()
        return free.wait(PATIENCE)

    with serving("forward", field="m") as served, served.connect() as peer, _traced() as taken:
        monkeypatch.setattr(served.outlet, "put_until", put)
        peer.sendall(_LARGE)
        passed(asked)
        assert taken() < len(_LARGE) + (1 << 20)
        free.set()
        assert answers(peer, 1) == [{"ack": "c"}]
        eventually(lambda: served.source._budget.left == served.source._budget.size)
        assert taken() < 1 << 20


@contextmanager
def _traced() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the bytes allocated since the start."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_a_body_and_its_headers_come_through_both(tmp_path: Path) -> None:
    """Events arrive with tags and times, also with invalid text, and compressed."""
    events = [
        ({"tag": "a", "timestamp": STAMP, "host": "h"}, b"one"),
        ({"timestamp": STAMP}, b"two \xff"),
        ({"tag": "a", "timestamp": STAMP, "host": "i"}, b"three"),
    ]
    for compress in (False, True):
        with (
            serving("forward", field="message") as served,
            sink(served.address, tmp_path, compress=compress) as forward,
        ):
            forward.write([EventBatch.of_events(events)])
            assert served.outlet.events == [events[0], events[2], ({"tag": "agent", "timestamp": STAMP}, b"two \xff")]
            forward.write([EventBatch.of_lines(b"more\n")])
            assert forward._counters.get("ConnectionCreatedCount") == 1


def test_a_client_without_the_shared_key_is_refused_the_key_is_in_no_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A client without the shared key is refused; the key is in no message."""
    with serving("forward", field="message", shared_key="between us") as served:
        with sink(served.address, tmp_path, shared_key="between us") as forward:
            forward.write([EventBatch.of_lines(b"a\n")])
        for key, said in (("a guess", "refuses the shared key"), (None, "does not speak|acknowledged|in time")):
            with (
                sink(served.address, tmp_path, shared_key=key, timeout=0.2) as forward,
                pytest.raises(SinkError, match=said),
            ):
                forward.write([EventBatch.of_lines(b"b\n")])
        served.got(b"a")
    assert "its shared key is wrong" in caplog.text
    assert key_digest(b"s", "h", b"n", "key") == key_digest(b"s", "h", b"n", "key")


def _speaking(replies: bytes) -> contextmanager[tuple[str, int]]:  # type: ignore[valid-type]
    """Run a receiver that sends this, whatever it receives, and closes."""

    @contextmanager
    def serving() -> Iterator[tuple[str, int]]:
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def serve() -> None:
                peer, _ = listener.accept()
                with peer:
                    peer.recv(1 << 16)
                    peer.sendall(replies)

            call = Call(serve)
            yield listener.getsockname()
            call.result()

    return serving()


@pytest.mark.parametrize(
    ("replies", "said"),
    [
        (b"", "closed the connection before it acknowledged"),
        (packed({"ack": "another"}), "closed the connection before it acknowledged"),
        (b"\xc1", "does not speak the forward protocol"),
    ],
)
def test_without_its_acknowledgement_nothing_is_delivered(replies: bytes, said: str, tmp_path: Path) -> None:
    """Without an acknowledgement the connection is closed, and the next attempt uses a new one."""
    with _speaking(replies) as address, sink(address, tmp_path) as forward:
        with pytest.raises(SinkError, match=said):
            forward.write([EventBatch.of_lines(b"a\n")])
        assert forward._peer is None


def test_a_connection_that_the_receiver_closed_is_replaced_without_a_failure(tmp_path: Path) -> None:
    """A connection that the receiver closed is replaced without a failure."""
    with serving("forward", field="message", silence=0.05) as served, sink(served.address, tmp_path) as forward:
        forward.write([EventBatch.of_lines(b"a\n")])
        assert forward._peer is not None
        eventually(forward._peer.is_gone)
        forward.write([EventBatch.of_lines(b"b\n")])
        served.got(b"a", b"b")


def test_the_receivers_certificate_is_verified_unless_disabled(tmp_path: Path) -> None:
    """The receiver's certificate is verified, unless disabled."""
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    with serving("forward", field="message", certificate=str(tmp_path / "server.pem")) as served:
        address = "localhost", served.address[1]
        given: dict[str, Any] = {"authorities": str(tmp_path / "authority.pem")}
        for more in (given, {"verify": False}):
            with sink(address, tmp_path, tls=True, **more) as forward:
                forward.write([EventBatch.of_lines(b"a\n")])
        with sink(address, tmp_path, tls=True) as forward, pytest.raises(SinkError, match="certificate"):
            forward.write([EventBatch.of_lines(b"b\n")])
        served.got(b"a", b"a")

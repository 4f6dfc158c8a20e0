"""Each listening source under attack from one address, while other addresses use it."""

from __future__ import annotations

import dataclasses
import gc
import logging
import multiprocessing
import random
import re
import socket
import ssl
import struct
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import trustme

from producer.agent import EventBatch
from producer.agent.config.registry import BUILT_IN, class_of
from producer.agent.protocols.thrift import batch_call
from tests.agent.components import made
from tests.support.waiting import PATIENCE, eventually, passed

from .listeners import Served, all_of, serving
from .test_prometheus_remote_write import packed, post, series

_MIB = 1 << 20
_LONG_BODY = b" HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1048576\r\n\r\n"
#: HTTP/2's preface, SETTINGS, the HEADERS of a call, and the beginning of DATA with a message of a MiB.
_CALL = (
    b"\x83\x86\x01\x01a\x04\x39/opentelemetry.proto.collector.logs.v1.LogsService/Export"
    b"\x0f\x10\x10application/grpc\0\2te\x08trailers"
)
_BEGUN_CALL = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
    + struct.pack(">I", len(_CALL))[1:]
    + b"\1\4\0\0\0\1"
    + _CALL
    + b"\0\x10\0\0\0\0\0\0\1\0\0\x0f\xff\0"
)
_FRAMES = {"max_frame": _MIB, "max_memory": 8 * _MIB}
_BODIES = {"max_body": _MIB, "max_memory": 8 * _MIB}
#: Options of each source, and the beginning of a message of the largest size.
_KINDS: Mapping[str, tuple[Mapping[str, Any], bytes]] = {
    "netcat": ({"max_line_length": _MIB}, b""),
    "syslog_tcp": ({"event_size": _MIB}, b"1048576 <13>"),
    "http": ({"format": "lines", **_BODIES}, b"POST /" + _LONG_BODY),
    "gelf": ({"transport": "tcp", **_BODIES}, b'{"short_message": "'),
    "otlp": (_BODIES, b"POST /v1/logs" + _LONG_BODY),
    "otlp grpc": ({"transport": "grpc", **_BODIES}, _BEGUN_CALL),
    "prometheus_remote_write": (
        _BODIES,
        b"POST /api/v1/write" + _LONG_BODY.replace(b"json\r\n", b"x-protobuf\r\nContent-Encoding: snappy\r\n"),
    ),
    "thrift": (_FRAMES, struct.pack(">I", _MIB)),
    "avro": (_FRAMES, struct.pack(">III", 1, 1, _MIB - 100)),
    "forward": ({"field": "message", "max_frame": _MIB, "max_memory": 8 * _MIB}, b"\x93\xa1t\xdb\x00\x0f\xff\x00"),
}
#: Another loopback address than that of the honest peers.
_HOSTILE = "127.0.0.2", 0
_PEERS = 12
#: Seconds for an action of another process on a busy machine.
_APART = 120.0


def test_every_source_that_listens_is_among_them() -> None:
    """The test covers every listening source, except those of datagrams, which have no connections."""
    names = {name for name in BUILT_IN["sources"] if hasattr(_options_of(name), "max_connections")}
    assert names == {_type_of(kind) for kind in _KINDS}


@pytest.mark.parametrize("kind", _KINDS)
def test_until_done_refuses_a_listening_source_since_such_an_agent_would_never_end(kind: str) -> None:
    """``--until-done`` refuses a listening source, since such an agent would never end."""
    assert class_of("sources", _type_of(kind)).endless


def test_every_listening_source_including_those_of_datagrams_binds_to_the_loopback_address_by_default() -> None:
    """Every listening source, including those of datagrams, binds to the loopback address by default."""
    fields = [field for name in BUILT_IN["sources"] for field in dataclasses.fields(_options_of(name))]
    assert [field.default for field in fields if field.name == "bind"] == ["127.0.0.1"] * (
        len({_type_of(kind) for kind in _KINDS}) + 2
    )


def _type_of(kind: str) -> str:
    return kind.partition(" ")[0]


def _options_of(name: str) -> Any:
    return class_of("sources", name).Options


@contextmanager
def _peers(served: Served | _Apart, sent: bytes, count: int = _PEERS) -> Iterator[list[socket.socket]]:
    """Open hostile connections that send bytes as far as the source reads them, and stay open."""
    with ExitStack() as opened:
        peers = []
        for _ in range(count):
            peer = opened.enter_context(socket.create_connection(served.address, PATIENCE, source_address=_HOSTILE))
            peers.append(peer)
            peer.setblocking(False)
            _send(peer, sent)
        yield peers


def _send(peer: socket.socket, data: bytes) -> None:
    left = memoryview(data)
    with suppress(OSError):  # the source closed it, as expected
        while left:
            try:
                left = left[peer.send(left) :]
            except BlockingIOError:
                peer.settimeout(0.2)
                left = left[peer.send(left) :]


def _deliver(kind: str, address: tuple[str, int], body: bytes) -> None:
    """Deliver an event as an honest peer."""
    host, port = address
    if kind == "prometheus_remote_write":
        assert post(address, packed(series((1, float(zlib.crc32(body))), __name__="a"))).status_code == 204
        return
    if kind in ("netcat", "syslog_tcp", "gelf"):
        with socket.create_connection(address, PATIENCE) as peer:
            peer.sendall(b'{"short_message": "%s"}' % body if kind == "gelf" else body + b"\n")
            peer.shutdown(socket.SHUT_WR)
            all_of(peer)
        return
    of_kind: dict[str, dict[str, Any]] = {
        "http": {"endpoint": f"http://{host}:{port}/", "format": "lines"},
        "otlp": {"endpoint": f"http://{host}:{port}/v1/logs"},
        "otlp grpc": {"endpoint": f"http://{host}:{port}", "transport": "grpc"},
        "forward": {"host": host, "port": port},
    }
    given = of_kind.get(kind, {"hostname": host, "port": port})
    sink = made("sinks", _type_of(kind), **given)
    try:
        sink.write([EventBatch.of_lines(body + b"\n").numbered(1, "origin")])
    finally:
        sink.close()


def _kept(kind: str, body: bytes) -> bytes:
    """Return the body of the event; a sample has only a number."""
    return b"%d" % zlib.crc32(body) if kind == "prometheus_remote_write" else body


class _Apart:
    """A source in a process of its own, so that its memory can be measured."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.address: tuple[str, int] = self._answer()

    def ask(self, about: str) -> Any:
        """Return one of :data:`_FIGURES`."""
        self._pipe.send(about)
        return self._answer()

    def _answer(self) -> Any:
        assert self._pipe.poll(_APART), "no answer"
        return self._pipe.recv()


@contextmanager
def _apart(kind: str, **options: Any) -> Iterator[_Apart]:
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(kind, options, theirs))
    process.start()
    theirs.close()
    try:
        yield _Apart(ours)
    finally:
        ours.close()
        process.join(_APART)
    assert process.exitcode == 0


def _serve(kind: str, options: Mapping[str, Any], pipe: Connection) -> None:
    """Run the source in that process, until the test ends."""
    with serving(_type_of(kind), **options) as served, suppress(EOFError):
        pipe.send(served.address)
        while True:
            pipe.send(_FIGURES[pipe.recv()](served))


def _held(served: Served) -> int:
    source = getattr(served.source, "_source", served.source)
    limits = getattr(source, "_limits", None)
    budget = getattr(source, "_budget", None) if limits is None else limits.budget
    return 0 if budget is None else budget.size - budget.left


def _connections(served: Served) -> int:
    """Return the number of open connections; 0 for gRPC, which counts none."""
    counters = getattr(served.source, "_counters", None)
    return 0 if counters is None else counters.get("OpenConnectionCount")


def _peak(_served: Served) -> int:
    """Return the process's peak memory in KiB; 0 if the system does not report it."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        return 0
    return int(found[1]) if found else 0


_FIGURES: Mapping[str, Callable[[Served], Any]] = {
    "bodies": lambda served: served.outlet.bodies,
    "connections": _connections,
    "held": _held,
    "peak": _peak,
}


@pytest.mark.parametrize("kind", _KINDS)
def test_others_are_served_and_memory_is_bounded(kind: str) -> None:
    """Silent, partial, almost complete and noisy peers leave others served, memory bounded, and nothing behind."""
    options, begins = _KINDS[kind]
    chance = random.Random(kind)
    attacks = [
        b"",
        begins[:3] or b"x",
        begins,
        begins + b"x" * (_MIB - 200),
        *(begins[: chance.randrange(9)] + chance.randbytes(chance.randrange(1, 5000)) for _ in range(20)),
    ]
    with _apart(kind, max_connections=60, **options) as served:
        _deliver(kind, served.address, b"first")
        eventually(lambda: served.ask("bodies"), "the first event", _APART)
        before = served.ask("peak")
        for number, attack in enumerate(attacks):
            with _peers(served, attack):
                _deliver(kind, served.address, b"honest %d" % number)
                eventually(lambda: _kept(kind, b"honest %d" % number) in served.ask("bodies"))
        eventually(lambda: served.ask("connections") == 0, "the end of all connections", _APART)
        eventually(lambda: served.ask("held") == 0, "the end of all calls", _APART)
        assert served.ask("peak") - before < 96 << 10  # 60 connections of 1 MiB, and fragmentation


@pytest.mark.parametrize("kind", ["avro", "forward", "syslog_tcp", "thrift"])
def test_peers_that_send_noise_do_not_fill_the_log(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Repeated noise from one address gives one log line for a while; every failure is counted."""
    with serving(kind) as served, caplog.at_level(logging.INFO):
        for number in range(20):
            with served.connect() as peer, suppress(OSError):
                peer.sendall(b"1\xff\xff\xff%d" % number + b"\xff" * 20)
                peer.shutdown(socket.SHUT_WR)
                all_of(peer)
    assert len([line for line in caplog.messages if "connection of" in line]) == 1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("tls") / "server.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(path)
    return path


@pytest.mark.parametrize("kind", _KINDS)
def test_stalled_and_invalid_handshakes_are_closed_in_time_while_other_handshakes_proceed_at_once(
    kind: str, certificate: Path
) -> None:
    """Stalled and invalid handshakes are closed in time, while other handshakes proceed at once."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    options = {**_KINDS[kind][0], "certificate": str(certificate), "handshake_timeout": 1.0}
    with serving(_type_of(kind), **options) as served, ExitStack() as opened:
        hanging = [
            peer
            for sent in (b"", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n")
            for peer in opened.enter_context(_peers(served, sent, 4))
        ]
        with trusting.wrap_socket(served.connect()) as honest:
            assert honest.version() is not None
        for peer in hanging:
            peer.settimeout(PATIENCE)
            all_of(peer)
        eventually(lambda: _connections(served) == 0)


@pytest.mark.parametrize(("kind", "head"), [("syslog_udp", b"<13>"), ("netcatudp", b"")])
def test_datagrams_of_noise_are_events_and_others_come(kind: str, head: bytes) -> None:
    """Empty, maximal and arbitrary datagrams are events, and do not stop the source."""
    chance = random.Random(kind)
    with serving(kind) as served, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        for size in (0, 1, 65_507, *(chance.randrange(2000) for _ in range(50))):
            peer.sendto(chance.randbytes(size), served.address)
        peer.sendto(head + b"honest", served.address)
        eventually(lambda: b"honest" in served.outlet.bodies)


_EMPTY = 9_000
_ENTRIES = b"\x92\x00\x80" * _EMPTY


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        ("thrift", batch_call("compact", 1, [({}, b"")] * _EMPTY)),
        ("forward", b"\x92\xa1t\xc5" + struct.pack(">H", len(_ENTRIES)) + _ENTRIES),
    ],
    ids=["thrift", "forward"],
)
def test_events_that_wait_for_a_channel_are_not_kept_as_objects(
    kind: str, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that wait for a channel are not kept as objects, which would exceed max_memory many times over."""
    asked, free = threading.Event(), threading.Event()

    def put(_batch: EventBatch, _until: object, **_named: bool) -> bool:
        asked.set()
        return free.wait(PATIENCE)

    with serving(kind) as served, served.connect() as peer:
        for name in ("put", "put_until"):
            monkeypatch.setattr(served.outlet, name, put)
        tracemalloc.start()
        try:
            peer.sendall(sent)
            passed(asked)
            gc.collect()
            assert sum(each.count for each in tracemalloc.take_snapshot().statistics("filename")) < _EMPTY
        finally:
            tracemalloc.stop()
            free.set()

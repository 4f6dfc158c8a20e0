"""gelf, with the client graypy and by hand."""

from __future__ import annotations

import gzip
import json
import logging
import os
import random
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import closing

import graypy
import pytest
import requests

from producer.agent import AgentConfigError
from producer.agent.config import parse_toml
from producer.agent.protocols.gelf import Chunks, GelfError
from producer.agent.run.blueprint import draw
from tests.agent.components import made
from tests.support.waiting import PATIENCE, eventually

from .listeners import Served, all_of, serving

_MESSAGE = {"version": "1.1", "host": "box", "short_message": "hi", "timestamp": 1706702400.123, "level": 3}
_HEADERS = {"host": "box", "level": "3", "timestamp": "1706702400123"}


def _sent_by(handler: logging.Handler, served: Served, *texts: str) -> list[tuple[dict[str, str], bytes]]:
    with closing(handler):
        for text in texts:
            record = logging.LogRecord("app", logging.WARNING, "a.py", 7, text, (), None)
            record.user = "jo"
            handler.handle(record)
        eventually(lambda: len(served.outlet.bodies) == len(texts), f"{len(texts)} messages")
    return served.outlet.events


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # graypy closes no connection of HTTP
@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("transport", ["udp", "tcp", "http"])
def test_graypys_messages_are_events(transport: str, compress: bool) -> None:
    """Messages of graypy's handlers arrive whole over each transport, those over UDP also in chunks and compressed."""
    long = "".join(random.Random(1).choices("abcdefghijklmnop\u4e2d", k=50_000))
    with serving("gelf", transport=transport) as served:
        host, port = served.address
        if transport == "udp":
            handler: logging.Handler = graypy.GELFUDPHandler(host, port, compress=compress)
        elif transport == "tcp":
            handler = graypy.GELFTCPHandler(host, port)
        else:
            handler = graypy.GELFHTTPHandler(host, port, compress=compress)
        events = _sent_by(handler, served, "short", long)
    assert sorted(body.decode() for _, body in events) == sorted(["short", long])
    for headers, _ in events:
        wanted = {"level": "4", "facility": "app", "file": "a.py", "line": "7", "user": "jo", "pid": str(os.getpid())}
        assert headers.items() >= wanted.items()
        assert abs(int(headers["timestamp"]) / 1000 - time.time()) < 1000


@pytest.mark.parametrize(
    ("fields", "headers", "body"),
    [
        ({}, _HEADERS, b"hi"),
        ({"full_message": "hi\nthere"}, {**_HEADERS, "full_message": "hi\nthere"}, b"hi"),
        ({"_a": 1.5, "_b": None, "_c": {"d": [True]}}, {**_HEADERS, "a": "1.5", "c": '{"d": [true]}'}, b"hi"),
        ({"_host": "other", "_timestamp": "x"}, {**_HEADERS, "host_2": "other", "field_timestamp": "x"}, b"hi"),
        ({"timestamp": "soon"}, {**_HEADERS, "timestamp": "soon"}, b"hi"),
        ({"short_message": 7}, _HEADERS, b"7"),
    ],
)
def test_fields_are_headers(fields: dict[str, object], headers: dict[str, str], body: bytes) -> None:
    """Fields become headers without their underscore; no field is lost, and a null gives none."""
    with serving("gelf", transport="http") as served:
        answer = requests.post(f"http://127.0.0.1:{served.address[1]}/gelf", json=_MESSAGE | fields, timeout=PATIENCE)
        assert answer.status_code == 202
        assert served.outlet.events == [(headers, body)]


def test_a_message_without_short_message_is_a_body_of_json() -> None:
    """A JSON object without short_message is the body as JSON, and its fields are headers."""
    with serving("gelf", transport="http") as served:
        requests.post(f"http://127.0.0.1:{served.address[1]}/", data=b'{"_a": 1}', timeout=PATIENCE)
        assert served.outlet.events == [({"a": "1"}, b'{"_a": 1}')]


def _chunk(number: int, count: int, data: bytes, name: bytes = b"12345678") -> bytes:
    return b"\x1e\x0f" + name + bytes((number, count)) + data


@pytest.fixture
def udp() -> Iterator[tuple[Served, socket.socket]]:
    with serving("gelf", max_body=10_000, max_memory=4 << 20) as served, socket.socket(type=socket.SOCK_DGRAM) as peer:
        peer.connect(served.address)
        yield served, peer


def test_hostile_datagrams_are_dropped_and_counted(
    udp: tuple[Served, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    """Invalid datagrams, bombs and impossible chunks are dropped and counted; the next message arrives."""
    served, peer = udp
    bomb = zlib.compress(b'{"short_message": "' + b"a" * 10_000_000)
    hostile = [b"", b"text", b"[]", b"\xff", bomb, gzip.compress(b"x" * 10_001), b"\x1f\x8b", b"\x78\x9c", b"\x1e\x0f"]
    hostile += [_chunk(1, 1, b""), _chunk(0, 129, b""), _chunk(0, 0, b""), b'{"a":' * 1900]
    for each in hostile:
        peer.send(each)
    whole = gzip.compress(json.dumps(_MESSAGE).encode())
    parts = [_chunk(n, 3, whole[n * 40 : (n + 1) * 40 if n < 2 else None]) for n in (2, 0, 1)]
    for part in [parts[0], *parts]:  # a datagram may come twice
        peer.send(part)
    served.got(b"hi")
    counters = served.source._parser._counters
    assert counters.get("EventReadFail") == len(hostile) - 1  # an empty datagram is nothing
    assert "more than 10000 bytes" in caplog.text


def test_chunks_are_bounded_in_memory_and_in_time() -> None:
    """Chunks of unfinished messages are dropped after their time, and the oldest when there is no room."""
    chunks = Chunks(most=100_000, seconds=5.0)
    assert chunks.add("a", _chunk(0, 2, b"x", b"old-----"), 0.0) is None
    assert chunks.add("a", _chunk(0, 2, b"he", b"new-----"), 1.0) is None
    assert (chunks.drop_old(4.9), chunks.drop_old(5.0)) == (0, 1)
    assert chunks.add("b", _chunk(1, 2, b"other", b"new-----"), 5.0) is None  # another peer's
    assert chunks.add("a", _chunk(1, 2, b"llo", b"new-----"), 5.0) == b"hello"
    dropped = 0
    for number in range(10_000):
        chunks.add("a", _chunk(0, 2, b"x" * 1000, b"%8d" % number), 5.0)
        dropped += chunks.drop_old(5.0)
    assert len(chunks._messages) == 10_001 - dropped < 70
    assert chunks.drop_old(11.0) == len(chunks._messages) + 10_001 - dropped
    assert chunks._left == 100_000
    with pytest.raises(GelfError, match="chunk 5 of 3 is invalid"):
        chunks.add("a", _chunk(5, 3, b""), 0.0)


def test_messages_over_tcp_end_with_nul(caplog: pytest.LogCaptureFixture) -> None:
    """Messages over TCP may come in pieces and without a last NUL; invalid ones are dropped, too long ones end it."""
    message = json.dumps(_MESSAGE).encode()
    with serving("gelf", transport="tcp", max_body=1024) as served:
        with served.connect() as peer:
            for at in range(len(message)):
                peer.sendall(message[at : at + 1])
            peer.sendall(b"\0\0not JSON\0" + message.replace(b"hi", b"ho"))
        served.got(b"hi", b"ho")
        with served.connect() as peer:
            peer.sendall(message + b"\0" + b"x" * 5000)
            assert all_of(peer) == b""
        served.got(b"hi", b"ho", b"hi")
    assert "more than 1024 bytes (max_body)" in caplog.text


def test_requests_are_answered() -> None:
    """Over HTTP a message is answered with 202, and an invalid one with 400; credentials are checked."""
    with serving("gelf", transport="http", token="t", max_body=2000) as served:
        url, allowed = f"http://127.0.0.1:{served.address[1]}/gelf", {"Authorization": "Bearer t"}
        with requests.Session() as session:
            assert session.post(url, data=b"{}", timeout=PATIENCE).status_code == 401
            session.headers = allowed  # type: ignore[assignment]
            sizes = {b"text": 400, b"[]": 400, b"x" * 2001: 413, gzip.compress(b'{"a": "' + b"x" * 3000): 400}
            assert {data: session.post(url, data=data, timeout=PATIENCE).status_code for data in sizes} == sizes
            packed = gzip.compress(json.dumps(_MESSAGE).encode())
            for headers in ({}, {"Content-Encoding": "gzip"}):
                assert session.post(url, data=packed, headers=headers, timeout=PATIENCE).status_code == 202
        served.got(b"hi", b"hi")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"certificate": "/x.pem"}, "certificate: needs transport = tcp or http"),
        ({"transport": "tcp", "token": "t"}, "transport: must be http for user or token"),
    ],
)
def test_options_of_another_transport_are_refused(options: dict[str, str], message: str) -> None:
    """A certificate for UDP, and credentials that a transport cannot check, are refused."""
    with pytest.raises(AgentConfigError, match=message):
        made("sources", "gelf", **options)


def test_one_port_may_serve_udp_and_tcp() -> None:
    """Two sources may have the same port for UDP and for TCP, but not for one of them."""
    text = (
        '[sources.a]\ntype = "gelf"\nchannels = ["c"]\n[sources.b]\ntype = "gelf"\ntransport = "{}"\nchannels = ["c"]\n'
        '[channels.c]\ntype = "memory"\n[sinks.s]\ntype = "null"\nchannel = "c"\n'
    )
    draw(parse_toml(text.format("tcp")))
    with pytest.raises(AgentConfigError, match="port 12201"):
        draw(parse_toml(text.format("udp")))

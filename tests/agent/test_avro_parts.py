"""Flume's Avro protocol: encoding, compression, TLS, and the keys of Flume's source and sink."""

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import trustme

from producer.agent.config import parse_flume
from producer.agent.config.options import AgentConfigError, read_options
from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import SinkError
from producer.agent.protocols import avro_encoding
from producer.agent.protocols.avro_encoding import array, long, sized, text
from producer.agent.protocols.calls import Deflater, Inflated
from producer.agent.sinks.avro import AvroSink
from producer.agent.sources.avro import AvroSource
from tests.agent.sources.listeners import all_of, serving
from tests.support.waiting import eventually

from .test_avro import EVENTS, FLUMES_BATCH, sink

#: The encoding of both events alone, which follows the name in the same call.
FLUMES_EVENTS = FLUMES_BATCH[-23:]
_FRAME = struct.Struct(">II")


def test_events_have_the_bytes_that_flume_gives_them() -> None:
    """Events are encoded to Flume's bytes, with headers in columns and a body of any bytes."""
    batch = EventBatch.of_events(EVENTS)
    assert array(avro_encoding.events_of(batch, batch.bodies())) == FLUMES_EVENTS
    assert avro_encoding.Reader(FLUMES_EVENTS).events() == EVENTS


@pytest.mark.parametrize("number", [0, 1, 63, 64, 8191, 8192, 1 << 20, (1 << 62) + 5])
def test_numbers_come_through(number: int) -> None:
    """Numbers of any length survive encoding."""
    assert avro_encoding.Reader(long(number)).long() == number


def test_avro_blocks_with_a_size_and_several_blocks_are_decoded() -> None:
    """Avro blocks with a size, and several blocks, are decoded."""
    event = b"\0" + sized(b"x")
    blocks = b"\x01" + long(len(event)) + event + long(2) + event * 2 + b"\0"
    assert avro_encoding.Reader(blocks).events() == [({}, b"x")] * 3


def test_the_events_and_headers_of_a_call_are_limited_since_objects_need_many_times_their_bytes() -> None:
    """The events and headers of a call are limited, since objects need many times their bytes."""
    with pytest.raises(ValueError, match="too many items: 131073"):
        avro_encoding.Reader(long((1 << 17) + 1) + b"\0\0" * ((1 << 17) + 1)).events()
    each = [long(2) + b"".join(text(name) + b"\0" for name in pair) + b"\0\0" for pair in ("ab", "cd")]
    with patch.object(avro_encoding, "_MOST_HEADERS", 3), pytest.raises(ValueError, match="too many items: 2"):
        avro_encoding.Reader(array(each)).events()


def test_a_whole_connection_may_be_compressed_by_deflate_in_pieces_of_any_size(tmp_path: Path) -> None:
    """A whole connection may be compressed by deflate, in pieces of any size."""
    lines = b"".join(b"line %d\n" % number for number in range(20_000))
    with (
        serving("avro", compression_type="deflate") as served,
        sink(served.address, tmp_path, compression_type="deflate", compression_level=9) as ours,
    ):
        ours.write([EventBatch.of_lines(lines)])
        ours.write([EventBatch.of_lines(b"a\n")])
        assert b"".join(body + b"\n" for body in served.outlet.bodies) == lines + b"a\n"


@pytest.mark.parametrize("packing", ["source", "sink"])
def test_if_only_one_end_compresses_that_is_reported_instead_of_a_timeout(packing: str, tmp_path: Path) -> None:
    """If only one end compresses, that is reported instead of a timeout."""
    packed = {"compression_type": "deflate"}
    with (
        serving("avro", **(packed if packing == "source" else {})) as served,
        sink(served.address, tmp_path, **(packed if packing == "sink" else {})) as ours,
        pytest.raises(SinkError, match=r"closed the connection|reset"),
    ):
        ours.write([EventBatch.of_lines(b"a\n")])


def test_a_decompression_bomb_is_unpacked_only_as_far_as_it_is_read(caplog: pytest.LogCaptureFixture) -> None:
    """A decompression bomb is unpacked only as far as it is read; invalid deflate ends the connection."""
    packed = zlib.compress(b"\0" * (8 << 20))
    unpacked, pieces = Inflated(), iter([packed])
    assert unpacked.read(10, lambda _: next(pieces)) == b"\0" * 10
    assert len(unpacked._ready) < 1 << 17
    for sent, said in ((Deflater().pack(_FRAME.pack(1, 1) + b"\xff" * 4), "max_frame"), (b"xx", "with deflate")):
        with serving("avro", compression_type="deflate", max_frame=4096) as served:
            with served.connect() as peer:
                peer.sendall(sent)
                assert all_of(peer) == b""
            eventually(lambda said=said: said in caplog.text)


@pytest.mark.parametrize("flush", [zlib.Z_SYNC_FLUSH, zlib.Z_PARTIAL_FLUSH])
def test_nothing_waits_for_more_while_some_is_unpacked(flush: int) -> None:
    """Each message is available at once, even if the decompressor holds the rest."""
    for size in (1, 65_535, 65_536, 65_537, 65_539, 65_600, 65_792, 200_000):
        packer = zlib.compressobj()
        unpacked, pieces, left = Inflated(), iter([packer.compress(b"m" * size) + packer.flush(flush)]), size
        while left:
            left -= len(unpacked.read(100_000, lambda _, pieces=pieces: next(pieces)))


def test_a_sink_delivers_only_to_a_receiver_whose_certificate_it_trusts(tmp_path: Path) -> None:
    """A sink delivers only to a receiver whose certificate it trusts."""
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    with serving("avro", certificate=str(tmp_path / "own.pem")) as served:
        address = "localhost", served.address[1]
        with sink(address, tmp_path, tls=True, authorities=str(tmp_path / "authority.pem")) as ours:
            ours.write([EventBatch.of_lines(b"a\n")])
        with sink(address, tmp_path, tls=True) as ours, pytest.raises(SinkError, match="certificate"):
            ours.write([EventBatch.of_lines(b"b\n")])
        served.got(b"a")


@pytest.mark.parametrize(
    ("options", "given"),
    [
        (AvroSink.Options, {"hostname": "x", "port": 1, "tls": True, "compression_type": "deflate"}),
        (AvroSource.Options, {"port": 1, "certificate": "c.pem", "compression_type": "deflate"}),
    ],
)
def test_over_tls_nothing_is_packed(options: type, given: Mapping[str, Any]) -> None:
    """TLS together with compression is refused, since Flume's versions disagree about the order."""
    with pytest.raises(AgentConfigError, match="must be none with TLS"):
        read_options(options, given, "c")


_FLUME = """
a1.sources = r1
a1.channels = c1
a1.sinks = k1
a1.sources.r1.type = avro
a1.sources.r1.channels = c1
a1.sources.r1.bind = 0.0.0.0
a1.sources.r1.port = 4141
a1.sources.r1.threads = 5
a1.sources.r1.compression-type = deflate
a1.channels.c1.type = memory
a1.sinks.k1.type = org.apache.flume.sink.AvroSink
a1.sinks.k1.channel = c1
a1.sinks.k1.hostname = collector
a1.sinks.k1.port = 4545
"""


def test_keys_of_flumes_source_and_sink_are_accepted_the_sink_keeps_flumes_batch_size() -> None:
    """Keys of Flume's source and sink are accepted; the sink keeps Flume's batch size."""
    sinks = """
connect-timeout = 3000
request-timeout = 4000
reset-connection-interval = 60
maxIoWorkers = 4
compression-type = deflate
compression-level = 9
ssl = false
truststore-password = x
"""
    off = "a1.sources.r1.ssl = false\na1.sources.r1.keystore = /k.jks\na1.sources.r1.ipFilter = false\n"
    more = "".join(f"a1.sinks.k1.{line}\n" for line in sinks.split("\n") if line)
    config = parse_flume(f"{_FLUME}{off}a1.sources.r1.ipFilterRules = x\n{more}")
    assert not config.problems
    source = read_options(AvroSource.Options, config.sources["r1"].options, "sources.r1")
    assert (source.bind, source.port, source.compression_type) == ("0.0.0.0", 4141, "deflate")
    options = read_options(AvroSink.Options, config.sinks["k1"].options, "sinks.k1")
    assert (options.hostname, options.connect_timeout, options.request_timeout) == ("collector", 3.0, 4.0)
    assert (options.reset_connection_interval, options.batch_size) == (60.0, 100)
    assert (options.compression_type, options.compression_level, options.tls) == ("deflate", 9, False)


def test_flumes_keys_of_tls_are_ours_or_refused() -> None:
    """Trust stores, key stores and address rules are refused, not ignored."""
    trusting = parse_flume(f"{_FLUME}a1.sinks.k1.ssl = true\na1.sinks.k1.trust-all-certs = true\n")
    options = read_options(AvroSink.Options, trusting.sinks["k1"].options, "sinks.k1")
    assert (options.tls, options.verify) == (True, False)
    source = ["ssl = true", "keystore = /k.jks", "ipFilter = true", "ipFilterRules = deny:ip:*"]
    keys = [f"a1.sources.r1.{line}\n" for line in source]
    problems = parse_flume("".join([_FLUME, *keys])).problems
    assert {each.key for each in problems} == {f"a1.sources.r1.{line.split()[0]}" for line in source}
    sinks = parse_flume(f"{_FLUME}a1.sinks.k1.ssl = true\na1.sinks.k1.truststore = /t.jks\n").problems
    assert [each.key for each in sinks] == ["a1.sinks.k1.truststore"]

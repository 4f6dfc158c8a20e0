"""Compression: round trips, and bodies that would harm."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
import tracemalloc
import zlib
from contextlib import suppress
from hashlib import md5

import lz4.block
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from producer import CompressionError
from producer.wire import compression as module
from producer.wire.compression import COMPRESSIONS, compress, compress_joined, decompress, pack_joined, pure_pack_lz4

REAL = ("lz4", "zstd", "deflate")
PACK_LZ4 = {"pure": pure_pack_lz4}
with suppress(ImportError):
    from producer.wire import _packing

    PACK_LZ4["native"] = _packing.pack_lz4


@pytest.mark.parametrize("method", COMPRESSIONS)
@given(data=st.one_of(st.binary(max_size=5000), st.just(b"abc" * 100_000)))
def test_what_is_compressed_decompresses(method: str, data: bytes) -> None:
    """Any bytes come back, by every method."""
    assert decompress(compress(data, method), method, len(data)) == data


@pytest.mark.parametrize("method", COMPRESSIONS)
@pytest.mark.parametrize("declared", [0, 99, 101, 100_000])
def test_another_size_than_declared_is_refused(method: str, declared: int) -> None:
    """A body of 100 bytes that was declared as fewer or more is refused."""
    with pytest.raises(CompressionError):
        decompress(compress(b"x" * 100, method), method, declared)


@pytest.mark.parametrize("method", ["zstd", "deflate"])
def test_a_bomb_is_refused_before_it_takes_memory(method: str) -> None:
    """A body that would grow to 256 MiB while 1000 bytes were declared costs less than 8 MiB."""
    bomb = compress(bytes(256 * 2**20), method)
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError):
            decompress(bomb, method, 1000)
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


def test_an_lz4_bomb_is_refused() -> None:
    """An lz4 block that would grow past the declared size is refused; the library never allocates more than that."""
    with pytest.raises(CompressionError):
        decompress(compress(bytes(64 * 2**20), "lz4"), "lz4", 1000)


@pytest.mark.parametrize("method", REAL)
@given(garbage=st.binary(min_size=1, max_size=200))
def test_garbage_is_a_compression_error_and_nothing_else(method: str, garbage: bytes) -> None:
    """Random bytes either are a body of the declared size, or raise CompressionError."""
    try:
        assert len(decompress(garbage, method, 50)) == 50
    except CompressionError as error:
        assert method in str(error)  # noqa: PT017


@pytest.mark.parametrize("method", REAL)
def test_a_truncated_body_is_refused(method: str) -> None:
    """A body that ends too early is refused, wherever it ends."""
    body = compress(bytes(range(256)) * 4, method)
    for end in range(0, len(body), 7):
        with pytest.raises(CompressionError):
            decompress(body[:end], method, 1024)


def test_zstd_frames_that_lie_about_their_size_or_follow_each_other_are_read_by_their_bytes() -> None:
    """Two frames in a row are one body; what counts is what they hold, not what they say."""
    two = zstandard.ZstdCompressor().compress(b"a" * 10) + zstandard.ZstdCompressor().compress(b"b" * 10)
    assert decompress(two, "zstd", 20) == b"a" * 10 + b"b" * 10
    with pytest.raises(CompressionError):
        decompress(two, "zstd", 10)


def test_deflate_is_the_zlib_format() -> None:
    """A body is readable by zlib, header and checksum included."""
    assert zlib.decompress(compress(b"hello", "deflate")) == b"hello"


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    """The error names the methods."""
    for call in (lambda: compress(b"", "gzip"), lambda: decompress(b"", "gzip", 0)):
        with pytest.raises(CompressionError, match=r"'gzip'.*lz4, zstd, deflate, none"):
            call()


@pytest.mark.parametrize("method", COMPRESSIONS)
@given(st.lists(st.lists(st.binary(max_size=300), max_size=6), max_size=5))
def test_parts_are_compressed_as_if_they_were_joined(method: str, bodies: list[list[bytes]]) -> None:
    """One body after the other in the memory that is kept, longer or shorter than the one before; of views, too."""
    for parts in bodies:
        joined = b"".join(parts)
        assert compress_joined(parts, method) == compress(joined, method)
        assert compress_joined([memoryview(part) for part in parts], method) == compress(joined, method)


@pytest.mark.parametrize(("parts", "size"), [(module._MAX_PARTS + 1, 1), (3, module._MAX_KEPT // 2)])
def test_many_parts_and_large_bodies_are_compressed_too_and_nothing_larger_is_kept(parts: int, size: int) -> None:
    """Beyond the bounds of what a thread keeps the result is the same."""
    body = [bytes([number % 256]) * size for number in range(parts)]
    assert decompress(compress_joined(body, "lz4"), "lz4", parts * size) == b"".join(body)
    assert len(module._kept(0)) <= module._MAX_KEPT * 5 // 4


@pytest.mark.parametrize("twin", PACK_LZ4)
def test_a_packed_body_is_the_one_that_lz4_makes_with_the_digest_that_hashlib_makes(twin: str) -> None:
    """Byte for byte, of any size, whatever kind of memory the records are in."""
    rng = random.Random(5)
    words = [rng.randbytes(size) for size in range(1, 30)]
    for size in (0, 1, 13, 2_047, 16_383, 16_384, 65_535, 65_547, 65_548, 1_000_000):
        text = b"".join(rng.choices(words, k=size))[:size]
        for data in (text, rng.randbytes(size)):
            expected = lz4.block.compress(data, store_size=False)
            for given_as in (data, memoryview(bytearray(data)), memoryview(data).cast("b")):
                assert PACK_LZ4[twin](given_as) == (expected, md5(expected).digest())


@pytest.mark.parametrize("twin", PACK_LZ4)
@pytest.mark.parametrize("wrong", ["text", None, memoryview(bytes(100))[::2]])
def test_what_is_no_memory_is_not_packed_by_either_twin(twin: str, wrong: object) -> None:
    """It is an error of the caller's, and no crash."""
    with pytest.raises((TypeError, BufferError)):
        PACK_LZ4[twin](wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("twin", PACK_LZ4)
def test_a_large_body_is_packed_while_other_threads_run(twin: str) -> None:
    """Whoever packs gives up the interpreter, though nobody takes it from him."""
    turns, ended, before = 0, threading.Event(), sys.getswitchinterval()

    def run() -> None:
        nonlocal turns
        while not ended.is_set():
            turns += 1
            time.sleep(0)  # gives the interpreter back

    other, data = threading.Thread(target=run), random.Random(1).randbytes(2**22)
    sys.setswitchinterval(1000)
    try:
        other.start()
        give_up, seen = time.monotonic() + 60, turns
        while turns == seen and time.monotonic() < give_up:
            PACK_LZ4[twin](data)
        assert turns > seen
    finally:
        sys.setswitchinterval(before)
        ended.set()
        other.join()


@pytest.mark.parametrize("method", COMPRESSIONS)
@given(parts=st.lists(st.binary(max_size=300), max_size=10))
def test_a_body_that_is_packed_is_the_compressed_one_and_its_digest(method: str, parts: list[bytes]) -> None:
    """By every method."""
    body, digest = pack_joined(parts, method)
    assert (body, digest) == (compress_joined(parts, method), md5(body).digest())


@pytest.mark.parametrize("module", ["_hashlib", "lz4.block._block"])
def test_where_a_function_is_not_to_be_found_the_pure_twin_packs(module: str) -> None:
    """As in a Python that has its hash functions built in: nobody need import what cannot work."""
    program = (
        f"import importlib; importlib.import_module({module!r}).__file__ = None\n"
        "from producer.wire.compression import pack_lz4, pure_pack_lz4\n"
        "assert pack_lz4 is pure_pack_lz4"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

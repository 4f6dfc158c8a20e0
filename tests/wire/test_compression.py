"""Compression: round trips, and harmful bodies."""

import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer import CompressionError
from producer.wire import compression as module
from producer.wire.compression import COMPRESSIONS, compress, compress_joined, decompress
from producer.wire.zstd import zstd

REAL = ("lz4", "zstd", "deflate")


@pytest.mark.parametrize("method", COMPRESSIONS)
@given(data=st.one_of(st.binary(max_size=5000), st.just(b"abc" * 100_000)))
def test_any_bytes_are_restored_by_every_method(method: str, data: bytes) -> None:
    """Any bytes are restored, by every method."""
    assert decompress(compress(data, method), method, len(data)) == data


@pytest.mark.parametrize("method", COMPRESSIONS)
@pytest.mark.parametrize("declared", [0, 99, 101, 100_000])
def test_another_size_than_declared_is_refused(method: str, declared: int) -> None:
    """A body with another size than declared is refused."""
    with pytest.raises(CompressionError):
        decompress(compress(b"x" * 100, method), method, declared)


@pytest.mark.parametrize("method", ["zstd", "deflate"])
def test_a_bomb_is_refused_before_it_takes_memory(method: str) -> None:
    """A body that expands to 256 MiB instead of the declared 1000 bytes takes less than 8 MiB."""
    bomb = compress(bytes(256 * 2**20), method)
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError):
            decompress(bomb, method, 1000)
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()


def test_an_lz4_bomb_is_refused() -> None:
    """An lz4 block that expands past the declared size is refused, without allocating more."""
    with pytest.raises(CompressionError):
        decompress(compress(bytes(64 * 2**20), "lz4"), "lz4", 1000)


@pytest.mark.parametrize("method", REAL)
@given(garbage=st.binary(min_size=1, max_size=200))
def test_random_bytes_are_a_body_of_the_declared_size_or_raise_compressionerror(method: str, garbage: bytes) -> None:
    """Random bytes are a body of the declared size, or raise CompressionError."""
    try:
        assert len(decompress(garbage, method, 50)) == 50
    except CompressionError as error:
        assert method in str(error)  # noqa: PT017


@pytest.mark.parametrize("method", REAL)
def test_a_truncated_body_is_refused(method: str) -> None:
    """A truncated body is refused, wherever it ends."""
    body = compress(bytes(range(256)) * 4, method)
    for end in range(0, len(body), 7):
        with pytest.raises(CompressionError):
            decompress(body[:end], method, 1024)


def test_zstd_frames_that_lie_about_their_size_or_follow_each_other_are_read_by_their_bytes() -> None:
    """Two zstd frames are one body, and their content counts, not their declared sizes."""
    two = zstd.compress(b"a" * 10) + zstd.compress(b"b" * 10)
    assert decompress(two, "zstd", 20) == b"a" * 10 + b"b" * 10
    with pytest.raises(CompressionError):
        decompress(two, "zstd", 10)


def test_deflate_is_the_zlib_format() -> None:
    """A deflate body is in the zlib format, with header and checksum."""
    assert zlib.decompress(compress(b"hello", "deflate")) == b"hello"


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    """An unknown method is refused with the known ones."""
    for call in (lambda: compress(b"", "gzip"), lambda: decompress(b"", "gzip", 0)):
        with pytest.raises(CompressionError, match=r"'gzip'.*lz4, zstd, deflate, none"):
            call()


@pytest.mark.parametrize("method", COMPRESSIONS)
@given(st.lists(st.lists(st.binary(max_size=300), max_size=6), max_size=5))
def test_parts_are_compressed_as_if_joined_in_a_reused_buffer_with_bodies_of_any_order_of_sizes(
    method: str, bodies: list[list[bytes]]
) -> None:
    """Parts are compressed as if joined, in a reused buffer, with bodies of any order of sizes."""
    for parts in bodies:
        joined = b"".join(parts)
        assert compress_joined(parts, method) == compress(joined, method)
        assert compress_joined([memoryview(part) for part in parts], method) == compress(joined, method)


@pytest.mark.parametrize(("parts", "size"), [(module._MAX_PARTS + 1, 1), (3, module._MAX_KEPT // 2)])
def test_many_parts_and_large_bodies_are_compressed_without_the_buffer_with_the_same_result(
    parts: int, size: int
) -> None:
    """Many parts and large bodies are compressed without the buffer, with the same result."""
    body = [bytes([number % 256]) * size for number in range(parts)]
    assert decompress(compress_joined(body, "lz4"), "lz4", parts * size) == b"".join(body)
    assert len(module._kept(0)) <= module._MAX_KEPT * 5 // 4

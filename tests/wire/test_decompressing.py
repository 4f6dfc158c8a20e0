"""Compressed files are read as the plain ones, in bounded memory."""

import gzip
import io
import lzma
import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from producer.wire import decompressing as module
from producer.wire.compressed_heads import compression_of
from producer.wire.decompressing import DAMAGE, decompressing
from producer.wire.zstd import zstd

PLAIN = b"".join(b"%d a line of a log\n" % number for number in range(20_000))
#: A zstd frame without content.
SKIPPED = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"


@pytest.fixture(params=["isal", "zlib"])
def decompressor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use each library that can inflate gzip: isal and zlib."""
    inflate: Callable[[int], Any] = zlib.decompressobj
    if request.param == "isal":
        inflate = pytest.importorskip("isal.isal_zlib").decompressobj
    monkeypatch.setattr(module, "_decompressobj", inflate)


def read(data: bytes, compression: str = "gzip") -> tuple[bytes, bool]:
    """Return the bytes that could be read, and True if these are all."""
    reader, parts = decompressing(io.BytesIO(data), compression), list[bytes]()
    try:
        while part := reader.read1(50_000):
            parts.append(part)
    except DAMAGE:
        return b"".join(parts), False
    return b"".join(parts), True


@pytest.mark.usefixtures("decompressor")
def test_several_gzip_members_are_one_file_as_for_gzip_dc_even_with_many_zeros_after_them_as_on_tapes() -> None:
    """Several gzip members are one file, as for ``gzip -dc``, even with many zeros after them, as on tapes."""
    data = gzip.compress(PLAIN) + gzip.compress(b"") + gzip.compress(b"more\n") + bytes(40_000)
    assert read(data) == (PLAIN + b"more\n", True)
    assert read(gzip.compress(b"") * 3) == (b"", True)


@pytest.mark.usefixtures("decompressor")
def test_gzip_that_is_cut_off_is_never_taken_for_whole() -> None:
    """Truncated gzip is always an error, after the bytes before the cut, except for some kilobytes."""
    data = gzip.compress(PLAIN)
    for size in [1, 9, 10, 11, *range(20, len(data), 997), len(data) - 8, len(data) - 1]:
        found, whole = read(data[:size])
        assert (PLAIN.startswith(found), whole) == (True, False), size
        assert len(found) >= len(zlib.decompressobj(31).decompress(data[:size])) - 1024, size


@pytest.mark.usefixtures("decompressor")
def test_damaged_gzip_is_an_error_flipped_bits_or_bytes_after_the_members_the_bytes_before_are_read() -> None:
    """Damaged gzip is an error: flipped bits, or bytes after the members; the bytes before are read."""
    random_ = random.Random(1)
    data = gzip.compress(PLAIN)
    for _ in range(50):
        place = random_.randrange(10, len(data) - 4)
        changed = data[:place] + bytes([data[place] ^ 1 << random_.randrange(8)]) + data[place + 1 :]
        assert not read(changed)[1] or gzip.decompress(changed) == read(changed)[0], place
    assert read(data + b"no gzip, but some text") == (PLAIN, False)


@pytest.mark.parametrize("before", [b"", SKIPPED, 2 * SKIPPED])
def test_several_zstd_frames_are_one_file_even_with_skippable_frames_before_each_as_pzstd_writes(before: bytes) -> None:
    """Several zstd frames are one file, even with skippable frames before each, as pzstd writes."""
    frames = [zstd.compress(PLAIN), zstd.compress(b"more\n")]
    data = b"".join(before + frame for frame in frames)
    assert compression_of(data) == "zstd"
    reader = decompressing(io.BytesIO(data), "zstd")
    assert b"".join(iter(lambda: reader.read1(50_000), b"")) == PLAIN + b"more\n"
    assert compression_of(SKIPPED[:6]) is compression_of(SKIPPED) is None


def test_several_xz_streams_are_one_file_and_truncated_ones_an_error() -> None:
    """Several xz streams are one file, with padding between them; a truncated one is an error after its bytes."""
    data = lzma.compress(PLAIN) + bytes(8) + lzma.compress(b"") + lzma.compress(b"more\n")
    assert read(data, "xz") == (PLAIN + b"more\n", True)
    found, whole = read(lzma.compress(PLAIN)[:-20], "xz")
    assert (PLAIN.startswith(found), whole) == (True, False)


def test_an_xz_file_that_needs_a_window_of_gigabytes_is_refused() -> None:
    """An xz file whose header asks for a window above 128 MiB is refused; one of the highest level is read."""
    large = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}]
    assert read(lzma.compress(PLAIN, filters=large), "xz") == (PLAIN, True)
    data = bytearray(lzma.compress(PLAIN, filters=large))
    size_at = data.index(bytes([lzma.FILTER_LZMA2, 1]), 12) + 2
    data[size_at] = 37  # 1.5 GiB
    head = 12 + (data[12] + 1) * 4
    data[head - 4 : head] = zlib.crc32(bytes(data[12 : head - 4])).to_bytes(4, "little")
    with pytest.raises(DAMAGE, match=r"[Mm]emory"):
        decompressing(io.BytesIO(bytes(data)), "xz").read1(10)

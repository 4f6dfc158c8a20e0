import contextlib
import random

import cramjam
import pytest

from producer.model.errors import CompressionError
from producer.wire import snappy


def _samples() -> list[bytes]:
    chance = random.Random(1)
    words = [chance.randbytes(chance.randrange(1, 90)) for _ in range(50)]
    mixed = b"".join(chance.choices(words, k=3000))
    return [b"", b"a", b"ab" * 5000, bytes(70_000), chance.randbytes(70_000), mixed, b"x" * 61 + chance.randbytes(300)]


@pytest.mark.parametrize("data", _samples(), ids=lambda data: str(len(data)))
def test_blocks_of_the_real_library_are_read(data: bytes) -> None:
    """Blocks of the real library are read: short and long literals, copies, and overlapping copies."""
    block = bytes(cramjam.snappy.compress_raw(data))
    assert snappy.uncompressed_size(block) == len(data)
    assert snappy.decompress(block, len(data)) == data


def test_long_offsets_are_read() -> None:
    """A copy with an offset of four bytes, which is rare, is read."""
    block = b"\x08" + b"\x0cabcd" + b"\x0f\x04\x00\x00\x00"
    assert snappy.decompress(block, 8) == b"abcdabcd"


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (b"", "not a snappy block"),
        (b"\xff\xff\xff\xff\xff\x01", "not a snappy block"),
        (b"\x05", "0 of 5 bytes"),
        (b"\x05\x10abc", "truncated"),
        (b"\x05\xf0", "truncated"),
        (b"\x05\x00a\x01", "truncated within an element"),
        (b"\x05\x00a\x01\x05", "5 bytes back, before the start"),
        (b"\x05\x00a\x01\x00", "0 bytes back, before the start"),
        (b"\x02\x08abc", "more than the 2 bytes"),
        (b"\x7f" + b"\x00a", "127 bytes, the limit is 100"),
    ],
)
def test_truncated_blocks_invalid_copies_and_wrong_sizes_raise_compressionerror_with_the_reason(
    block: bytes, reason: str
) -> None:
    """Truncated blocks, invalid copies, and wrong sizes raise CompressionError with the reason."""
    with pytest.raises(CompressionError, match=reason):
        snappy.decompress(block, 100)


def test_bytes_at_random_are_refused_or_read_within_the_limit() -> None:
    """Random bytes are read within the limit, or raise CompressionError."""
    chance = random.Random(2)
    good = bytearray(cramjam.snappy.compress_raw(b"some text, some more text, some text again" * 3))
    for _ in range(3000):
        block = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            block[chance.randrange(len(block))] = chance.randrange(256)
        with contextlib.suppress(CompressionError):
            assert len(snappy.decompress(bytes(block), 200)) <= 200

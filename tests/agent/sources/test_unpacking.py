"""Compressed data from peers takes time in proportion to its bytes."""

import pytest

from producer.agent.sources.unpacking import UnpackingError, unpacked
from producer.wire.zstd import zstd


def test_tiny_zstd_frames_are_limited():
    """A thousand zstd frames are accepted whatever their size, and thousands without content are refused."""
    assert b"".join(unpacked("zstd", [zstd.compress(b"") * 1_000])) == b""
    with pytest.raises(UnpackingError, match="more than 1000 frames, of less than 64 bytes"):
        list(unpacked("zstd", [zstd.compress(b"") * 2_000]))
    frame = zstd.compress(bytes(range(100)))
    assert b"".join(unpacked("zstd", [frame * 5_000])) == bytes(range(100)) * 5_000

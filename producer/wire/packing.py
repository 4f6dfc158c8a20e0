"""Compresses and digests bodies in one step.

Both steps release the GIL, and with ten busy threads it takes 50 ms to get it back. Native code releases it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import md5

from ..runtime.compiled import either
from .compression import compress, compress_joined, on_joined


def pack_joined(parts: Sequence[bytes | memoryview], compression: str) -> tuple[bytes, bytes]:
    """Compress concatenated parts, and return the result with its MD5 digest of 16 bytes, which signatures need."""
    if compression == "lz4":
        return on_joined(parts, pack_lz4)
    return digested(compress_joined(parts, compression))


def digested(body: bytes) -> tuple[bytes, bytes]:
    """Return a body with its MD5 digest."""
    return body, md5(body, usedforsecurity=False).digest()


def pure_pack_lz4(data: bytes | memoryview) -> tuple[bytes, bytes]:
    """Compress with lz4, and return the result with its MD5 digest."""
    return digested(compress(data, "lz4"))


pack_lz4 = either(f"{__package__}._packing", "pack_lz4", pure_pack_lz4)

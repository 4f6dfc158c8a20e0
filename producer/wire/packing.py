"""Bodies that are compressed and digested together.

Both steps let go of the interpreter, which beside ten busy threads comes back only after 50 ms: compiled, they are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import md5

from ..runtime.compiled import either
from .compression import compress, compress_joined, on_joined


def pack_joined(parts: Sequence[bytes | memoryview], compression: str) -> tuple[bytes, bytes]:
    """As :func:`~.compression.compress_joined`, and the MD5 of what comes of it, which signatures hold: 16 bytes."""
    if compression == "lz4":
        return on_joined(parts, pack_lz4)
    return digested(compress_joined(parts, compression))


def digested(body: bytes) -> tuple[bytes, bytes]:
    """With its MD5."""
    return body, md5(body, usedforsecurity=False).digest()


def pure_pack_lz4(data: bytes | memoryview) -> tuple[bytes, bytes]:
    """Compress by lz4, and digest what comes of it."""
    return digested(compress(data, "lz4"))


pack_lz4 = either(f"{__package__}._packing", "pack_lz4", pure_pack_lz4)

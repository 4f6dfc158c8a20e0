"""Compressed files are told by their first bytes, not by their name."""

from __future__ import annotations

_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xff\x06\0\0sNaPpY": "snappy",
}


def compression_of(head: bytes) -> str | None:
    """The compression that ``head``, a file's first bytes, announces; None for plain bytes."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)

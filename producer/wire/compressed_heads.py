"""Detects compressed files by their first bytes."""

from __future__ import annotations

_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xff\x06\0\0sNaPpY": "snappy",
}


# Frames of zstd that a reader skips, such as pzstd writes before each data frame: the bytes after the first one, and
# the bytes before the data.
_SKIPPABLE, _SKIPPABLE_HEAD = b"\x2a\x4d\x18", 8


def compression_of(head: bytes) -> str | None:
    """Return the compression of a file with the first bytes ``head``; None for plain bytes."""
    while head[1:4] == _SKIPPABLE and head[0] & 0xF0 == 0x50:
        head = head[_SKIPPABLE_HEAD + int.from_bytes(head[4:_SKIPPABLE_HEAD], "little") :]
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)

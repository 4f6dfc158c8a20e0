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


# Frames of zstd that a reader passes over, such as pzstd writes before each of its own: what follows their first byte,
# and the bytes before their data.
_SKIPPABLE, _SKIPPABLE_HEAD = b"\x2a\x4d\x18", 8


def compression_of(head: bytes) -> str | None:
    """The compression that ``head``, a file's first bytes, announces; None for plain bytes."""
    while head[1:4] == _SKIPPABLE and head[0] & 0xF0 == 0x50:
        head = head[_SKIPPABLE_HEAD + int.from_bytes(head[4:_SKIPPABLE_HEAD], "little") :]
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)

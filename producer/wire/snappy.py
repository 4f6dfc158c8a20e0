"""Decompresses Snappy's block format, which Prometheus sends.

A block has the size of its content (a varint), then elements: literal bytes, or a copy of earlier output. The lowest
two bits of the tag distinguish them.
"""

from __future__ import annotations

from ..model.errors import CompressionError

_MAX_VARINT = 5


def uncompressed_size(block: bytes) -> int:
    """Return the size of the content that the block declares, bytes.

    :raises CompressionError: the block does not begin with a size.
    """
    return _read_size(block)[0]


def decompress(block: bytes, limit: int) -> bytes:
    """Decompress a block.

    :param limit: maximum size of the content, and so of the memory used, bytes.
    :raises CompressionError: the block is invalid, truncated, too large, or has another size than declared.
    """
    size, at = _read_size(block)
    if size > limit:
        raise CompressionError(f"the snappy block holds {size} bytes, the limit is {limit}")
    out = bytearray()
    while at < len(block):
        tag = block[at]
        length, offset, at = (_copy if tag & 3 else _literal)(block, at)
        if len(out) + length > size:
            raise CompressionError(f"the snappy block holds more than the {size} bytes that it declares")
        if tag & 3:
            _repeat(out, offset, length)
        else:
            out += block[at : at + length]
            at += length
    if len(out) != size or at != len(block):
        raise CompressionError(f"the snappy block is truncated: {len(out)} of {size} bytes")
    return bytes(out)


def _read_size(block: bytes) -> tuple[int, int]:
    """Return the declared size, and the offset of the first element."""
    size = 0
    for at, byte in enumerate(block[:_MAX_VARINT]):
        size |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return size, at + 1
    raise CompressionError("the body is not a snappy block: it does not begin with a size")


def _literal(block: bytes, at: int) -> tuple[int, int, int]:
    """Return the length of a literal, the offset 0, and the start of its bytes."""
    length = block[at] >> 2
    if length < 60:
        return length + 1, 0, at + 1
    end = at + length - 58
    return int.from_bytes(block[at + 1 : end], "little") + 1, 0, end


def _copy(block: bytes, at: int) -> tuple[int, int, int]:
    """Return the length of a copy, its distance, and the start of the next element."""
    tag, kind = block[at], block[at] & 3
    end = at + (2, 3, 5)[kind - 1]
    if end > len(block):
        raise CompressionError("the snappy block is truncated within an element")
    offset = int.from_bytes(block[at + 1 : end], "little")
    if kind == 1:
        return (tag >> 2 & 7) + 4, offset | tag >> 5 << 8, end
    return (tag >> 2) + 1, offset, end


def _repeat(out: bytearray, offset: int, length: int) -> None:
    start = len(out) - offset
    if not 0 <= start < len(out):
        raise CompressionError(f"a copy in the snappy block begins {offset} bytes back, before the start of the output")
    piece = out[start : start + length]
    # A copy may overlap its own output; then its bytes repeat.
    out += (piece * (length // len(piece) + 1))[:length]

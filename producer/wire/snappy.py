"""Snappy's block format, read: what Prometheus sends is compressed by it.

A block is the size of what it holds (a varint), then elements: bytes as they are, or a copy of bytes that were there
before. The tag's lowest two bits tell which.
"""

from __future__ import annotations

from ..model.errors import CompressionError

_MAX_VARINT = 5


def uncompressed_size(block: bytes) -> int:
    """How many bytes the block says it holds.

    :raises CompressionError: it does not begin with a size.
    """
    return _read_size(block)[0]


def decompress(block: bytes, limit: int) -> bytes:
    """What the block holds.

    :param limit: the most bytes that it may hold; no more memory than that is used.
    :raises CompressionError: it is no block, cut short, or holds more or less than it says.
    """
    size, at = _read_size(block)
    if size > limit:
        raise CompressionError(f"the snappy block holds {size} bytes, {limit} are allowed")
    out = bytearray()
    while at < len(block):
        tag = block[at]
        length, offset, at = (_copy if tag & 3 else _literal)(block, at)
        if len(out) + length > size:
            raise CompressionError(f"the snappy block holds more than the {size} bytes that it says")
        if tag & 3:
            _repeat(out, offset, length)
        else:
            out += block[at : at + length]
            at += length
    if len(out) != size or at != len(block):
        raise CompressionError(f"the snappy block is cut short: {len(out)} of {size} bytes")
    return bytes(out)


def _read_size(block: bytes) -> tuple[int, int]:
    """The size at the head of a block, and where its elements begin."""
    size = 0
    for at, byte in enumerate(block[:_MAX_VARINT]):
        size |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return size, at + 1
    raise CompressionError("the body is no snappy block: it does not begin with a size")


def _literal(block: bytes, at: int) -> tuple[int, int, int]:
    """The length of bytes that stand here, no offset, and where they begin."""
    length = block[at] >> 2
    if length < 60:
        return length + 1, 0, at + 1
    end = at + length - 58
    return int.from_bytes(block[at + 1 : end], "little") + 1, 0, end


def _copy(block: bytes, at: int) -> tuple[int, int, int]:
    """The length of a copy, how far back it begins, and where the next element is."""
    tag, kind = block[at], block[at] & 3
    end = at + (2, 3, 5)[kind - 1]
    if end > len(block):
        raise CompressionError("the snappy block is cut short within an element")
    offset = int.from_bytes(block[at + 1 : end], "little")
    if kind == 1:
        return (tag >> 2 & 7) + 4, offset | tag >> 5 << 8, end
    return (tag >> 2) + 1, offset, end


def _repeat(out: bytearray, offset: int, length: int) -> None:
    start = len(out) - offset
    if not 0 <= start < len(out):
        raise CompressionError(f"a copy in the snappy block begins {offset} bytes back, where nothing is")
    piece = out[start : start + length]
    # A copy may reach into what it makes itself: then its bytes repeat.
    out += (piece * (length // len(piece) + 1))[:length]

"""The primitives of the protobuf wire format that a LogGroup needs: varints and length-delimited fields.

Source: protobuf.dev, Encoding.
"""

from __future__ import annotations

_MOST_BITS = 63


def varint(number: int) -> bytes:
    """Return ``number`` (not negative) as a varint: seven bits per byte, lowest first."""
    if number < 0x80:
        return bytes((number,))
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the varint at ``position``, and the position after it.

    :raises IndexError: the data ends within it.
    :raises ValueError: it has more than 70 bits; longer ones would take quadratic time.
    """
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift > _MOST_BITS:
            raise ValueError("a varint has more than 70 bits")


def delimited(tag: int, payload: bytes) -> bytes:
    """Return a length-delimited field: the tag byte, the length, the payload."""
    return bytes((tag,)) + varint(len(payload)) + payload


def delimited_size(length: int) -> int:
    """Return the size of the result of :func:`delimited` for a payload of ``length`` bytes."""
    return length + (2 if length < 0x80 else 1 + len(varint(length)))

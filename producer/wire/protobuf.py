"""The primitives of the Protocol Buffers wire format that a LogGroup needs: varints, and fields of a known length.

Source: protobuf.dev, Encoding.
"""

from __future__ import annotations

_MOST_BITS = 63


def varint(number: int) -> bytes:
    """``number`` (not negative) as a protobuf varint: seven bits a byte, lowest first."""
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
    """The varint at ``position`` and the position behind it.

    :raises IndexError: the data ends inside it.
    :raises ValueError: it has more than 70 bits: to read on would take a time that grows with their square.
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
            raise ValueError("a number of more than 70 bits")


def delimited(tag: int, payload: bytes) -> bytes:
    """A length-delimited field: the tag byte, the length, the payload."""
    return bytes((tag,)) + varint(len(payload)) + payload


def delimited_size(length: int) -> int:
    """How long :func:`delimited` is with a payload of ``length`` bytes."""
    return length + (2 if length < 0x80 else 1 + len(varint(length)))

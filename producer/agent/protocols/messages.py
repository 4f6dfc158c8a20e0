"""Messages of protobuf from strangers: their parts, and what they become, told without making anything of them.

Source: protobuf.dev, Encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...wire.protobuf import read_varint
from .reckoning import SMALL, Reckoning

#: The messages within one, by the numbers of their fields; what else it has is numbers and texts.
Schema = dict[int, "Schema"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED: Mapping[int, int] = {_FIXED64: 8, _FIXED32: 4}
#: Bytes of a message in the library, and of the objects that Python makes of it; two bytes may be one.
_OF_MESSAGE = 250
_OF_BYTE = _OF_MESSAGE // 2
#: Bytes that a byte of text takes at most: in the library, and decoded.
_OF_TEXT = 5
#: So many fields are told at once, and so often the bytes of a message.
_COUNTED, _TOLD = 1 << 10, 1 << 18


class MessageError(ValueError):
    """It is no message."""


class Parts:
    """Looks for the parts of one request's messages.

    :param reckoning: is told of all that is passed over, and of what messages become.
    """

    def __init__(self, reckoning: Reckoning) -> None:
        self._reckoning = reckoning

    def of(self, message: memoryview, wanted: int) -> Iterator[memoryview]:
        """Yield what a message has of a field, each where it is.

        :raises MessageError: it is no message.
        """
        for number, start, end in self._fields(message):
            if number == wanted:
                yield message[start:end]

    def reckon(self, data: bytes, schema: Schema) -> None:
        """Tell of the objects, of the library and of Python, that a message becomes at most.

        :raises MessageError: it is no message.
        """
        if len(data) <= SMALL:
            self._reckoning.element(_OF_BYTE * len(data))
            return
        size, left = _OF_TEXT * len(data), [(memoryview(data), schema)]
        told = size + _TOLD
        while left:  # a stack: messages may lie very deep
            message, known = left.pop()
            for number, start, end in self._fields(message):
                size += _OF_MESSAGE
                if size > told:
                    self._reckoning.element(size)
                    told += _TOLD
                if end > start and number in known:
                    left.append((message[start:end], known[number]))
        self._reckoning.element(size)

    def _fields(self, message: memoryview) -> Iterator[tuple[int, int, int]]:
        """Yield the number of each field, and where its bytes are; of a number nothing."""
        at, size, count = 0, len(message), 0
        try:
            while at < size:
                tag, at = read_varint(message, at)
                at, start = _end_of(message, tag & 7, at)
                if at > size:
                    raise MessageError("it ends within a field")
                count += 1
                if count == _COUNTED:
                    self._reckoning.passed(count)
                    count = 0
                yield tag >> 3, start, at
        except (IndexError, ValueError) as error:
            raise MessageError(f"a field that is none: {error}") from error
        self._reckoning.passed(count)


def _end_of(message: memoryview, kind: int, at: int) -> tuple[int, int]:
    """Where a field ends, and where its bytes begin."""
    if kind == _BYTES:
        length, start = read_varint(message, at)
        return start + length, start
    if kind == _VARINT:
        _, at = read_varint(message, at)
    elif kind in _FIXED:
        at += _FIXED[kind]
    else:
        raise MessageError(f"a field of the kind {kind}")
    return at, at

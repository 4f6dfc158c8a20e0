"""Parts of protobuf messages from peers, and the memory of the messages, found without parsing them.

Specification: protobuf.dev, Encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...wire.protobuf import read_varint
from .reckoning import SMALL, Reckoning

#: The numbers of fields that are messages; all other fields are numbers and texts.
Schema = dict[int, "Schema"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED: Mapping[int, int] = {_FIXED64: 8, _FIXED32: 4}
#: Bytes of a message in the library, and of its Python objects; a message may have only two bytes.
_OF_MESSAGE = 250
_OF_SMALL = _OF_MESSAGE // 2
#: Maximum bytes of memory for one byte of text: in the library, and decoded.
OF_BYTE = 5
#: Fields counted at once, and bytes of a message counted at once.
_COUNTED, _REPORT_BYTES = 1 << 10, 1 << 18


class MessageError(ValueError):
    """Raised for an invalid message."""


class Parts:
    """Finder of the parts of one request's messages.

    :param reckoning: counts the skipped fields, and the memory of messages.
    """

    def __init__(self, reckoning: Reckoning) -> None:
        self._reckoning = reckoning

    def of(self, message: memoryview, wanted: int) -> Iterator[memoryview]:
        """Yield the values of a message's field, without a copy.

        :raises MessageError: the message is invalid.
        """
        for number, start, end in self._fields(message):
            if number == wanted:
                yield message[start:end]

    def reckon(self, data: bytes, schema: Schema, of_byte: int = OF_BYTE) -> None:
        """Count the maximum memory of a message as objects of the library and of Python.

        :param of_byte: the maximum bytes of memory for one byte of its texts and lists of numbers.
        :raises MessageError: the message is invalid.
        """
        if len(data) <= SMALL:
            self._reckoning.element(_OF_SMALL * len(data))
            return
        size, left = of_byte * len(data), [(memoryview(data), schema)]
        next_report = size + _REPORT_BYTES
        while left:  # a stack instead of recursion: messages may be nested very deeply
            message, known = left.pop()
            for number, start, end in self._fields(message):
                size += _OF_MESSAGE
                if size > next_report:
                    self._reckoning.element(size)
                    next_report += _REPORT_BYTES
                if end > start and number in known:
                    left.append((message[start:end], known[number]))
        self._reckoning.element(size)

    def _fields(self, message: memoryview) -> Iterator[tuple[int, int, int]]:
        """Yield the number of each field, and the span of its bytes; the span of a number is empty."""
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
            raise MessageError(f"an invalid field: {error}") from error
        self._reckoning.passed(count)


def _end_of(message: memoryview, kind: int, at: int) -> tuple[int, int]:
    """Return the end of a field, and the start of its bytes."""
    if kind == _BYTES:
        length, start = read_varint(message, at)
        return start + length, start
    if kind == _VARINT:
        _, at = read_varint(message, at)
    elif kind in _FIXED:
        at += _FIXED[kind]
    else:
        raise MessageError(f"a field of the unknown kind {kind}")
    return at, at

"""Avro's binary encoding, as far as Flume's protocol needs it, and Flume's events in it.

A number is zigzag-encoded, seven bits a byte. Bytes and texts have their size before them. A map and an array are
blocks of items, each block with its count before it (a negative count is followed by the block's size), and end with an
empty block. So equal headers have equal bytes, which are parsed only once.

fastavro would read 0.5 million events a second, whatever their headers. This reader reads 1.5 million with equal
headers, as a sink's batch has them, and 0.3 million with different ones. It counts memory before it makes events:
fastavro makes 265 MB of a message of 2 MB. The calls and the handshake need a reader of their own anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any

from ...wire.protobuf import varint
from ..events.batch import EventBatch
from .calls import BadCallError, valid_text
from .reckoning import Reckoning

#: Maximum numbers of events and headers in a call: as objects they are many times as large.
_MOST_EVENTS, _MOST_HEADERS = 1 << 17, 1 << 20
_MOST_BITS = 63
#: Bytes of an event's objects besides its body, which also covers a dict of headers; and bytes of one header.
_OF_EVENT, _OF_HEADER = 120, 200
#: Maximum number of encoded texts that are cached while headers are written.
_MOST_KEPT = 1 << 14


class Reader:
    """Parser of a message.

    :param reckoning: counts the memory of each event and header.
    :ivar at: the position.
    """

    __slots__ = ("_data", "_head", "_headers", "_left", "_reckoning", "at")

    def __init__(self, data: bytes, reckoning: Reckoning | None = None) -> None:
        self._data, self.at = data, 0
        self._reckoning = reckoning or Reckoning(lambda _size: None)
        self._head, self._headers = b"", dict[str, str]()
        self._left = _MOST_HEADERS

    def long(self) -> int:
        """Read a number.

        :raises BadCallError: it is invalid; also raised by the other methods.
        :raises IndexError: the message ends before it.
        """
        data, shift = self._data, 7
        byte = data[self.at]
        self.at += 1
        number = byte & 0x7F
        while byte > 0x7F:
            if shift > _MOST_BITS:
                raise BadCallError("a number of more than 64 bits")
            byte = data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
        return (number >> 1) ^ -(number & 1)

    def fixed(self, size: int) -> bytes:
        """Read ``size`` bytes."""
        end = self.at + size
        if not self.at <= end <= len(self._data):
            raise BadCallError("it ends within a value")
        data = self._data[self.at : end]
        self.at = end
        return data

    def data(self) -> bytes:
        """Read bytes with their size."""
        return self.fixed(self.long())

    def text(self) -> str:
        """Read a text."""
        try:
            return self.data().decode()
        except UnicodeDecodeError as error:
            raise BadCallError("a text that is not UTF-8") from error

    def optional(self, read: Callable[[], Any]) -> Any:
        """Read an optional value; None if it is missing."""
        return read() if self._choice(2) else None

    def flag(self) -> bool:
        """Read a boolean."""
        return self.fixed(1) != b"\0"

    def _choice(self, number: int) -> int:
        chosen = self.long()
        if not 0 <= chosen < number:
            raise BadCallError("an unknown alternative of a union")
        return chosen

    def items(self, most: int) -> Iterator[None]:
        """Iterate over the items of an array or map; the caller reads each item."""
        while count := self.long():
            if count < 0:
                count = -count
                self.long()
            if count > most:
                raise BadCallError(f"too many items: {count}")
            most -= count
            yield from repeat(None, count)

    def events(self) -> list[tuple[dict[str, str], bytes]]:
        """Read an array of events; events with the same headers share one object."""
        found = [self.event() for _ in self.items(_MOST_EVENTS)]
        self._reckoning.settle()
        return found

    def event(self) -> tuple[dict[str, str], bytes]:
        """Read an event."""
        if self._head and self._data.startswith(self._head, self.at):
            self.at += len(self._head)
        else:
            begin = self.at
            self._headers = self._map()
            self._head = self._data[begin : self.at]
        body = self.data()
        self._reckoning.need(_OF_EVENT + len(body))
        return self._headers, body

    def _map(self) -> dict[str, str]:
        found: dict[str, str] = {}
        self._reckoning.need(_OF_EVENT)
        for _ in self.items(self._left):
            self._left -= 1
            self._reckoning.need(_OF_HEADER)
            name = self.text()
            found[name] = self.text()
        return found


@lru_cache(_MOST_KEPT)
def long(number: int) -> bytes:
    """Encode a number that is not negative."""
    return varint(number << 1)


def sized(data: bytes) -> bytes:
    """Encode bytes with their size."""
    return long(len(data)) + data


def text(value: str) -> bytes:
    """Encode a text; invalid characters are replaced."""
    return sized(valid_text(value).encode())


def array(items: Sequence[bytes]) -> bytes:
    """Encode an array of events, or a map of headers."""
    return b"".join([long(len(items)), *items, b"\0"]) if items else b"\0"


def events_of(batch: EventBatch, bodies: Iterable[bytes]) -> list[bytes]:
    """Encode each event of a batch, given its bodies."""
    return [b"".join((head, long(len(body)), body)) for head, body in zip(_heads(batch), bodies, strict=False)]


def _heads(batch: EventBatch) -> Iterable[bytes]:
    """Yield the encoded headers of each event."""
    shared = [text(name) + text(value) for name, value in batch.shared.items()]
    if not batch.columns:
        return repeat(array(shared), batch.count)
    rows = zip(*(_column(text(name), column) for name, column in batch.columns.items()), strict=True)
    return (array([*shared, *filter(None, row)]) for row in rows)


def _column(name: bytes, column: Iterable[str | None]) -> Iterator[bytes | None]:
    return (None if value is None else name + text(value) for value in column)

"""Fluentd's forward protocol, versions 1 and 2: times, handshakes, and a parser of messages that is safe against peers.

A message is an array of MessagePack::

    [tag, time, record, option]                 one event
    [tag, [[time, record], …], option]          several
    [tag, bytes of time and record, …, option]  several, packed; with option["compressed"] compressed, too

``option["chunk"]`` asks for the answer ``{"ack": chunk}`` once the events are safe. A time is whole seconds,
or an extension of type 0: seconds and nanoseconds, 32 bits each. Fluent Bit sends ``[time, metadata]`` in its place.
Its times -1 and -2 begin and end a group, whose record has the common fields of its events.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import sha512
from typing import Any

import msgpack

from .fields import unique_names
from .reckoning import SMALL, Reckoning, of_text

#: Maximum items of an array, and fields of a record: their memory is allocated before they arrive.
_MOST_ITEMS, _MOST_FIELDS = 1 << 17, 1 << 14
#: First buffer of an unpacker, bytes.
_LEAST = 1 << 16
#: Maximum bytes of Python objects for a byte of MessagePack: those of an empty map.
_OF_BYTE = 72
_TIME, _SIGNED = struct.Struct(">II"), struct.Struct(">ii")
_EVENT_TIME = 0
#: Times in seconds that begin and end a group.
_GROUP_BEGINS, _GROUP_ENDS = -1, -2
#: First bytes of MessagePack's arrays and maps.
_ARRAYS, _MAPS = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD)), frozenset((*range(0x80, 0x90), 0xDE, 0xDF))
#: First bytes of MessagePack's binary values.
_BYTES = frozenset((0xC4, 0xC5, 0xC6))


class Values:
    """Parser of consecutive MessagePack values.

    It reads windows of 64 KiB. Values within a window are made directly. The end of a larger value is searched first,
    and its memory is counted before it is made.

    :raises msgpack.UnpackException, ValueError: by each method, if the data is invalid.
    """

    def __init__(self, data: bytes, reckoning: Reckoning) -> None:
        self._data, self._reckoning = data, reckoning
        self._start = self._at = 0
        self._window: Any = None
        self._look(0)

    @property
    def at(self) -> int:
        """The position of the next value."""
        return int(self._start + self._at)

    def __iter__(self) -> Iterator[Any]:
        while self._start + self._at < len(self._data):
            yield self.value()

    def value(self) -> Any:
        """Make the next value."""
        try:
            value = self._window.unpack()
        except msgpack.OutOfData:
            if not self._at:
                return self._large_value()
            self._look(self.at)
            return self.value()
        self._at = self._window.tell()
        return value

    def array(self) -> int:
        """Begin an array; return the number of its values."""
        try:
            count = int(self._window.read_array_header())
        except msgpack.OutOfData:
            if not self._at:
                raise
            self._look(self.at)
            return self.array()
        self._at = self._window.tell()
        return count

    @property
    def begins_array(self) -> bool:
        """True if the next value is an array."""
        return self.at < len(self._data) and self._data[self.at] in _ARRAYS

    def _look(self, start: int) -> None:
        """Begin a window at a position."""
        self._start, self._at = start, 0
        part = self._data if not start and len(self._data) <= _LEAST else self._data[start : start + _LEAST]
        self._window = unpacker(_LEAST)
        self._window.feed(part)

    def _large_value(self) -> Any:
        start = self._start
        if len(self._data) - start <= _LEAST:
            raise msgpack.OutOfData
        size = _size_of(memoryview(self._data)[start:])
        part = memoryview(self._data)[start : start + size]
        self._reckoning.element(_cost_of(part))
        value = msgpack.unpackb(part, **_AS)
        self._look(start + size)
        return value


def _size_of(data: memoryview) -> int:
    """Return the size of the first value."""
    ends, fed = unpacker(len(data)), 0
    while True:
        piece = data[fed : 2 * fed or _LEAST]
        fed += len(piece)
        ends.feed(piece)
        try:
            ends.skip()
        except msgpack.OutOfData:
            if not piece:
                raise
        else:
            return int(ends.tell())


def _cost_of(value: memoryview) -> int:
    """Return the maximum bytes of a value's objects; in a large one texts are counted separately."""
    if value[0] not in _ARRAYS and value[0] not in _MAPS:
        return _OF_BYTE + (len(value) if value[0] in _BYTES else of_text(bytes(value)))
    if len(value) <= SMALL:
        return _OF_BYTE * len(value)
    found = unpacker(len(value))
    found.feed(value)
    cost = 0
    for _ in range(found.read_array_header() if value[0] in _ARRAYS else 2 * found.read_map_header()):
        start = found.tell()
        found.skip()
        cost += _cost_of(value[start : found.tell()])
    return cost


def packed(value: Any) -> bytes:
    """Encode a value."""
    data: bytes = msgpack.packb(value, use_bin_type=True, unicode_errors="surrogateescape")
    return data


_AS: dict[str, Any] = {
    "raw": False,
    "unicode_errors": "surrogateescape",
    "strict_map_key": False,
    "object_pairs_hook": unique_names,
    "max_array_len": _MOST_ITEMS,
    "max_map_len": _MOST_FIELDS,
}


def unpacker(most_bytes: int) -> Any:
    """Return a streaming parser of values; longer data raises ``msgpack.BufferFull``."""
    return msgpack.Unpacker(read_size=min(_LEAST, most_bytes), max_buffer_size=most_bytes, **_AS)


def raw(value: Any) -> bytes:
    """Return bytes; older peers send them as text."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def event_time(milliseconds: int) -> Any:
    """Return a time as an extension value."""
    seconds, rest = divmod(milliseconds, 1000)
    return msgpack.ExtType(_EVENT_TIME, _TIME.pack(seconds & 0xFFFFFFFF, rest * 1_000_000))


def milliseconds(time: Any) -> int | None:
    """Convert a received time to milliseconds; None if it is invalid."""
    if isinstance(time, msgpack.ExtType) and time.code == _EVENT_TIME and len(time.data) == _TIME.size:
        seconds, nanoseconds = _TIME.unpack(time.data)
        return int(seconds * 1000 + nanoseconds // 1_000_000)
    if isinstance(time, msgpack.Timestamp):
        return int(time.to_unix_nano() // 1_000_000)
    if isinstance(time, int | float) and not isinstance(time, bool) and abs(time) < 1e11:
        return int(time * 1000)
    return None


def group_mark(time: Any) -> bool | None:
    """Return True if a time begins a group, False if it ends one, None for the time of an event."""
    if isinstance(time, msgpack.ExtType) and time.code == _EVENT_TIME and len(time.data) == _TIME.size:
        time = _SIGNED.unpack(time.data)[0]
    return {_GROUP_BEGINS: True, _GROUP_ENDS: False}.get(time) if type(time) is int else None


def key_digest(salt: bytes, host: str, nonce: bytes, key: str) -> str:
    """Return a digest that proves knowledge of the shared key."""
    return sha512(salt + host.encode() + nonce + key.encode()).hexdigest()

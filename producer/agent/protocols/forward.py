"""Fluentd's forward protocol, version 1: times, handshakes, and a reader of messages that a stranger sends.

A message is an array of MessagePack::

    [tag, time, record, option]                 one event
    [tag, [[time, record], …], option]          several
    [tag, bytes of time and record, …, option]  several, packed; with option["compressed"] packed once more

``option["chunk"]`` asks for an answer, ``{"ack": chunk}``, once the events are safe. A time is a whole number of
seconds, or an extension of type 0: seconds and nanoseconds, 32 bits each.
"""

from __future__ import annotations

import struct
from hashlib import sha512
from typing import Any

import msgpack

#: Of an array, and of a record: memory for these is taken before they have come.
_MOST_ITEMS, _MOST_FIELDS = 1 << 17, 1 << 14
#: Bytes that an unpacker takes at first.
_LEAST = 1 << 16
_TIME = struct.Struct(">II")
_EVENT_TIME = 0


def packed(value: Any) -> bytes:
    """A value's bytes."""
    data: bytes = msgpack.packb(value, use_bin_type=True, unicode_errors="surrogateescape")
    return data


def unpacker(most_bytes: int) -> Any:
    """Reads values as they come; what is longer is refused (``msgpack.BufferFull``)."""
    return msgpack.Unpacker(
        raw=False,
        unicode_errors="surrogateescape",
        strict_map_key=False,
        read_size=min(_LEAST, most_bytes),
        max_buffer_size=most_bytes,
        max_array_len=_MOST_ITEMS,
        max_map_len=_MOST_FIELDS,
    )


def raw(value: Any) -> bytes:
    """Bytes, which older peers send as texts."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def event_time(milliseconds: int) -> Any:
    """A time as it travels."""
    seconds, rest = divmod(milliseconds, 1000)
    return msgpack.ExtType(_EVENT_TIME, _TIME.pack(seconds & 0xFFFFFFFF, rest * 1_000_000))


def milliseconds(time: Any) -> int | None:
    """Of a time that came; None if it is none."""
    if isinstance(time, msgpack.ExtType) and time.code == _EVENT_TIME and len(time.data) == _TIME.size:
        seconds, nanoseconds = _TIME.unpack(time.data)
        return int(seconds * 1000 + nanoseconds // 1_000_000)
    if isinstance(time, int | float) and not isinstance(time, bool) and abs(time) < 1e11:
        return int(time * 1000)
    return None


def key_digest(salt: bytes, host: str, nonce: bytes, key: str) -> str:
    """What shows, without saying it, that somebody knows the shared key."""
    return sha512(salt + host.encode() + nonce + key.encode()).hexdigest()

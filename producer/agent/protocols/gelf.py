"""GELF, Graylog's format: a message is a JSON object, which UDP carries in chunks.

``short_message`` becomes the body, ``timestamp`` (seconds) the header ``timestamp`` (milliseconds), and all else
headers; additional fields lose their underscore. A message without ``short_message`` is a body of JSON.

A message is bounded before anything is made of it: in the memory of its parsed JSON, and its chunks in number, bytes
and time.

Example: ``{"short_message": "hi", "host": "a", "level": 3, "_user": "jo"}`` is the body ``hi`` with the headers
``host`` ``a``, ``level`` ``3`` and ``user`` ``jo``.

Source: "GELF Payload Specification", version 1.1, of Graylog's documentation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...model.errors import ProducerError
from ..events.batch import EventBatch, batches_of
from .fields import json_bytes, text_of, unique_names, with_own
from .reckoning import OF_TEXT, of_event, of_json

#: The first bytes of a chunk, the bytes of its head, and the maximum number of chunks of a message.
_CHUNK, _HEAD_BYTES, _MOST_CHUNKS = b"\x1e\x0f", 12, 128
#: Memory of a chunk or an unfinished message, besides its bytes.
_OF_CHUNK, _OF_MESSAGE = 64, 400
#: Bytes of events put at once, in memory.
_AT_ONCE = 4 << 20
#: Characters of an error that are shown.
_MOST_SHOWN = 200

#: The headers and the body of an event.
Event = tuple[dict[str, str], bytes]


class GelfError(ProducerError):
    """Raised for a message that is invalid or too large."""


class Chunks:
    """The chunks of messages that are not complete. The oldest message makes room for a new one.

    :param most: maximum bytes of all chunks, with their memory.
    :param seconds: maximum time from the first chunk of a message to its last.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds, self._left = most, seconds, most
        # Messages by peer and id, oldest first: the time of the first chunk, and the chunks by number.
        self._messages: dict[tuple[str, bytes], tuple[float, int, dict[int, bytes]]] = {}

    def add(self, peer: str, datagram: bytes, now: float) -> bytes | None:
        """Add a datagram; return the message that it completes, or None.

        :param now: monotonic seconds.
        :raises GelfError: the chunk is invalid.
        """
        if not datagram.startswith(_CHUNK):
            return datagram
        key, number, count = (peer, datagram[2:10]), *datagram[10:_HEAD_BYTES].ljust(2, b"\0")
        if len(datagram) < _HEAD_BYTES or not number < count <= _MOST_CHUNKS:
            raise GelfError(f"chunk {number} of {count} is invalid; a message has at most {_MOST_CHUNKS}")
        _, expected, found = self._messages.setdefault(key, (now, count, {}))
        if not found:
            self._left -= _OF_MESSAGE
        if number not in found:
            found[number] = datagram[_HEAD_BYTES:]
            self._left -= len(datagram) + _OF_CHUNK
        if len(found) < expected:
            return None
        self._drop(key)
        return b"".join(found[each] for each in sorted(found))

    def drop_old(self, now: float) -> int:
        """Drop messages that are too old, and the oldest ones if there is no room; return their number."""
        dropped = 0
        while self._messages:
            key, (since, _, _) = next(iter(self._messages.items()))
            if self._left >= 0 and now - since < self._seconds:
                break
            self._drop(key)
            dropped += 1
        return dropped

    def _drop(self, key: tuple[str, bytes]) -> None:
        chunks = self._messages.pop(key)[2].values()
        self._left += _OF_MESSAGE + sum(len(each) + _HEAD_BYTES + _OF_CHUNK for each in chunks)


def event_of(message: bytes, hold: Callable[[int], None]) -> Event:
    """Parse one plain message.

    :param hold: called with the bytes of memory that parsing needs; may raise.
    :raises GelfError: it is not a JSON object.
    """
    hold(OF_TEXT * len(message))
    text = message.decode(errors="replace")
    hold(of_json(text))
    try:
        given = json.loads(text, object_pairs_hook=unique_names)
    except (ValueError, RecursionError) as error:
        raise GelfError(f"a message is not JSON: {str(error)[:_MOST_SHOWN]}") from error
    if not isinstance(given, dict):
        raise GelfError("a message is not a JSON object")
    return _event(given)


def _event(given: dict[str, Any]) -> Event:
    body = json_bytes(given) if given.get("short_message") is None else None
    if body is None:
        body = text_of(given.pop("short_message")).encode("utf-8", "backslashreplace")
    time = _milliseconds(given.get("timestamp"))
    if time is not None:
        del given["timestamp"]
    named = [(name.removeprefix("_") or name, value) for name, value in given.items() if name != "version"]
    fields = {name: text_of(value) for name, value in unique_names(named).items() if value is not None}
    return with_own(fields, {} if time is None else {"timestamp": time}), body


def _milliseconds(value: Any) -> str | None:
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return str(round(seconds * 1000)) if math.isfinite(seconds) and seconds >= 0 else None


def batches(events: Iterable[Event]) -> Iterator[EventBatch]:
    """Yield batches of bounded size."""
    found: list[Event] = []
    size = 0
    for headers, body in events:
        found.append((headers, body))
        size += of_event(headers, body)
        if size >= _AT_ONCE:
            yield from batches_of(found)
            found, size = [], 0
    yield from batches_of(found)


def cut(data: bytearray) -> tuple[Sequence[bytes], bytearray]:
    """Split the bytes of a TCP connection into complete messages, which end with NUL, and the rest."""
    *whole, rest = data.split(b"\0")
    return [bytes(each) for each in whole if each.strip()], rest

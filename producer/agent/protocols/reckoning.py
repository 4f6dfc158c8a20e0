"""Reckoning: a count of the memory that the events of a message need, before they are made.

Two bytes of MessagePack, protobuf or JSON may become an object of 70 to 240 bytes. So a message is parsed one element
at a time, and three limits apply, whatever the protocol:

* the objects of an element, which live for a moment, counted by :meth:`Reckoning.element`;
* its events, which are kept, counted by :meth:`Reckoning.event`;
* the number of events: :data:`MOST_EVENTS`.

All memory is taken from the source's budget (``max_memory``). The figures are upper bounds of the allocations of
CPython and the protobuf library; ``tests/agent/sources/test_worst_shapes.py`` measures them.

Example: an element of 40,000 bytes of MessagePack without texts counts 72 times as many bytes, 2.9 MB.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from sys import getsizeof

#: Maximum number of events in a message.
MOST_EVENTS = 500_000
#: Maximum number of skipped fields in a message; about two seconds.
MOST_FIELDS = 4_000_000
#: Maximum bytes of an element that is parsed without a count.
SMALL = 1 << 13
#: Bytes of an event besides its headers and its body: a tuple, and a place in a list.
_OF_EVENT = 72
#: Bytes that an interceptor allocates for a line.
OF_LINE = 100
#: Bytes of JSON's objects, by the character that begins or precedes each.
_OF_JSON = {"{": 72, "[": 88, ":": 110, ",": 32, '"': 28}
#: Maximum bytes of memory for one byte of text, decoded.
OF_TEXT = 4
#: Bytes reserved from the budget at once.
_RESERVED_AT_ONCE = 1 << 16
_ASTRAL = re.compile(rb"[\xf0-\xff]")


class TooManyEventsError(Exception):
    """Raised for a message with more events than :data:`MOST_EVENTS`, or more fields than :data:`MOST_FIELDS`."""


class Reckoning:
    """Count of the memory for one message.

    :param hold: reserves bytes of the budget; raises if they are not free.
    """

    def __init__(self, hold: Callable[[int], None]) -> None:
        self._hold = hold
        self._needed = self._element = self._events = self._fields = 0

    def element(self, size: int) -> None:
        """Count the objects of an element that is parsed next; they are freed before the next element."""
        if size > self._element:
            self._hold(size - self._element)
            self._element = size

    def event(self, headers: Mapping[str, str], body: bytes, shared: int = 0) -> None:
        """Count an event.

        :param shared: bytes of texts shared with other events.
        :raises TooManyEventsError: the message has too many.
        """
        self.count(1)
        self.need(of_event(headers, body) - shared)

    def count(self, events: int) -> None:
        """Count a number of events.

        :raises TooManyEventsError: the message has too many.
        """
        self._events += events
        if self._events > MOST_EVENTS:
            raise TooManyEventsError(f"more than {MOST_EVENTS} events in one message: send several")

    def passed(self, fields: int) -> None:
        """Count skipped fields.

        :raises TooManyEventsError: the message has too many.
        """
        self._fields += fields
        if self._fields > MOST_FIELDS:
            raise TooManyEventsError(f"more than {MOST_FIELDS} fields in one message: send several")

    def need(self, size: int) -> None:
        """Count bytes that are kept."""
        self._needed += size
        if self._needed >= _RESERVED_AT_ONCE:
            self.settle()

    def settle(self) -> None:
        """Reserve the bytes counted since the last time."""
        self._hold(self._needed)
        self._needed = 0


def of_text(data: bytes) -> int:
    """Return the maximum bytes of a text decoded from UTF-8: Python has one size for all of its characters."""
    return len(data) if data.isascii() else (OF_TEXT if _ASTRAL.search(data) else 2) * len(data)


def of_json(text: str) -> int:
    """Return the maximum bytes of JSON text and its objects; brackets within texts count, too."""
    return 2 * getsizeof(text) + sum(size * text.count(mark) for mark, size in _OF_JSON.items())


def of_event(headers: Mapping[str, str], body: bytes) -> int:
    """Return the bytes of an event."""
    return _OF_EVENT + getsizeof(headers) + getsizeof(body) + size_of(headers)


def size_of(headers: Mapping[str, str]) -> int:
    """Return the bytes of the texts of headers."""
    return sum(map(getsizeof, headers)) + sum(map(getsizeof, headers.values()))

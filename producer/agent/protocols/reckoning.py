"""Reckoning: what the events of one message take of memory, told before they are made.

Two bytes of MessagePack, protobuf or JSON may become an object of 70 to 240 bytes. So a message is taken apart an
element at a time, and three bounds hold for it whatever its protocol is:

* an element's objects, which live for a moment: :meth:`Reckoning.element` is told of them, from what is counted in it;
* its events, which are kept: :meth:`Reckoning.event`;
* how many events there are: :data:`MOST_EVENTS`.

All of it is taken from the source's budget (``max_memory``). The figures are upper bounds of what CPython and the
protobuf library allocate; ``tests/agent/sources/test_worst_shapes.py`` measures them.

Example: an element of 40,000 bytes of MessagePack whose values are no texts counts as 72 times as many, 2.9 MB.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from sys import getsizeof

#: Events of one message.
MOST_EVENTS = 500_000
#: Fields of one message that are passed over, for what is looked for among them; about two seconds.
MOST_FIELDS = 4_000_000
#: Bytes of an element that is taken apart uncounted.
SMALL = 1 << 13
#: Bytes of an event beside its headers and its body: a tuple, and a place in a list.
_OF_EVENT = 72
#: Bytes that an interceptor makes of a line.
OF_LINE = 100
#: Bytes of JSON's objects, by the character that each begins with or follows.
_OF_JSON = {"{": 72, "[": 88, ":": 110, ",": 32, '"': 28}
#: Bytes that a byte of text takes at most, decoded.
OF_TEXT = 4
#: So many bytes are told at once.
_TOLD = 1 << 16
_ASTRAL = re.compile(rb"[\xf0-\xff]")


class TooManyEventsError(Exception):
    """A message has more events than :data:`MOST_EVENTS`, or more fields than :data:`MOST_FIELDS`."""


class Reckoning:
    """What one message takes.

    :param hold: takes so many bytes more of the budget; raises if there are none.
    """

    def __init__(self, hold: Callable[[int], None]) -> None:
        self._hold = hold
        self._needed = self._element = self._events = self._fields = 0

    def element(self, size: int) -> None:
        """An element is about to be taken apart; its objects take so many bytes, and are gone before the next one."""
        if size > self._element:
            self._hold(size - self._element)
            self._element = size

    def event(self, headers: Mapping[str, str], body: bytes, shared: int = 0) -> None:
        """An event is made.

        :param shared: bytes of the texts that are other events' as well.
        :raises TooManyEventsError: there are too many.
        """
        self.count(1)
        self.need(of_event(headers, body) - shared)

    def count(self, events: int) -> None:
        """So many events come.

        :raises TooManyEventsError: likewise.
        """
        self._events += events
        if self._events > MOST_EVENTS:
            raise TooManyEventsError(f"more than {MOST_EVENTS} events in one message: send several")

    def passed(self, fields: int) -> None:
        """So many fields were passed over.

        :raises TooManyEventsError: likewise.
        """
        self._fields += fields
        if self._fields > MOST_FIELDS:
            raise TooManyEventsError(f"more than {MOST_FIELDS} fields in one message: send several")

    def need(self, size: int) -> None:
        """So many bytes are needed, and kept."""
        self._needed += size
        if self._needed >= _TOLD:
            self.settle()

    def settle(self) -> None:
        """Take what was needed since the last time."""
        self._hold(self._needed)
        self._needed = 0


def of_text(data: bytes) -> int:
    """Bytes of a text, at most, that these bytes are in UTF-8: Python has one size for all of its characters."""
    return len(data) if data.isascii() else (OF_TEXT if _ASTRAL.search(data) else 2) * len(data)


def of_json(text: str) -> int:
    """Bytes of some JSON and its objects, at most: of its brackets, whether they are within texts or not."""
    return 2 * getsizeof(text) + sum(size * text.count(mark) for mark, size in _OF_JSON.items())


def of_event(headers: Mapping[str, str], body: bytes) -> int:
    """Bytes of an event."""
    return _OF_EVENT + getsizeof(headers) + getsizeof(body) + size_of(headers)


def size_of(headers: Mapping[str, str]) -> int:
    """Bytes of the texts of some headers."""
    return sum(map(getsizeof, headers)) + sum(map(getsizeof, headers.values()))

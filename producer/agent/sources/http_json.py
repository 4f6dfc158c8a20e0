"""Flume's JSON, ``[{"headers": {"a": "b"}, "body": "text"}, …]``, parsed in bounded memory.

Events are parsed one at a time, of one request at a time. The text is decoded in windows of 64 Ki characters. A window
that does not hold a whole event is doubled, after the memory for the event is counted. The parsed event is compact and
counted, too: its body, and a place in the column of each header. Without this count, a request whose every event has a
header of its own would need memory quadratic in their number.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator, Mapping
from sys import getsizeof
from typing import Any

from ..events.batch import EventBatch
from ..protocols.fields import text_of, unique_names
from ..protocols.reckoning import Reckoning, of_json, of_text
from .http_requests import RequestError, one_at_a_time, refusing

#: Bytes of a place in a column; of the object of a body or a header's value, besides its content.
_PLACE, _OBJECT = 8, 56
#: Bytes decoded at once.
_WINDOW = 1 << 16

_WHITESPACE: Any = re.compile(r"[ \t\n\r]*")
_decoder = json.JSONDecoder(object_pairs_hook=unique_names)


def events_of_json(body: bytes, hold: Callable[[int], None]) -> EventBatch:
    """Parse the events of a request.

    :param hold: called with the number of further bytes that are needed; may raise.
    :raises RequestError: the body is not a list of events.
    """
    with one_at_a_time, refusing(ValueError, RecursionError, prefix="invalid JSON: "):
        return _Events(hold).read(body)


class _Events:
    """Collector of parsed events as columns."""

    def __init__(self, hold: Callable[[int], None]) -> None:
        self._reckoning = Reckoning(hold)
        self._bodies: list[bytes] = []
        self._columns: dict[str, list[str | None]] = {}

    def read(self, body: bytes) -> EventBatch:
        for given in _elements(_Window(body, self._reckoning)):
            self._add(given)
        self._reckoning.settle()
        return EventBatch.of_columns(self._bodies, self._columns)

    def _add(self, given: Any) -> None:
        headers, body = _checked(given)
        count = len(self._bodies)
        self._reckoning.count(1)
        for name, value in headers.items():
            if value is not None:
                text = text_of(value)
                self._reckoning.need(_OBJECT + len(text))
                self._column(name, count).append(text)
        self._reckoning.need(_OBJECT + len(body) + _PLACE * len(self._columns))
        self._bodies.append(body.encode(errors="backslashreplace"))
        if len(headers) < len(self._columns) or None in headers.values():
            for column in self._columns.values():
                if len(column) == count:
                    column.append(None)

    def _column(self, name: str, count: int) -> list[str | None]:
        column = self._columns.get(name)
        if column is None:
            self._reckoning.need(_OBJECT + len(name) + _PLACE * count)
            column = self._columns[name] = [None] * count
        return column


def _checked(given: Any) -> tuple[Mapping[str, Any], str]:
    """Return the headers and the body of an event.

    :raises RequestError: the event is invalid, or has a key that would be lost.
    """
    if not isinstance(given, dict):
        raise RequestError(400, "an event must be an object of headers and a body that is text")
    headers, body = given.get("headers"), given.get("body")
    headers, body = {} if headers in (None, []) else headers, "" if body is None else body  # PHP's empty map is []
    if not isinstance(headers, dict) or not isinstance(body, str):
        raise RequestError(400, "an event must be an object of headers and a body that is text")
    if unknown := given.keys() - {"headers", "body"}:
        raise RequestError(400, f"an event has the unknown key {min(unknown)[:50]!r}: only headers and body are valid")
    return headers, body


class _Window:
    """The decoded part of a body.

    :ivar text: the decoded text that was not parsed yet.
    """

    def __init__(self, body: bytes, reckoning: Reckoning) -> None:
        self._body, self._reckoning, self._read = body, reckoning, 0
        self._decoder = codecs.getincrementaldecoder(json.detect_encoding(body))("surrogatepass")
        self.text = ""

    def grow(self, at: int) -> bool:
        """Decode more, and drop the text before ``at``; return False at the end.

        :raises UnicodeDecodeError: the encoding is none of JSON's.
        """
        if self._read >= len(self._body):
            return False
        size = max(_WINDOW, len(self.text) - at)
        piece = self._body[self._read : self._read + size]
        self._read += size
        large = len(self.text) - at >= _WINDOW
        if large:  # the old text, the decoded piece, and their concatenation, in the widest character of both
            width = max(of_text(piece) // len(piece), getsizeof(self.text) // len(self.text))
            self._reckoning.element(3 * width * (len(self.text) - at + len(piece)))
        self.text = self.text[at:] + self._decoder.decode(piece, final=self._read >= len(self._body))
        if large:
            self._reckoning.element(of_json(self.text))
        return True


def _elements(window: _Window) -> Iterator[Any]:
    """Yield the elements of a list.

    :raises ValueError: the text is not valid JSON.
    :raises RequestError: it is not a list.
    """
    first, at = _next(window, 0)
    if first != "[":
        json.loads(window.text[:_WINDOW])
        raise RequestError(400, "the body must be a list of events")
    following, at = _next(window, at + 1)
    while following != "]":
        try:
            element, end = _decoder.raw_decode(window.text, at)
        except json.JSONDecodeError:
            if not window.grow(at):
                raise
            at = 0
            continue
        yield element
        following, at = _next(window, end)
        if following == ",":
            _, at = _next(window, at + 1)
        elif following != "]":
            raise json.JSONDecodeError("Expecting ',' delimiter", window.text, at)
    if _next(window, at + 1)[0]:
        raise json.JSONDecodeError("Extra data", window.text, at + 1)


def _next(window: _Window, at: int) -> tuple[str, int]:
    """Return the next character that is not white space, and its place; an empty one at the end."""
    while True:
        at = int(_WHITESPACE.match(window.text, at).end())
        if at < len(window.text):
            return window.text[at], at
        if not window.grow(at):
            return "", at
        at = 0

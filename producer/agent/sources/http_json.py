"""Flume's JSON, ``[{"headers": {"a": "b"}, "body": "text"}, …]``, taken apart in bounded memory.

One event is taken apart at a time, and one request at a time. Its text is decoded in windows of 64 Ki characters: a
window that does not hold an event whole is doubled, and what a larger one may become is reckoned before. What an event
becomes is compact, and is reckoned too: its body, and a place in the column of each header. A request in which each
event has a header of its own would have columns of their number times their number.
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
from ..protocols.reckoning import Reckoning, TooManyEventsError, of_json, of_text
from .http_requests import RequestError, one_at_a_time

#: Bytes of a place in a column, of a body besides its own bytes, and of a header's value likewise.
_PLACE, _OBJECT = 8, 56
#: Bytes of a body that are decoded at once.
_WINDOW = 1 << 16

_WHITESPACE: Any = re.compile(r"[ \t\n\r]*")
_decoder = json.JSONDecoder(object_pairs_hook=unique_names)


def events_of_json(body: bytes, hold: Callable[[int], None]) -> EventBatch:
    """Make the events of a request.

    :param hold: is told how many bytes more are needed; may raise.
    :raises RequestError: it is no list of events.
    """
    with one_at_a_time:
        try:
            return _Events(hold).read(body)
        except TooManyEventsError as error:
            raise RequestError(413, str(error)) from error
        except (ValueError, RecursionError) as error:
            raise RequestError(400, f"no JSON: {error}") from error


class _Events:
    """Events on their way from JSON to columns."""

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
    """The headers and the body of an event.

    :raises RequestError: it is none, or has more, which would be lost.
    """
    if not isinstance(given, dict):
        raise RequestError(400, "an event is an object of headers and a body that is text")
    headers, body = given.get("headers"), given.get("body")
    headers, body = {} if headers in (None, []) else headers, "" if body is None else body  # PHP's empty map is []
    if not isinstance(headers, dict) or not isinstance(body, str):
        raise RequestError(400, "an event is an object of headers and a body that is text")
    if unknown := given.keys() - {"headers", "body"}:
        raise RequestError(400, f"an event has headers and a body, and no {min(unknown)[:50]!r}: it would be lost")
    return headers, body


class _Window:
    """As much of a body as is decoded.

    :ivar text: what is decoded and was not passed.
    """

    def __init__(self, body: bytes, reckoning: Reckoning) -> None:
        self._body, self._reckoning, self._read = body, reckoning, 0
        self._decoder = codecs.getincrementaldecoder(json.detect_encoding(body))("surrogatepass")
        self.text = ""

    def grow(self, at: int) -> bool:
        """Decode more, and let go of what stands before a place; False if nothing is left.

        :raises UnicodeDecodeError: it is none of JSON's encodings.
        """
        if self._read >= len(self._body):
            return False
        size = max(_WINDOW, len(self.text) - at)
        piece = self._body[self._read : self._read + size]
        self._read += size
        large = len(self.text) - at >= _WINDOW
        if large:  # what there is, what is decoded, and both together, in the widest character of both
            width = max(of_text(piece) // len(piece), getsizeof(self.text) // len(self.text))
            self._reckoning.element(3 * width * (len(self.text) - at + len(piece)))
        self.text = self.text[at:] + self._decoder.decode(piece, final=self._read >= len(self._body))
        if large:
            self._reckoning.element(of_json(self.text))
        return True


def _elements(window: _Window) -> Iterator[Any]:
    """Those of a list.

    :raises ValueError: it is no JSON.
    :raises RequestError: it is no list.
    """
    first, at = _next(window, 0)
    if first != "[":
        json.loads(window.text[:_WINDOW])
        raise RequestError(400, "no list of events")
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
    """The next character that is no white space, and its place; none at the end."""
    while True:
        at = int(_WHITESPACE.match(window.text, at).end())
        if at < len(window.text):
            return window.text[at], at
        if not window.grow(at):
            return "", at
        at = 0

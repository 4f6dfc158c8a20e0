"""Flume's JSON, ``[{"headers": {"a": "b"}, "body": "text"}, …]``, taken apart in bounded memory.

What Python makes of JSON is up to 25 times as large as its text: ``{}`` are three bytes with a comma, and 72 as a dict.
So one event is taken apart at a time, and one request at a time: meanwhile that takes at most 25 times ``max_body``, of
an event that is nothing but brackets, and mostly far less. What an event becomes is compact, and is told to whoever
counts memory before more is taken apart: its body, and a place in the column of each header. A request in which each
event has a header of its own would have columns of their number times their number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from json.decoder import WHITESPACE  # type: ignore[attr-defined]
from typing import Any

from ..batch import EventBatch
from .http_requests import RequestError, one_at_a_time

#: Of one request.
MOST_EVENTS = 500_000
#: Bytes of a place in a column, of a body besides its own bytes, and of a header's value likewise.
_PLACE, _OBJECT = 8, 56
#: So many bytes are told at once.
_TOLD = 1 << 16

_decoder = json.JSONDecoder()


def events_of_json(body: bytes, hold: Callable[[int], None]) -> EventBatch:
    """The events of a request.

    :param hold: is told how many bytes more are needed; may raise.
    :raises RequestError: it is no list of events.
    """
    with one_at_a_time:
        try:
            return _Events(hold).read(body.decode(json.detect_encoding(body), "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise RequestError(400, f"no JSON: {error}") from error


class _Events:
    """Events on their way from JSON to columns."""

    def __init__(self, hold: Callable[[int], None]) -> None:
        self._hold, self._needed = hold, 0
        self._bodies: list[bytes] = []
        self._columns: dict[str, list[str | None]] = {}

    def read(self, text: str) -> EventBatch:
        for given in _elements(text):
            self._add(given)
            if len(self._bodies) > MOST_EVENTS:
                raise RequestError(413, f"more than {MOST_EVENTS} events")
        self._need(0, at_once=True)
        return EventBatch.of_columns(self._bodies, self._columns)

    def _add(self, given: Any) -> None:
        headers = (given.get("headers") or {}) if isinstance(given, dict) else None
        body = (given.get("body") or "") if isinstance(given, dict) else None
        if not isinstance(headers, dict) or not isinstance(body, str):
            raise RequestError(400, "an event is an object of headers and a body that is text")
        count = len(self._bodies)
        for name, value in headers.items():
            if value is not None:
                text = value if isinstance(value, str) else json.dumps(value)
                self._need(_OBJECT + len(text))
                self._column(name, count).append(text)
        self._need(_OBJECT + len(body) + _PLACE * len(self._columns))
        self._bodies.append(body.encode(errors="replace"))
        if len(headers) < len(self._columns) or None in headers.values():
            for column in self._columns.values():
                if len(column) == count:
                    column.append(None)

    def _column(self, name: str, count: int) -> list[str | None]:
        column = self._columns.get(name)
        if column is None:
            self._need(_OBJECT + _PLACE * count)
            column = self._columns[name] = [None] * count
        return column

    def _need(self, size: int, *, at_once: bool = False) -> None:
        self._needed += size
        if at_once or self._needed >= _TOLD:
            self._hold(self._needed)
            self._needed = 0


def _elements(text: str) -> Iterator[Any]:
    """Those of a list.

    :raises ValueError: it is no JSON.
    :raises RequestError: it is no list.
    """
    at = _passed(text, 0)
    if text[at : at + 1] != "[":
        json.loads(text[at : at + _TOLD])
        raise RequestError(400, "no list of events")
    at = _passed(text, at + 1)
    following = text[at : at + 1]
    while following != "]":
        element, at = _decoder.raw_decode(text, at)
        yield element
        at = _passed(text, at)
        following = text[at : at + 1]
        if following == ",":
            at = _passed(text, at + 1)
        elif following != "]":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
    if _passed(text, at + 1) != len(text):
        raise json.JSONDecodeError("Extra data", text, at + 1)


def _passed(text: str, at: int) -> int:
    return int(WHITESPACE.match(text, at).end())

"""Whole batches in one request, from an agent to an agent: no step for each event at either end.

Each batch is a frame: two numbers of 32 bits, little-endian, the size of the headers and that of the body; the headers,
an object of JSON; and the body. Headers and body are those of an event of a channel (:mod:`..event_format`), without a
position, which means nothing to others.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from ...model.interfaces import Event
from ...wire.speed import measure_lines
from ..events.batch import EventBatch
from ..events.event_format import UnreadableBatchError, read_batch, size_of_columns, write_batch
from .reckoning import of_json

CONTENT_TYPE = "application/x-loghub-agent-batches"

_SIZES = struct.Struct("<II")
#: Bytes of memory that a byte of a column may become: a place, and a text of its own.
_OF_COLUMNS = 16


def pack(batches: Iterable[EventBatch]) -> bytes:
    """A request's body."""
    parts: list[bytes] = []
    for batch in batches:
        event = write_batch(batch.at(None))
        headers = json.dumps(event.headers).encode()
        parts += (_SIZES.pack(len(headers), len(event.body)), headers, event.body)
    return b"".join(parts)


def unpack(data: bytes, hold: Callable[[int], None]) -> Iterator[EventBatch]:
    """The batches of a request, each looked at before it is believed.

    :param hold: is told how many bytes more are needed; may raise.
    :raises ValueError: it has none.
    """
    start = 0
    while start < len(data):
        if len(data) - start < _SIZES.size:
            raise ValueError("the last frame is cut off")
        headers, body = _SIZES.unpack_from(data, start)
        start += _SIZES.size
        end = start + headers + body
        if end > len(data):
            raise ValueError("the last frame is cut off")
        yield _batch(data[start : start + headers], data[start + headers : end], hold)
        start = end


def _batch(headers: bytes, body: bytes, hold: Callable[[int], None]) -> EventBatch:
    text = headers.decode()
    hold(of_json(text))
    named = json.loads(text)
    if not isinstance(named, dict) or not all(isinstance(value, str) for value in named.values()):
        raise ValueError("its headers are no texts by name")
    if "~count" not in named:
        raise ValueError("it is no batch")
    event = Event(named, body)
    try:
        hold(len(body) + _OF_COLUMNS * size_of_columns(event))
        batch = read_batch(event).at(None)
    except UnreadableBatchError as error:
        raise ValueError(str(error)) from error
    if batch.ends is None:
        well = measure_lines(body).ends == batch.count and (not body or body.endswith(b"\n"))
    else:
        well = all(one <= other for one, other in pairwise([0, *batch.ends]))
    if not well:
        raise ValueError(f"it does not hold {batch.count} events")
    return batch

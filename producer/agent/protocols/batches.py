"""Whole batches in one request between two agents, without a step for each event.

Each batch is a frame: the sizes of the headers and of the body, as two little-endian numbers of 32 bits; the headers, a
JSON object; and the body. Headers and body are those of a channel's event (:mod:`..event_format`), without a position,
which has no meaning for another agent.
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
#: Bytes of memory for each byte of a column: a place, and a text object.
_OF_COLUMNS = 16


def pack(batches: Iterable[EventBatch]) -> bytes:
    """Return the body of a request."""
    parts: list[bytes] = []
    for batch in batches:
        event = write_batch(batch.at(None))
        headers = json.dumps(event.headers).encode()
        parts += (_SIZES.pack(len(headers), len(event.body)), headers, event.body)
    return b"".join(parts)


def unpack(data: bytes, hold: Callable[[int], None]) -> Iterator[EventBatch]:
    """Yield the batches of a request, after a check of each.

    :param hold: called with the number of further bytes that are needed; may raise.
    :raises ValueError: the body is invalid.
    """
    start = 0
    while start < len(data):
        if len(data) - start < _SIZES.size:
            raise ValueError("the last frame is incomplete")
        headers, body = _SIZES.unpack_from(data, start)
        start += _SIZES.size
        end = start + headers + body
        if end > len(data):
            raise ValueError("the last frame is incomplete")
        yield _batch(data[start : start + headers], data[start + headers : end], hold)
        start = end


def _batch(headers: bytes, body: bytes, hold: Callable[[int], None]) -> EventBatch:
    text = headers.decode()
    hold(of_json(text))
    named = json.loads(text)
    if not isinstance(named, dict) or not all(isinstance(value, str) for value in named.values()):
        raise ValueError("the headers of a batch must be texts by name")
    if "~count" not in named:
        raise ValueError("the headers of a batch lack ~count")
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
        raise ValueError(f"a batch does not contain {batch.count} events")
    return batch

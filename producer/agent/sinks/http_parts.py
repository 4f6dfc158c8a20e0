"""Division of a delivery into requests of the sink ``http``, within the limits of a request.

A batch is encoded once. Its events are completed in order, so one number records its progress while the sink lives, and
accepted events are not sent again.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ..events.batch import EventBatch
from ..protocols.batches import pack


@dataclass(slots=True)
class Progress:
    """Progress of a batch.

    :ivar done: the number of its first events that are completed.
    :ivar refused: the indexes of the events that the server refused.
    """

    done: int = 0
    refused: list[int] = field(default_factory=list)


class Form(Protocol):
    """The encoding of requests."""

    def encoded(self, batch: EventBatch) -> tuple[bytes | bytearray, Sequence[int]]:
        """Return the joined events and the end of each; or no bytes, and the cumulative sizes."""

    def body(self, parts: Sequence[Part]) -> bytes:
        """Return the body of a request."""


class TextForm:
    """Encoding of events as text.

    :param form: ``lines``, ``json`` or ``event``.
    """

    def __init__(self, form: str) -> None:
        self._form = form

    def encoded(self, batch: EventBatch) -> tuple[bytes | bytearray, Sequence[int]]:
        if self._form == "lines" and batch.ends is None:
            return batch.block, array("Q", [*batch.offsets()[1:], batch.size])
        if self._form == "json":
            return _joined(_json(headers, body) for headers, body in batch.events())
        return _joined(batch.bodies() if self._form == "event" else (body + b"\n" for body in batch.bodies()))

    def body(self, parts: Sequence[Part]) -> bytes:
        data = b"".join([part.data for part in parts])
        return b"[" + data[:-1] + b"]" if self._form == "json" else data


class BatchesForm:
    """Encoding of whole batches for another agent; a batch is split only if it is too large."""

    def encoded(self, batch: EventBatch) -> tuple[bytes, Sequence[int]]:
        return b"", batch.ends if batch.ends is not None else [*batch.offsets()[1:], batch.size]

    def body(self, parts: Sequence[Part]) -> bytes:
        return pack([part.events() for part in parts])


class Encoded:
    """A batch, encoded for requests.

    :ivar ends: the end of each event in the data.
    """

    def __init__(self, batch: EventBatch, form: Form, progress: Progress) -> None:
        self.batch, self.progress = batch, progress
        self.data, self.ends = form.encoded(batch)

    @property
    def ended(self) -> bool:
        """True if all events are completed."""
        return self.progress.done >= self.batch.count

    def refused(self) -> EventBatch | None:
        """Return the events that the server refused; None if there are none."""
        numbers = set(self.progress.refused)
        if not numbers:
            return None
        return self.batch.part([number in numbers for number in range(self.batch.count)])


class Part(NamedTuple):
    """Events of one batch, from index ``start`` to before ``stop``."""

    of: Encoded
    start: int
    stop: int

    @property
    def data(self) -> bytes | bytearray:
        """The encoded events."""
        ends = self.of.ends
        return self.of.data[ends[self.start - 1] if self.start else 0 : ends[self.stop - 1]]

    def events(self) -> EventBatch:
        """Return the events as a batch."""
        batch = self.of.batch
        if self.stop - self.start == batch.count:
            return batch
        return batch.select([self.start <= number < self.stop for number in range(batch.count)])


def requests_of(given: Sequence[Encoded], most_events: int, most_bytes: int) -> Iterator[list[Part]]:
    """Yield the parts of each request: within the limits, but with at least one event."""
    parts: list[Part] = []
    events, size = most_events, most_bytes
    for one in given:
        start = one.progress.done
        while start < one.batch.count:
            begin = one.ends[start - 1] if start else 0
            stop = min(bisect_right(one.ends, begin + size), start + events)
            if stop <= start and parts:
                yield parts
                parts, events, size = [], most_events, most_bytes
                continue
            stop = max(stop, start + 1)
            parts.append(Part(one, start, stop))
            events, size, start = events - (stop - start), size - (one.ends[stop - 1] - begin), stop
    if parts:
        yield parts


def halves(parts: Sequence[Part]) -> tuple[list[Part], list[Part]]:
    """Split the events of a request into two halves."""
    left = sum(part.stop - part.start for part in parts) // 2
    first: list[Part] = []
    second: list[Part] = []
    for part in parts:
        middle = min(part.start + left, part.stop)
        left -= middle - part.start
        if middle > part.start:
            first.append(part._replace(stop=middle))
        if middle < part.stop:
            second.append(part._replace(start=middle))
    return first, second


def _joined(events: Iterable[bytes]) -> tuple[bytearray, Sequence[int]]:
    """Join events; return the bytes and the end of each.

    No object is kept for each event: short ones would need many times their bytes.
    """
    data, ends = bytearray(), array("Q")
    for event in events:
        data += event
        ends.append(len(data))
    return data, ends


def _json(headers: dict[str, str], body: bytes) -> bytes:
    """Return an event for Flume's handler, followed by a comma."""
    event = {"headers": headers, "body": body.decode(errors="replace")}
    return json.dumps(event, ensure_ascii=False).encode(errors="replace") + b","

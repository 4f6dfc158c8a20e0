"""What requests of the sink ``http`` hold: events of a delivery's batches, in order, as many as a request may have.

A batch is encoded once. Of what was settled only the first events of a batch are: so how far a batch came is a number,
which is remembered while the sink lives, and what a server has taken is not sent to it again.
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
    """How far a batch came.

    :ivar done: so many of its first events are settled.
    :ivar refused: which of these the server refused.
    """

    done: int = 0
    refused: list[int] = field(default_factory=list)


class Form(Protocol):
    """What requests hold."""

    def encoded(self, batch: EventBatch) -> tuple[bytes | bytearray, Sequence[int]]:
        """The events one behind the other, and where each ends; or nothing, and how much they come to."""

    def body(self, parts: Sequence[Part]) -> bytes:
        """A request's body."""


class TextForm:
    """Events as text.

    :param form: ``lines``, ``json`` or ``event``.
    """

    def __init__(self, form: str) -> None:
        self._form = form

    def encoded(self, batch: EventBatch) -> tuple[bytes | bytearray, Sequence[int]]:
        """See :class:`Form`."""
        if self._form == "lines" and batch.ends is None:
            return batch.block, array("Q", [*batch.offsets()[1:], batch.size])
        if self._form == "json":
            return _joined(_json(headers, body) for headers, body in batch.events())
        return _joined(batch.bodies() if self._form == "event" else (body + b"\n" for body in batch.bodies()))

    def body(self, parts: Sequence[Part]) -> bytes:
        """See :class:`Form`."""
        data = b"".join([part.data for part in parts])
        return b"[" + data[:-1] + b"]" if self._form == "json" else data


class BatchesForm:
    """Whole batches, as long as they need not be cut: for another agent."""

    def encoded(self, batch: EventBatch) -> tuple[bytes, Sequence[int]]:
        """See :class:`Form`."""
        return b"", batch.ends if batch.ends is not None else [*batch.offsets()[1:], batch.size]

    def body(self, parts: Sequence[Part]) -> bytes:
        """See :class:`Form`."""
        return pack([part.events() for part in parts])


class Encoded:
    """A batch in the form of requests.

    :ivar ends: where each event ends in its data.
    """

    def __init__(self, batch: EventBatch, form: Form, progress: Progress) -> None:
        self.batch, self.progress = batch, progress
        self.data, self.ends = form.encoded(batch)

    @property
    def ended(self) -> bool:
        """Whether all of it is settled."""
        return self.progress.done >= self.batch.count

    def refused(self) -> EventBatch | None:
        """Its events that the server refused; None without any."""
        numbers = set(self.progress.refused)
        if not numbers:
            return None
        return self.batch.part([number in numbers for number in range(self.batch.count)])


class Part(NamedTuple):
    """Events of one batch, from ``start`` to before ``stop``."""

    of: Encoded
    start: int
    stop: int

    @property
    def data(self) -> bytes | bytearray:
        """They, encoded."""
        ends = self.of.ends
        return self.of.data[ends[self.start - 1] if self.start else 0 : ends[self.stop - 1]]

    def events(self) -> EventBatch:
        """They, as a batch."""
        batch = self.of.batch
        if self.stop - self.start == batch.count:
            return batch
        return batch.select([self.start <= number < self.stop for number in range(batch.count)])


def requests_of(given: Sequence[Encoded], most_events: int, most_bytes: int) -> Iterator[list[Part]]:
    """What is not settled, a request at a time: of so many events and bytes at most, and of one event at least."""
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
    """The first half of the events of a request, and the second one."""
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
    """One behind the other, and where each ends: no object for each is kept, of which short ones need many times their
    bytes.
    """
    data, ends = bytearray(), array("Q")
    for event in events:
        data += event
        ends.append(len(data))
    return data, ends


def _json(headers: dict[str, str], body: bytes) -> bytes:
    """An event as Flume's handler takes it, and the comma before the next one."""
    event = {"headers": headers, "body": body.decode(errors="replace")}
    return json.dumps(event, ensure_ascii=False).encode(errors="replace") + b","

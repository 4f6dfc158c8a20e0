"""Division of a delivery into HTTP requests within their limits, and the progress of its events.

A batch is encoded once. Its events are sent in order, so one number records its progress while the sink lives, and
accepted events are not sent again. Some destinations accept a request, and name events that they did not take.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol

from ..events.batch import EventBatch
from ..events.interfaces import Refusal
from ..protocols.batches import pack


class Reason(NamedTuple):
    """Reason of a refusal.

    :ivar kind: events with the same kind are refused together, with the words of the first.
    """

    kind: str
    words: str


@dataclass(slots=True)
class Progress:
    """Progress of a batch.

    :ivar done: the number of its first events that were sent and answered.
    :ivar refused: the events of these that the server refused, by index.
    :ivar again: the indexes of the events of these that must be sent again.
    """

    done: int = 0
    refused: dict[int, Reason] = field(default_factory=dict)
    again: set[int] = field(default_factory=set)


class Outcome(NamedTuple):
    """Outcome of a request. Events that it does not name were accepted.

    :ivar refused: the refused events, by index in the request.
    :ivar again: the indexes of events that must be sent again.
    :ivar why: the reason to send them again.
    :ivar some: True if the server refused the request, perhaps because of only some of its events.
    """

    refused: Mapping[int, Reason] = MappingProxyType({})
    again: Set[int] = frozenset()
    why: str = ""
    some: bool = False


ALL_TAKEN = Outcome()


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
            return joined(_json(headers, body) for headers, body in batch.events())
        return joined(batch.bodies() if self._form == "event" else (body + b"\n" for body in batch.bodies()))

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
        """True if all events were accepted or refused."""
        return self.progress.done >= self.batch.count and not self.progress.again

    def open(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges of events to send, as start and stop."""
        yield from ((number, number + 1) for number in sorted(self.progress.again))
        if self.progress.done < self.batch.count:
            yield self.progress.done, self.batch.count

    def refusals(self) -> Iterator[Refusal]:
        """Yield the events that the server refused, those of each kind together."""
        refused = self.progress.refused
        for kind, words in {reason.kind: reason.words for reason in reversed(refused.values())}.items():
            keep = [number in refused and refused[number].kind == kind for number in range(self.batch.count)]
            yield Refusal(self.batch.part(keep), words)


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
        for at, end in one.open():
            start = at
            while start < end:
                begin = one.ends[start - 1] if start else 0
                stop = min(bisect_right(one.ends, begin + size), start + events, end)
                if stop <= start and parts:
                    yield parts
                    parts, events, size = [], most_events, most_bytes
                    continue
                stop = max(stop, start + 1)
                parts.append(Part(one, start, stop))
                events, size, start = events - (stop - start), size - (one.ends[stop - 1] - begin), stop
    if parts:
        yield parts


def sample_of(form: Form, event: EventBatch) -> str:
    """Return the body of a request with one event, as text."""
    return form.body([Part(Encoded(event, form, Progress()), 0, event.count)]).decode(errors="backslashreplace")


def count_of(parts: Sequence[Part]) -> int:
    """Return the number of events."""
    return sum(part.stop - part.start for part in parts)


def record(parts: Sequence[Part], outcome: Outcome) -> None:
    """Record the outcome of a request in the progress of its batches."""
    for part in parts:
        progress = part.of.progress
        if progress.refused or progress.again:  # these are sent one by one
            progress.refused.pop(part.start, None)
            progress.again.discard(part.start)
        progress.done = max(progress.done, part.stop)
    if outcome.refused or outcome.again:
        events = [(part.of.progress, number) for part in parts for number in range(part.start, part.stop)]
        for index, reason in outcome.refused.items():
            progress, number = events[index]
            progress.refused[number] = reason
        for index in outcome.again:
            progress, number = events[index]
            progress.again.add(number)


def halves(parts: Sequence[Part]) -> tuple[list[Part], list[Part]]:
    """Split the events of a request into two halves."""
    left = count_of(parts) // 2
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


def joined(events: Iterable[bytes]) -> tuple[bytearray, Sequence[int]]:
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

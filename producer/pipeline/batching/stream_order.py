"""StreamOrder: keeps one batch of each ordered stream in flight; later batches wait behind it.

The line of a stream holds its batches that are not completed, in the order in which they were opened. The first may be
sent, wait for a retry, and be sent again. When it is completed, the next one follows, if it is sealed by then. The
halves of a split batch take its place. So the records of a stream arrive in the order in which they were enqueued,
regardless of failures.

A stream whose batch failed permanently is stopped: the batches behind it are taken out of the line, to be failed. All
that a handle with a ``SequenceKey`` sends is one line, regardless of the topic.

The accumulator's lock guards it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ...model.records import StreamKey
from .batch import ProducerBatch


class StreamOrder:
    """The lines of all ordered streams. Every method is called with the accumulator's lock held."""

    def __init__(self) -> None:
        self._lines: dict[StreamKey | str, deque[ProducerBatch]] = {}
        #: Sealed batches that wait behind another one.
        self.waiting: set[ProducerBatch] = set()
        self.frozen = False

    def opened(self, batch: ProducerBatch) -> None:
        """Append a batch to the line of its stream."""
        self._lines.setdefault(batch.key.line, deque()).append(batch)

    def is_first(self, batch: ProducerBatch) -> bool:
        """Return True if ``batch`` is the first of its stream, and may be sent once it is sealed."""
        line = self._lines.get(batch.key.line)
        return not self.frozen and line is not None and line[0] is batch

    def ready(self, batch: ProducerBatch) -> bool:
        """Return True if a sealed batch may be sent; otherwise it waits for its turn."""
        if self.is_first(batch):
            return True
        self.waiting.add(batch)
        return False

    def gone(self, batch: ProducerBatch) -> ProducerBatch | None:
        """Remove a completed batch; return the next one of its line if it may be sent."""
        self.waiting.discard(batch)
        line = self._lines.get(batch.key.line)
        if line is None or batch not in line:
            return None
        first = line[0] is batch
        line.remove(batch)
        if not line:
            del self._lines[batch.key.line]
            return None
        return line[0] if first and line[0] in self.waiting and not self.frozen else None

    def cut(self, batch: ProducerBatch, halves: Iterable[ProducerBatch]) -> None:
        """Put the halves of a batch in its place."""
        self.waiting.discard(batch)
        line = self._lines[batch.key.line]
        place = line.index(batch)
        line.remove(batch)
        for offset, half in enumerate(halves):
            line.insert(place + offset, half)

    def stop(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Remove the line of a batch that fails permanently; return the batches behind it, oldest first."""
        line = self._lines.get(batch.key.line)
        if line is None or line[0] is not batch:
            return []
        del self._lines[batch.key.line]
        self.waiting.difference_update(line)
        line.popleft()
        return list(line)

    def freeze(self) -> None:
        """Stop releasing batches."""
        self.frozen = True

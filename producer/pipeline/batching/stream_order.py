"""StreamOrder: of each ordered stream one batch is on its way, and the later ones wait behind it.

A stream's line holds its batches that are not settled, in the order in which they were opened. The first one may be
sent, wait for a retry, be sent again; when it is settled the next one goes, if it takes no more records by then. The
halves of a batch that was cut take its place. So the records of a stream arrive in the order in which they were fed,
whatever the server does to any of them.

A stream whose batch failed for good is stopped: what waits behind it is taken out of the line, to be failed. A stream
with a ``SequenceKey`` is one line with all that its handle sends, whatever the topic.

It has no lock of its own: the accumulator guards it by the lock under which batches are opened and forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ...model.records import StreamKey
from .batch import ProducerBatch


class StreamOrder:
    """See the module. Every method is called with the accumulator's lock held."""

    def __init__(self) -> None:
        self._lines: dict[StreamKey | str, deque[ProducerBatch]] = {}
        #: Sealed batches that wait behind another one.
        self.waiting: set[ProducerBatch] = set()
        self.frozen = False

    def opened(self, batch: ProducerBatch) -> None:
        """``batch`` is the newest of its stream."""
        self._lines.setdefault(batch.key.line, deque()).append(batch)

    def is_turn_of(self, batch: ProducerBatch) -> bool:
        """Return True if ``batch`` is the first of its stream, and may be sent once it is sealed."""
        line = self._lines.get(batch.key.line)
        return not self.frozen and line is not None and line[0] is batch

    def ready(self, batch: ProducerBatch) -> bool:
        """Return whether it is the turn of a sealed batch; else it waits for it."""
        if self.is_turn_of(batch):
            return True
        self.waiting.add(batch)
        return False

    def gone(self, batch: ProducerBatch) -> ProducerBatch | None:
        """``batch`` is settled; the batch whose turn it is now, if one was waiting."""
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
        """``halves`` stand where ``batch`` stood."""
        self.waiting.discard(batch)
        line = self._lines[batch.key.line]
        place = line.index(batch)
        line.remove(batch)
        for offset, half in enumerate(halves):
            line.insert(place + offset, half)

    def stop(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """``batch`` fails for good: those behind it, out of the line, oldest first."""
        line = self._lines.get(batch.key.line)
        if line is None or line[0] is not batch:
            return []
        del self._lines[batch.key.line]
        self.waiting.difference_update(line)
        line.popleft()
        return list(line)

    def freeze(self) -> None:
        """Let nobody go any more, whatever is settled."""
        self.frozen = True

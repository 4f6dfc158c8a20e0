"""Destinations, their logstores, and the queues of streams with batches: the parts of the fair queue."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterator

from ..batching.batch import ProducerBatch
from ..batching.stream_state import StreamState
from .gates import Gate
from .turns import Turns


class StreamQueue:
    """The batches of one stream that wait, oldest first."""

    __slots__ = ("_heap", "stream")

    def __init__(self, stream: StreamState) -> None:
        self.stream = stream
        self._heap: list[tuple[int, tuple[int, ...], ProducerBatch]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[ProducerBatch]:
        return (entry[-1] for entry in self._heap)

    def put(self, batch: ProducerBatch) -> None:
        """Add a batch; halves of a split batch have its serial, and stay in order."""
        heapq.heappush(self._heap, (batch.serial, batch.part, batch))

    @property
    def oldest(self) -> ProducerBatch:
        """The next batch; the queue must not be empty."""
        return self._heap[0][-1]

    def pop(self) -> ProducerBatch:
        """Remove and return the oldest batch."""
        return heapq.heappop(self._heap)[-1]


class ThreadShare:
    """A group of destinations that share a part of the threads, and those of them with batches to send."""

    __slots__ = ("flying", "ready")

    def __init__(self) -> None:
        #: Attempts in flight.
        self.flying = 0
        self.ready: Turns[Destination] = Turns()


class Destination:
    """A destination and its logstores."""

    __slots__ = ("clock", "credit", "gate", "key", "latency", "logstores", "queued", "sendable", "share", "urgent")

    def __init__(self, key: Hashable, gate: Gate, clock: float, share: ThreadShare) -> None:
        self.key = key
        self.gate = gate
        self.share = share
        #: Virtual time of the fair queue, in bytes; the turn of a stream is a point of it.
        self.clock = clock
        #: The size of the largest batch so far, bytes.
        self.credit = 0
        self.logstores: dict[tuple[str, str], Logstore] = {}
        self.sendable: Turns[Logstore] = Turns()
        #: Batches whose next attempt is the last, each with the start of its wait.
        self.urgent: deque[tuple[Logstore, ProducerBatch, float]] = deque()
        self.queued = 0
        self.latency = 0.0

    @property
    def name(self) -> str:
        """A name for people, which stays the same while the process lives."""
        parts = self.key if isinstance(self.key, tuple) else (self.key,)
        return " ".join(str(part) for part in parts if part is not None)

    def turn_of(self, stream: StreamState) -> float:
        """Return the turn of a stream that has a batch again: its former turn, or the clock minus the credit if that is
        later.
        """
        stream.turn = max(stream.turn, self.clock - self.credit)
        return stream.turn

    def serve(self, stream: StreamState, size: int) -> None:
        """Advance the turn of a stream whose batch is taken."""
        self.credit = max(self.credit, size)
        self.clock = max(self.clock, stream.turn)
        stream.turn = self.turn_of(stream) + size

    def oldest(self) -> ProducerBatch | None:
        """Return the oldest waiting batch, approximately; None if there is none."""
        found = [batch for logstore in self.logstores.values() if (batch := logstore.oldest()) is not None]
        return min(found, key=lambda batch: batch.serial, default=None)


class Logstore:
    """A logstore of a destination, and its streams that have batches."""

    __slots__ = ("by_age", "by_turn", "destination", "gate", "key", "queues")

    def __init__(self, key: tuple[str, str], gate: Gate, destination: Destination) -> None:
        self.key = key
        self.gate = gate
        self.destination = destination
        self.queues: dict[StreamState, StreamQueue] = {}
        self.by_turn: Turns[StreamQueue] = Turns()
        self.by_age: Turns[StreamQueue] = Turns()

    @property
    def name(self) -> str:
        """A name for people."""
        return f"{self.destination.name} logstore {self.key[1]}"

    def oldest(self) -> ProducerBatch | None:
        """Return the oldest batch that waits; None if there is none."""
        first = self.by_age.first()
        return None if first is None else first[2].oldest

    def put(self, batch: ProducerBatch) -> None:
        """Add a batch to the queue of its stream."""
        queue = self.queues.get(batch.stream)
        if queue is None:
            queue = self.queues[batch.stream] = StreamQueue(batch.stream)
            self.by_turn.put(queue, self.destination.turn_of(batch.stream))
        queue.put(batch)
        if queue.oldest is batch:
            self.by_age.put(queue, batch.serial)

    def pop(self, queue: StreamQueue) -> ProducerBatch:
        """Remove and return the oldest batch of a stream."""
        batch, stream = queue.pop(), queue.stream
        self.destination.serve(stream, batch.size)
        if queue:
            self.by_turn.put(queue, stream.turn)
            self.by_age.put(queue, queue.oldest.serial)
        else:
            self.by_turn.remove(queue)
            self.by_age.remove(queue)
            del self.queues[stream]
        return batch

    def clear(self) -> None:
        """Drop all batches."""
        self.queues, self.by_turn, self.by_age = {}, Turns(), Turns()

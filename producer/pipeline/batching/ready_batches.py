"""ReadyBatches: batches that may be sent, on their way to the IO threads, and where idle IO threads wait for them."""

from __future__ import annotations

from collections import deque

from ...runtime.clock import Clock, WaitingRoom
from .batch import ProducerBatch


class ReadyBatches:
    """A queue without a lock, so that it may be filled where another lock is held.

    :ivar batches: the oldest first; a batch that is sealed, cut or retried is appended, the IO pool takes it.
    :ivar idle: where IO threads without a batch wait.
    """

    def __init__(self, clock: Clock) -> None:
        self.batches: deque[ProducerBatch] = deque()
        self.idle = WaitingRoom(clock)

    def put(self, batch: ProducerBatch) -> None:
        """Let an IO thread take a batch."""
        self.batches.append(batch)
        self.idle.wake_one()

    def wake(self) -> None:
        """Wake an idle IO thread if there is a batch; it wakes the next one. The mover does so, too, within seconds."""
        if self.batches:
            self.idle.wake_one()

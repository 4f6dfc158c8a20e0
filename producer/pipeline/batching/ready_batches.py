"""ReadyBatches: the queue from sealed batches to IO threads, and the place where idle IO threads wait."""

from __future__ import annotations

from collections import deque

from ...runtime.clock import Clock, WaitingRoom
from .batch import ProducerBatch


class ReadyBatches:
    """A queue without a lock, so that it may be filled while another lock is held.

    :ivar batches: the oldest first. Batches are appended when sealed, split or retried; the IO pool takes them.
    :ivar idle: the room where IO threads without a batch wait.
    """

    def __init__(self, clock: Clock) -> None:
        self.batches: deque[ProducerBatch] = deque()
        self.idle = WaitingRoom(clock)

    def put(self, batch: ProducerBatch) -> None:
        """Append a batch, and wake an IO thread for it."""
        self.batches.append(batch)
        self.idle.wake_one()

    def wake(self) -> None:
        """Wake an idle IO thread if there is a batch; it wakes the next one. The mover does the same within seconds."""
        if self.batches:
            self.idle.wake_one()

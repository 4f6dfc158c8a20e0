"""RetryQueue: batches that wait for their next attempt, the earliest due first."""

from __future__ import annotations

import heapq
import itertools
import threading

from ..clock import Clock
from ..errors import ProducerClosedError
from .batch import ProducerBatch


class RetryQueue:
    """A delay queue; also what the mover waits on, since only an earlier retry can cut its wait short."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Guards everything below. Taken by itself: an interrupt in the condition's __enter__ would leave it locked.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._heap: list[tuple[float, int, ProducerBatch]] = []
        self._order = itertools.count()
        self._closed = False
        self._woken = False

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, batch: ProducerBatch, due: float) -> None:
        """Keep ``batch`` until ``due`` (monotonic seconds).

        :raises ProducerClosedError: after :meth:`close`.
        """
        with self._lock:
            if self._closed:
                raise ProducerClosedError("the retry queue is closed")
            heapq.heappush(self._heap, (due, next(self._order), batch))
            if self._heap[0][2] is batch:
                self._changed.notify_all()

    def take_due(self, now: float) -> list[ProducerBatch]:
        """Every batch whose time has come, in the order of their times."""
        due: list[ProducerBatch] = []
        with self._lock:
            while self._heap and self._heap[0][0] <= now:
                due.append(heapq.heappop(self._heap)[2])
        return due

    def wait(self, timeout: float) -> None:
        """Wait until the earliest batch is due, at most ``timeout`` seconds; :meth:`wake` shortens it."""
        with self._lock:
            deadline = self._clock.monotonic() + timeout
            while not self._woken:
                due = min(deadline, self._heap[0][0]) if self._heap else deadline
                left = due - self._clock.monotonic()
                if left <= 0:
                    break
                self._clock.wait(self._changed, left)
            self._woken = False

    def wake(self) -> None:
        """End the current or the next :meth:`wait`."""
        with self._lock:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> list[ProducerBatch]:
        """Refuse batches from now on; returns those that wait, earliest first."""
        with self._lock:
            self._closed = True
            waiting = [entry[2] for entry in sorted(self._heap)]
            self._heap.clear()
            self._changed.notify_all()
        return waiting

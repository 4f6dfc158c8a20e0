"""RetryQueue: batches that wait for their next attempt, the earliest due first."""

from __future__ import annotations

import heapq
import itertools
import math

from ...runtime.clock import Clock, Deadline, WaitingRoom
from ...runtime.locks import Lock
from ..batching.batch import ProducerBatch


class RetryQueue:
    """A delay queue. The mover waits on it, since only an earlier retry can end its wait early."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._room = WaitingRoom(clock, look_again=math.inf)
        self._lock = Lock()  # guards everything below
        self._heap: list[tuple[float, int, ProducerBatch]] = []
        self._alarm = math.inf
        self._order = itertools.count()
        self._closed = False
        self._woken = False
        self._end = -math.inf  # when the current wait ends; later due times wake no thread

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, batch: ProducerBatch, due: float) -> bool:
        """Keep ``batch`` until ``due`` (monotonic seconds); return False after :meth:`close`."""
        with self._lock:
            if self._closed:
                return False
            heapq.heappush(self._heap, (due, next(self._order), batch))
            earlier = self._cut_short(due)
        if earlier:
            self._room.wake_all()
        return True

    def set_alarm(self, at: float) -> None:
        """End the wait at ``at`` (monotonic seconds), too, without a batch; the earliest alarm counts."""
        with self._lock:
            self._alarm = min(self._alarm, at)
            earlier = self._cut_short(at)
        if earlier:
            self._room.wake_all()

    def _cut_short(self, at: float) -> bool:
        """Return True if the current wait must end early. The caller holds the lock."""
        if at >= self._end:
            return False
        self._end = at  # an even earlier time wakes the thread again: perhaps it has not run yet
        self._woken = True
        return True

    def take_due(self, now: float) -> list[ProducerBatch]:
        """Remove and return every batch that is due, earliest first."""
        with self._lock:
            if self._alarm <= now:
                self._alarm = math.inf
            return self._pop_due(now)

    def _pop_due(self, now: float) -> list[ProducerBatch]:
        due: list[ProducerBatch] = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        return due

    def wait(self, timeout: float) -> None:
        """Wait until the earliest batch or the alarm is due, at most ``timeout`` seconds.

        An earlier batch or alarm, and :meth:`wake`, end the wait.
        """
        end = self._clock.monotonic() + timeout
        with self._lock:
            due = min(self._alarm, self._heap[0][0] if self._heap else end)
            self._end = due = min(due, end)
        self._room.wait_until(lambda: self._woken, Deadline(due))
        with self._lock:
            self._woken = False
            self._end = -math.inf  # the next wait checks everything

    def wake(self) -> None:
        """End the current or the next :meth:`wait`; takes no lock."""
        self._woken = True
        self._room.wake_all()

    def refuse(self) -> None:
        """Refuse further batches; waiting ones stay."""
        with self._lock:
            self._closed = True

    def close(self) -> None:
        """Refuse further batches, and drop the waiting ones, which the accumulator still has."""
        with self._lock:
            self._closed = True
            self._heap.clear()

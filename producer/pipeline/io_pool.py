"""IOThreadPool: the threads that send, and the unbounded queue before them (bounded because memory is).

Projects take turns, so that a busy one does not push the others back. Those whose last attempt met a network error may
together occupy at most half of the threads (one at least) until they answer again, so that dead endpoints, whose every
attempt takes the whole timeout, leave threads to the others.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable

from ..clock import NO_DEADLINE, Clock, Deadline, WaitingRoom
from .batch import ProducerBatch
from .worker import StageThread


class IOThreadPool:
    """See the module.

    :param run: makes one attempt; returns whether the destination could be reached, None if it was not tried.
    :param refuse: takes batches that come after the pool was stopped.
    """

    def __init__(
        self,
        name: str,
        thread_count: int,
        run: Callable[[ProducerBatch], bool | None],
        refuse: Callable[[ProducerBatch], object],
        clock: Clock,
    ) -> None:
        self._run = run
        self._refuse = refuse
        self._clock = clock
        self._suspect_share = max(1, thread_count // 2)
        self.threads = tuple(StageThread(f"{name}-io-{i}", self._loop) for i in range(thread_count))
        self._idle = WaitingRoom(clock)
        self._lock = threading.Lock()  # guards everything below
        self._lanes: OrderedDict[str, deque[ProducerBatch]] = OrderedDict()  # projects; whose turn it is comes first
        self._active: Counter[str] = Counter()
        # How many threads are with each batch: one may have begun its next attempt before the last one let go of it.
        self._running: Counter[ProducerBatch] = Counter()
        self._suspects: set[str] = set()
        self._stopped = False

    def submit(self, batch: ProducerBatch) -> None:
        """Queue ``batch`` for one attempt; never blocks."""
        with self._lock:
            stopped = self._stopped
            if not stopped:
                self._lanes.setdefault(batch.key.project, deque()).append(batch)
        if stopped:
            self._refuse(batch)
        else:
            self._idle.wake_one()

    def has(self, batch: ProducerBatch) -> bool:
        """Whether ``batch`` waits for a thread, or is with one."""
        with self._lock:
            return batch in self._running or batch in self._lanes.get(batch.key.project, ())

    @property
    def queued(self) -> int:
        """Batches that wait for a thread."""
        with self._lock:
            return sum(map(len, self._lanes.values()))

    def run_next(self) -> bool:
        """Make one attempt on the caller's thread, if anything is queued; whether it was. For those without threads."""
        batch = self._take()
        if batch is None:
            return False
        self._attempt(batch)
        return True

    def _loop(self) -> None:
        while (batch := self._next()) is not None:
            self._attempt(batch)
            del batch  # else its futures would live until the next one comes

    def _next(self) -> ProducerBatch | None:
        """Wait for a batch; None if none will come any more."""
        taken: list[ProducerBatch] = []

        def something_to_do() -> bool:
            stopped = self._stopped  # before the look: what was queued before the stop is seen then
            batch = self._take()
            if batch is not None:
                taken.append(batch)
            return stopped or bool(taken)

        self._idle.wait_until(something_to_do, NO_DEADLINE)
        return taken[0] if taken else None

    def _take(self) -> ProducerBatch | None:
        with self._lock:
            return self._take_in_turn()

    def _take_in_turn(self) -> ProducerBatch | None:
        """The next batch of the first project that may use another thread. The caller holds the lock."""
        suspects_wait = self._active_suspects() >= self._suspect_share
        for project, lane in self._lanes.items():
            if suspects_wait and project in self._suspects:
                continue
            batch = lane.popleft()
            self._active[project] += 1
            self._running[batch] += 1
            self._lanes.move_to_end(project)
            if not lane:
                del self._lanes[project]
            return batch
        return None

    def _active_suspects(self) -> int:
        return sum(threads for project, threads in self._active.items() if project in self._suspects)

    def _attempt(self, batch: ProducerBatch) -> None:
        project = batch.key.project
        reached = None
        try:
            reached = self._run(batch)
        finally:
            with self._lock:
                self._running[batch] -= 1
                if not self._running[batch]:
                    del self._running[batch]
                self._active[project] -= 1
                if not self._active[project]:
                    del self._active[project]
                if reached is False:
                    self._suspects.add(project)
                elif reached:
                    self._suspects.discard(project)
            self._idle.wake_one()  # a lane that was passed over for its share may be served now

    def start(self) -> None:
        """Start the threads.

        :raises RuntimeError: no thread can be started.
        """
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Let the threads end after what is queued; refuse what comes later."""
        with self._lock:
            self._stopped = True
        self._idle.wake_all()

    def stop_at_once(self) -> None:
        """As :meth:`stop`, and give up what is queued: its owner settles it otherwise."""
        with self._lock:
            self._lanes.clear()
            self._stopped = True
        self._idle.wake_all()

    def join(self, deadline: Deadline) -> list[str]:
        """Wait for the threads to end; the names of those that did not."""
        return [thread.name for thread in self.threads if not thread.join(self._clock, deadline)]

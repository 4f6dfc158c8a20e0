"""A server whose latency depends on its load, in simulated time, behind the real queue, gates and limits.

The server works on ``capacity`` requests at a time; the others wait in its own queue, first come, first served. So with
more than ``capacity`` requests in flight, each takes longer, and nothing is gained. The server may become slower,
refuse excess requests, apply a logstore's quota, or be unreachable. Its behaviour may change during a run.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from producer.pipeline.batching.attempt_history import AttemptHistory
from producer.pipeline.batching.batch import ProducerBatch
from producer.pipeline.batching.stream_state import StreamState
from producer.pipeline.sending.fair_queue import FairQueue, Report, Turn
from producer.pipeline.sending.gates import Verdict
from tests.pipeline.sending.kit import Rules, fair
from tests.support.pipelines import KEY


@dataclass
class Server:
    """The server of one destination.

    :ivar capacity: requests that it works on at a time.
    :ivar service: seconds of work for each.
    :ivar noise: the sigma of a log-normal factor with a median of 1.
    :ivar most: the maximum number of requests, with waiting ones, before it answers 503; None for no limit.
    :ivar reachable: True if it accepts connections.
    :ivar quotas: requests a second by logstore, counted in whole seconds; other logstores have none.
    """

    capacity: int = 8
    service: float = 0.1
    noise: float = 0.0
    most: int | None = None
    reachable: bool = True
    quotas: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.working: set[int] = set()
        self.waiting: deque[tuple[int, Turn]] = deque()
        self.used: Counter[tuple[str, int]] = Counter()

    def over_quota(self, logstore: str, now: float) -> bool:
        """Return True if one more request exceeds the quota of this second; otherwise count it."""
        quota = self.quotas.get(logstore)
        if quota is not None and self.used[logstore, int(now)] >= quota:
            return True
        self.used[logstore, int(now)] += 1
        return False


@dataclass(frozen=True)
class Served:
    """A delivered batch.

    :ivar batch: the batch.
    :ivar at: the time of the delivery, seconds.
    :ivar waited: the time since it was first queued, seconds.
    """

    batch: ProducerBatch
    at: float
    waited: float


class Simulation:
    """IO threads and servers; only :meth:`run` moves the time, and the same seed gives the same history.

    :ivar now: monotonic seconds.
    :ivar served: the deliveries, in order.
    :ivar limits: the limit of the first destination at each change.
    :ivar busy: thread seconds by destination.
    """

    def __init__(self, threads: int, servers: dict[str, Server], *, seed: int = 1) -> None:
        self.now = 0.0
        self.servers = servers
        self.served: list[Served] = []
        self.limits: list[tuple[float, int]] = []
        self.attempts: Counter[str] = Counter()
        self._rng = random.Random(seed)
        self._free = threads
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._streams: dict[tuple[str, str, str], StreamState] = {}
        self._queued_at: dict[ProducerBatch, float] = {}
        self.queue = FairQueue(fair(threads, base_retry_backoff_ms=100), Rules())

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Call ``do`` at a time."""
        heapq.heappush(self._events, (when, next(self._order), do))

    def send(self, project: str, topic: str, size: int, logstore: str = "l") -> None:
        """Add a batch of a stream."""
        stream = self._streams.setdefault((project, logstore, topic), StreamState("C"))
        batch = ProducerBatch(
            KEY._replace(project=project, logstore=logstore, topic=topic),
            stream=stream,
            serial=next(self._order),
            pack_id=None,
            tail_size=size,
            created_at=self.now,
            history=AttemptHistory(1),
        )
        self._queued_at[batch] = self.now
        self.queue.put(batch, project, self.now)

    def backlog(self, project: str, topic: str, size: int, logstore: str = "l", batches: int = 50) -> None:
        """Keep this many batches of a busy stream waiting."""
        for _ in range(batches):
            self.send(project, topic, size, logstore)
        self._busy = {*getattr(self, "_busy", ()), (project, logstore, topic)}

    def every(self, seconds: float, project: str, topic: str, size: int, logstore: str = "l") -> None:
        """Add a batch of a light stream at this interval, seconds."""

        def again() -> None:
            self.send(project, topic, size, logstore)
            self.at(self.now + seconds, again)

        self.at(self.now + seconds, again)

    def run(self, until: float) -> None:
        """Let time pass."""
        while True:
            self._dispatch()
            event = self._events[0][0] if self._events else math.inf
            when = min(event, self.queue.alarm)
            if when > until:
                break
            self.now = max(self.now, when)
            if self.queue.alarm <= self.now:
                self.queue.wake(self.now)
            else:
                heapq.heappop(self._events)[2]()
        self.now = until

    def _dispatch(self) -> None:
        while self._free and (turn := self.queue.take(self.now)) is not None:
            self._free -= 1
            self.attempts[turn.batch.key.project] += 1
            self._ask(turn)
        self._note()

    def _note(self) -> None:
        first = next(iter(self.servers))
        known = self.queue._destinations.get(first)  # the queue's statistics would cost more than all the rest
        if known is not None and (not self.limits or self.limits[-1][1] != known.gate.limit.value):
            self.limits.append((self.now, known.gate.limit.value))

    def _ask(self, turn: Turn) -> None:
        key = turn.batch.key
        server = self.servers[key.project]
        number = next(self._order)
        if not server.reachable:
            self._answer(turn, Verdict.UNREACHABLE, 0.002)
        elif server.over_quota(key.logstore, self.now):
            self._answer(turn, Verdict.OVER_QUOTA, 0.01)
        elif server.most is not None and len(server.working) + len(server.waiting) >= server.most:
            self._answer(turn, Verdict.OVERLOADED, 0.01)
        else:
            server.waiting.append((number, turn))
            self._work(server)

    def _work(self, server: Server) -> None:
        while server.waiting and len(server.working) < server.capacity:
            number, turn = server.waiting.popleft()
            server.working.add(number)
            seconds = server.service * self._rng.lognormvariate(0.0, server.noise)

            def finished(number: int = number, turn: Turn = turn) -> None:
                server.working.remove(number)
                self._over(turn, Verdict.ACCEPTED)
                self._work(server)

            self.at(self.now + seconds, finished)

    def _answer(self, turn: Turn, verdict: Verdict, seconds: float) -> None:
        self.at(self.now + seconds, lambda: self._over(turn, verdict))

    def _over(self, turn: Turn, verdict: Verdict) -> None:
        self._free += 1
        self.queue.done(turn, Report(verdict, self.now - turn.began), self.now)
        batch, key = turn.batch, turn.batch.key
        if verdict is not Verdict.ACCEPTED:
            backoff = 0.1 + 0.1 * self._rng.random()
            self.at(self.now + backoff, lambda: self.queue.put(batch, key.project, self.now))
            return
        self.served.append(Served(batch, self.now, self.now - self._queued_at.pop(batch)))
        if (key.project, key.logstore, key.topic) in getattr(self, "_busy", ()):
            self.send(key.project, key.topic, batch.size, key.logstore)

    # Results.

    def rate(self, since: float, until: float, project: str | None = None, logstore: str | None = None) -> float:
        """Return the delivered batches a second."""
        wanted = [
            one
            for one in self.served
            if since <= one.at < until
            and project in (None, one.batch.key.project)
            and logstore in (None, one.batch.key.logstore)
        ]
        return len(wanted) / (until - since)

    def limits_between(self, since: float, until: float) -> list[int]:
        """Return the limits of the first destination in this time."""
        before = [limit for at, limit in self.limits if at <= since][-1:]
        return before + [limit for at, limit in self.limits if since < at < until]

    def mean_limit(self, since: float, until: float) -> float:
        """Return the mean limit, weighted by time."""
        steps = [(max(at, since), limit) for at, limit in self.limits if at < until]
        steps = [step for n, step in enumerate(steps) if n + 1 == len(steps) or steps[n + 1][0] > since]
        ends = [at for at, _ in steps[1:]] + [until]
        return sum((end - at) * limit for (at, limit), end in zip(steps, ends, strict=True)) / (until - since)

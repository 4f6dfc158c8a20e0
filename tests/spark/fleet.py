"""Simulate a thousand executors before one endpoint, with the real queues, gates and retries in simulated time.

Each process has its batches ready, and sends like its producer: a limited number of requests at a time, a closed gate
after each refusal for the quota, a backoff for the batch. LogHub accepts a number of requests in each whole second, and
refuses the others. Requests take unequal times. The tasks of a process fail when a batch has no attempts left.

``python -m tests.spark.fleet`` prints a table, a line for each fleet.
"""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from producer.model.config import ProducerConfig
from producer.model.errors import QuotaExceededError
from producer.model.results import Attempt
from producer.pipeline.batching.attempt_history import AttemptHistory
from producer.pipeline.batching.batch import ProducerBatch
from producer.pipeline.batching.stream_state import StreamState
from producer.pipeline.sending.fair_queue import FairQueue, Report, Turn
from producer.pipeline.sending.gates import Verdict
from producer.pipeline.sending.retry_rules import RetryRules
from producer.spark.ack_timeout import defaults_of_task
from producer.spark.writing.options import ACK_TIMEOUT
from tests.support.pipelines import KEY

#: LogHub's times for a request and for a refusal, seconds, and their spread (sigma of a log-normal distribution).
_SERVICE, _REFUSAL, _NOISE = 0.1, 0.02, 0.3
_REFUSED = QuotaExceededError("ShardWriteQuotaExceed", "too much", http_status=403)
_NOTED = Attempt(success=False, http_status=403, error_code="ShardWriteQuotaExceed", error_message="too much")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a fleet.

    :ivar seconds: the time until the last batch was stored, or had failed.
    :ivar least: the seconds that the quota requires for all batches.
    :ivar connections: the maximum number of requests in flight at one time.
    :ivar asked: the requests in the busiest second.
    :ivar refused: the share of requests that were refused for the quota.
    :ivar retries: the most retries of one batch.
    :ivar quiet: the longest wait of a process for an acknowledgement, seconds.
    :ivar failed: the batches that had no attempt left.
    """

    seconds: float
    least: float
    connections: int
    asked: int
    refused: float
    retries: int
    quiet: float
    failed: int


class Fleet:
    """Processes before one logstore, moved only by :meth:`run`."""

    def __init__(self, processes: int, batches: int, quota: int, config: ProducerConfig, *, seed: int = 1) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.rules = RetryRules(config, self)  # type: ignore[arg-type]
        self.rules._wait._uniform = self.random.uniform  # type: ignore[attr-defined]
        self.quota, self.retries, self.failed, self.stored, self.quiet = quota, 0, 0, 0, 0.0
        self.under_way = self.connections = 0
        self.taken: Counter[int] = Counter()
        self.asked: Counter[int] = Counter()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._last = 0.0
        self._batches = processes * batches
        for _ in range(processes):
            process = _Process(self, config, batches)
            self.at(self.random.uniform(0.0, 1.0), process.begin)

    def monotonic(self) -> float:
        """Return the seconds since the beginning, as the clock of the retries."""
        return self.now

    def at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), do))

    def takes(self) -> bool:
        """Return True if LogHub accepts one more request in this second."""
        second = int(self.now)
        self.asked[second] += 1
        self.connections = max(self.connections, self.under_way)
        if self.taken[second] >= self.quota:
            return False
        self.taken[second] += 1
        return True

    def seconds(self, typical: float) -> float:
        return typical * self.random.lognormvariate(0.0, _NOISE)

    def ended(self) -> None:
        self._last = self.now

    def run(self) -> Outcome:
        """Run until nothing is left."""
        while self._events:
            when, _, do = heapq.heappop(self._events)
            self.now = max(self.now, when)
            do()
        assert self.stored + self.failed == self._batches
        requests = sum(self.asked.values())
        return Outcome(
            self._last,
            self._batches / self.quota,
            self.connections,
            max(self.asked.values()),
            1 - self.stored / requests,
            self.retries,
            self.quiet,
            self.failed,
        )


class _Process:
    """A worker process with its producer."""

    def __init__(self, fleet: Fleet, config: ProducerConfig, batches: int) -> None:
        threads = config.io_thread_count
        self._acknowledged = 0.0
        self._fleet, self._batches, self._free = fleet, batches, threads
        self._queue = FairQueue(config, fleet.rules)

    def begin(self) -> None:
        stream, now = StreamState("C"), self._fleet.now
        self._acknowledged = now
        for serial in range(self._batches):
            batch = ProducerBatch(
                KEY,
                stream=stream,
                serial=serial,
                pack_id=None,
                tail_size=1_000_000,
                created_at=now,
                history=AttemptHistory(1),
            )
            self._queue.put(batch, "endpoint", now)
        self._go_on()

    def _go_on(self) -> None:
        fleet = self._fleet
        if self._queue.alarm <= fleet.now:
            self._queue.wake(fleet.now)
        while self._free and (turn := self._queue.take(fleet.now)) is not None:
            self._ask(turn)
        if self._queue.alarm < float("inf"):
            fleet.at(max(self._queue.alarm, fleet.now), self._woken)

    def _woken(self) -> None:
        if self._queue.alarm <= self._fleet.now:  # otherwise it was postponed, and comes again
            self._go_on()

    def _ask(self, turn: Turn) -> None:
        fleet, batch = self._fleet, turn.batch
        if turn.last_since is not None:
            fleet.rules.take_last_chance(batch, turn.last_since)
        if not batch.history.attempt_count:
            batch.history.first_attempt_at = batch.history.first_attempt_at or fleet.now
        self._free -= 1
        fleet.under_way += 1
        taken = fleet.takes()
        typical = _SERVICE if taken else _REFUSAL
        fleet.at(fleet.now + fleet.seconds(typical), lambda: self._answered(turn, taken=taken))

    def _answered(self, turn: Turn, *, taken: bool) -> None:
        fleet, batch = self._fleet, turn.batch
        self._free += 1
        fleet.under_way -= 1
        verdict = Verdict.ACCEPTED if taken else Verdict.OVER_QUOTA
        self._queue.done(turn, Report(verdict, fleet.now - turn.began), fleet.now)
        if taken:
            fleet.stored += 1
            fleet.quiet = max(fleet.quiet, fleet.now - self._acknowledged)
            self._acknowledged = fleet.now
            fleet.ended()
        else:
            self._refused(batch)
        self._go_on()

    def _refused(self, batch: ProducerBatch) -> None:
        fleet = self._fleet
        batch.history.note(_NOTED, _REFUSED)
        delay = fleet.rules.delay(batch, _REFUSED)
        if delay is None:
            fleet.failed += 1
            fleet.ended()
            return
        fleet.rules.note_retry(batch, _REFUSED)
        fleet.retries = max(fleet.retries, batch.history.retry_count)

        def again() -> None:
            self._queue.put(batch, "endpoint", fleet.now)
            self._go_on()

        fleet.at(fleet.now + delay, again)


#: The options of a producer outside of a task.
HASTY = {"retries": 10, "max_retry_backoff_ms": 50_000}
#: Processes, requests accepted in a second, and options of the write.
ROWS: list[tuple[int, int, dict[str, int]]] = [
    (10, 320, {}),
    (100, 320, {}),
    (1000, 320, {}),
    (1000, 320, {"io_thread_count": 1}),
    (1000, 64, {}),
    (1000, 64, {"io_thread_count": 1}),
    (1000, 64, HASTY),
]
#: The batches of each process, and the cores of its machine.
BATCHES, CORES = 20, 4


def simulate(processes: int, quota: int, options: dict[str, int]) -> Outcome:
    given = {name: str(value) for name, value in options.items()}
    config = ProducerConfig.from_mapping({"io_thread_count": CORES, **defaults_of_task(given, ACK_TIMEOUT), **options})
    return Fleet(processes, BATCHES, quota, config).run()


def row(processes: int, quota: int, options: dict[str, int]) -> str:
    found = simulate(processes, quota, options)
    told = ", ".join(f"`{name}={value}`" for name, value in options.items()) or "defaults"
    return (
        f"| {processes:,} | {quota} | {told} | {found.connections:,} | {found.asked:,} | {found.refused:.0%} "
        f"| {found.retries} | {found.quiet:.0f} | {found.failed:,} | {found.seconds:.0f} ({found.least:.0f}) |"
    )


def main() -> None:
    for each in ROWS:
        print(row(*each), flush=True)


if __name__ == "__main__":
    main()

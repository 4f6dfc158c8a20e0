"""A fair queue with batches and a clock, for tests of its order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from producer import ProducerConfig
from producer.pipeline.batching.attempt_history import AttemptHistory
from producer.pipeline.batching.batch import ProducerBatch
from producer.pipeline.batching.stream_state import StreamState
from producer.pipeline.sending.fair_queue import FairQueue, Report, Turn
from producer.pipeline.sending.gates import Verdict
from tests.support.pipelines import KEY, config


def _never(_batch: ProducerBatch, _since: float, *, over_quota: bool) -> float:  # as those that end
    return math.inf


class Rules:
    """Rules for last chances; without ``last_chance`` no batch has one."""

    def __init__(self, last_chance: Callable[..., float] = _never) -> None:
        self.last_chance = last_chance


def fair(threads: int, limit: int | None = None, **options: Any) -> ProducerConfig:
    """Return a configuration for a fair queue whose gates first close for a second."""
    slow = {"base_retry_backoff_ms": 1000, "max_retry_backoff_ms": 50_000}
    return config(io_thread_count=threads, max_concurrency_per_destination=limit or threads, **(slow | options))


class Line:
    """A fair queue, driven step by step.

    :ivar now: monotonic seconds, moved by the test.
    """

    def __init__(
        self,
        threads: int = 4,
        *,
        limit: int | None = None,
        last_chance: Callable[..., float] = _never,
    ) -> None:
        self.now = 0.0
        self.queue = FairQueue(fair(threads, limit), Rules(last_chance))
        self._streams: dict[tuple[str, str, str], StreamState] = {}
        self._serial = 0

    def put(self, topic: str = "t", size: int = 100, *, project: str = "p", logstore: str = "l") -> ProducerBatch:
        """Add a new batch of a stream."""
        stream = self._streams.setdefault((project, logstore, topic), StreamState("C"))
        batch = ProducerBatch(
            KEY._replace(project=project, logstore=logstore, topic=topic),
            stream=stream,
            serial=self._serial,
            pack_id=None,
            tail_size=size,
            created_at=self.now,
            history=AttemptHistory(1),
        )
        self._serial += 1
        self.again(batch)
        return batch

    def again(self, batch: ProducerBatch) -> None:
        """Add a batch, new or for a retry."""
        self.queue.put(batch, batch.key.project, self.now)

    def take(self) -> Turn:
        """Take the next batch, which must exist."""
        turn = self.queue.take(self.now)
        assert turn is not None
        return turn

    def done(self, turn: Turn, verdict: Verdict = Verdict.ACCEPTED, seconds: float = 0.01) -> None:
        """End an attempt."""
        self.queue.done(turn, Report(verdict, seconds), self.now)

    def serve(self, verdict: Verdict = Verdict.ACCEPTED) -> ProducerBatch:
        """Take the next batch, and end its attempt at once."""
        turn = self.take()
        self.done(turn, verdict)
        return turn.batch

    def pass_time(self, seconds: float) -> None:
        """Move the time, and wake the queue at each alarm on the way."""
        end = self.now + seconds
        while self.queue.alarm <= end:
            self.now = max(self.now, self.queue.alarm)
            self.queue.wake(self.now)
        self.now = end

"""Pipelines and producers for tests."""

from collections.abc import Callable, Sequence
from typing import Any

from producer.model.config import ProducerConfig
from producer.model.futures import SendFuture, holder_of
from producer.model.interfaces import Clock, Sink
from producer.model.records import StreamKey
from producer.model.results import Result
from producer.pipeline.batching.accumulator import Piece
from producer.pipeline.batching.batch import ProducerBatch
from producer.pipeline.pipeline import Pipeline
from producer.pipeline.sending.io_pool import IOThreadPool
from producer.testing import RecordingSink
from producer.wire.log_group import encode_log
from tests.support.clocks import JumpingClock

KEY = StreamKey("project", "logstore", "topic", "source")


def config(**options: Any) -> ProducerConfig:
    """A configuration with a fixed source and two IO threads where nothing else is said."""
    return ProducerConfig(**({"source": "here", "io_thread_count": 2, "drain_timeout_ms": 0} | options))


def record(text: str = "x", logs: int = 1) -> bytes:
    """The encoded bytes of ``logs`` equal logs."""
    return b"".join(encode_log({"m": text}, 1) for _ in range(logs))


def threadless(sink: Sink | None = None, clock: Clock | None = None, **options: Any) -> Pipeline:
    """A pipeline without threads, driven by :func:`settle` or stage by stage."""
    return Pipeline(config(**options), sink or RecordingSink(), clock or JumpingClock(), "test", threadless=True)


class Encoded:
    """Logs that are encoded by a function.

    :param estimate: about so many bytes.
    """

    def __init__(self, estimate: int, encode: Callable[[], Sequence[Piece]]) -> None:
        self.estimate, self.encode = estimate, encode


def queued(pool: IOThreadPool) -> int:
    """How many batches wait for a thread."""
    with pool._lock:
        return len(pool._inbox) + len(pool._queue)


def running(pool: IOThreadPool) -> int:
    """How many attempts are under way, or have not been counted as over."""
    with pool._lock:
        destinations = pool._queue.stats(pool._clock.monotonic())
    return sum(one.in_flight for one in destinations) - len(pool._reports)


def step(pipeline: Pipeline) -> bool:
    """Let each stage do one thing; whether any did."""
    pipeline.mover.run_once()
    busy = pipeline.io_pool.run_next()
    for handler in pipeline.settlement.handlers:
        busy |= handler.run_next()
    return busy


def settle(pipeline: Pipeline) -> None:
    """Do all that can be done at this instant."""
    while step(pipeline):
        pass


def held(pipeline: Pipeline, settled: list[ProducerBatch]) -> int:
    """Bytes owed by every batch that is alive or waits for its callbacks."""
    return sum(batch.held for batch in {*pipeline.accumulator.incomplete(), *settled})


def result_of(future: SendFuture) -> Result | None:
    return holder_of(future._holder, future._position).result

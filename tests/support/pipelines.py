"""Build pipelines and producers for tests."""

from typing import Any

from producer.model.config import ProducerConfig
from producer.model.futures import SendFuture, holder_of
from producer.model.interfaces import Clock, Sink
from producer.model.records import StreamKey
from producer.model.results import Result
from producer.pipeline.batching.batch import ProducerBatch
from producer.pipeline.pipeline import Pipeline
from producer.pipeline.sending.io_pool import IOThreadPool
from producer.testing import RecordingSink
from producer.wire.log_group import encode_log
from tests.support.clocks import JumpingClock

KEY = StreamKey("project", "logstore", "topic", "source")


def config(**options: Any) -> ProducerConfig:
    """Build a configuration with a fixed source and two IO threads, unless the options say otherwise."""
    return ProducerConfig(**({"source": "here", "io_thread_count": 2, "drain_timeout_ms": 0} | options))


def record(text: str = "x", logs: int = 1) -> bytes:
    """Return the encoded bytes of ``logs`` equal logs."""
    return b"".join(encode_log({"m": text}, 1) for _ in range(logs))


def threadless(sink: Sink | None = None, clock: Clock | None = None, **options: Any) -> Pipeline:
    """Build a pipeline without threads, driven by :func:`settle` or stage by stage."""
    return Pipeline(config(**options), sink or RecordingSink(), clock or JumpingClock(), "test", threadless=True)


def queued(pool: IOThreadPool) -> int:
    """Return the number of batches that wait for a thread."""
    with pool._lock:
        return len(pool._inbox) + len(pool._queue)


def running(pool: IOThreadPool) -> int:
    """Return the number of attempts that run or are not yet counted as finished."""
    with pool._lock:
        destinations = pool._queue.stats(pool._clock.monotonic())
    return sum(one.in_flight for one in destinations) - len(pool._reports)


def step(pipeline: Pipeline) -> bool:
    """Let each stage do one step. Return True if any did."""
    pipeline.mover.run_once()
    busy = pipeline.io_pool.run_next()
    for handler in pipeline.settlement.handlers:
        busy |= handler.run_next()
    return busy


def settle(pipeline: Pipeline) -> None:
    """Run all stages until nothing is left to do at this instant."""
    while step(pipeline):
        pass


def held(pipeline: Pipeline, settled: list[ProducerBatch]) -> int:
    """Return the bytes reserved by all batches that are alive or wait for their callbacks."""
    return sum(batch.held for batch in {*pipeline.accumulator.incomplete(), *settled})


def result_of(future: SendFuture) -> Result | None:
    return holder_of(future._holder, future._position).result

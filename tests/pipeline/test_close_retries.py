"""``close`` retries records with transient failures."""

from __future__ import annotations

from producer import NetworkError, Producer, ProducerConfig, ServerError
from producer.pipeline.shutdown import Shutdown
from producer.testing import ScriptedSink

from ..support.clocks import JumpingClock
from ..support.pipelines import KEY, record, threadless


def test_a_refusal_met_while_closing_is_retried() -> None:
    """One 503 at the end of the ``with`` block loses nothing."""
    sink = ScriptedSink([ServerError("ServerBusy", "busy", http_status=503) for _ in range(3)])
    with Producer(config=ProducerConfig(base_retry_backoff_ms=5), sink=sink) as producer:
        future = producer.send("p", "l", {"k": "v"})
    assert future.result(0).attempt_count == 4


def test_retries_while_closing_end_after_half_of_the_timeout() -> None:
    """After half of the timeout each waiting batch gets its last attempt, and close returns in time."""
    clock, sink = JumpingClock(), ScriptedSink(NetworkError("RequestError", "no") for _ in range(100))
    backoff = {"base_retry_backoff_ms": 60_000, "max_retry_backoff_ms": 60_000}
    pipeline = threadless(sink, clock, drain_timeout_ms=10_000, **backoff)
    future = pipeline.admission.accept(KEY, record(), 1, None)
    Shutdown(pipeline).close(1.0)
    assert clock.monotonic() == 0.5
    assert future.exception(0).result.attempt_count == 2


def test_without_a_drain_timeout_close_retries_nothing() -> None:
    """With ``drain_timeout_ms=0``, waiting batches get one last attempt at once."""
    sink = ScriptedSink(NetworkError("RequestError", "no") for _ in range(100))
    producer = Producer(config=ProducerConfig(drain_timeout_ms=0), sink=sink)
    future = producer.send("p", "l", {"k": "v"})
    producer.close()
    assert future.exception(0).result.attempt_count == 1

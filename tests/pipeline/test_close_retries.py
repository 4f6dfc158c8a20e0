"""What ``close`` does for records that meet a passing failure on their way out."""

from __future__ import annotations

import time

from producer import NetworkError, Producer, ProducerConfig, ServerError
from producer.testing import ScriptedSink


def test_a_refusal_met_while_closing_is_retried() -> None:
    """One 503 on the way out of the ``with`` block loses nothing."""
    sink = ScriptedSink([ServerError("ServerBusy", "busy", http_status=503) for _ in range(3)])
    with Producer(config=ProducerConfig(base_retry_backoff_ms=5), sink=sink) as producer:
        future = producer.send("p", "l", {"k": "v"})
    assert future.result(0).attempt_count == 4


def test_retries_while_closing_end_after_half_of_the_timeout() -> None:
    """Then each batch that waits gets its last attempt, and close returns in time with everything settled."""
    sink = ScriptedSink(NetworkError("RequestError", "no") for _ in range(100))
    producer = Producer(config=ProducerConfig(base_retry_backoff_ms=60_000, max_retry_backoff_ms=60_000), sink=sink)
    future = producer.send("p", "l", {"k": "v"})
    started = time.monotonic()
    producer.close(timeout=1.0)
    assert 0.4 < time.monotonic() - started < 1.0
    assert future.exception(0).result.attempt_count == 2


def test_without_a_drain_timeout_close_retries_nothing() -> None:
    """``drain_timeout_ms=0`` gives the batches that wait one last attempt at once."""
    sink = ScriptedSink(NetworkError("RequestError", "no") for _ in range(100))
    producer = Producer(config=ProducerConfig(drain_timeout_ms=0), sink=sink)
    future = producer.send("p", "l", {"k": "v"})
    producer.close()
    assert future.exception(0).result.attempt_count == 1

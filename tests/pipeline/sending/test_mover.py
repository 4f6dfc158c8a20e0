"""The mover handles what is due, and sleeps otherwise."""

from __future__ import annotations

import threading

import pytest

from producer import NetworkError, Producer
from producer.runtime.clock import Deadline, Signal
from producer.testing import ManualClock, RecordingSink, ScriptedSink
from tests.support.pipelines import (
    KEY,
    config,
    record,
    settle,
    threadless,
)
from tests.support.sinks import DeadSink
from tests.support.waiting import eventually


class _CountingClock(ManualClock):
    """A manual clock that records the waiting threads and their timeouts."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[tuple[str, float | None]] = []

    def wait_for(self, signal: Signal, deadline: Deadline) -> None:
        self.waits.append((threading.current_thread().name, deadline.remaining(self)))
        super().wait_for(signal, deadline)


def _mover_waits(clock: _CountingClock) -> list[float | None]:
    return [timeout for name, timeout in clock.waits if name.endswith("-mover")]


def test_a_mover_wakes_once_every_linger_ms() -> None:
    """An idle mover waits once for each linger_ms, without a busy loop."""
    clock = _CountingClock()
    producer = Producer(sink=RecordingSink(), clock=clock, config=config(linger_ms=500))
    future = producer.send("p", "l", {"a": "b"})
    eventually(lambda: len(_mover_waits(clock)) == 1)
    clock.advance(0.5)
    eventually(future.done)
    for period in range(2, 4):
        eventually(lambda count=period: len(_mover_waits(clock)) == count)
        clock.advance(0.5)
    eventually(lambda: len(_mover_waits(clock)) == 4)
    assert set(_mover_waits(clock)) == {0.5}
    producer.close()


def test_a_mover_without_new_batches_for_two_seconds_sleeps_as_long_and_is_woken_by_the_next_batch() -> None:
    """Without a new batch for 2 s, the mover waits 2 s each time; a batch opened then is sealed after linger_ms."""
    clock = _CountingClock()
    producer = Producer(sink=RecordingSink(), clock=clock, config=config(linger_ms=500))
    first = producer.send("p", "l", {"a": "b"})
    for period in range(1, 5):
        eventually(lambda count=period: len(_mover_waits(clock)) == count)
        clock.advance(0.5)
    assert first.done()
    eventually(lambda: _mover_waits(clock)[-1] == 2.0)
    count = len(_mover_waits(clock))
    clock.advance(0.7)
    assert len(_mover_waits(clock)) == count  # it slept on
    late = producer.send("p", "l", {"a": "b"})
    eventually(lambda: _mover_waits(clock)[-1] == 0.5)
    clock.advance(0.5)
    eventually(late.done)
    producer.close()


def test_a_mover_with_many_retries_waiting_sleeps_until_the_first_is_due() -> None:
    """A thousand batches that wait for retries need one wait until the earliest of them."""
    clock = ManualClock()
    pipeline = threadless(DeadSink(), clock, batch_count_threshold=1, base_retry_backoff_ms=10_000, linger_ms=60_000)
    for i in range(1000):
        pipeline.admission.accept(KEY._replace(topic=str(i)), record(), 1, None)
    settle(pipeline)
    assert len(pipeline.retry_queue) == 1000
    waits: list[float | None] = []

    def wait_for(_signal: Signal, deadline: Deadline) -> None:
        waits.append(deadline.remaining(clock))
        clock.advance(waits[-1] or 0)

    clock.wait_for = wait_for  # type: ignore[method-assign]
    pipeline.retry_queue.wait(60.0)
    assert len(waits) <= 2
    assert waits[0] is not None
    assert 10.0 <= waits[0] <= 20.0


def test_the_mover_submits_lingered_batches_and_due_retries() -> None:
    """One turn submits lingered batches and due retries; the rest stays."""
    clock = ManualClock()
    sink = ScriptedSink([NetworkError("R", "x")])
    pipeline = threadless(sink, clock, base_retry_backoff_ms=1000, linger_ms=5000)
    first = pipeline.admission.accept(KEY, record(), 1, None)
    pipeline.accumulator.seal_open()
    settle(pipeline)
    second = pipeline.admission.accept(KEY, record(), 1, None)
    clock.advance(2.0)
    settle(pipeline)
    assert (first.done(), second.done()) == (True, False)
    clock.advance(3.0)
    settle(pipeline)
    assert second.done()


def test_an_error_in_a_turn_does_not_end_the_mover(caplog: pytest.LogCaptureFixture) -> None:
    """A bug in one turn is logged; the next turn follows, and records are delivered."""
    clock = ManualClock()
    producer = Producer(sink=RecordingSink(), clock=clock, config=config(linger_ms=500))
    future = producer.send("p", "l", {"a": "b"})
    pipeline = producer._pipeline
    assert pipeline is not None
    seal, failures = pipeline.accumulator.seal_expired, [RuntimeError("a bug")]

    def seal_expired(now: float) -> object:
        if failures:
            raise failures.pop()
        return seal(now)

    eventually(lambda: clock.waiting)
    pipeline.accumulator.seal_expired = seal_expired  # type: ignore[assignment,method-assign]
    eventually(lambda: clock.advance(0.5) or future.done())
    assert "the thread continues" in caplog.text
    producer.close()


def test_stop_ends_the_mover_at_once() -> None:
    """A sleeping mover ends at once when it is stopped."""
    clock = ManualClock()
    producer = Producer(sink=RecordingSink(), clock=clock, config=config(linger_ms=10**9))
    producer.send("p", "l", {"a": "b"})
    producer.close()
    assert producer._pipeline is not None
    assert not producer._pipeline.mover.thread._thread.is_alive()

"""Holdback: how long a logstore is held back."""

from __future__ import annotations

from producer import QuotaExceededError, Result, SendFuture, UnreachableError
from producer.pipeline.assembly import LONGEST_UNREACHABLE
from producer.pipeline.holdback import Holdback
from producer.testing import ManualClock, ScriptedSink
from tests.support.clocks import JumpingClock
from tests.support.pipelines import KEY, record, settle, threadless


def outcome(future: SendFuture) -> Result:
    """The result, delivered or not."""
    error = future.exception(0)
    return future.result(0) if error is None else error.result


def test_refusals_in_a_row_hold_back_longer_each_time_up_to_the_longest() -> None:
    """Each refusal after the last hold doubles the time, never beyond the longest."""
    holdback, now, times = Holdback(1.0, 10.0), 0.0, []
    for _ in range(2000):
        until = holdback.refused(KEY, now)
        times.append(until - now)
        now = until
    assert times[:8] == [1, 2, 4, 8, 10, 10, 10, 10]
    assert max(times) == 10


def test_refusals_of_batches_in_flight_together_count_as_one() -> None:
    """Several refusals during one hold do not double it, nor make it longer."""
    holdback = Holdback(1.0, 10.0)
    assert [holdback.refused(KEY, 0.1 * n) for n in range(5)] == [1.0] * 5


def test_an_accepted_batch_frees_the_destination() -> None:
    """After a success there is no hold, and the next refusal starts anew."""
    holdback = Holdback(1.0, 10.0)
    holdback.refused(KEY, 0.0)
    holdback.refused(KEY, 1.0)
    assert holdback.until(KEY, 1.5) == 3.0
    holdback.accepted(KEY)
    assert holdback.until(KEY, 1.5) is None
    assert holdback.refused(KEY, 2.0) == 3.0


def test_a_hold_concerns_one_destination() -> None:
    """Another one is free, and so is this one when its time is over."""
    holdback = Holdback(1.0, 10.0)
    holdback.refused("dead", 0.0)
    assert holdback.until("dead", 0.5) == 1.0
    assert holdback.until("alive", 0.5) is None
    assert holdback.until("dead", 1.0) is None


def test_a_thousand_batches_for_a_dead_server_make_a_request_now_and_then() -> None:
    """While an endpoint takes no connection, its project is tried every few seconds, and not by each batch."""
    failures = [UnreachableError("RequestError", "refused") for _ in range(100_000)]
    clock, sink = ManualClock(), ScriptedSink(failures)
    pipeline = threadless(sink, clock, batch_count_threshold=1)
    for _ in range(1000):
        pipeline.accept(KEY, record(), 1, None)
    attempts = []
    for _ in range(600):
        settle(pipeline)
        clock.advance(0.1)
        attempts.append(len(sink.attempts))
    assert attempts[-1] < 30
    assert attempts[-1] > attempts[-60]
    sink.script.clear()  # the server is back
    clock.advance(LONGEST_UNREACHABLE)
    settle(pipeline)
    assert len(sink.deliveries) >= 999


def test_a_logstore_refused_for_ever_fails_all_its_batches_in_bounded_time() -> None:
    """A batch that waited, held back, for as long as all its backoffs take gets one last attempt, and fails; the few
    that were refused each time themselves spend their retries.
    """
    refusals = [QuotaExceededError("ShardWriteQuotaExceed", "slow down") for _ in range(10_000)]
    clock, sink = JumpingClock(), ScriptedSink(refusals)
    pipeline = threadless(sink, clock, batch_count_threshold=1, retries=5, base_retry_backoff_ms=1000)
    futures = [pipeline.accept(KEY, record(), 1, None) for _ in range(50)]
    start = clock.monotonic()
    pipeline.flush(None)
    assert not any(outcome(future).successful for future in futures)
    all_backoffs, longest_hold = sum(2.0**n for n in range(1, 6)), 50.0
    assert clock.monotonic() - start <= all_backoffs + 5 * longest_hold + 5
    assert len(sink.attempts) <= 50 + 2 * 6
    assert all(outcome(future).attempt_count >= 1 for future in futures)

"""Gates close, half open and open, and hold back the batches behind them."""

from __future__ import annotations

import dataclasses
import json

import pytest

from producer import Producer, QuotaExceededError, Result, SendFuture, UnreachableError
from producer.model.errors import (
    AttemptError,
    BodyTooLargeError,
    CredentialsError,
    MisconfiguredError,
    NetworkError,
    NumberNotNotedError,
    ProjectNotConfiguredError,
    RejectedError,
    ServerError,
)
from producer.pipeline.sending.concurrency import AdaptiveLimit
from producer.pipeline.sending.gates import (
    LONGEST_UNREACHABLE,
    Effect,
    Gate,
    Reason,
    Verdict,
    verdict_of,
)
from producer.pipeline.shutdown import Shutdown
from producer.testing import ManualClock, ScriptedSink
from tests.support.clocks import JumpingClock
from tests.support.pipelines import KEY, config, record, settle, threadless
from tests.support.waiting import PATIENCE, eventually

REFUSED, FREED, NOTHING = Effect(Reason.UNREACHABLE), Effect(free=True), Effect()


def outcome(future: SendFuture) -> Result:
    """Return the result, delivered or not."""
    error = future.exception(0)
    return future.result(0) if error is None else error.result


def gate(base: float = 1.0, longest: float = 10.0, limit: int = 4) -> Gate:
    """Return an open gate."""
    return Gate(AdaptiveLimit(limit), base, longest)


def attempt(one: Gate, effect: Effect, began: float, now: float | None = None) -> None:
    """Pass one attempt through the gate, and end it."""
    one.leave(effect, began, began if now is None else now, probe=one.enter())


def test_refusals_in_a_row_hold_back_longer_each_time_up_to_the_longest() -> None:
    """Each refusal after the last hold doubles the time, up to the longest."""
    one, now, times = gate(), 0.0, []
    for _ in range(2000):
        attempt(one, REFUSED, now)
        times.append(one.until - now)
        now = one.until
        one.let_probe(now)
    assert times[:8] == [1, 2, 4, 8, 10, 10, 10, 10]
    assert max(times) == 10


def test_refusals_of_batches_in_flight_together_count_as_one() -> None:
    """Several refusals during one hold count as one."""
    one = gate(limit=5)
    probes = [one.enter() for _ in range(5)]
    untils = []
    for n, probe in enumerate(probes):
        one.leave(REFUSED, 0.0, 0.1 * n, probe=probe)
        untils.append(one.until)
    assert untils == [1.0] * 5


def test_an_accepted_probe_frees_the_destination() -> None:
    """After a success the gate is open, and the next refusal starts anew."""
    one = gate()
    attempt(one, REFUSED, 0.0)
    one.let_probe(1.0)
    attempt(one, REFUSED, 1.0)
    assert one.until == 3.0
    one.let_probe(3.0)
    attempt(one, FREED, 3.0)
    assert (one.is_open, one.reason, one.has_room()) == (True, None, True)
    attempt(one, REFUSED, 4.0)
    assert one.until == 5.0


def test_a_success_of_an_attempt_that_began_before_the_refusal_leaves_the_gate_closed() -> None:
    """A success of an attempt that began before the refusal leaves the gate closed."""
    one = gate()
    early = one.enter()
    attempt(one, REFUSED, 1.0)
    one.leave(FREED, 0.5, 1.5, probe=early)
    assert not one.is_open


def test_during_the_probe_no_other_attempt_is_admitted() -> None:
    """During the probe no other attempt is admitted; a probe without a finding is followed by another."""
    one = gate()
    attempt(one, REFUSED, 0.0)
    assert not one.has_room()
    one.let_probe(0.99)
    assert not one.has_room()
    one.let_probe(1.0)
    assert one.has_room()
    probe = one.enter()
    assert probe
    assert not one.has_room()
    one.leave(NOTHING, 1.0, 1.1, probe=probe)
    assert one.has_room()
    attempt(one, FREED, 1.2)
    assert one.is_open


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (QuotaExceededError("WriteQuotaExceed", "x"), Verdict.OVER_QUOTA),
        (ServerError("ServerBusy", "x", http_status=503), Verdict.OVERLOADED),
        (NetworkError("SocketTimeout", "x"), Verdict.NO_ANSWER),
        (UnreachableError("RequestError", "x"), Verdict.UNREACHABLE),
        (CredentialsError("CredentialsError", "x"), Verdict.NO_CREDENTIALS),
        (NumberNotNotedError("NumberNotNoted", "x"), Verdict.NOT_TRIED),
        (RejectedError("ParameterInvalid", "x"), Verdict.ANSWERED),
        (BodyTooLargeError("PostBodyTooLarge", "x"), Verdict.ANSWERED),
    ],
)
def test_the_class_of_the_error_is_the_verdict(error: AttemptError, expected: Verdict) -> None:
    """Each class of error has one verdict, whether or not an operator's fix is waited for."""
    assert verdict_of(error, waits=False) is verdict_of(error, waits=True) is expected


def test_a_missing_logstore_closes_its_gate_only_if_its_batches_wait_for_it_otherwise_they_fail() -> None:
    """A missing logstore closes its gate only if its batches wait for it; otherwise they fail."""
    error, missing = (
        MisconfiguredError("LogStoreNotExist", "x"),
        ProjectNotConfiguredError("ProjectConfigNotExist", "x"),
    )
    assert verdict_of(error, waits=True) is Verdict.MISCONFIGURED
    assert verdict_of(missing, waits=True) is Verdict.NOT_CONFIGURED
    assert verdict_of(error, waits=False) is verdict_of(missing, waits=False) is Verdict.ANSWERED


def test_each_verdict_closes_the_gate_that_it_concerns_and_no_two_verdicts_are_equal() -> None:
    """Each verdict closes the gate that it concerns, and no two verdicts are equal."""
    assert Verdict.OVER_QUOTA.to_destination.hold is None
    assert Verdict.OVER_QUOTA.to_logstore.hold is Reason.QUOTA
    assert Verdict.UNREACHABLE.to_destination.hold is Reason.UNREACHABLE
    assert Verdict.UNREACHABLE.to_logstore.hold is None
    assert len(Verdict) == len(Verdict.__members__) == 10


def test_a_thousand_batches_for_a_dead_server_make_a_request_now_and_then() -> None:
    """An unreachable endpoint is tried every few seconds, and not by each batch."""
    failures = [UnreachableError("RequestError", "refused") for _ in range(100_000)]
    clock, sink = ManualClock(), ScriptedSink(failures)
    pipeline = threadless(sink, clock, batch_count_threshold=1)
    for _ in range(1000):
        pipeline.admission.accept(KEY, record(), 1, None)
    attempts = []
    for _ in range(600):
        settle(pipeline)
        clock.advance(0.1)
        attempts.append(len(sink.attempts))
    assert attempts[-1] < 30
    assert attempts[-1] > attempts[-60]
    sink.script.clear()  # the server is reachable again
    clock.advance(LONGEST_UNREACHABLE)
    settle(pipeline)
    assert len(sink.deliveries) >= 990  # the few that were probes wait for their own backoff


def test_a_logstore_refused_for_ever_fails_all_its_batches_in_bounded_time() -> None:
    """A batch that waited for as long as all its backoffs take gets one last attempt, and fails.

    The few batches that were refused themselves use up their retries.
    """
    refusals = [QuotaExceededError("ShardWriteQuotaExceed", "slow down") for _ in range(10_000)]
    clock, sink = JumpingClock(), ScriptedSink(refusals)
    pipeline = threadless(sink, clock, batch_count_threshold=1, retries=5, base_retry_backoff_ms=1000)
    futures = [pipeline.admission.accept(KEY, record(), 1, None) for _ in range(50)]
    start = clock.monotonic()
    pipeline.flush(None)
    assert not any(outcome(future).successful for future in futures)
    all_backoffs, longest_hold = sum(2.0**n for n in range(1, 6)), 50.0
    assert clock.monotonic() - start <= all_backoffs + 5 * longest_hold + 5
    assert len(sink.attempts) <= 50 + 2 * 6
    assert all(outcome(future).attempt_count >= 1 for future in futures)


def test_a_hundred_batches_for_a_dead_server_fail_within_ten_seconds() -> None:
    """A hundred batches for a dead server fail within ten seconds, untried ones after a last attempt."""
    failures = [UnreachableError("RequestError", "refused") for _ in range(100_000)]
    clock, sink = ManualClock(), ScriptedSink(failures)
    pipeline = threadless(sink, clock, batch_count_threshold=1, delivery_timeout_ms=10_000, retries=10**6)
    futures = [pipeline.admission.accept(KEY, record(), 1, None) for _ in range(100)]
    for _ in range(99):
        settle(pipeline)
        clock.advance(0.1)
    assert sum(future.done() for future in futures) <= 5
    clock.advance(0.4)  # the batches of a stream are in order: the first was tried a little later
    settle(pipeline)
    assert all(future.done() for future in futures)
    assert len(sink.attempts) < 130
    assert all(outcome(future).attempt_count >= 1 for future in futures)


def test_close_gives_each_batch_behind_a_closed_gate_its_last_attempt() -> None:
    """Fifty batches wait for a logstore over its quota: close sends each once, and accepted ones are delivered."""
    refusals = [QuotaExceededError("WriteQuotaExceed", "slow down")]
    clock, sink = JumpingClock(), ScriptedSink(refusals)
    pipeline = threadless(sink, clock, batch_count_threshold=1, base_retry_backoff_ms=50_000)
    futures = [pipeline.admission.accept(KEY, record(), 1, None) for _ in range(50)]
    settle(pipeline)
    assert len(sink.attempts) == 1
    Shutdown(pipeline).close(1000.0)
    assert all(outcome(future).successful for future in futures)
    assert clock.monotonic() == 0.0
    assert len(sink.attempts) == 51


def test_two_endpoints_of_one_project_are_two_destinations() -> None:
    """Pauses concern the sink's destination: a project that gets another endpoint continues at once."""
    clock, sink = ManualClock(), ScriptedSink([UnreachableError("RequestError", "refused")])
    endpoint = ["old"]
    sink.destination = lambda key: (key.project, endpoint[0])  # type: ignore[method-assign]
    pipeline = threadless(sink, clock, batch_count_threshold=1)
    pipeline.admission.accept(KEY, record(), 1, None)
    settle(pipeline)
    held = pipeline.admission.accept(KEY, record(), 1, None)
    settle(pipeline)
    endpoint[0] = "new"
    free = pipeline.admission.accept(KEY, record(), 1, None)
    settle(pipeline)
    assert (held.done(), free.done()) == (False, True)
    shown = {one.name: one for one in pipeline.stats().destinations}
    assert (shown["project old"].queued, shown["project new"].held) == (1, None)
    assert json.loads(json.dumps(dataclasses.asdict(pipeline.stats())))["destinations"][0]["name"] == "project old"


def test_a_sink_that_cannot_say_where_a_stream_goes_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A bug in Sink.destination is logged, and the project serves as the destination."""
    sink = ScriptedSink()
    sink.destination = lambda _key: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    pipeline = threadless(sink, batch_count_threshold=1)
    future = pipeline.admission.accept(KEY, record(), 1, None)
    settle(pipeline)
    assert future.result(0).successful
    assert [one.name for one in pipeline.stats().destinations] == ["project"]
    assert "destination() failed for project/logstore" in caplog.text


def test_an_outage_wakes_the_mover_when_it_is_to_be_tried_again_and_not_before() -> None:
    """A thousand batches behind a closed gate wake no thread until the alarm."""
    clock = ManualClock()
    sink = ScriptedSink([UnreachableError("RequestError", "refused")])
    with Producer(
        sink=sink,
        clock=clock,
        config=config(batch_count_threshold=1, linger_ms=10**7, base_retry_backoff_ms=1000, total_size_in_bytes=10**8),
    ) as producer:
        first = producer.send("p", "l", {"k": "v"})
        eventually(lambda: any(one.held for one in producer.stats().destinations))
        futures = [producer.send("p", "l", {"k": "v"}) for _ in range(1000)]
        eventually(lambda: producer.stats().destinations[0].queued == 1000)
        eventually(lambda: clock.waiting == 3)  # the mover and both IO threads; the handlers wait elsewhere
        clock.advance(0.9)
        eventually(lambda: clock.waiting == 3)
        assert len(sink.attempts) == 1
        clock.advance(0.1)
        assert all(future.result(PATIENCE).successful for future in futures)
        clock.advance(2.0)
        assert first.result(PATIENCE).attempt_count == 2

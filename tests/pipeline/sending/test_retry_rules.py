"""The built-in retry rules, and strategies of users."""

from __future__ import annotations

import itertools
import math
import sys

import pytest
import tenacity
from hypothesis import given
from hypothesis import strategies as st

from producer import (
    AttemptError,
    BodyTooLargeError,
    ClockSkewError,
    InternalError,
    MisconfiguredError,
    NetworkError,
    ProjectNotConfiguredError,
    QuotaExceededError,
    RejectedError,
    RetryPolicy,
    ServerError,
    UnauthorizedError,
)
from producer.model.results import Attempt
from producer.pipeline.sending.retry_rules import RetryRules, wait_backoff
from producer.testing import ManualClock, ScriptedSink
from tests.pipeline.sending.test_retry_queue import batch
from tests.support.clocks import JumpingClock
from tests.support.pipelines import (
    KEY,
    config,
    record,
    settle,
    threadless,
)


def _state(attempt: int) -> tenacity.RetryCallState:
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    state.attempt_number = attempt
    return state


@given(st.floats(0.001, 10), st.floats(0.001, 1000), st.integers(1, 10**6), st.floats(0, 1))
def test_backoff_lies_between_base_times_two_to_the_n_minus_one_and_n(
    base: float, maximum: float, attempt: int, chance: float
) -> None:
    """Before retry n the wait is in [base*2^(n-1), base*2^n], under the ceiling; no attempt number overflows."""
    wait = wait_backoff(base, maximum, lambda low, high: low + (high - low) * chance)(_state(attempt))
    ceiling = max(maximum, min(base, maximum))
    assert wait <= ceiling
    assert wait >= min(base, maximum) * 0.999999
    if attempt < 60 and base * 2**attempt <= maximum:
        assert base * 2 ** (attempt - 1) * 0.999999 <= wait <= base * 2**attempt * 1.000001
    if attempt > 64 and base * 2.0**64 > maximum:
        assert wait >= min(maximum / 2, maximum) * 0.999999


def test_backoff_of_the_largest_configurable_base_does_not_overflow() -> None:
    """Extreme options give a finite wait."""
    wait = wait_backoff(float(2**63), float(2**63))(_state(sys.maxsize))
    assert wait <= 2**63


def _attempts(errors: list[AttemptError], **options: object) -> tuple[ScriptedSink, list[float]]:
    """Return the sink after one record met ``errors``, and the times of the attempts."""
    clock = JumpingClock()
    at: list[float] = []

    def step(error: AttemptError) -> object:
        return lambda _delivery: at.append(clock.monotonic()) or error

    sink = ScriptedSink([step(error) for error in errors])  # type: ignore[misc]
    pipeline = threadless(sink, clock, **options)
    future = pipeline.admission.accept(KEY, record(), 1, None)
    pipeline.flush(None)
    assert future.done()
    assert pipeline.budget.used == 0
    return sink, at


@pytest.mark.parametrize("retries", [-1, 0, 1, 3])
def test_a_transient_failure_is_retried_as_often_as_configured(retries: int) -> None:
    """With retries=n a dead server gets n+1 attempts (one with 0 or less), each wait within its bounds."""
    sink, at = _attempts([NetworkError("RequestError", "x")] * 50, retries=retries)
    assert len(sink.attempts) == max(0, retries) + 1
    for n, (before, after) in enumerate(itertools.pairwise(at), start=1):
        assert 0.1 * 2 ** (n - 1) * 0.999 <= after - before <= 0.1 * 2**n * 1.001


@pytest.mark.parametrize("kind", [RejectedError, InternalError, BodyTooLargeError])
def test_a_permanent_failure_is_not_retried(kind: type[AttemptError]) -> None:
    """A permanent error (and a single log too large for the server) gets one attempt."""
    assert len(_attempts([kind("Code", "x")] * 5)[0].attempts) == 1


def test_unauthorized_is_retried_three_times_in_a_row_at_most() -> None:
    """Refused credentials get three retries in a row, counted anew after another kind of error."""
    refused, down = UnauthorizedError("Unauthorized", "x"), ServerError("InternalServerError", "x")
    assert len(_attempts([refused] * 9)[0].attempts) == 4
    assert len(_attempts([refused, refused, down] + [refused] * 9)[0].attempts) == 7


def test_clock_skew_is_retried_at_once_and_only_once_in_a_row() -> None:
    """RequestTimeExpired is retried at once, and once in a row."""
    sink, at = _attempts([ClockSkewError("RequestTimeExpired", "x")] * 9)
    assert len(sink.attempts) == 2
    assert at[0] == at[1]


def test_strategies_of_tenacity_replace_each_rule_on_its_own() -> None:
    """A user's wait, stop and retry get attempt number, error and times as tenacity documents."""
    policy = RetryPolicy(
        wait=tenacity.wait_chain(tenacity.wait_fixed(1), tenacity.wait_fixed(7)),
        stop=tenacity.stop_after_attempt(4),
        retry=tenacity.retry_if_exception_type(RejectedError),
    )
    sink, at = _attempts([RejectedError("ParameterInvalid", "x")] * 9, retry_policy=policy, retries=0)
    assert [after - before for before, after in itertools.pairwise(at)] == [1.0, 7.0, 7.0]
    assert len(sink.attempts) == 4
    sink, _ = _attempts([NetworkError("RequestError", "x")] * 9, retry_policy=policy)
    assert len(sink.attempts) == 1


def test_stop_strategies_see_the_time_since_the_first_attempt() -> None:
    """stop_after_delay counts from the batch's first attempt, stop_before_delay adds the wait to come."""
    for stop, attempts in ((tenacity.stop_after_delay(10), 4), (tenacity.stop_before_delay(10), 3)):
        policy = RetryPolicy(wait=tenacity.wait_fixed(4), stop=stop)
        assert len(_attempts([NetworkError("R", "x")] * 9, retry_policy=policy)[0].attempts) == attempts


def test_stop_never_retries_beyond_any_number_until_it_works() -> None:
    """With stop_never a record is retried forever, and delivered once the server is back."""
    policy = RetryPolicy(stop=tenacity.stop_never)
    sink, at = _attempts([NetworkError("R", "x")] * 300, retry_policy=policy, retries=0)
    assert len(sink.attempts) == 301
    assert len(sink.deliveries) == 1
    assert max(after - before for before, after in itertools.pairwise(at)) <= 50.0


@pytest.mark.parametrize("part", ["wait", "stop", "retry"])
def test_a_users_strategy_that_raises_is_logged_its_batch_fails_the_next_one_is_delivered(
    part: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A user's strategy that raises is logged; its batch fails, the next one is delivered."""

    def broken(_state: object) -> float:
        raise ZeroDivisionError("mine")

    sink = ScriptedSink([NetworkError("RequestError", "x")])
    pipeline = threadless(sink, retry_policy=RetryPolicy(**{part: broken}))  # type: ignore[arg-type]
    future = pipeline.admission.accept(KEY, record(), 1, None)
    pipeline.flush(None)
    error = future.exception(0)
    assert error is not None
    assert [attempt.error_code for attempt in error.result.attempts] == ["RequestError"]
    assert "RetryPolicy raised" in caplog.text
    after = pipeline.admission.accept(KEY, record(), 1, None)
    pipeline.flush(None)
    assert after.result(0).successful


@pytest.mark.parametrize("wait", [-5.0, float("nan"), float("-inf"), 0])
def test_a_strategy_that_returns_a_negative_or_invalid_wait_means_no_wait(wait: float) -> None:
    """A strategy that returns a negative or invalid wait means no wait."""
    _, at = _attempts([NetworkError("R", "x")] * 2, retry_policy=RetryPolicy(wait=lambda _state: wait))
    assert at[0] == at[1]


def test_rules_count_the_same_error_in_a_row_only() -> None:
    """The bound of a class counts that class in a row; a new batch starts at 0."""
    rules, one = RetryRules(config(), ManualClock()), batch()
    skew = ClockSkewError("RequestTimeExpired", "x")
    one.history.note(Attempt(success=False), skew)
    assert rules.delay(one, skew) is not None
    one.history.note(Attempt(success=False), NetworkError("R", "x"))
    one.history.note(Attempt(success=False), skew)
    assert rules.delay(one, skew) is not None
    one.history.note(Attempt(success=False), skew)
    assert rules.delay(one, skew) is None


@pytest.mark.parametrize("limit", [1, 450, 5000])
def test_the_last_attempt_is_made_exactly_when_delivery_timeout_ms_has_passed_since_the_first(limit: int) -> None:
    """The last attempt is made exactly when delivery_timeout_ms has passed since the first."""
    sink, at = _attempts([NetworkError("R", "x")] * 99, delivery_timeout_ms=limit, retries=99)
    assert at[-1] - at[0] == pytest.approx(limit / 1000)
    assert len(sink.attempts) < 30
    assert not sink.deliveries


def test_delivery_timeout_also_ends_the_wait_for_a_logstore_that_is_held_back() -> None:
    """A batch that waits because of other batches' quota errors gets its last attempt in time."""
    sink, at = _attempts(
        [QuotaExceededError("WriteQuotaExceed", "x")] * 99,
        delivery_timeout_ms=1000,
        base_retry_backoff_ms=30_000,
        retries=99,
    )
    assert len(sink.attempts) == 2
    assert at[-1] - at[0] == pytest.approx(1.0)


_REFUSED = QuotaExceededError("ShardWriteQuotaExceed", "x")


def test_a_refusal_for_a_quota_is_tried_again_for_its_own_time() -> None:
    """With quota_timeout_ms, any number of quota errors is retried; the last attempt is made at the end of the time."""
    patient = {"quota_timeout_ms": 600_000, "max_retry_backoff_ms": 1000, "retries": 3}
    sink, _ = _attempts([_REFUSED] * 400, **patient)
    assert len(sink.deliveries) == 1
    sink, at = _attempts([_REFUSED] * 10_000, **patient)
    assert at[-1] - at[0] == pytest.approx(600.0)
    assert not sink.deliveries


def test_after_a_quota_error_earlier_failures_no_longer_count() -> None:
    """After a quota error, earlier failures no longer count; without quota_timeout_ms they count together."""
    down = NetworkError("RequestError", "x")
    errors = [_REFUSED] * 5 + [down] * 3 + [_REFUSED] + [down] * 99
    assert len(_attempts(errors, retries=3, quota_timeout_ms=10_000_000)[0].attempts) == 9 + 1 + 3
    assert len(_attempts(errors, retries=3)[0].attempts) == 4


def test_quota_timeout_does_not_outlast_delivery_timeout() -> None:
    """The shorter of the two ends the retries, and the wait behind the gate of the logstore."""
    sink, at = _attempts([_REFUSED] * 999, quota_timeout_ms=60_000, delivery_timeout_ms=1000, retries=999)
    assert at[-1] - at[0] == pytest.approx(1.0)
    assert not sink.deliveries


def test_a_batch_behind_the_gate_of_a_quota_has_the_time_of_the_quota() -> None:
    """Behind the gate of an unreachable endpoint, the time is that of all backoffs, from the last refusal."""
    clock = ManualClock()
    options = {"retries": 2, "base_retry_backoff_ms": 10, "max_retry_backoff_ms": 1000, "quota_timeout_ms": 60_000}
    rules, one = RetryRules(config(**options), clock), batch()
    one.history.first_attempt_at = clock.monotonic()
    one.history.note(Attempt(success=False), _REFUSED)
    clock.advance(30)
    rules.note_retry(one, _REFUSED)
    assert rules.last_chance(one, 0.0, over_quota=True) == pytest.approx(one.history.first_attempt_at + 60)
    assert rules.last_chance(one, 0.0) == pytest.approx(clock.monotonic() + 0.02 + 0.04)
    rules.take_last_chance(one, 0.0)
    one.history.note(Attempt(success=False), NetworkError("RequestError", "x"))
    assert rules.delay(one, NetworkError("RequestError", "x")) is None


def test_a_batch_that_is_split_after_quota_errors_has_no_fewer_retries_left() -> None:
    """A batch that is split after quota errors has no fewer retries left."""
    rules, one = RetryRules(config(quota_timeout_ms=60_000), ManualClock()), batch()
    for _ in range(20):
        rules.note_retry(one, _REFUSED)
    half = one.empty_half()
    assert (
        (half.history.excused, half.history.excused_at)
        == (one.history.excused, one.history.excused_at)
        == (20, one.history.excused_at)
    )


def test_a_stop_strategy_of_the_user_wins_over_delivery_timeout() -> None:
    """RetryPolicy(stop=...) alone decides when to stop."""
    policy = RetryPolicy(stop=tenacity.stop_after_attempt(9), wait=tenacity.wait_fixed(10))
    sink, _ = _attempts([NetworkError("R", "x")] * 99, retry_policy=policy, delivery_timeout_ms=1)
    assert len(sink.attempts) == 9


@pytest.mark.parametrize("kind", [NetworkError, ServerError, UnauthorizedError, ClockSkewError, QuotaExceededError])
def test_a_thousand_transient_failures_in_a_row_are_retried_each_after_the_first_two_with_a_backoff(
    kind: type[AttemptError],
) -> None:
    """A thousand transient failures in a row are retried, each after the first two with a backoff."""
    rules, one = RetryRules(config(retries=0), ManualClock(), endless=True), batch()
    error = kind("Code", "x")
    for attempt in range(1000):
        one.history.note(Attempt(success=False), error)
        delay = rules.delay(one, error)
        assert delay is not None
        assert delay > 0 or (attempt < 1 and error.immediate)
        one.history.retry_count += 1
    assert rules.last_chance(one, 0.0) == math.inf


def test_the_time_of_all_backoffs_begins_with_the_first_attempt() -> None:
    """The time that the batch lingered before does not cost a retry."""
    rules = RetryRules(config(retries=2, base_retry_backoff_ms=10, max_retry_backoff_ms=1000), ManualClock())
    one = batch()
    one.history.first_attempt_at = one.created_at + 5
    one.history.note(Attempt(success=False), NetworkError("Code", "x"))
    assert rules.last_chance(one, 0.0) == pytest.approx(one.created_at + 5 + 0.02 + 0.04)


def test_endless_rules_do_not_retry_a_permanent_failure() -> None:
    """A permanent failure is not retried; a user's strategy still decides what is retried, and when to stop."""
    for error in (RejectedError("C", "x"), InternalError("C", "x")):
        one = batch()
        one.history.note(Attempt(success=False), error)
        assert RetryRules(config(), ManualClock(), endless=True).delay(one, error) is None
    policy = RetryPolicy(stop=tenacity.stop_after_attempt(1))
    rules = RetryRules(config(retry_policy=policy), ManualClock(), endless=True)
    assert rules.delay(batch(), NetworkError("R", "x")) is None


def test_a_missing_projectconfig_or_a_refused_access_key_is_retried() -> None:
    """A missing ProjectConfig or a refused access key is retried by endless rules only."""
    for error in (
        ProjectNotConfiguredError("ProjectConfigNotExist", "x"),
        MisconfiguredError("InvalidAccessKeyId", "x"),
    ):
        assert RetryRules(config(), ManualClock(), endless=True).delay(batch(), error) is not None
        assert RetryRules(config(), ManualClock()).delay(batch(), error) is None


def test_a_quota_error_holds_back_its_logstore_and_no_other() -> None:
    """While a logstore is throttled, nothing is sent to it, other topics included; other logstores continue."""
    clock = ManualClock()
    sink = ScriptedSink([QuotaExceededError("WriteQuotaExceed", "slow down")])
    pipeline = threadless(sink, clock, batch_count_threshold=1)
    pipeline.admission.accept(KEY, record(), 1, None)
    settle(pipeline)
    same = pipeline.admission.accept(KEY._replace(topic="other"), record(), 1, None)
    other = pipeline.admission.accept(KEY._replace(logstore="other"), record(), 1, None)
    settle(pipeline)
    assert other.done()
    assert not same.done()
    assert len(sink.attempts) == 2
    clock.advance(0.21)
    settle(pipeline)
    assert same.done()
    assert pipeline.budget.used == 0


def test_waiting_for_a_held_back_logstore_costs_no_attempt() -> None:
    """A batch that waits for another one's quota error has no attempt and no retry recorded."""
    clock = ManualClock()
    sink = ScriptedSink([QuotaExceededError("WriteQuotaExceed", "slow down")])
    pipeline = threadless(sink, clock, batch_count_threshold=1)
    pipeline.admission.accept(KEY, record(), 1, None)
    settle(pipeline)
    future = pipeline.admission.accept(KEY, record(), 1, None)
    settle(pipeline)
    clock.advance(1)
    settle(pipeline)
    assert future.result(0).attempt_count == 1

"""RetryRules: decide after a failed attempt whether and when to retry.

The class of the error decides whether a retry makes sense, ``retries`` how many, ``delivery_timeout_ms`` for how long,
and exponential backoff when. With ``quota_timeout_ms``, quota errors have a time limit of their own. Such an error
shows that the other side works, so earlier failures are excused. With a channel the number does not count: a batch is
retried until it is delivered or its time is over. A :class:`~producer.RetryPolicy` replaces any of these rules
by a strategy of tenacity. Its ``stop`` replaces the number and the time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import tenacity

from ...model.config import ProducerConfig
from ...model.errors import AttemptError, MisconfiguredError, QuotaExceededError
from ...runtime.backoff import pause_after
from ...runtime.clock import Clock
from ..batching.batch import ProducerBatch


class wait_backoff(tenacity.wait.wait_base):  # noqa: N801  # tenacity names its strategies like functions
    """Exponential backoff with jitter: before retry n between ``base * 2**(n-1)`` and ``base * 2**n`` seconds.

    Never less than ``base`` nor more than ``maximum``: at the ceiling, between half of it and all of it.

    :param base: seconds.
    :param maximum: seconds.
    :param uniform: draws a number between two others.
    """

    def __init__(self, base: float, maximum: float, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self.base, self.maximum, self._uniform = min(base, maximum), maximum, uniform

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        """Return the seconds to wait after attempt number ``retry_state.attempt_number``."""
        high = pause_after(retry_state.attempt_number + 1, self.base, self.maximum)
        return self._uniform(max(self.base, high / 2), high)


def _all_backoffs(base: float, longest: float, retries: int) -> float:
    """Return the longest that ``retries`` backoffs can take together, seconds; quick for 2**31 of them as well."""
    growing = sum(min(base * 2.0**n, longest) for n in range(1, min(retries, 64) + 1))
    return growing + max(0, retries - 64) * min(base * 2.0**64, longest)


class RetryRules:
    """The retry rules of one producer. The methods are pure except for the clock and the user's strategies.

    :param endless: True to allow any number of attempts, and to wait for faults that an operator can fix (see
        :class:`~producer.model.errors.MisconfiguredError`).
    """

    def __init__(self, config: ProducerConfig, clock: Clock, *, endless: bool = False) -> None:
        policy = config.retry_policy
        self._clock = clock
        self._retries = config.retries
        self._wait: Callable[[tenacity.RetryCallState], float] = policy.wait or wait_backoff(
            config.base_retry_backoff_ms / 1000, config.max_retry_backoff_ms / 1000
        )
        self._stop = policy.stop
        base, longest = config.base_retry_backoff_ms / 1000, config.max_retry_backoff_ms / 1000
        self.endless = endless
        self._delivery_timeout = math.inf
        if config.delivery_timeout_ms and policy.stop is None:
            self._delivery_timeout = config.delivery_timeout_ms / 1000
        self._quota_timeout = 0.0 if endless or policy.stop is not None else config.quota_timeout_ms / 1000
        self._patience: float | None = None
        if policy.wait is None and policy.stop is None and not endless:
            self._patience = _all_backoffs(base, longest, self._retries)
        self._retry = policy.retry
        # RetryCallState needs one; it never makes a call.
        self._retrying = tenacity.Retrying()

    def last_chance(self, batch: ProducerBatch, since: float, *, over_quota: bool = False) -> float:
        """Return until when ``batch`` may wait behind a closed gate (monotonic seconds), before its last attempt.

        The wait ends with ``delivery_timeout_ms``, or when all its backoffs would be over: a logstore may refuse
        forever, and a batch that waits without attempts uses up no retries. With the user's own strategies, and with a
        channel, only ``delivery_timeout_ms`` counts.

        :param since: the start of the wait at the closed gate, monotonic seconds.
        :param over_quota: True if the gate is closed for a quota.
        """
        tried = self._tried_since(batch, since)
        if over_quota and self._quota_timeout:
            return tried + min(self._delivery_timeout, self._quota_timeout)
        if self._patience is None:
            return tried + self._delivery_timeout
        return min(tried + self._delivery_timeout, max(tried, batch.history.excused_at) + self._patience)

    def take_last_chance(self, batch: ProducerBatch, since: float) -> None:
        """Note that ``batch``, which has waited since ``since``, gets its last attempt."""
        if not batch.history.attempt_count:
            batch.history.first_attempt_at = self._tried_since(batch, since)
        if self._patience is not None:
            batch.history.retry_count = max(batch.history.retry_count, batch.history.excused + self._retries)

    def _tried_since(self, batch: ProducerBatch, since: float) -> float:
        # A batch that a closed gate kept from its first attempt counts as if the attempt had been made.
        return batch.history.first_attempt_at if batch.history.attempt_count else max(since, batch.created_at)

    def latest(self, batch: ProducerBatch) -> float:
        """Return the latest time for the last attempt of ``batch`` (monotonic seconds); the attempt may be a little
        earlier.
        """
        return batch.history.first_attempt_at + self._delivery_timeout if batch.history.attempt_count else math.inf

    def note_retry(self, batch: ProducerBatch, error: AttemptError) -> None:
        """Count a retry of ``batch`` after an attempt that failed with ``error``."""
        batch.history.retry_count += 1
        if self._has_own_time(error):
            batch.history.excused, batch.history.excused_at = batch.history.retry_count, self._clock.monotonic()

    def _quota_ends(self, batch: ProducerBatch) -> float:
        return batch.history.first_attempt_at + self._quota_timeout

    def _has_own_time(self, error: AttemptError) -> bool:
        return self._quota_timeout > 0 and isinstance(error, QuotaExceededError)

    def delay(self, batch: ProducerBatch, error: AttemptError) -> float | None:
        """Return the seconds until ``batch``, whose last attempt failed with ``error``, is retried; None to fail it."""
        state = self._state(batch, error)
        repeated = error.max_consecutive is not None and batch.history.same_error_count > error.max_consecutive
        if not self._is_retriable(state, error, repeated=repeated):
            return None
        # If retries at once fail repeatedly, wait in between; otherwise an endless batch would be retried without a
        # pause.
        at_once = error.immediate and not (repeated and self.endless)
        delay = 0.0 if at_once else max(0.0, float(self._wait(state)))
        if self._has_own_time(error):  # the last attempt is made at the end of that time, not a backoff later
            delay = min(delay, max(0.0, self._quota_ends(batch) - self._clock.monotonic()))
        state.upcoming_sleep = delay
        return None if self._exhausted(batch, error, state) else delay

    def _is_retriable(self, state: tenacity.RetryCallState, error: AttemptError, *, repeated: bool) -> bool:
        if self._retry is not None:
            return bool(self._retry(state))
        if self.endless and isinstance(error, MisconfiguredError):
            return True
        return error.retriable and (self.endless or not repeated)

    def _exhausted(self, batch: ProducerBatch, error: AttemptError, state: tenacity.RetryCallState) -> bool:
        if self._stop is not None:
            return bool(self._stop(state))
        now = self._clock.monotonic()
        if now >= self.latest(batch):
            return True
        if self._has_own_time(error):
            return now >= self._quota_ends(batch)
        return not self.endless and batch.history.retry_count - batch.history.excused >= self._retries

    def _state(self, batch: ProducerBatch, error: AttemptError) -> tenacity.RetryCallState:
        state = tenacity.RetryCallState(self._retrying, None, (), {})
        state.attempt_number = batch.history.retry_count + 1
        state.start_time = batch.history.first_attempt_at
        state.outcome = tenacity.Future(state.attempt_number)
        state.outcome.set_exception(error)
        state.outcome_timestamp = self._clock.monotonic()
        return state

"""AttemptHistory: the attempts to deliver one batch, and the counts that the retry rules need."""

from __future__ import annotations

import copy
import dataclasses

from ...model.errors import AttemptError
from ...model.results import Attempt, Result


class AttemptHistory:
    """The attempts of one batch; only the batch's owner changes it.

    :param most: how many of the newest attempts are kept.
    :ivar attempts: the newest attempts, oldest first.
    :ivar attempt_count: the number of all attempts.
    :ivar retry_count: the number of attempts that were, or will be, followed by a retry of the same batch.
    :ivar excused: retries that no longer count, since a quota error followed them.
    :ivar excused_at: when they were last excused, monotonic seconds.
    :ivar first_attempt_at: monotonic seconds; 0.0 before the first attempt.
    :ivar same_error_count: how many of the newest attempts in a row failed with the same kind of error.
    """

    __slots__ = (
        "_last_error",
        "_most",
        "attempt_count",
        "attempts",
        "excused",
        "excused_at",
        "first_attempt_at",
        "may_have_been_stored",
        "retry_count",
        "same_error_count",
    )

    def __init__(self, most: int) -> None:
        self._most = most
        self.attempts: tuple[Attempt, ...] = ()
        self.attempt_count = self.retry_count = self.excused = self.same_error_count = 0
        self.excused_at = self.first_attempt_at = 0.0
        self.may_have_been_stored = False
        self._last_error: type[AttemptError] | None = None

    def for_half(self) -> AttemptHistory:
        """Return the history of a batch that carries some of the records from then on."""
        half = copy.copy(self)
        half.same_error_count, half._last_error = 0, None
        return half

    def note(self, attempt: Attempt, error: AttemptError | None) -> None:
        """Record an attempt, and count its kind of error."""
        before = self.attempts[-1] if self.attempts else None
        if before is not None and before.error_message == attempt.error_message:
            # A server that is down gives thousands of batches the same message: share one text among the attempts.
            attempt = dataclasses.replace(attempt, error_message=before.error_message)
        self.attempts = (*self.attempts, attempt)[-self._most :]
        self.attempt_count += 1
        self.may_have_been_stored |= attempt.may_have_been_stored
        self.same_error_count = self.same_error_count + 1 if type(error) is self._last_error else 1
        self._last_error = type(error) if error is not None else None

    def result(self, *, successful: bool, last: Attempt | None = None) -> Result:
        """Return the result of the attempts so far, and of ``last`` if it is given."""
        attempts = self.attempts if last is None else (*self.attempts, last)[-self._most :]
        stored = self.may_have_been_stored or (last is not None and last.may_have_been_stored)
        return Result(
            successful=successful,
            attempts=attempts,
            attempt_count=self.attempt_count + (last is not None),
            may_have_been_stored=not successful and stored,
        )


#: The history of an open batch. It never changes.
NO_ATTEMPTS = AttemptHistory(0)

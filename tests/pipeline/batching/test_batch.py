"""A batch has states and one result."""

from __future__ import annotations

import itertools
import threading

import pytest

from producer import NetworkError, Result
from producer.model.results import Attempt
from producer.pipeline.batching.attempt_history import AttemptHistory
from producer.pipeline.batching.batch import TRANSITIONS, BatchState
from tests.pipeline.sending.test_retry_queue import batch
from tests.support.waiting import Call

RESULT = Result(successful=True, attempts=(), attempt_count=0)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(BatchState, BatchState)))
def test_a_batch_moves_by_the_table_and_never_out_of_a_final_state(before: BatchState, after: BatchState) -> None:
    """Each transition is allowed by the table, refused as a bug, or without effect on a completed batch."""
    one = batch()
    one.state = before
    if before.final:
        assert one.move(after) is False
        assert one.settle(after, RESULT) is False
        assert (one.state, one.result) == (before, None)
        assert not TRANSITIONS[before]
    elif after in TRANSITIONS[before]:
        assert one.move(after)
        assert one.state is after
    else:
        with pytest.raises(RuntimeError, match=f"from {before.value} to {after.value}"):
            one.move(after)
        assert one.state is before


def test_of_many_threads_that_settle_a_batch_one_succeeds() -> None:
    """When eight threads complete a batch at once, exactly one result counts."""
    for _ in range(100):
        one, barrier = batch(), threading.Barrier(8)
        one.state = BatchState.SENDING
        results = [Result(successful=False, attempts=(), attempt_count=i) for i in range(8)]

        def settle(result: Result, one: object = one, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            return one.settle(BatchState.FAILED, result)  # type: ignore[attr-defined,no-any-return]

        calls = [Call(lambda result=result, settle=settle: settle(result)) for result in results]
        outcomes = [call.result() for call in calls]
        assert outcomes.count(True) == 1
        assert one.result is results[outcomes.index(True)]


def test_the_newest_attempts_are_kept_and_all_are_counted() -> None:
    """A result has at most max_reserved_attempts, the newest; may_have_been_stored counts all."""
    one = batch()
    one.history = AttemptHistory(3)
    one.history.note(Attempt(success=False, error_code="0", may_have_been_stored=True), NetworkError("0", ""))
    for i in range(1, 6):
        one.history.note(Attempt(success=False, error_code=str(i)), NetworkError(str(i), ""))
    result = one.history.result(successful=False)
    assert [attempt.error_code for attempt in result.attempts] == ["3", "4", "5"]
    assert result.attempt_count == 6
    assert result.may_have_been_stored
    with_last = one.history.result(successful=False, last=Attempt(success=False, error_code="closed"))
    assert [attempt.error_code for attempt in with_last.attempts] == ["4", "5", "closed"]
    assert with_last.attempt_count == 7
    assert not one.history.result(successful=True).may_have_been_stored


def test_a_wait_returns_in_time_and_at_the_result() -> None:
    """wait() ends after its timeout, at the result, or at once if the batch is completed; huge timeouts are valid."""
    one = batch()
    one.wait(0.0)
    waiter = Call(lambda: one.wait(1e12))
    while one._settled is None:
        pass
    one.state = BatchState.SENDING
    assert one.settle(BatchState.SUCCEEDED, RESULT)
    waiter.result()
    one.wait(None)

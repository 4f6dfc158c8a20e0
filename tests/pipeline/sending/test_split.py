"""Batches that are too large for the server are split."""

from __future__ import annotations

import concurrent.futures

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from producer import (
    AttemptError,
    BodyTooLargeError,
    NetworkError,
    RejectedError,
    Result,
    SendFuture,
)
from producer.model.interfaces import Delivery, Payload
from producer.pipeline.batching.batch import BatchState
from producer.testing import RecordingSink, ScriptedSink
from producer.wire.log_group import split_records
from tests.support.pipelines import (
    KEY,
    record,
    settle,
    threadless,
)
from tests.support.waiting import Call, eventually

TOO_LARGE = BodyTooLargeError("PostBodyTooLarge", "too large", http_status=400)


class LimitedSink(ScriptedSink):
    """A sink that refuses bodies of more than ``most`` logs as too large, and logs that ask for a refusal."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def write(self, delivery: Delivery) -> object:  # type: ignore[override]
        records = self.decode(delivery.payload)
        if len(records) > self.most:
            with self._lock:
                self.attempts.append(delivery)
            raise TOO_LARGE.with_traceback(None)
        if any(b"refuse" in one for one in records):
            raise RejectedError("ParameterInvalid", "refused")
        return super().write(delivery)


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 300), st.booleans()), min_size=1, max_size=9), min_size=1, max_size=8),
    st.integers(0, 6),
)
@example([[(0, False)] * 3], 1)
def test_any_batch_is_cut_down_until_it_fits(sends: list[list[tuple[int, bool]]], most: int) -> None:
    """Each send of any batch completes once, by its own logs alone.

    The bytes held always sum to those used, and successful records are on the server in order, unchanged.
    """
    sink = LimitedSink(most)
    pipeline = threadless(sink)
    told: list[int] = []
    futures = []
    expected = []
    for number, send in enumerate(sends):
        logs = [record(f"{number}:{i}:{'refuse' if bad else ''}" + "x" * size) for i, (size, bad) in enumerate(send)]
        expected.append(logs)
        futures.append(
            pipeline.admission.accept(KEY, b"".join(logs), len(logs), lambda _r, number=number: told.append(number))
        )
    pipeline.accumulator.seal_open()
    pending = [pipeline.io_pool, *pipeline.settlement.handlers]
    while pipeline.accumulator.incomplete():
        assert pending[0].run_next()  # type: ignore[union-attr]
        alive = pipeline.accumulator.incomplete()
        settled = [item for handler in pipeline.settlement.handlers for item in _queued(handler)]
        assert pipeline.budget.used == sum(batch.held for batch in [*alive, *settled])
    settle(pipeline)
    assert sorted(told) == list(range(len(sends)))
    assert pipeline.budget.used == 0
    delivered = sink.records()
    alone = len(sends) == 1 and len(sends[0]) == 1
    for future, logs in zip(futures, expected, strict=True):
        assert future.done()
        if future.exception(0) is None:
            positions = [delivered.index(log) for log in logs]
            assert positions == sorted(positions)
    if most == 0:
        assert all(future.exception(0) is not None for future in futures)
    elif not any(bad for send in sends for _, bad in send):
        assert delivered == [log for logs in expected for log in logs]
    assert alone or most >= sum(map(len, sends)) or sink.attempts
    stats = pipeline.stats()
    assert stats.accepted == stats.delivered + stats.failed == sum(map(len, sends))


def _queued(handler: object) -> list[object]:
    items = []
    queue = handler._queue  # type: ignore[attr-defined]
    while not queue.empty():
        items.append(queue.get())
    for item in items:
        queue.put(item)
    return items


def _first_attempt_too_large() -> ScriptedSink:
    return ScriptedSink([TOO_LARGE])


def test_a_batch_is_cut_between_sends_and_each_learns_its_own_half() -> None:
    """If one half fails, each send has the result of its own half, attempts before the split included."""
    sink = ScriptedSink([TOO_LARGE, RejectedError("C", "x")])
    pipeline = threadless(sink)
    futures = [pipeline.admission.accept(KEY, record(str(i)), 1, None) for i in range(4)]
    pipeline.accumulator.seal_open()
    settle(pipeline)
    assert [future.exception(0) is None for future in futures] == [False, False, True, True]
    assert [attempt.error_code for attempt in futures[3].result(0).attempts] == ["PostBodyTooLarge", ""]
    assert [len(sink.decode(delivery.payload)) for delivery in sink.attempts] == [4, 2, 2]
    assert {delivery.pack_id for delivery in sink.attempts} == {sink.attempts[0].pack_id}


def test_a_list_is_cut_inside_and_settles_as_one(caplog: pytest.LogCaptureFixture) -> None:
    """A list alone in its batch is split between its logs; its one future completes once, after both halves."""
    told: list[Result] = []
    sink = _first_attempt_too_large()
    pipeline = threadless(sink)
    logs = [record(str(i)) for i in range(5)]
    future = pipeline.admission.accept(KEY, b"".join(logs), 5, told.append)
    pipeline.accumulator.seal_open()
    for _ in range(2):
        pipeline.io_pool.run_next()
    pipeline.settlement.success.run_next()
    assert not future.done()
    settle(pipeline)
    assert future.result(0).successful
    assert len(told) == 1
    assert "raised" not in caplog.text
    assert sink.records() == logs


@pytest.mark.parametrize("script", [[TOO_LARGE, None, RejectedError("C", "x")], [TOO_LARGE, RejectedError("C", "x")]])
def test_if_one_half_fails_the_list_fails_with_that_halfs_attempts_and_may_have_been_stored(
    script: list[AttemptError | None],
) -> None:
    """If one half fails, the list fails with that half's attempts, and may have been stored."""
    told: list[Result] = []
    pipeline = threadless(ScriptedSink(script))
    future = pipeline.admission.accept(KEY, record(logs=4), 4, told.append)
    pipeline.accumulator.seal_open()
    settle(pipeline)
    error = future.exception(0)
    assert error is not None
    assert error.result == told[0]
    assert len(told) == 1
    assert [attempt.error_code for attempt in error.result.attempts] == ["PostBodyTooLarge", "C"]
    assert error.result.may_have_been_stored
    stats = pipeline.stats()
    assert (stats.delivered, stats.failed, stats.pending) == (2, 2, 0)


def test_the_result_of_a_list_does_not_wait_for_the_handlers() -> None:
    """A thread in result() gets the outcome when both halves are completed, before any callback ran."""
    pipeline = threadless(_first_attempt_too_large())
    future = pipeline.admission.accept(KEY, record(logs=2), 2, None)
    pipeline.accumulator.seal_open()
    while pipeline.io_pool.run_next():
        pass
    assert future.result(0).successful


def test_a_log_that_is_too_large_on_its_own_fails_in_its_own_name() -> None:
    """Splitting ends at one log, which fails; the others arrive."""
    sink = LimitedSink(1)
    pipeline = threadless(sink)

    def write(delivery: Delivery) -> object:
        if b"giant" in delivery.payload.body:
            raise TOO_LARGE.with_traceback(None)
        return RecordingSink.write(sink, delivery)

    sink.write = write  # type: ignore[method-assign,assignment]
    futures = [pipeline.admission.accept(KEY, record("giant" if i == 3 else str(i)), 1, None) for i in range(8)]
    pipeline.accumulator.seal_open()
    settle(pipeline)
    assert [future.exception(0) is None for future in futures] == [i != 3 for i in range(8)]
    assert pipeline.budget.used == 0


def test_threads_in_result_wait_and_as_completed_on_a_batch_continue_with_its_halves() -> None:
    """Threads in result(), wait() and as_completed() on a batch continue with its halves."""
    for logs in (1, 2):
        pipeline = threadless(_first_attempt_too_large())
        futures = [pipeline.admission.accept(KEY, record(logs=logs), logs, None) for _ in range(2 if logs == 1 else 1)]
        waiters = [Call(lambda future=future: future.result(60)) for future in futures]
        waiters.append(Call(lambda futures=futures: concurrent.futures.wait(futures, 20)))
        eventually(lambda futures=futures: all(future._watch is not None for future in futures))
        eventually(lambda futures=futures: futures[0]._holder._settled is not None)
        pipeline.accumulator.seal_open()
        settle(pipeline)
        assert all(waiter.result().successful for waiter in waiters[:-1])
        assert len(waiters[-1].result().done) == len(futures)


def test_a_retry_of_a_half_counts_on_from_the_whole() -> None:
    """Retries before the split count: the limit of retries holds for a record, split or not."""
    down = NetworkError("R", "x")
    sink = ScriptedSink([down, TOO_LARGE, *[down] * 20])
    pipeline = threadless(sink, retries=3)
    future = pipeline.admission.accept(KEY, record(logs=2), 2, None)
    pipeline.flush(None)
    assert future.exception(0) is not None
    assert len(sink.attempts) == 2 + 2 * 3


def test_halves_of_a_list_that_are_abandoned_settle_the_list() -> None:
    """close at its deadline fails both halves, and the list."""
    told: list[Result] = []
    pipeline = threadless(_first_attempt_too_large())
    future = pipeline.admission.accept(KEY, record(logs=2), 2, told.append)
    pipeline.accumulator.seal_open()
    pipeline.io_pool.run_next()
    for half in pipeline.accumulator.incomplete():
        assert pipeline.settlement.abandon(half)
    settle(pipeline)
    assert [result.error_code for result in told] == ["ProducerClosed"]
    assert future.exception(0).result == told[0]  # type: ignore[union-attr]


def test_after_a_fork_no_thread_of_the_child_waits_forever_for_a_list_that_was_just_split() -> None:
    """After a fork, no thread of the child waits forever for a list that was just split."""
    pipeline = threadless(_first_attempt_too_large())
    future = pipeline.admission.accept(KEY, record(logs=2), 2, None)
    pipeline.accumulator.seal_open()
    pipeline.io_pool.run_next()
    pipeline.abandon_in_child()
    assert future.exception(5).result.error_code == "ForkedAway"  # type: ignore[union-attr]


class _WrongSink(ScriptedSink):
    def decode(self, payload: Payload) -> list[bytes]:
        return list(split_records(payload.body))[:-1]


def test_a_sink_that_decodes_something_else_fails_the_batch_and_loses_nothing_silently() -> None:
    """If decode returns a wrong number of records, every send fails as an internal error."""
    pipeline = threadless(_WrongSink([TOO_LARGE]))
    futures = [pipeline.admission.accept(KEY, record(str(i)), 1, None) for i in range(3)]
    pipeline.accumulator.seal_open()
    settle(pipeline)
    for future in futures:
        error = future.exception(0)
        assert error is not None
        assert error.result.error_code == "InternalError"
        assert "decoded 2 records from a batch of 3 logs" in error.result.error_message
    assert pipeline.budget.used == 0


def test_a_batch_settled_from_outside_while_it_is_cut_stays_settled() -> None:
    """If close fails a batch during its split, the halves are dropped: nothing is sent or completed twice."""
    sink = _first_attempt_too_large()
    pipeline = threadless(sink)
    told: list[Result] = []
    futures: list[SendFuture] = [pipeline.admission.accept(KEY, record(), 1, told.append) for _ in range(2)]
    pipeline.accumulator.seal_open()
    batch = pipeline.accumulator.incomplete()[0]
    decode = sink.decode

    def closed_meanwhile(payload: Payload) -> list[bytes]:
        pipeline.settlement.abandon(batch)
        return decode(payload)

    sink.decode = closed_meanwhile  # type: ignore[method-assign]
    settle(pipeline)
    assert batch.state is BatchState.FAILED
    assert len(sink.attempts) == 1
    assert len(told) == 2
    assert {future.exception(0).result.error_code for future in futures} == {"ProducerClosed"}  # type: ignore[union-attr]
    assert pipeline.budget.used == 0


def test_halves_that_are_not_registered_yet_complete_in_the_child_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Halves that are not registered yet complete in the child as well."""
    pipeline = threadless(_first_attempt_too_large())
    futures = [pipeline.admission.accept(KEY, record(), 1, None) for _ in range(2)]
    pipeline.accumulator.seal_open()
    monkeypatch.setattr(pipeline.accumulator, "replace", lambda *_: pipeline.abandon_in_child())
    pipeline.io_pool.run_next()
    errors = [future.exception(5) for future in futures]
    assert [error.result.error_code for error in errors] == 2 * ["ForkedAway"]  # type: ignore[union-attr]


def test_a_repeated_error_starts_with_a_new_traceback() -> None:
    """A repeated error starts with a new traceback: an old one would keep every attempt's frames alive."""
    sink = ScriptedSink([TOO_LARGE] * 3)
    frames = set()
    for _ in range(3):
        with pytest.raises(BodyTooLargeError) as raised:
            sink.write(Delivery(KEY, None, sink.encode(KEY, None, [record()])))
        frames.add(len(raised.traceback))
    assert frames == {2}

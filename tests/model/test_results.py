"""SendFuture with concurrent.futures, asyncio, and racing threads."""

import asyncio
import concurrent.futures
import itertools
import pickle
import threading
import time

import pytest

from producer import NetworkError, Producer, RejectedError, Result, ResultFailedError, SendFuture
from producer.model.futures import settle_future
from producer.model.results import Attempt
from producer.pipeline.pipeline import Pipeline
from producer.testing import RecordingSink, ScriptedSink
from tests.support.pipelines import KEY, config, record, settle, threadless
from tests.support.sinks import GatedSink
from tests.support.waiting import PATIENCE, Call, allowed, eventually

LOG = {"a": "b"}


def _accept(pipeline: Pipeline, count: int = 1) -> list[SendFuture]:
    """Return the futures of ``count`` batches."""
    return [pipeline.admission.accept(KEY._replace(topic=str(i)), record(), 1, None) for i in range(count)]


def _attempt_all(pipeline: Pipeline) -> None:
    pipeline.accumulator.seal_open()
    while pipeline.io_pool.run_next():
        pass


def test_a_success_is_a_result_and_a_failure_an_error_that_carries_it() -> None:
    """result() returns or raises, exception() returns, both from the same Result."""
    pipeline = threadless(
        ScriptedSink([None, RejectedError("ParameterInvalid", "no", http_status=400, request_id="7")])
    )
    good, bad = _accept(pipeline, 2)
    assert not good.done()
    _attempt_all(pipeline)
    assert good.result(0).successful
    assert good.exception(0) is None
    with pytest.raises(ResultFailedError) as caught:
        bad.result(0)
    assert caught.value.result.attempts[0].http_status == 400
    for words in ("not delivered after 1 attempt:", "ParameterInvalid: no", "request id 7"):
        assert words in str(caught.value)
    assert bad.exception(0).result is caught.value.result  # type: ignore[union-attr]
    assert repr(good) == "<SendFuture delivered>"
    assert repr(bad) == "<SendFuture failed: ParameterInvalid>"


def test_result_raises_timeouterror_after_the_timeout_and_the_record_is_still_delivered() -> None:
    """result() raises TimeoutError after the timeout, and the record is still delivered."""
    pipeline = threadless()
    future = _accept(pipeline)[0]
    for timeout in (0, -1, 0.01):
        started = time.monotonic()
        with pytest.raises(TimeoutError, match="the delivery goes on"):
            future.result(timeout)
        with pytest.raises(concurrent.futures.TimeoutError):
            future.exception(timeout)
        assert time.monotonic() - started < allowed(5)
    pipeline.flush(None)
    assert future.result().successful


def test_an_accepted_record_cannot_be_recalled() -> None:
    """cancel() is False, before and after; the future never looks cancelled or running."""
    pipeline = threadless()
    future = _accept(pipeline)[0]
    for _ in range(2):
        assert future.cancel() is False
        assert (future.cancelled(), future.running()) == (False, False)
        pipeline.flush(None)
    assert future.done()


@pytest.mark.parametrize("when", ["ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION"])
@pytest.mark.parametrize("settled_before", [True, False])
def test_wait_works_with_each_return_when_on_futures_that_complete_before_it_and_during_it(
    when: str, settled_before: bool
) -> None:
    """wait() works with each return_when, on futures that complete before it and during it."""
    pipeline = threadless(ScriptedSink([None, RejectedError("C", "x"), None]))
    futures = _accept(pipeline, 3)
    if settled_before:
        pipeline.flush(None)
        done, not_done = concurrent.futures.wait(futures, 0, when)
        assert len(done) == 3
        assert not not_done
        return
    waiter = Call(lambda: concurrent.futures.wait(futures, None, when))
    eventually(lambda: all(future._watch is not None and future._watch.waiters for future in futures))
    pipeline.accumulator.seal_open()
    expected = {"ALL_COMPLETED": 3, "FIRST_COMPLETED": 1, "FIRST_EXCEPTION": 2}[when]
    for _ in range(expected):
        assert not waiter.done
        pipeline.io_pool.run_next()
        for handler in pipeline.settlement.handlers:
            handler.run_next()
    done, not_done = waiter.result()
    assert (len(done), len(not_done)) == (expected, 3 - expected)
    assert done == set(futures[:expected])


def test_a_future_with_a_result_whose_handler_is_still_busy_counts_once_wait() -> None:
    """A future with a result whose handler is still busy counts once: wait() for all waits for the other one."""
    pipeline = threadless()
    settled, pending = _accept(pipeline, 2)
    pipeline.accumulator.seal_open()
    pipeline.io_pool.run_next()
    assert settled.done()
    assert not pending.done()
    waiter = Call(lambda: concurrent.futures.wait([settled, pending], PATIENCE))
    eventually(lambda: pending._watch is not None and pending._watch.waiters)
    pipeline.settlement.success.run_next()
    pipeline.io_pool.run_next()
    pipeline.settlement.success.run_next()
    done, not_done = waiter.result()
    assert (done, not_done) == ({settled, pending}, set())


def test_as_completed_yields_every_future_once_in_the_order_of_completion() -> None:
    """as_completed() yields every future once, in the order of completion."""
    pipeline = threadless()
    futures = _accept(pipeline, 5)
    pipeline.accumulator.seal_open()
    for _ in range(2):
        pipeline.io_pool.run_next()
    order = Call(lambda: list(concurrent.futures.as_completed(futures, PATIENCE)))
    eventually(lambda: futures[4]._watch is not None and futures[4]._watch.waiters)
    settle(pipeline)
    assert set(order.result()) == set(futures)
    assert len(order.result()) == 5


def test_waits_that_time_out_leave_nothing_behind() -> None:
    """A wait that timed out removes its waiter, and leaves the future unchanged."""
    pipeline = threadless()
    future = _accept(pipeline)[0]
    assert concurrent.futures.wait([future], 0.01).not_done == {future}
    with pytest.raises(TimeoutError):
        list(concurrent.futures.as_completed([future], 0.01))
    assert future._waiters == []
    pipeline.flush(None)
    assert future.done()


def test_done_callbacks_run_once_before_and_after_settlement() -> None:
    """A done-callback runs once, on completion or at once if it is late, with the future."""
    pipeline = threadless()
    future = _accept(pipeline)[0]
    told: list[object] = []
    future.add_done_callback(told.append)
    assert told == []
    pipeline.flush(None)
    future.add_done_callback(told.append)
    settle(pipeline)
    assert told == [future, future]


def test_done_callbacks_that_race_with_settlement_run_exactly_once() -> None:
    """Done-callbacks that four threads add at the moment of completion are neither lost nor run twice."""
    counter = itertools.count()
    rounds = 300
    pipeline = threadless()
    for round_ in range(rounds):
        future = _accept(pipeline)[0]
        pipeline.accumulator.seal_open()
        barrier = threading.Barrier(5)

        def add(future: SendFuture = future, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            for _ in range(3):
                future.add_done_callback(lambda _future: next(counter))

        def work(barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            settle(pipeline)

        for call in [*[Call(add) for _ in range(4)], Call(work)]:
            call.result()
        assert next(counter) == (round_ + 1) * 12 + round_


def test_waits_that_race_with_settlement_always_end() -> None:
    """wait(), result() and as_completed() that begin at the moment of completion all end, with all futures."""
    pipeline = threadless()
    for _ in range(150):
        futures = _accept(pipeline, 2)
        pipeline.accumulator.seal_open()
        barrier = threading.Barrier(4)

        def at(function: object, barrier: threading.Barrier = barrier) -> Call:
            return Call(lambda: barrier.wait() is not None and function())  # type: ignore[operator]

        calls = [
            at(lambda futures=futures: len(concurrent.futures.wait(futures, PATIENCE).done) == 2),
            at(lambda futures=futures: len(list(concurrent.futures.as_completed(futures, PATIENCE))) == 2),
            at(lambda futures=futures: futures[1].result(PATIENCE).successful),
            at(lambda: settle(pipeline) is None),
        ]
        assert [call.result() for call in calls] == [True] * 4


def test_the_first_watcher_between_result_and_handler_sees_the_final_state_at_once() -> None:
    """The first watcher between result and handler sees the final state at once."""
    pipeline = threadless()
    future = _accept(pipeline)[0]
    _attempt_all(pipeline)
    told: list[object] = []
    future.add_done_callback(told.append)
    assert told == [future]
    assert future._state == "FINISHED"
    settle(pipeline)
    assert told == [future]


def test_settling_tells_the_callback_of_send_last_and_once() -> None:
    """Done-callbacks run before the callback of send, each once."""
    pipeline = threadless()
    told: list[str] = []
    future = pipeline.admission.accept(KEY, record(), 1, lambda _r: told.append("callback"))
    future.add_done_callback(lambda _f: told.append("done"))
    pipeline.flush(None)
    settle(pipeline)
    assert not list(settle_future(future, future.result(0)))
    assert told == ["done", "callback"]


async def _await(future: SendFuture) -> Result:
    return await future


def test_a_future_is_awaited_by_any_number_of_tasks() -> None:
    """await gives the Result or raises ResultFailedError, in several tasks, before and after settlement."""

    async def main() -> None:
        sink = ScriptedSink([None, RejectedError("C", "x")])
        with Producer(sink=sink, config=config(batch_count_threshold=1, io_thread_count=1)) as producer:
            good, bad = producer.send("p", "l", LOG), producer.send("p", "l", LOG)
            assert all(result.successful for result in await asyncio.gather(good, good, asyncio.wrap_future(good)))
            assert (await good).successful
            with pytest.raises(ResultFailedError):
                await bad
            with pytest.raises(ResultFailedError):
                await asyncio.wrap_future(bad)

    asyncio.run(main())


def test_cancelling_a_task_that_awaits_leaves_the_delivery_alone() -> None:
    """A cancelled task leaves the record's delivery and its other awaiting tasks alone."""

    async def main() -> None:
        sink = GatedSink()
        producer = Producer(sink=sink, config=config(linger_ms=100))
        future = producer.send("p", "l", LOG)
        task, other = asyncio.create_task(_await(future)), asyncio.create_task(_await(future))
        await asyncio.to_thread(eventually, lambda: future._watch is not None and len(future._watch.callbacks) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await future
        assert not future.done()
        sink.gate.set()
        assert (await other).successful
        await asyncio.to_thread(producer.close)
        assert len(sink.deliveries) == 1

    asyncio.run(main())


def test_a_loop_that_closed_before_the_settlement_does_no_harm() -> None:
    """A closed loop of an awaiting task harms no other callback or record."""
    sink = GatedSink()
    producer = Producer(sink=sink, config=config(linger_ms=100))
    future = producer.send("p", "l", LOG)
    told: list[object] = []

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await future

    asyncio.run(give_up())
    loop = asyncio.new_event_loop()
    wrapped = asyncio.wrap_future(future, loop=loop)
    loop.close()
    future.add_done_callback(told.append)
    sink.gate.set()
    producer.flush(PATIENCE)
    assert told == [future]
    assert producer.send("p", "l", LOG).result(PATIENCE).successful
    producer.close()
    assert not wrapped.done()


def test_results_and_errors_pickle_and_are_frozen() -> None:
    """Results and errors are picklable and immutable."""
    attempt = Attempt(success=False, error_code="C", error_message="m", http_status=500, may_have_been_stored=True)
    result = Result(successful=False, attempts=(attempt,), attempt_count=3, may_have_been_stored=True)
    assert pickle.loads(pickle.dumps(result)) == result
    error = pickle.loads(pickle.dumps(ResultFailedError(result)))
    assert error.result == result
    assert "the server may have stored it" in str(error)
    down = pickle.loads(pickle.dumps(NetworkError("R", "x", may_have_been_stored=True)))
    assert (down.code, down.may_have_been_stored) == ("R", True)
    with pytest.raises(AttributeError):
        result.successful = True  # type: ignore[misc]
    empty = Result(successful=True, attempts=(), attempt_count=0)
    assert (empty.error_code, empty.error_message, empty.request_id) == ("", "", "")


def test_futures_of_a_batch_share_one_result() -> None:
    """All sends of a batch share one Result, and an unwatched future has no condition."""
    pipeline = threadless(RecordingSink())
    futures = [pipeline.admission.accept(KEY, record(), 1, None) for _ in range(10)]
    pipeline.flush(None)
    assert len({id(future.result(0)) for future in futures}) == 1
    assert all(future._watch is None for future in futures)

"""SendFuture in asyncio: wait, tasks, task groups, gather, shield, timeouts."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Iterator

import pytest

from producer import NetworkError, Producer, RejectedError, Result, ResultFailedError, SendFuture
from producer.pipeline.pipeline import Pipeline
from producer.testing import ScriptedSink
from tests.support.pipelines import KEY, config, record, settle, threadless
from tests.support.sinks import GatedSink
from tests.support.waiting import PATIENCE

LOG = {"a": "b"}


@pytest.fixture
def gated() -> Iterator[tuple[Producer, GatedSink]]:
    """Yield a producer whose attempts wait at a gate; the second batch is refused."""
    sink = GatedSink(None, RejectedError("C", "x"))
    with Producer(sink=sink, config=config(batch_count_threshold=1, io_thread_count=1)) as producer:
        try:
            yield producer, sink
        finally:
            sink.gate.set()


def _send(producer: Producer, count: int) -> list[SendFuture]:
    return [producer.send("p", "l", LOG) for _ in range(count)]


@pytest.mark.parametrize("when", [asyncio.ALL_COMPLETED, asyncio.FIRST_COMPLETED, asyncio.FIRST_EXCEPTION])
def test_asyncio_wait_takes_futures_of_send(gated: tuple[Producer, GatedSink], when: str) -> None:
    """asyncio.wait({send(…), …}) wakes its task on the loop and returns these very futures, done and pending."""
    producer, sink = gated

    async def main() -> None:
        futures = _send(producer, 2)
        asyncio.get_running_loop().call_soon(sink.gate.set)
        done, pending = await asyncio.wait(set(futures), return_when=when, timeout=PATIENCE)
        assert done | pending == set(futures)
        if when == asyncio.FIRST_COMPLETED:
            assert futures[0] in done
        else:
            assert not pending
        done, pending = await asyncio.wait(futures)
        assert (done, pending) == (set(futures), set())

    asyncio.run(main(), debug=True)


def test_asyncio_wait_that_times_out_leaves_nothing_behind(gated: tuple[Producer, GatedSink]) -> None:
    """A wait that times out leaves the futures pending, the delivery running, and no callback behind."""
    producer, sink = gated

    async def main() -> None:
        futures = _send(producer, 1)
        done, pending = await asyncio.wait(futures, timeout=0.01)
        assert (done, pending) == (set(), set(futures))
        assert futures[0]._watch is not None
        assert not futures[0]._watch.callbacks
        sink.gate.set()
        assert (await futures[0]).successful

    asyncio.run(main(), debug=True)


def test_create_task_and_taskgroup_take_the_outcome_of_a_send(gated: tuple[Producer, GatedSink]) -> None:
    """create_task and TaskGroup take ``future.outcome()``, ensure_future the future itself; failures raise in them."""
    producer, sink = gated

    async def main() -> None:
        good, bad = _send(producer, 2)
        sink.gate.set()
        task, other = asyncio.create_task(good.outcome()), asyncio.ensure_future(good)
        done, _ = await asyncio.wait({task, other, asyncio.create_task(bad.outcome())})
        assert task.result().successful
        assert other.result() is task.result()
        assert sum(one.exception() is not None for one in done) == 1
        async with asyncio.TaskGroup() as group:
            again = [group.create_task(future.outcome()) for future in _send(producer, 3)]
        assert all(one.result().successful for one in again)
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(bad.outcome())
        assert caught.group_contains(ResultFailedError)

    asyncio.run(main(), debug=True)


def test_gather_shield_wait_for_timeout_and_as_completed_take_futures_of_send(
    gated: tuple[Producer, GatedSink],
) -> None:
    """Every asyncio function for awaitables takes the result of send; cancelling recalls nothing."""
    producer, sink = gated

    async def main() -> None:
        good, bad, late = _send(producer, 3)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(good, 0.01)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.shield(good)
        assert not good.done()
        sink.gate.set()
        assert (await asyncio.shield(good)).successful
        first, second = await asyncio.gather(good, bad, return_exceptions=True)
        assert isinstance(first, Result)
        assert isinstance(second, ResultFailedError)
        assert (await asyncio.wait_for(late, PATIENCE)).successful
        for earliest in asyncio.as_completed([good, late]):
            assert (await earliest).successful

    asyncio.run(main(), debug=True)


def test_a_done_callback_added_on_a_loop_runs_on_that_loop(gated: tuple[Producer, GatedSink]) -> None:
    """A callback added in a coroutine runs on its loop, elsewhere on a handler thread; each runs once."""
    producer, sink = gated
    threads: dict[str, list[str]] = {"loop": [], "thread": []}

    def note(where: str) -> None:
        threads[where].append(threading.current_thread().name)

    async def main() -> None:
        future = _send(producer, 1)[0]
        told = asyncio.Event()
        future.add_done_callback(lambda _future: (note("loop"), told.set()))
        await asyncio.to_thread(future.add_done_callback, lambda _future: note("thread"))
        sink.gate.set()
        async with asyncio.timeout(PATIENCE):
            await told.wait()

    asyncio.run(main(), debug=True)
    producer.flush(PATIENCE)
    assert threads["loop"] == ["MainThread"]
    assert [name.endswith("-success") for name in threads["thread"]] == [True]


def test_if_its_loop_closed_before_completion_a_callback_runs_on_a_handler_thread_instead(
    gated: tuple[Producer, GatedSink],
) -> None:
    """If its loop closed before completion, a callback runs on a handler thread instead."""
    producer, sink = gated
    told: list[SendFuture] = []

    async def main() -> SendFuture:
        future = _send(producer, 1)[0]
        future.add_done_callback(told.append)  # type: ignore[arg-type]
        return future

    future = asyncio.run(main())
    sink.gate.set()
    producer.flush(PATIENCE)
    assert told == [future]


def _accept(pipeline: Pipeline) -> SendFuture:
    return pipeline.admission.accept(KEY, record(), 1, None)


def test_remove_done_callback_removes_all_equal_callbacks_and_returns_their_number() -> None:
    """remove_done_callback removes all equal callbacks and returns their number; the others are called."""
    pipeline = threadless()
    future, told = _accept(pipeline), list[str]()
    one, two = (lambda _f: told.append("one")), (lambda _f: told.append("two"))
    assert future.remove_done_callback(one) == 0
    for callback in (one, two, one):
        future.add_done_callback(callback)
    assert future.remove_done_callback(one) == 2
    pipeline.flush(None)
    settle(pipeline)
    assert told == ["two"]
    assert future.remove_done_callback(two) == 0


def test_a_done_callback_that_raises_is_logged_and_stops_nothing_also_when_it_is_called_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On a completed future add_done_callback calls at once, and does not raise the callback's error."""
    pipeline = threadless(ScriptedSink([NetworkError("R", "x"), None]))
    future = _accept(pipeline)
    pipeline.flush(None)

    def broken(_future: concurrent.futures.Future[Result]) -> None:
        raise ValueError("of the callback")

    future.add_done_callback(broken)
    assert "of the callback" in caplog.text

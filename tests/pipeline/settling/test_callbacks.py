"""The handlers run callbacks on threads of their own."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from producer import (
    Producer,
    ProducerConfig,
    RejectedError,
    Result,
)
from producer.model.futures import SendFuture
from producer.model.results import Attempt
from producer.pipeline.batching.batch import BATCH_OVERHEAD, ProducerBatch
from producer.pipeline.batching.memory import MemoryBudget, Refund
from producer.pipeline.batching.open_records import RECORD_OVERHEAD
from producer.pipeline.settling.backing import Backing, Body
from producer.pipeline.settling.callbacks import BatchHandler
from producer.runtime.clock import SystemClock
from producer.testing import RecordingSink, ScriptedSink
from tests.pipeline.sending.test_retry_queue import batch
from tests.support.pipelines import (
    KEY,
    config,
    record,
    settle,
    threadless,
)
from tests.support.waiting import eventually, passed

#: The memory of batches without a pipeline.


def _one_each() -> ProducerConfig:
    return config(batch_count_threshold=1, name="test")


@pytest.mark.parametrize(
    "error", [ValueError("mine"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]
)
def test_a_callback_that_raises_is_logged_and_stops_nothing(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """After any exception of a callback, the other sends of its batch and the next batches are notified."""

    def broken(_result: object) -> None:
        raise error

    told: list[Result] = []
    with Producer(sink=RecordingSink(), config=config(name="test")) as producer:
        first = producer.send("p", "l", {"a": "b"}, callback=broken)
        first.add_done_callback(broken)
        producer.send("p", "l", {"a": "b"}, callback=told.append)
        producer.flush(10)
        assert len(told) == 1
        producer.send("p", "l", {"a": "b"}, callback=told.append)
        producer.flush(10)
        assert len(told) == 2
        assert first.result(0).successful
    assert caplog.text.count("a callback raised") == 2


def test_while_a_failures_callback_hangs_successes_are_notified_and_the_other_way_round() -> None:
    """While a failure's callback hangs, successes are notified, and the other way round."""
    for script, slow in (([RejectedError("C", "x")], "failure"), ([None, RejectedError("C", "x")], "success")):
        entered, gate, told = threading.Event(), threading.Event(), threading.Event()
        names: list[str] = []

        def hang(
            _result: Result,
            entered: threading.Event = entered,
            gate: threading.Event = gate,
            names: list[str] = names,
        ) -> None:
            names.append(threading.current_thread().name)
            entered.set()
            passed(gate)

        with Producer(sink=ScriptedSink(script), config=_one_each()) as producer:
            producer.send("p", "l", {"a": "b"}, callback=hang)
            passed(entered)
            producer.send("p", "l", {"a": "b"}, callback=lambda _result, told=told: told.set())
            passed(told)
            gate.set()
        assert names == [f"test-{slow}"]


def test_callbacks_and_done_callbacks_of_pending_futures_run_on_the_success_or_failure_thread() -> None:
    """Callbacks and done-callbacks of pending futures run on the success or failure thread."""
    names: dict[str, set[str]] = {"callback": set(), "done": set()}
    sink = ScriptedSink([RejectedError("C", "x") if i % 3 == 0 else None for i in range(30)])
    with Producer(sink=sink, config=config(name="test", linger_ms=10**6)) as producer:
        for i in range(30):
            future = producer.send(
                "p",
                "l",
                {"a": "b"},
                topic=str(i),
                callback=lambda _r: names["callback"].add(threading.current_thread().name),
            )
            future.add_done_callback(lambda _f: names["done"].add(threading.current_thread().name))
    assert names == {"callback": {"test-success", "test-failure"}, "done": {"test-success", "test-failure"}}


def test_a_batch_without_listeners_needs_no_handler() -> None:
    """Without callbacks, a batch's memory is free and its future done when the attempt ends."""
    for callback, pending in ((None, 0), (lambda _result: None, 1)):
        pipeline = threadless()
        future = pipeline.admission.accept(KEY, record(), 1, callback)
        pipeline.accumulator.seal_open()
        assert pipeline.io_pool.run_next()
        assert future.done()
        assert pipeline.stats().callbacks_pending == pending
        assert bool(pipeline.budget.used) == bool(pending)
        settle(pipeline)
        assert not pipeline.budget.used


def test_memory_of_the_bytes_is_back_before_a_handler_has_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory is returned first: the callbacks may run at once, on the handler's thread."""
    pipeline, used = threadless(), list[int]()
    handler = pipeline.settlement.success
    put = handler.put

    def seen(batch: ProducerBatch) -> None:
        used.append(pipeline.budget.used)
        put(batch)

    monkeypatch.setattr(handler, "put", seen)
    pipeline.admission.accept(KEY, record(), 1, lambda _result: None)
    pipeline.accumulator.seal_open()
    settle(pipeline)
    assert used == [BATCH_OVERHEAD + RECORD_OVERHEAD]


def test_in_a_callback_the_bytes_of_its_own_batch_are_free() -> None:
    """In a callback, the bytes of its own batch are free: it may send what needs all of the memory."""
    pipeline = threadless(total_size_in_bytes=7000, max_block_ms=0, batch_count_threshold=1)
    again: list[object] = []
    size = 7000 - BATCH_OVERHEAD - RECORD_OVERHEAD

    def send_again(_result: Result) -> None:
        again.append(pipeline.admission.accept(KEY, b"a" * size, 1, None))

    pipeline.admission.accept(KEY, record() + b"a" * (size - len(record())), 1, send_again)
    settle(pipeline)
    assert len(again) == 1
    assert pipeline.budget.used == 0


def test_callbacks_run_in_the_order_of_the_sends_for_each_send_its_done_callbacks_first() -> None:
    """Callbacks run in the order of the sends; for each send, its done-callbacks first."""
    pipeline = threadless()
    order: list[str] = []
    for name in "ab":
        future = pipeline.admission.accept(KEY, record(), 1, lambda _r, name=name: order.append(f"callback {name}"))
        future.add_done_callback(lambda _f, name=name: order.append(f"done {name}"))
    pipeline.accumulator.seal_open()
    settle(pipeline)
    assert order == ["done a", "callback a", "done b", "callback b"]


def test_if_a_late_io_thread_completes_a_batch_its_callback_still_runs_on_a_handler_thread() -> None:
    """If a late IO thread completes a batch, its callback still runs on a handler thread."""
    released: list[int] = []
    handler = BatchHandler("test-failure", SimpleNamespace(release=released.append))  # type: ignore[arg-type]
    handler.thread.start()
    handler.stop()
    eventually(lambda: not handler.thread._thread.is_alive())
    for _ in range(3):
        told: list[str] = []
        late = batch()
        late.callbacks = [lambda _r, told=told: told.append(threading.current_thread().name)]
        late.held = 5
        late.result = Result(successful=False, attempts=(Attempt(success=False),), attempt_count=1)
        handler.put(late)
        eventually(lambda told=told: told)
        assert told == ["test-failure"]
    assert released == [5, 5, 5]
    assert handler.barrier().wait(60)
    eventually(lambda: not handler.thread._thread.is_alive())
    assert handler.barrier().is_set()


def test_batches_that_arrive_while_a_stopped_thread_runs_a_callback_are_handled_before_it_ends() -> None:
    """Batches that arrive while a stopped thread runs a callback are handled before it ends."""
    handler = BatchHandler("test-success", MemoryBudget(0, SystemClock()))
    entered, gate, told = threading.Event(), threading.Event(), threading.Event()
    result = Result(successful=True, attempts=(), attempt_count=0)
    slow, late = batch(), batch()
    slow.callbacks = [lambda _r: entered.set() or passed(gate)]
    late.callbacks = [lambda _r: told.set()]
    slow.result = late.result = result
    handler.thread.start()
    handler.put(slow)
    passed(entered)
    handler.stop()
    handler.put(late)
    gate.set()
    passed(told)
    eventually(lambda: not handler.thread._thread.is_alive())


def test_a_thread_that_is_stopped_twice_ends() -> None:
    """A second stop, as after an interrupted close, ends the thread without a loop."""
    handler = BatchHandler("test-success", MemoryBudget(0, SystemClock()))
    entered, gate = threading.Event(), threading.Event()
    slow = batch()
    slow.callbacks = [lambda _r: entered.set() or passed(gate)]
    slow.result = Result(successful=True, attempts=(), attempt_count=0)
    handler.thread.start()
    handler.put(slow)
    passed(entered)
    handler.stop()
    handler.stop()
    gate.set()
    eventually(lambda: not handler.thread._thread.is_alive())


def test_a_backing_that_raises_does_not_stop_notifications(caplog: pytest.LogCaptureFixture) -> None:
    """The backing's error is logged; the callback runs, and the memory is returned once."""

    class _Broken(Backing):
        def failed(self, batch: ProducerBatch, result: Result, refund: Refund, body: Body) -> None:
            if batch.key.topic == KEY.topic:
                refund.pay()
            raise KeyError("no such batch")

    pipeline = threadless(ScriptedSink([RejectedError("C", "x"), RejectedError("C", "x")]), batch_count_threshold=1)
    pipeline.settlement._backing = _Broken()
    told: list[Result] = []
    for key in (KEY, KEY._replace(topic="other")):
        pipeline.admission.accept(key, record(), 1, told.append)
    settle(pipeline)
    assert [result.error_code for result in told] == ["C", "C"]
    assert pipeline.budget.used == 0
    assert caplog.text.count("was not recorded") == 2


class _Gathering:
    """Replaces the pause of a handler, and never ends it by itself."""

    def __init__(self) -> None:
        self.begun, self._ended = threading.Event(), threading.Event()

    def acquire(self, timeout: float) -> None:
        """Record that the handler waits."""
        assert timeout > 0
        self.begun.set()
        passed(self._ended)
        self._ended.clear()

    def release(self) -> None:
        """End the pause."""
        self._ended.set()


def test_a_handler_is_not_woken_by_each_of_several_batches_in_quick_succession() -> None:
    """A handler is not woken by each of several batches in quick succession; flush and close do not wait for
    the pause.
    """
    handler, told = BatchHandler("test-success", MemoryBudget(0, SystemClock())), list[int]()
    gathering = handler._hurry = _Gathering()  # type: ignore[assignment]

    def settled(number: int) -> ProducerBatch:
        one = batch()
        one.callbacks = [lambda _r: told.append(number)]
        one.result = Result(successful=True, attempts=(), attempt_count=0)
        return one

    handler.thread.start()
    handler.put(settled(0))
    passed(gathering.begun)
    gathering.begun.clear()
    for number in (1, 2, 3):
        handler.put(settled(number))
    assert told == [0]
    assert handler.pending == 3
    passed(handler.barrier())  # as flush does
    assert told == [0, 1, 2, 3]
    passed(gathering.begun)
    handler.put(settled(4))
    handler.stop()
    eventually(lambda: not handler.thread._thread.is_alive())
    assert told == [0, 1, 2, 3, 4]


def test_an_awaited_future_completes_at_once_even_while_the_handler_lets_callbacks_gather() -> None:
    """An awaited future completes at once, even while the handler lets callbacks gather."""
    handler, told = BatchHandler("test-success", MemoryBudget(0, SystemClock())), list[object]()
    gathering = handler._hurry = _Gathering()  # type: ignore[assignment]
    handler.thread.start()
    for _ in range(3):
        one = batch()
        future = SendFuture(one, 0)
        future.add_done_callback(told.append)
        one.result = Result(successful=True, attempts=(), attempt_count=0)
        handler.put(one)
        passed(gathering.begun)
        gathering.begun.clear()
    assert len(told) == 3
    handler.stop()
    eventually(lambda: not handler.thread._thread.is_alive())


def test_a_pause_ends_by_itself_without_a_flush() -> None:
    """A pause ends by itself, without a flush."""
    handler, told = BatchHandler("test-success", MemoryBudget(0, SystemClock())), list[float]()
    handler.thread.start()
    for _ in range(20):
        one, before = batch(), len(told)
        one.callbacks = [told.append]
        one.result = Result(successful=True, attempts=(), attempt_count=0)
        handler.put(one)
        eventually(lambda before=before: len(told) > before)
    handler.stop()
    eventually(lambda: not handler.thread._thread.is_alive())

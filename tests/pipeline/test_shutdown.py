"""Close works in order, in time, from anywhere, any number of times.

The file is long because it has every way to close.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from producer import (
    Attempt,
    CloseTimeoutError,
    FlushTimeoutError,
    InvalidArgumentError,
    NetworkError,
    Producer,
    ProducerClosedError,
    ProducerError,
    RejectedError,
    Result,
    SendTimeoutError,
)
from producer.model.interfaces import Delivery
from producer.pipeline.batching.batch import BatchState
from producer.pipeline.shutdown import Shutdown
from producer.runtime.clock import Deadline, Signal
from producer.testing import ManualClock, RecordingSink, ScriptedSink
from tests.support.clocks import JumpingClock
from tests.support.pipelines import KEY, config, record, threadless
from tests.support.sinks import DeadSink, GatedSink
from tests.support.waiting import PATIENCE, Call, eventually, passed

LOG = {"a": "b"}


def _alive(name: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(f"{name}-")]


def _producer(sink: RecordingSink, name: str, **options: object) -> Producer:
    return Producer(sink=sink, config=config(name=name, **({"linger_ms": 10**6} | options)))


def test_when_close_returns_everything_is_delivered_and_notified_no_thread_is_left() -> None:
    """When close returns, everything is delivered and notified, no thread is left, and the sink is closed."""
    sink, told = RecordingSink(), []
    producer = _producer(sink, "tidy")
    futures = [producer.send("p", "l", LOG, topic=str(i % 3), callback=told.append) for i in range(30)]
    assert len(_alive("tidy")) == 5
    producer.close()
    assert all(future.result(0).successful for future in futures)
    assert len(told) == 30
    assert sink.closed
    eventually(lambda: _alive("tidy") == [])


def test_close_follows_the_data() -> None:
    """Each stage closes after the one before it in the path of a record."""
    sink = RecordingSink()
    pipeline = threadless(sink)
    order: list[str] = []

    def watch(owner: object, method: str, name: str) -> None:
        original: Callable[..., object] = getattr(owner, method)

        def wrapper(*args: object) -> object:
            order.append(name)
            return original(*args)

        setattr(owner, method, wrapper)

    watch(pipeline.budget, "close", "memory")
    watch(pipeline.accumulator, "close", "accumulator")
    watch(pipeline.retry_queue, "close", "retry queue")
    watch(pipeline.mover, "stop", "mover")
    watch(pipeline.io_pool, "stop", "io pool")
    for handler, name in zip(pipeline.settlement.handlers, ("success", "failure"), strict=True):
        watch(handler, "stop", name)
    watch(sink, "close", "sink")
    Shutdown(pipeline).close(10)
    assert order == ["memory", "accumulator", "retry queue", "mover", "io pool", "success", "failure", "sink"]


def test_batches_that_wait_for_a_retry_get_one_last_attempt_at_once() -> None:
    """close does not wait for a backoff: a waiting batch is tried once more, and delivered or failed."""
    for error in (None, NetworkError("R", "down")):
        sink = ScriptedSink([NetworkError("R", "down"), error])
        producer = _producer(sink, "last", linger_ms=100, base_retry_backoff_ms=40_000)
        future = producer.send("p", "l", LOG)
        eventually(lambda producer=producer: producer.stats().batches["waiting"])
        producer.close(PATIENCE)
        assert (future.exception(0) is None) == (error is None)
        assert len(sink.attempts) == 2


@pytest.mark.parametrize(
    ("drain_timeout_ms", "timeout", "patience"), [(60_000, 10.0, 5.0), (3_000, 10.0, 3.0), (4_000, None, 2.0)]
)
def test_retries_continue_every_second_until_then_and_once_more_at_once(
    drain_timeout_ms: int, timeout: float | None, patience: float
) -> None:
    """Retries continue every second until then, and once more at once."""
    clock, at = JumpingClock(), list[float]()

    def down(_delivery: Delivery) -> NetworkError:
        at.append(clock.monotonic() - began)
        return NetworkError("R", "down")

    backoff = {"base_retry_backoff_ms": 1000, "max_retry_backoff_ms": 1000}
    options = {"drain_timeout_ms": drain_timeout_ms, "retries": 100}
    pipeline = threadless(ScriptedSink([down] * 100), clock, **options, **backoff)
    future = pipeline.admission.accept(KEY, record(), 1, None)
    began = clock.monotonic()
    Shutdown(pipeline).close(timeout)
    assert future.done()
    assert at == [float(second) for second in range(int(patience) + 1)]


def test_at_the_deadline_the_rest_fails_with_producerclosed_attempts_in_flight_may_have_been_stored() -> None:
    """At the deadline the rest fails with ProducerClosed; attempts in flight may have been stored; the error has the
    count.
    """
    sink, told = GatedSink(), []
    producer = _producer(sink, "late", io_thread_count=1, batch_count_threshold=2)
    futures = [producer.send("p", "l", [LOG, LOG], callback=told.append) for _ in range(3)]
    assert sink.entered.acquire(timeout=PATIENCE)
    with pytest.raises(CloseTimeoutError) as caught:
        producer.close(0.05)
    assert caught.value.failed_records == 6
    assert caught.value.stuck == ("late-io-0",)
    assert "6 records were failed" in str(caught.value)
    assert "late-io-0" in str(caught.value)
    results = [future.exception(0).result for future in futures]  # type: ignore[union-attr]
    assert {result.error_code for result in results} == {"ProducerClosed"}
    assert [result.may_have_been_stored for result in results] == [True, False, False]
    eventually(lambda: len(told) == 3)
    eventually(lambda: producer.stats().memory_used == 0)
    sink.gate.set()
    eventually(lambda: _alive("late") == [])
    assert len(told) == 3
    assert producer.stats().failed == 6


def test_a_batch_abandoned_before_its_body_was_made_is_not_sent() -> None:
    """If close fails a batch while its body is made, no incomplete request is sent."""
    sink = RecordingSink()
    pipeline = threadless(sink)
    future = pipeline.admission.accept(KEY, record(), 1, None)
    pipeline.accumulator.seal_open()
    batch = pipeline.accumulator.incomplete()[0]
    encode = sink.encode

    def abandoned_meanwhile(*args: object) -> object:
        pipeline.settlement.abandon(batch)
        return encode(*args)  # type: ignore[arg-type]

    sink.encode = abandoned_meanwhile  # type: ignore[method-assign,assignment]
    pipeline.io_pool.run_next()
    assert sink.deliveries == []
    assert batch.payload is None
    assert future.exception(0) is not None


def test_a_batch_that_leaves_for_the_server_while_it_is_abandoned_is_in_doubt() -> None:
    """If an IO thread takes the batch before its end, the result does not deny that it was stored."""
    pipeline = threadless(RecordingSink())
    future = pipeline.admission.accept(KEY, record(), 1, None)
    pipeline.accumulator.seal_open()
    (batch,) = pipeline.accumulator.incomplete()
    attempt_of = pipeline.settlement.abandoned

    def leaving(*, may_have_been_stored: bool = False) -> Attempt:
        if batch.state is BatchState.QUEUED:
            batch.move(BatchState.SENDING)
        return attempt_of(may_have_been_stored=may_have_been_stored)

    pipeline.settlement.abandoned = leaving  # type: ignore[method-assign]
    assert pipeline.settlement.abandon(batch)
    error = future.exception(0)
    assert isinstance(error, ProducerError)
    assert error.result.may_have_been_stored


def test_close_twice_and_from_many_threads_closes_once() -> None:
    """Twenty threads close at once, and again later: all return, the sink is closed once, nothing is lost."""
    sink, closed = RecordingSink(), []
    close = sink.close
    sink.close = lambda: closed.append(1) or close()  # type: ignore[method-assign,func-returns-value]
    producer, barrier = _producer(sink, "often"), threading.Barrier(20)
    futures = [producer.send("p", "l", LOG) for _ in range(100)]

    def close_it() -> None:
        barrier.wait()
        producer.close(PATIENCE)

    for call in [Call(close_it) for _ in range(20)]:
        call.result()
    producer.close()
    producer.close(0)
    assert closed == [1]
    assert all(future.done() for future in futures)


def test_while_one_thread_closes_without_a_limit_another_ones_short_close_times_out() -> None:
    """While one thread closes without a limit, another one's short close times out; the first continues."""
    sink = GatedSink()
    producer = _producer(sink, "two")
    future = producer.send("p", "l", LOG)
    first = Call(producer.close)
    assert sink.entered.acquire(timeout=PATIENCE)
    with pytest.raises(CloseTimeoutError):
        producer.close(0.01)
    assert not first.done
    assert not future.done()
    sink.gate.set()
    first.result()
    assert future.result(0).successful


@pytest.mark.parametrize("error", [None, RejectedError("C", "x")])
def test_close_inside_a_callback_closes_without_waiting_for_itself(
    error: RejectedError | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A callback that closes the producer returns; all other callbacks run as well."""
    told: list[Result] = []
    producer = _producer(ScriptedSink([error] * 10), "inside", batch_count_threshold=1)
    outcome: list[object] = []
    done = threading.Event()

    def close(result: Result) -> None:
        told.append(result)
        outcome.append(producer.close(PATIENCE))
        done.set()

    producer.send("p", "l", LOG, callback=close)
    passed(done)
    eventually(lambda: _alive("inside") == [])
    with pytest.raises(ProducerClosedError):
        producer.send("p", "l", LOG)
    assert outcome == [None]
    assert "close was called on this thread" in caplog.text


@pytest.mark.parametrize("error", [None, RejectedError("C", "x")])
def test_close_inside_a_callback_while_another_thread_closes_returns_at_once(error: RejectedError | None) -> None:
    """A closing thread waits for a callback that closes, too: neither waits forever."""
    producer = _producer(ScriptedSink([error]), "both")
    entered, go_on, told = threading.Event(), threading.Event(), threading.Event()

    def close(_result: Result) -> None:
        entered.set()
        passed(go_on)
        producer.close()
        told.set()

    producer.send("p", "l", LOG, callback=close)
    closing = Call(lambda: producer.close(PATIENCE))
    passed(entered)
    eventually(lambda: producer._shutdown is not None and producer._shutdown.begun)
    go_on.set()
    closing.result()
    passed(told)


def test_callbacks_of_both_kinds_that_close_at_the_same_time_do_not_wait_for_each_other() -> None:
    """A success and a failure callback close at once: both return."""
    sink = ScriptedSink([None, RejectedError("C", "x")])
    producer = _producer(sink, "pair", batch_count_threshold=1, io_thread_count=1)
    both, done = threading.Barrier(2), threading.Semaphore(0)

    def close(_result: Result) -> None:
        both.wait(PATIENCE)
        producer.close(PATIENCE)
        done.release()

    for _ in range(2):
        producer.send("p", "l", LOG, callback=close)
    for _ in range(2):
        assert done.acquire(timeout=PATIENCE)
    eventually(lambda: _alive("pair") == [])


def test_a_callback_that_hangs_is_named_at_the_deadline() -> None:
    """close returns at its deadline although a callback hangs; the error names its thread."""
    gate = threading.Event()
    producer = _producer(RecordingSink(), "hang")
    producer.send("p", "l", LOG, callback=lambda _r: gate.wait(PATIENCE))
    with pytest.raises(CloseTimeoutError) as caught:
        producer.close(0.05)
    assert caught.value.stuck == ("hang-success",)
    assert caught.value.failed_records == 0
    gate.set()


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan")])
def test_a_negative_timeout_is_refused_and_closes_nothing(timeout: float) -> None:
    """A negative timeout is an InvalidArgumentError that shows it; the producer stays open."""
    with _producer(RecordingSink(), "neg") as producer:
        producer.send("p", "l", LOG)
        for method in (producer.close, producer.flush):
            with pytest.raises(InvalidArgumentError, match="timeout: must be None or seconds, at least 0"):
                method(timeout)
        producer.send("p", "l", LOG)


@pytest.mark.parametrize("timeout", [1e12, float("inf")])
def test_any_large_timeout_works(timeout: float) -> None:
    """A timeout longer than the system can wait for raises nothing."""
    producer = _producer(RecordingSink(), "large")
    future = producer.send("p", "l", LOG)
    producer.flush(timeout)
    assert future.done()
    producer.close(timeout)


def test_send_raises_producerclosederror_when_close_begins_not_after_max_block_ms() -> None:
    """send raises ProducerClosedError when close begins, not after max_block_ms."""
    sink = GatedSink()
    producer = _producer(sink, "full", total_size_in_bytes=6000, max_block_ms=-1)
    producer.send("p", "l", {"a": "x" * 1500})
    sender = Call(lambda: producer.send("p", "l", {"a": "x" * 1500}))
    eventually(lambda: producer.stats().waiting_senders == 1)
    closing = Call(producer.close)
    with pytest.raises(ProducerClosedError):
        sender.result()
    sink.gate.set()
    closing.result()
    assert producer.stats().memory_used == 0


def test_flush_after_close_returns() -> None:
    """A flush of a closed producer returns at once."""
    producer = _producer(RecordingSink(), "after")
    producer.send("p", "l", LOG)
    producer.close()
    Call(producer.flush).result()
    assert producer.stats().delivered == 1


def test_flush_while_another_thread_closes_returns() -> None:
    """A flush during a close ends with it."""
    sink = GatedSink()
    producer = _producer(sink, "mixed")
    producer.send("p", "l", LOG)
    flushing = Call(producer.flush)
    assert sink.entered.acquire(timeout=PATIENCE)
    closing = Call(producer.close)
    eventually(lambda: producer._shutdown is not None and producer._shutdown.begun)
    sink.gate.set()
    flushing.result()
    closing.result()


def test_flush_waits_for_earlier_records_and_their_callbacks_and_not_for_later_ones() -> None:
    """flush waits for earlier records and their callbacks, and not for later ones."""
    sink, told = GatedSink(), []
    producer = _producer(sink, "flush", batch_count_threshold=1, io_thread_count=1)
    producer.send("p", "l", LOG, callback=told.append)
    flushing = Call(producer.flush)
    assert sink.entered.acquire(timeout=PATIENCE)
    eventually(lambda: producer._pipeline is not None and producer._pipeline.accumulator._settled)
    later = [producer.send("p", "l", LOG, topic="later") for _ in range(5)]
    sink.gate.set()
    flushing.result()
    assert told
    producer.close()
    assert all(future.done() for future in later)


def test_flushtimeouterror_has_the_number_of_batches_which_are_delivered_later() -> None:
    """FlushTimeoutError has the number of batches, which are delivered later."""
    sink = GatedSink()
    producer = _producer(sink, "short")
    future = producer.send("p", "l", LOG)
    with pytest.raises(FlushTimeoutError, match=r"1 batch is still in flight after 0.010 s; delivery continues"):
        producer.flush(0.01)
    sink.gate.set()
    assert future.result(PATIENCE).successful
    producer.close()


def test_flush_inside_a_callback_is_refused() -> None:
    """A flush in a callback raises an error, since it would wait for its own thread."""
    errors: list[BaseException] = []

    def flush(_result: Result) -> None:
        try:
            producer.flush()
        except ProducerError as error:
            errors.append(error)

    with _producer(RecordingSink(), "fc") as producer:
        producer.send("p", "l", LOG, callback=flush)
    assert "call it on another thread" in str(errors[0])


class _InterruptedClock(ManualClock):
    """A clock whose waits in the main thread end with Ctrl-C a number of times."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupts = 0

    def wait_for(self, signal: Signal, deadline: Deadline) -> None:
        if self.interrupts and threading.current_thread() is threading.main_thread():
            self.interrupts -= 1
            raise KeyboardInterrupt
        super().wait_for(signal, deadline)


def test_a_close_that_is_interrupted_can_be_resumed() -> None:
    """After Ctrl-C, the next close takes over, waits, and ends everything, as the exit would."""
    from producer.client import at_exit

    sink, clock = GatedSink(), _InterruptedClock()
    producer = Producer(sink=sink, clock=clock, config=config(name="ctrl", linger_ms=10**6))
    future = producer.send("p", "l", LOG)
    clock.interrupts = 1
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    shutdown = producer._shutdown
    assert shutdown in at_exit._draining
    with pytest.raises(ProducerClosedError):
        producer.send("p", "l", LOG)
    assert not future.done()
    sink.gate.set()
    producer.close()
    assert future.result(0).successful
    assert sink.closed
    assert shutdown not in at_exit._draining
    eventually(lambda: _alive("ctrl") == [])


def test_the_second_thread_in_close_finishes_the_work_of_the_interrupted_first_one() -> None:
    """The second thread in close finishes the work of the interrupted first one."""
    sink, clock = GatedSink(), ManualClock()
    producer = Producer(sink=sink, clock=clock, config=config(name="over", linger_ms=10**6))
    producer.send("p", "l", LOG)
    pipeline = producer._pipeline
    assert pipeline is not None
    wait_settled, calls = pipeline.accumulator.wait_settled, []
    second: list[Call] = []

    def interrupted_once(*args: object) -> int:
        calls.append(1)
        if len(calls) == 1:
            second.append(Call(producer.close))
            eventually(lambda: producer._shutdown is not None and producer._shutdown._room)
            raise KeyboardInterrupt
        return wait_settled(*args)  # type: ignore[arg-type]

    pipeline.accumulator.wait_settled = interrupted_once  # type: ignore[method-assign,assignment]
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    sink.gate.set()
    second[0].result()
    assert sink.closed
    assert len(calls) > 1


def test_no_loss_at_close_with_a_dead_server() -> None:
    """With a dead server, close fails every record by its last attempt: callbacks = sends."""
    told: list[Result] = []
    producer = _producer(DeadSink(), "dead", batch_count_threshold=1, linger_ms=100)
    for i in range(200):
        producer.send("p", "l", LOG, topic=str(i % 7), callback=told.append)
    producer.close(PATIENCE)
    assert len(told) == 200
    assert {result.error_code for result in told} == {"RequestError"}
    assert producer.stats().memory_used == 0


def test_fifty_threads_that_send_while_one_closes_get_one_outcome_for_each_accepted_send() -> None:
    """Callbacks = accepted sends, at any moment of close; no memory is left in use."""
    for round_ in range(3):
        told, sink = [], RecordingSink()
        producer = _producer(sink, f"storm{round_}", batch_count_threshold=7)
        accepted: list[int] = []
        begun = threading.Barrier(51)

        def send(
            producer: Producer = producer,
            accepted: list[int] = accepted,
            told: list[Result] = told,
            begun: threading.Barrier = begun,
        ) -> None:
            begun.wait()
            count = 0
            try:
                while True:
                    producer.send("p", "l", LOG, topic=str(count % 3), callback=told.append)
                    count += 1
            except ProducerClosedError:
                accepted.append(count)

        senders = [Call(send) for _ in range(50)]
        begun.wait()
        eventually(lambda told=told: len(told) > 500)
        producer.close(PATIENCE)
        for sender in senders:
            sender.result()
        assert len(told) == sum(accepted) == len(sink.records())
        assert producer.stats().memory_used == 0


def test_close_before_any_send_ends_at_once_and_refuses_sends() -> None:
    """A producer that never sent closes without threads; send then raises; flush and stats work."""
    producer = _producer(RecordingSink(), "never")
    producer.close(0)
    with pytest.raises(ProducerClosedError, match="closed"):
        producer.send("p", "l", LOG)
    producer.flush()
    assert producer.stats().accepted == 0
    assert _alive("never") == []


def test_a_send_without_memory_times_out_and_leaves_the_rest_alone() -> None:
    """SendTimeoutError comes after max_block_ms of a hanging server; the accepted record is delivered later."""
    sink = GatedSink()
    producer = _producer(sink, "tight", total_size_in_bytes=6000, max_block_ms=1)
    future = producer.send("p", "l", {"a": "x" * 1500})
    with pytest.raises(SendTimeoutError, match="total_size_in_bytes"):
        producer.send("p", "l", {"a": "x" * 1500})
    sink.gate.set()
    producer.close()
    assert future.result(0).successful


class _BrokenAtTheEnd(RecordingSink):
    def close(self) -> None:
        """Raise each time."""
        super().close()
        raise OSError("the disk is gone")


@pytest.mark.parametrize("used", [True, False])
def test_the_first_close_raises_the_sinks_error_later_ones_nothing(used: bool) -> None:
    """The first close raises the sink's error, later ones nothing; all is delivered, and no thread is left."""
    producer = _producer(_BrokenAtTheEnd(), "broken-end")
    futures = [producer.send("p", "l", LOG)] if used else []
    with pytest.raises(OSError, match="the disk is gone"):
        producer.close()
    assert producer.closed
    producer.close()
    producer.close(0)
    assert all(future.result(0).successful for future in futures)
    eventually(lambda: _alive("broken-end") == [])


def test_a_late_close_of_a_broken_sink_tells_of_the_records_first() -> None:
    """CloseTimeoutError reports the lost records, with the sink's error as its cause."""

    class Sink(GatedSink):
        def close(self) -> None:
            raise OSError("the disk is gone")

    sink = Sink()
    producer = _producer(sink, "broken-late")
    producer.send("p", "l", LOG)
    with pytest.raises(CloseTimeoutError) as caught:
        producer.close(0.05)
    assert caught.value.failed_records == 1
    assert isinstance(caught.value.__cause__, OSError)
    sink.gate.set()
    eventually(lambda: _alive("broken-late") == [])
    producer.close()


def test_close_inside_the_close_of_a_sink_does_not_wait_for_itself() -> None:
    """The inner close returns at once, without a timeout; the outer one ends."""

    class Sink(RecordingSink):
        def close(self) -> None:
            super().close()
            producer.close()

    sink = Sink()
    producer = _producer(sink, "inner")
    producer.send("p", "l", LOG)
    Call(producer.close).result()
    assert sink.closed

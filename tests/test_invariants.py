"""Each invariant of the design has at least one test, in the design's order."""

import os
import pickle
import threading
import time
from typing import Any

import pytest

from producer import (
    BodyTooLargeError,
    CloseTimeoutError,
    NetworkError,
    Producer,
    ProducerClosedError,
    ProducerConfig,
    ProjectConfig,
    RejectedError,
    Result,
    RetryPolicy,
)
from producer.model.interfaces import Delivery
from producer.pipeline.batching.batch import BatchState, ProducerBatch
from producer.testing import RecordingSink, ScriptedSink
from tests.support.pipelines import KEY, config, record, settle, threadless
from tests.support.sinks import DeadSink, GatedSink
from tests.support.threads import cpu_of, named
from tests.support.waiting import PATIENCE, Call, allowed, eventually, passed

LOG = {"a": "b"}


def _broken(*_args: object, **_options: object) -> Any:
    raise RuntimeError("a bug of our own")


class _BrokenSink(ScriptedSink):
    """A sink with a bug in one of its methods."""

    def __init__(self, method: str) -> None:
        super().__init__([BodyTooLargeError("PostBodyTooLarge", "x")] if method == "decode" else [])
        setattr(self, method, _broken)


@pytest.mark.parametrize("where", ["write", "encode", "decode", "wait", "stop", "retry", "callback", "receipt"])
def test_3_1_an_accepted_record_settles_exactly_once_also_when_our_code_has_a_bug(where: str) -> None:
    """With a bug in any part, each accepted record completes once: one callback, one done-callback, no memory lost."""
    options: dict[str, Any] = {"linger_ms": 100}
    sink: RecordingSink = DeadSink()
    if where in {"write", "encode", "decode"}:
        sink = _BrokenSink(where)
    elif where in {"wait", "stop", "retry"}:
        options["retry_policy"] = RetryPolicy(**{where: _broken})
    producer = Producer(sink=sink, config=config(retries=1, base_retry_backoff_ms=1, **options))
    told: list[Result] = []
    done: list[object] = []
    futures = []
    for _ in range(10):
        futures.append(producer.send("p", "l", LOG, callback=told.append))
        futures[-1].add_done_callback(done.append)
    if where == "callback":
        producer.send("p", "l", LOG, callback=_broken).add_done_callback(_broken)
    if where == "receipt":
        sink.write = lambda _delivery: object()  # type: ignore[method-assign,assignment,return-value]
    producer.flush(PATIENCE)
    assert len(told) == len(done) == 10
    assert all(future.done() for future in futures)
    assert producer.stats().memory_used == 0
    producer.close()
    assert len(told) == 10


def test_3_1_many_threads_and_faults_settle_each_record_once() -> None:
    """Eight senders against a sink with every kind of response: callbacks = sends, successes are on the server."""
    faults = [
        None,
        NetworkError("R", "x"),
        RejectedError("C", "x"),
        BodyTooLargeError("PostBodyTooLarge", "x"),
        lambda _delivery: _broken(),
        None,
    ]
    sink = ScriptedSink(faults * 100)  # type: ignore[arg-type]
    told: list[Result] = []
    with Producer(
        sink=sink,
        config=config(linger_ms=100, batch_count_threshold=5, base_retry_backoff_ms=1, max_retry_backoff_ms=5),
    ) as producer:
        barrier = threading.Barrier(8)

        def send(name: int) -> None:
            barrier.wait()
            for i in range(200):
                producer.send("p", "l", {"id": f"{name}-{i}"}, topic=str(i % 3), callback=told.append)

        for call in [Call(lambda name=name: send(name)) for name in range(8)]:
            call.result()
    assert len(told) == 1600
    delivered = sink.records()
    assert len(delivered) == len(set(delivered)) == sum(result.successful for result in told)
    stats = producer.stats()
    assert (stats.accepted, stats.delivered + stats.failed, stats.memory_used) == (1600, 1600, 0)


@pytest.mark.parametrize("error", [None, RejectedError("C", "x")])
def test_3_2_bytes_are_returned_once_and_before_user_code_runs(error: RejectedError | None) -> None:
    """A callback finds its batch's bytes returned, and may send with them; at the end no memory is used."""
    sink = ScriptedSink([error])
    pipeline = threadless(sink, total_size_in_bytes=7000, max_block_ms=0, batch_count_threshold=1)
    used: list[int] = []

    def callback(_result: Result) -> None:
        used.append(pipeline.budget.used)
        pipeline.admission.accept(KEY, b"a" * 2000, 1, lambda _r: used.append(pipeline.budget.used))

    pipeline.admission.accept(KEY, record("x" * 2000), 1, callback)
    settle(pipeline)
    assert used == [0, 0]
    assert pipeline.budget.used == 0


def test_3_3_a_batch_in_a_final_state_never_changes() -> None:
    """Completing a completed batch, by its owner or by close, changes nothing and reports nothing again."""
    pipeline, told = threadless(), []
    pipeline.admission.accept(KEY, record(), 1, told.append)
    pipeline.accumulator.seal_open()
    batch = pipeline.accumulator.incomplete()[0]
    settle(pipeline)
    result = batch.result
    assert not pipeline.settlement.abandon(batch)
    pipeline.settlement.fail(batch)
    pipeline.settlement.succeed(batch)
    pipeline.resubmit(batch)
    for state in BatchState:
        assert not batch.move(state)
    settle(pipeline)
    assert (batch.state, batch.result) == (BatchState.SUCCEEDED, result)
    assert len(told) == 1
    assert pipeline.budget.used == 0


def test_3_3_a_batch_has_one_owner() -> None:
    """One thread at a time attempts a batch, while flushes, the mover and senders all dispatch batches."""
    attempts: dict[str, int] = {}
    lock = threading.Lock()

    def step(delivery: Delivery) -> None:
        with lock:
            assert delivery.pack_id is not None
            attempts[delivery.pack_id] = attempts.get(delivery.pack_id, 0) + 1

    sink = ScriptedSink([step] * 100_000)
    producer = Producer(sink=sink, config=config(linger_ms=100, batch_count_threshold=2))
    stop = threading.Event()

    def flush() -> None:
        while not stop.is_set():
            producer.flush(PATIENCE)

    flushing = [Call(flush) for _ in range(2)]
    senders = [Call(lambda: [producer.send("p", "l", LOG, topic=str(i % 5)) for i in range(1500)]) for _ in range(4)]
    for sender in senders:
        sender.result()
    stop.set()
    for call in flushing:
        call.result()
    producer.close()
    assert set(attempts.values()) == {1}
    assert producer.stats().delivered == 6000


def test_3_4_after_close_begins_send_raises() -> None:
    """Every send raises from the start of close, even while close waits for deliveries."""
    sink = GatedSink()
    producer = Producer(sink=sink, config=config())
    future = producer.send("p", "l", LOG)
    closing = Call(producer.close)
    assert sink.entered.acquire(timeout=PATIENCE)
    with pytest.raises(ProducerClosedError):
        producer.send("p", "l", LOG)
    assert not closing.done
    sink.gate.set()
    closing.result()
    assert future.result(0).successful


def test_3_4_appends_already_begun_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender that is appending when close begins finishes, and close delivers its record."""
    producer = Producer(sink=RecordingSink(), config=config())
    entered, go_on = threading.Event(), threading.Event()
    add = ProducerBatch.add

    def slow(*args: Any) -> Any:
        entered.set()
        passed(go_on)
        return add(*args)

    monkeypatch.setattr(ProducerBatch, "add", slow)
    sender = Call(lambda: producer.send("p", "l", LOG))
    passed(entered)
    closing = Call(producer.close)
    eventually(lambda: producer._shutdown is not None and producer._shutdown.begun)
    go_on.set()
    closing.result()
    assert sender.result().result(0).successful


def _held_locks(pipeline: Any) -> list[str]:
    locks = {
        "budget": pipeline.budget.lock,
        "accumulator": pipeline.accumulator._lock,
        "retry queue": pipeline.retry_queue._lock,
        "io pool": pipeline.io_pool._lock,
        "success": pipeline.settlement.success._lock,
        "failure": pipeline.settlement.failure._lock,
    }
    held = []
    for name, lock in locks.items():
        if lock.acquire(blocking=False):
            lock.release()
        else:
            held.append(name)
    return held


def test_3_5_no_io_and_no_user_code_runs_under_a_lock() -> None:
    """In the sink's write, encode and decode, in strategies, callbacks and done-callbacks every lock is free."""
    held: dict[str, list[str]] = {}
    batches: list[ProducerBatch] = []

    def look(name: str) -> None:
        held[name] = _held_locks(pipeline) + ["batch" for batch in batches if batch._lock.locked()]

    class Sink(ScriptedSink):
        def encode(self, *args: Any) -> Any:
            look("encode")
            return super().encode(*args)

        def decode(self, *args: Any) -> Any:
            look("decode")
            return super().decode(*args)

        def write(self, delivery: Delivery) -> Any:
            look("write")
            return super().write(delivery)

    def strategy(_state: object) -> float:
        look("strategy")
        return 0.0

    script = [NetworkError("R", "x"), BodyTooLargeError("PostBodyTooLarge", "x")]
    pipeline = threadless(Sink(script), retry_policy=RetryPolicy(wait=strategy))
    for _ in range(2):
        future = pipeline.admission.accept(KEY, record(), 1, lambda _r: look("callback"))
    future.add_done_callback(lambda _f: look("done-callback"))
    batches += pipeline.accumulator.incomplete()
    pipeline.flush(None)
    assert set(held) == {"encode", "decode", "write", "strategy", "callback", "done-callback"}
    assert all(not locks for locks in held.values()), held


def test_3_6_every_thread_has_a_name_and_no_job_kills_it() -> None:
    """Threads are named after the producer and their stage, and survive jobs that raise."""
    raising = [
        lambda _delivery, error=error: _raise(error) for error in (RuntimeError(), SystemExit(), KeyboardInterrupt())
    ]
    sink = ScriptedSink(raising)  # type: ignore[arg-type]
    producer = Producer(sink=sink, config=config(name="shop", linger_ms=100, batch_count_threshold=1))
    names = {"shop-mover", "shop-io-0", "shop-io-1", "shop-success", "shop-failure"}
    for _ in range(3):
        producer.send("p", "l", LOG, callback=lambda _r: _raise(SystemExit()))
    producer.flush(PATIENCE)
    producer.send("p", "l", LOG, callback=lambda _r: _raise(SystemExit()))
    producer.flush(PATIENCE)
    assert {thread.name for thread in threading.enumerate() if thread.name.startswith("shop-")} == names
    assert (producer.stats().failed, producer.stats().delivered) == (3, 1)
    producer.close()
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("shop-")])


def _raise(error: BaseException) -> Any:
    raise error


def test_3_6_callbacks_run_on_the_handler_threads_only() -> None:
    """One thread reports successes, another one failures, and no other thread does."""
    names: dict[bool, set[str]] = {True: set(), False: set()}
    sink = ScriptedSink([RejectedError("C", "x"), None] * 20)
    with Producer(sink=sink, config=config(name="shop", batch_count_threshold=1)) as producer:
        for _ in range(40):
            producer.send("p", "l", LOG, callback=lambda r: names[r.successful].add(threading.current_thread().name))
    assert names == {True: {"shop-success"}, False: {"shop-failure"}}


@pytest.mark.parametrize("sink", [RecordingSink(), DeadSink()], ids=["idle", "server down"])
def test_3_7_waiting_threads_sleep(sink: RecordingSink) -> None:
    """An idle producer, and one with 300 batches for a dead server, use almost no CPU while they wait."""
    producer = Producer(sink=sink, config=config(batch_count_threshold=1, linger_ms=100, base_retry_backoff_ms=50_000))
    for _ in range(300):
        producer.send("p", "l", LOG)
    eventually(lambda: not producer.stats().batches["queued"] and not producer.stats().batches["sending"])
    own = named(f"{producer.name}-")
    assert len(own) == 5
    began = cpu_of(own)
    assert not threading.Event().wait(1.0)  # the measurement is a second in which nothing happens
    assert cpu_of(own) - began < 0.1
    producer.close()


def test_all_stages_share_one_absolute_deadline() -> None:
    """All stages share one absolute deadline: then the rest fails with ProducerClosed, and close gives the number."""
    sink = GatedSink()
    producer = Producer(sink=sink, config=config(batch_count_threshold=1, io_thread_count=1))
    told: list[Result] = []
    for _ in range(5):
        producer.send("p", "l", LOG, callback=told.append)
    began = time.monotonic()
    with pytest.raises(CloseTimeoutError, match="5 records were failed"):
        producer.close(0.1)
    assert time.monotonic() - began < allowed(5)
    eventually(lambda: len(told) == 5)
    assert {result.error_code for result in told} == {"ProducerClosed"}
    producer.close()
    sink.gate.set()


def test_3_8_close_is_safe_twice_from_many_threads_and_inside_a_callback() -> None:
    """Callbacks of both kinds close, ten threads close, the owner closes again: every record completes once."""
    sink = ScriptedSink([None, RejectedError("C", "x")] * 50)
    producer = Producer(sink=sink, config=config(batch_count_threshold=1))
    told: list[Result] = []

    def callback(result: Result) -> None:
        told.append(result)
        producer.close(PATIENCE)

    accepted = 0
    try:
        for _ in range(100):
            producer.send("p", "l", LOG, callback=callback)
            accepted += 1
    except ProducerClosedError:
        pass
    for call in [Call(lambda: producer.close(PATIENCE)) for _ in range(10)]:
        call.result()
    producer.close()
    eventually(lambda: len(told) == accepted)
    assert producer.stats().memory_used == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_3_9_after_a_fork_the_child_starts_empty_and_the_parent_delivers_its_own() -> None:
    """The child's producer is empty and works; the parent completes and sends its own records."""
    sink = RecordingSink()
    producer = Producer(sink=sink, config=config(linger_ms=10**6))
    future = producer.send("p", "l", {"who": "parent"})
    child = os.fork()
    if child == 0:  # a failure here must not reach pytest's own exit
        code = 1
        try:
            error = future.exception(5)
            code = 2 if error is None or error.result.error_code != "ForkedAway" else 3
            if code == 3 and producer.stats().accepted == 0:
                mine = producer.send("p", "l", {"who": "child"})
                producer.close(PATIENCE)
                code = 0 if mine.result(0).successful and len(sink.deliveries) == 1 else 4
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    producer.close()
    assert future.result(0).successful
    assert [b"parent" in delivery.payload.body for delivery in sink.deliveries] == [True]


def test_3_10_pickling_a_producer_carries_its_configuration_not_its_threads() -> None:
    """A producer in use pickles; the copy has the projects and options, no records, and no threads until it sends."""
    key = {"access_key_id": "id", "access_key_secret": "secret"}
    original = Producer(
        ProjectConfig("p", endpoint="http://127.0.0.1:9", **key), config=ProducerConfig(retries=0, linger_ms=100)
    )
    original.send("p", "l", LOG)
    copy = pickle.loads(pickle.dumps(original))
    assert copy.name != original.name
    assert named(f"{original.name}-")
    assert not named(f"{copy.name}-")
    assert copy.config == original.config
    assert copy._sink.project_configs() == original._sink.project_configs()
    assert copy.stats().accepted == 0
    assert copy.send("p", "l", LOG).exception(PATIENCE) is not None
    copy.close()
    original.close()

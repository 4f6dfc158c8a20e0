"""The IO pool: projects take turns, dead ones leave threads to the others, and no job ends a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from producer.model.records import StreamKey
from producer.pipeline.batching.attempt_history import AttemptHistory
from producer.pipeline.batching.batch import ProducerBatch
from producer.pipeline.batching.ready_batches import ReadyBatches
from producer.pipeline.batching.stream_state import StreamState
from producer.pipeline.sending.fair_queue import FairQueue, Report
from producer.pipeline.sending.gates import Verdict
from producer.pipeline.sending.io_pool import IOThreadPool
from producer.runtime.clock import Deadline, SystemClock
from tests.pipeline.sending.kit import Rules
from tests.support.pipelines import KEY, config, queued, running
from tests.support.waiting import (
    PATIENCE,
    Call,
    eventually,
    passed,
)


def _batch(project: str) -> ProducerBatch:
    return ProducerBatch(
        KEY._replace(project=project),
        stream=StreamState("C"),
        serial=0,
        pack_id=None,
        tail_size=0,
        created_at=0.0,
        history=AttemptHistory(1),
    )


def _pool(
    run: Callable[[ProducerBatch], Verdict], threads: int = 2, refused: list[ProducerBatch] | None = None
) -> IOThreadPool:
    return IOThreadPool(
        "test",
        threads,
        ReadyBatches(SystemClock()),
        FairQueue(config(io_thread_count=threads), Rules()),
        sink=SimpleNamespace(destination=lambda key: key.project),  # type: ignore[arg-type]
        task=SimpleNamespace(run=lambda turn: Report(run(turn.batch))),  # type: ignore[arg-type]
        settlement=SimpleNamespace(abandon=(refused if refused is not None else []).append),  # type: ignore[arg-type]
        retry_queue=SimpleNamespace(set_alarm=lambda _at: None),  # type: ignore[arg-type]
        clock=SystemClock(),
    )


def test_the_sinks_code_runs_on_the_io_thread_without_the_pools_lock_and_never_on_the_senders_thread() -> None:
    """The sink's code runs on the IO thread, without the pool's lock, and never on the sender's thread."""
    asked: list[bool] = []
    pool = _pool(lambda _batch: Verdict.ACCEPTED)

    def destination(key: StreamKey) -> str:
        asked.append(pool._lock.locked() or queued(pool) != 1)
        return key.project

    pool._sink.destination = destination  # type: ignore[method-assign,assignment]
    batch = _batch("p")
    pool.submit(batch)
    assert asked == []
    assert pool.run_next()
    assert asked == [False]


def test_while_another_thread_holds_the_queue_senders_do_not_wait() -> None:
    """While another thread holds the queue, senders do not wait."""
    done = threading.Event()
    pool = _pool(lambda _batch: done.set() or Verdict.ACCEPTED, threads=1)
    pool.start()
    eventually(lambda: len(pool._idle) == 1)
    with pool._lock:
        Call(lambda: pool.submit(_batch("p"))).result()
        assert not done.is_set()
    passed(done)
    _end(pool)


def _end(pool: IOThreadPool) -> None:
    pool.stop()
    assert pool.join(Deadline.after(SystemClock(), PATIENCE)) == []


def test_projects_take_turns_however_busy_one_of_them_is() -> None:
    """Of 100 batches of one project and 2 of another, the latter are second and fourth."""
    order: list[str] = []
    pool = _pool(lambda batch: order.append(batch.key.project) or Verdict.ACCEPTED)
    for _ in range(100):
        pool.submit(_batch("busy"))
    for _ in range(2):
        pool.submit(_batch("quiet"))
    while pool.run_next():
        pass
    assert order[:4] == ["busy", "quiet", "busy", "quiet"]
    assert len(order) == 102
    assert not queued(pool)
    assert not running(pool)


def test_batches_of_a_project_go_in_the_order_of_their_coming() -> None:
    """Batches of a project are sent first in, first out."""
    seen: list[ProducerBatch] = []
    pool, batches = _pool(lambda batch: seen.append(batch) or Verdict.ACCEPTED), [_batch("p") for _ in range(20)]
    for batch in batches:
        pool.submit(batch)
    while pool.run_next():
        pass
    assert seen == batches


def test_dead_projects_together_leave_half_of_the_threads_to_the_others() -> None:
    """Three unreachable projects use half of the threads; a fourth is served meanwhile."""
    hang, gate, served = threading.Event(), threading.Event(), threading.Semaphore(0)
    hanging: list[str] = []
    most: list[int] = []
    lock = threading.Lock()

    def run(batch: ProducerBatch) -> Verdict:
        if batch.key.project == "alive":
            served.release()
            return Verdict.ACCEPTED
        if hang.is_set():
            with lock:
                hanging.append(batch.key.project)
                most.append(len(hanging))
            passed(gate)
            with lock:
                hanging.remove(batch.key.project)
        return Verdict.NO_ANSWER

    pool = _pool(run, threads=4)
    pool.start()
    for project in ("dead-1", "dead-2", "dead-3"):
        pool.submit(_batch(project))
    eventually(lambda: queued(pool) == 0 and not running(pool))
    hang.set()
    for project in ("dead-1", "dead-2", "dead-3"):
        for _ in range(20):
            pool.submit(_batch(project))
    for _ in range(50):
        pool.submit(_batch("alive"))
    for _ in range(50):
        assert served.acquire(timeout=PATIENCE)
    assert max(most) <= 2
    gate.set()
    _end(pool)
    assert max(most) <= 2


def test_a_project_that_answers_again_gets_all_threads_back() -> None:
    """After one attempt without a response and a round of responses, a project may use every thread again."""
    both = threading.Barrier(2)
    answers = [Verdict.NO_ANSWER, *[Verdict.ACCEPTED] * 4]

    def run(_batch: ProducerBatch) -> Verdict:
        if answers:
            return answers.pop(0)
        both.wait(PATIENCE)  # only two threads at once get past it
        return Verdict.ACCEPTED

    pool = _pool(run, threads=2)
    for _ in range(len(answers)):
        pool.submit(_batch("p"))
        assert pool.run_next()
    pool.start()
    for _ in range(2):
        pool.submit(_batch("p"))
    eventually(lambda: queued(pool) == 0 and not running(pool))
    assert not both.broken
    _end(pool)


@pytest.mark.parametrize("error", [RuntimeError("a bug"), SystemExit(1), KeyboardInterrupt()])
def test_a_job_that_raises_ends_no_thread(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """After any exception of a job, the thread does the next job, and the error is logged."""
    done = threading.Event()
    jobs: list[BaseException | None] = [error, None]

    def run(_batch: ProducerBatch) -> Verdict:
        job = jobs.pop(0)
        if job is not None:
            raise job
        done.set()
        return Verdict.ACCEPTED

    pool = _pool(run, threads=1)
    pool.start()
    pool.submit(_batch("p"))
    pool.submit(_batch("p"))
    passed(done)
    _end(pool)
    assert "test-io-0: an unexpected error; the thread continues" in caplog.text
    assert not running(pool)


def test_batches_queued_at_the_stop_are_still_attempted_later_ones_are_refused() -> None:
    """Batches queued at the stop are still attempted; later ones are refused."""
    seen: list[ProducerBatch] = []
    refused: list[ProducerBatch] = []
    pool = _pool(lambda batch: seen.append(batch) or True, refused=refused)
    early, late = [_batch("p") for _ in range(10)], _batch("p")
    for batch in early:
        pool.submit(batch)
    pool.start()
    pool.stop()
    pool.submit(late)
    assert pool.join(Deadline.after(SystemClock(), PATIENCE)) == []
    assert set(seen) == set(early)
    assert refused == [late]


def test_threads_that_do_not_end_in_time_are_named() -> None:
    """join returns the names of the threads that are still busy."""
    gate, entered = threading.Event(), threading.Event()
    pool = _pool(lambda _batch: entered.set() or (gate.wait(PATIENCE) and Verdict.ACCEPTED), threads=1)
    pool.start()
    pool.submit(_batch("p"))
    passed(entered)
    pool.stop()
    assert pool.join(Deadline.after(SystemClock(), 0.0)) == ["test-io-0"]
    gate.set()
    _end(pool)


def test_a_batch_behind_a_closed_gate_or_an_attempts_end_that_releases_nothing_wakes_no_thread() -> None:
    """A batch behind a closed gate, or an attempt's end that releases nothing, wakes no thread."""
    pool = _pool(lambda _batch: Verdict.UNREACHABLE)
    woken: list[int] = []
    pool._idle.wake_one = lambda: woken.append(1)  # type: ignore[method-assign]
    pool.submit(_batch("p"))
    woken.clear()
    assert pool.run_next()
    pool.submit(_batch("p"), wake=False)
    pool.wake()
    assert woken == []
    assert queued(pool) == 1
    pool.submit(_batch("q"), wake=False)
    pool.wake()
    assert woken == [1]

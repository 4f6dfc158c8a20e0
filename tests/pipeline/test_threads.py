"""Pipeline threads and contended locks."""

from __future__ import annotations

import threading

import pytest

from producer.pipeline import threads
from producer.pipeline.batching import accumulator, memory
from producer.pipeline.threads import StageThread, wait_until_free
from producer.runtime.clock import Deadline, SystemClock
from tests.support.pipelines import KEY, record, threadless
from tests.support.waiting import PATIENCE


class _Taken:
    """A lock that is free at the third try."""

    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.released = 0

    def acquire(self, blocking: bool = True) -> bool:
        self.asked.append(blocking)
        return len(self.asked) == 3

    def release(self) -> None:
        self.released += 1


@pytest.mark.skipif(threads._compiled is None, reason="what is compiled alone may do so on any thread")
def test_a_sender_takes_no_place_in_the_line_for_a_lock() -> None:
    """A queued thread would be woken for each list, by the thread before it."""
    lock = _Taken()
    wait_until_free(lock)
    assert lock.asked == [False] * 3
    assert lock.released == 1


def test_threads_that_append_reserve_or_return_memory_wait_until_the_budgets_lock_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads that append a piece, reserve memory or return it wait until the budget's lock is free."""
    pipeline, asked = threadless(), list[object]()
    for place in (accumulator, memory):
        monkeypatch.setattr(place, "wait_until_free", asked.append)
    pipeline.admission.accept(KEY, record("one"), 1, None)
    assert memory.Reservation(pipeline.budget, 0).reserve(1)
    pipeline.budget.release(0)
    assert asked == [pipeline.budget.lock] * 3


@pytest.mark.skipif(threads._compiled is None, reason="what is compiled alone may do so on any thread")
def test_a_finalizer_on_a_thread_that_holds_the_lock_gets_an_error_it_would_wait_forever() -> None:
    """A finalizer on a thread that holds the lock gets an error: it would wait forever."""
    lock = threading.RLock()
    with lock:
        wait_until_free(lock)
        assert lock._is_owned()
    assert not lock._is_owned()


def test_in_the_pure_implementation_a_stage_thread_polls_until_the_lock_is_free_and_leaves_it_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the pure implementation, a stage thread polls until the lock is free, and leaves it free.

    On a user's thread, which an interrupt may meet, it does nothing.
    """
    monkeypatch.setattr(threads, "_compiled", None)
    lock = _Taken()
    wait_until_free(lock)
    assert lock.asked == []
    thread = StageThread("t", lambda: wait_until_free(lock))
    thread.start()
    assert thread.join(SystemClock(), Deadline.after(SystemClock(), PATIENCE))
    assert lock.asked == [False] * 3
    assert lock.released == 1


@pytest.mark.parametrize(("message", "fails"), [("release unlocked lock", False), ("can't start new thread", True)])
def test_a_start_fails_only_if_no_thread_runs(message: str, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """If CPython raises an error after the thread has started, the pipeline still keeps its threads."""
    start, ran = threading.Thread.start, threading.Event()

    def start_and_raise(thread: threading.Thread) -> None:
        if not fails:
            start(thread)
        raise RuntimeError(message)

    stage = StageThread("stage", ran.set)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_and_raise)
        if fails:
            with pytest.raises(RuntimeError, match=message):
                stage.start()
        else:
            stage.start()
    assert stage.started is not fails
    assert ran.wait(0 if fails else PATIENCE) is not fails

"""What threads of the pipeline do beside their work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import ModuleType, SimpleNamespace

import pytest

from producer.pipeline import threads
from producer.pipeline.batching import accumulator, memory
from producer.pipeline.batching.accumulator import Piece
from producer.pipeline.threads import StageThread, stand_back, undisturbed
from producer.runtime.clock import NO_DEADLINE, Deadline, SystemClock
from tests.channels.interrupts import interrupted_everywhere
from tests.support.pipelines import KEY, record, threadless
from tests.support.waiting import PATIENCE


class _Taken:
    """A lock that is free when it was asked for three times."""

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
    """Else each of several threads that send would be woken for each list, by the one before it."""
    lock = _Taken()
    stand_back(lock)
    assert lock.asked == [False] * 3
    assert lock.released == 1


@pytest.mark.parametrize("place", [accumulator, memory])
def test_who_sends_lists_stands_back_from_the_budgets_lock(place: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is taken, where memory is reserved and where a piece joins its batch."""
    asked: list[object] = []
    monkeypatch.setattr(place, "stand_back", asked.append)
    pipeline = threadless()
    pipeline.accept_encoded(100, lambda: [Piece(KEY, record("one"), 1)], None)
    assert pipeline.budget.lock in asked


def test_who_gives_memory_back_stands_back_from_the_budgets_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """As who reserves it."""
    budget, asked = threadless().budget, list[object]()
    monkeypatch.setattr(memory, "stand_back", asked.append)
    budget.release(0)
    assert asked == [budget.lock]


@pytest.mark.skipif(threads._compiled is None, reason="what is compiled alone may do so on any thread")
def test_who_has_a_lock_does_not_stand_back_from_it() -> None:
    """A finalizer on a thread that has it would wait for ever; it is told instead."""
    lock = threading.RLock()
    with lock:
        stand_back(lock)
        assert lock._is_owned()
    assert not lock._is_owned()


def test_who_stands_back_takes_no_place_in_the_line_for_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what is compiled, too: it looks again and again until the lock is free, and leaves it free; on a thread
    of the user's, which an interrupt may meet, it does nothing.
    """
    monkeypatch.setattr(threads, "_compiled", None)
    lock = _Taken()
    stand_back(lock)
    assert lock.asked == []
    thread = StageThread("t", lambda: stand_back(lock))
    thread.start()
    assert thread.join(SystemClock(), Deadline.after(SystemClock(), PATIENCE))
    assert lock.asked == [False] * 3
    assert lock.released == 1


def test_a_start_that_was_interrupted_is_made_up_for_by_the_next_one(without_coverage: None) -> None:
    """Wherever the interrupt came; one thread runs the loop, once."""
    clock = SystemClock()

    def scenario() -> tuple[Callable[[], None], Callable[[bool], None]]:
        runs = list[int]()
        thread = StageThread("t", lambda: runs.append(1))

        def check(_interrupted: bool) -> None:
            thread.start()
            thread.start()
            assert thread.started
            assert thread.join(clock, Deadline.after(clock, PATIENCE))
            assert runs == [1]

        return thread.start, check

    interrupted_everywhere(scenario, 2)


def test_an_interrupt_of_a_start_is_not_taken_for_a_lack_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it made the start fail at a lock, it is what comes out; and the next start is as good as a first one."""
    thread, start = StageThread("t", lambda: None), threading.Thread.start

    def interrupted(self: threading.Thread) -> None:
        start(self)
        try:
            raise KeyboardInterrupt
        finally:
            threading.Lock().release()

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            thread.start()
    thread.start()
    assert thread.join(SystemClock(), NO_DEADLINE)


def test_a_lack_of_threads_is_told_also_by_who_handles_another_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken for an interrupt."""

    def full(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    thread = StageThread("t", lambda: None)
    try:
        raise ValueError
    except ValueError:
        with pytest.raises(RuntimeError, match="can't start"):
            thread.start()
    assert not thread.started


def test_a_call_that_is_undisturbed_goes_on_when_the_wait_for_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is made beside the main thread, and its result or error is that of the call."""
    begun, gate, ended = threading.Event(), threading.Event(), threading.Event()

    class Interrupted(SimpleQueue[object]):
        def get(self, *_: object) -> object:
            raise KeyboardInterrupt

    def call() -> int:
        begun.set()
        assert gate.wait(PATIENCE)
        ended.set()
        return 5

    with monkeypatch.context() as patch:
        patch.setattr(threads, "queue", SimpleNamespace(SimpleQueue=Interrupted))
        with pytest.raises(KeyboardInterrupt):
            undisturbed(call)
    assert begun.wait(PATIENCE)
    assert not ended.is_set()
    gate.set()
    assert ended.wait(PATIENCE)
    assert undisturbed(call) == 5
    with pytest.raises(ZeroDivisionError):
        undisturbed(lambda: 1 // 0)


def test_where_no_thread_can_be_started_the_caller_makes_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does whoever is not the main thread, which alone is interrupted."""
    other: list[int] = []
    thread = threading.Thread(target=lambda: other.append(undisturbed(threading.get_ident)))
    thread.start()
    thread.join()
    assert other == [thread.ident]

    def full(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    assert undisturbed(threading.get_ident) == threading.get_ident()

"""Threads that take turns are repeatable, never race, and never hang."""

from collections.abc import Callable

import pytest

from producer.runtime.clock import Deadline, Signal
from producer.runtime.locks import Lock
from tests.support.interleaving import NAME, Interleaving, TurnClock, TurnLock, locks_that_take_turns, outcomes, point
from tests.support.threads import named


def writing(seen: list[str], name: str) -> Callable[[], str]:
    def write() -> str:
        for step in range(3):
            seen.append(f"{name}{step}")
            point()
        return name

    return write


@pytest.mark.parametrize(
    ("switches", "expected"),
    [
        ((), "a0 a1 a2 b0 b1 b2"),
        ((1,), "a0 b0 b1 b2 a1 a2"),
        ((1, 2), "a0 b0 a1 a2 b1 b2"),
        ((2, 4), "a0 a1 b0 b1 a2 b2"),
        ((99,), "a0 a1 a2 b0 b1 b2"),
    ],
)
def test_another_thread_continues_at_the_named_points_only(switches: tuple[int, ...], expected: str) -> None:
    """Another thread continues at the named points only; at the end of a thread the next one continues."""
    for _ in range(3):
        seen: list[str] = []
        interleaving = Interleaving(switches)
        assert outcomes(interleaving.run(writing(seen, "a"), writing(seen, "b"))) == ["a", "b"]
        assert " ".join(seen) == expected
        assert interleaving.points == 6


def test_a_thread_inside_the_lock_yields_to_one_that_wants_it_both_get_it_one_after_the_other() -> None:
    """A thread inside the lock yields to one that wants it: both get it, one after the other."""
    with locks_that_take_turns():
        lock = Lock()
    assert isinstance(lock, TurnLock)
    assert not isinstance(Lock(), TurnLock)
    seen = []

    def use(name: str) -> None:
        with lock:
            seen.append(f"{name} in")
            point()
            seen.append(f"{name} out")

    outcomes(Interleaving([1, 2]).run(lambda: use("a"), lambda: use("b")))
    assert seen == ["a in", "a out", "b in", "b out"]
    assert not lock.locked()
    assert lock.acquire(blocking=False)
    assert not lock.acquire(blocking=False)


def test_a_thread_that_waits_for_a_signal_yields_until_it_is_set_or_the_timeout_ends() -> None:
    """A thread that waits for a signal yields until it is set or the timeout ends."""
    clock, signal, seen = TurnClock(), Signal(), list[str]()

    def wait() -> None:
        clock.wait_for(signal, Deadline(None))
        seen.append("woken")
        clock.wait_for(signal, Deadline.after(clock, 5))
        seen.append("late")

    def wake() -> None:
        seen.append("wakes")
        signal.set()
        point()
        clock.advance(6)

    outcomes(Interleaving([1]).run(wait, wake))
    assert seen == ["wakes", "woken", "late"]


def test_threads_that_wait_for_each_other_are_a_failure_and_no_hang() -> None:
    """Two locks taken in opposite orders fail at once, and no thread is left running."""
    first, second = TurnLock(), TurnLock()

    def take(one: TurnLock, other: TurnLock) -> None:
        with one:
            point()
            with other:
                pass

    with pytest.raises(AssertionError, match="each thread waits for another one"):
        Interleaving([1]).run(lambda: take(first, second), lambda: take(second, first))
    assert not named(NAME)
    point()  # no threads take turns here: nothing happens


def test_an_error_in_one_thread_is_kept_for_the_caller_the_other_threads_continue() -> None:
    """An error in one thread is kept for the caller; the other threads continue."""

    def fail() -> None:
        raise ValueError("no")

    workers = Interleaving().run(fail, lambda: 5)
    assert workers[1].value == 5
    with pytest.raises(ValueError, match="no"):
        outcomes(workers)

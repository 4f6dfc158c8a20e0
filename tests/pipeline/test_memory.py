"""The memory budget: first come, first served; every byte is given back."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer import ProducerClosedError, SendTimeoutError
from producer.clock import Deadline, SystemClock
from producer.pipeline.memory import MemoryBudget
from producer.testing import ManualClock
from tests.support.waiting import Call, eventually


def test_bytes_are_taken_and_given_back() -> None:
    """What fits is taken at once, up to the last byte, and given back."""
    budget = MemoryBudget(100, ManualClock())
    budget.acquire(60, 0)
    budget.acquire(40, 0)
    assert budget.used == 100
    budget.release(60)
    budget.release(40)
    assert budget.used == 0


def test_zero_max_block_fails_at_once_with_all_numbers() -> None:
    """With max_block 0 a full budget fails at once; the error says limit, used, wanted, oldest age."""
    budget = MemoryBudget(100, ManualClock(), oldest_age=lambda: 12.25)
    budget.acquire(90, 0)
    with pytest.raises(SendTimeoutError) as caught:
        budget.acquire(11, 0)
    error = caught.value
    assert (error.limit, error.used, error.wanted, error.oldest_age, error.waited) == (100, 90, 11, 12.25, 0.0)
    for words in ("11 bytes wanted", "90 of 100 bytes", "total_size_in_bytes", "12.2 s", "max_block_ms"):
        assert words in str(error)
    assert budget.used == 90


def test_a_timed_wait_fails_when_its_time_is_over_and_not_before() -> None:
    """A sender waits exactly max_block, then leaves the line."""
    clock = ManualClock()
    budget = MemoryBudget(10, clock)
    budget.acquire(10, 0)
    call = Call(lambda: budget.acquire(1, 5.0))
    eventually(lambda: clock.waiting == 1)
    clock.advance(4.999)
    eventually(lambda: clock.waiting == 1)
    assert not call.done
    assert budget.waiting == 1
    clock.advance(0.001)
    with pytest.raises(SendTimeoutError) as caught:
        call.result()
    assert caught.value.waited == pytest.approx(5.0)
    assert (budget.used, budget.waiting) == (10, 0)


def test_without_an_end_a_sender_waits_until_bytes_are_free() -> None:
    """max_block None waits however long it takes."""
    clock = ManualClock()
    budget = MemoryBudget(10, clock)
    budget.acquire(10, 0)
    call = Call(lambda: budget.acquire(1, None))
    eventually(lambda: clock.waiting == 1)
    clock.advance(10**9)
    eventually(lambda: clock.waiting == 1)
    assert not call.done
    budget.release(10)
    call.result()
    assert budget.used == 1


def test_a_large_request_is_served_before_small_ones_that_came_later() -> None:
    """Small requests queue behind a large one although they would fit; then all are served in order."""
    budget = MemoryBudget(100, SystemClock())
    budget.acquire(50, 0)
    order: list[str] = []
    lock = threading.Lock()

    def take(name: str, amount: int) -> None:
        budget.acquire(amount, None)
        with lock:
            order.append(name)

    large = Call(lambda: take("large", 100))
    eventually(lambda: budget.waiting == 1)
    small = []
    for i in range(3):
        small.append(Call(lambda: take("small", 10)))
        eventually(lambda count=i + 2: budget.waiting == count)
    with pytest.raises(SendTimeoutError):  # who does not want to wait does not jump the line either
        budget.acquire(10, 0)
    assert order == []
    budget.release(50)
    large.result()
    assert order == ["large"]
    assert budget.waiting == 3
    budget.release(100)
    for call in small:
        call.result()
    assert budget.used == 30


def test_those_behind_one_who_gave_up_are_served() -> None:
    """When a large request times out, the small one behind it, which fits, is served at once."""
    clock = ManualClock()
    budget = MemoryBudget(100, clock)
    budget.acquire(50, 0)
    large = Call(lambda: budget.acquire(100, 1.0))
    eventually(lambda: clock.waiting == 1)
    small = Call(lambda: budget.acquire(10, None))
    eventually(lambda: clock.waiting == 2)
    clock.advance(1.0)
    with pytest.raises(SendTimeoutError):
        large.result()
    small.result()
    assert budget.used == 60


class _Interrupt(ManualClock):
    """A clock whose wait ends with Ctrl-C, after ``before`` ran."""

    def __init__(self) -> None:
        super().__init__()
        self.before = lambda: None

    def wait_for(self, signal: SimpleQueue[None], deadline: Deadline) -> None:
        self.before()
        raise KeyboardInterrupt


def test_an_interrupted_sender_gives_back_what_it_was_granted() -> None:
    """Ctrl-C while waiting leaves the line; bytes that were granted in that very moment go back."""
    clock = _Interrupt()
    budget = MemoryBudget(10, clock)
    budget.acquire(10, 0)
    with pytest.raises(KeyboardInterrupt):
        budget.acquire(5, None)
    assert (budget.used, budget.waiting) == (10, 0)

    def granted_meanwhile() -> None:  # as a release on another thread would leave it
        budget.used -= 10
        budget._grant()

    clock.before = granted_meanwhile
    with pytest.raises(KeyboardInterrupt):
        budget.acquire(5, None)
    assert (budget.used, budget.waiting) == (0, 0)


def test_close_wakes_all_who_wait_and_refuses_all_who_come() -> None:
    """After close every waiter and every newcomer gets ProducerClosedError; bytes can still be given back."""
    budget = MemoryBudget(10, SystemClock())
    budget.acquire(10, 0)
    calls = [Call(lambda: budget.acquire(5, None)) for _ in range(5)]
    eventually(lambda: budget.waiting == 5)
    budget.close()
    for call in calls:
        with pytest.raises(ProducerClosedError):
            call.result()
    with pytest.raises(ProducerClosedError):
        budget.acquire(0, 0)
    budget.release(10)
    assert (budget.used, budget.waiting) == (0, 0)


def test_many_threads_never_exceed_the_limit_and_return_everything() -> None:
    """Eight threads that take and return random amounts stay within the limit and leave nothing taken."""
    budget, barrier = MemoryBudget(1000, SystemClock()), threading.Barrier(8)
    seen: list[int] = []

    def work(seed: int) -> None:
        barrier.wait()
        for i in range(300):
            amount = 1 + (seed * 7919 + i * 104_729) % 1000
            budget.acquire(amount, None)
            seen.append(budget.used)
            budget.release(amount)

    calls = [Call(lambda seed=seed: work(seed)) for seed in range(8)]
    for call in calls:
        call.result()
    assert max(seen) <= 1000
    assert (budget.used, budget.waiting) == (0, 0)


@given(st.lists(st.integers(1, 60), max_size=30))
def test_what_is_used_is_what_was_taken(amounts: list[int]) -> None:
    """Whatever is asked for, ``used`` is the sum of what was granted."""
    budget, taken = MemoryBudget(100, ManualClock()), 0
    for amount in amounts:
        try:
            budget.acquire(amount, 0)
            taken += amount
        except SendTimeoutError:
            assert taken + amount > 100
    assert budget.used == taken

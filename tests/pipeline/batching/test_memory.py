"""The memory budget is fair, and every byte is returned."""

from __future__ import annotations

import sys
import threading
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer import ProducerClosedError, SendTimeoutError
from producer.pipeline.batching.memory import Bytes, MemoryBudget, PureBytes, Reservation
from producer.runtime.clock import Deadline, Signal, SystemClock
from producer.testing import ManualClock
from tests.support.short_way import by_hand
from tests.support.waiting import Call, eventually

_kept: list[Reservation] = []


class RefusedError(Exception):
    """Raised if the bytes did not become free in time."""


def _reserve(memory: Reservation, amount: int) -> None:
    if not memory.reserve(amount):
        raise RefusedError(memory.waited)


def _acquire(budget: MemoryBudget, amount: int, max_block: float | None) -> None:
    """Take bytes permanently."""
    memory = Reservation(budget, max_block)
    _kept.append(memory)
    _reserve(memory, amount)


def _release(budget: MemoryBudget, amount: int) -> None:
    """Return bytes as a batch does."""
    budget.reserved -= amount
    budget.sealed += amount
    budget.release(amount)


def test_bytes_are_taken_and_given_back() -> None:
    """Bytes are taken at once up to the limit, and returned."""
    budget = MemoryBudget(100, ManualClock())
    _acquire(budget, 60, 0)
    _acquire(budget, 40, 0)
    assert budget.used == 100
    _release(budget, 60)
    _release(budget, 40)
    assert budget.used == 0


def test_zero_max_block_fails_at_once_with_all_numbers() -> None:
    """With max_block 0 a full budget fails at once; the error has limit, used, wanted and oldest age."""
    clock = ManualClock()
    producer, _ = by_hand(clock=clock, total_size_in_bytes=20_000, max_block_ms=0)
    stream = producer.stream("p", "l")
    stream.send({"m": "x" * 10_000})
    clock.advance(12.25)
    with pytest.raises(SendTimeoutError) as caught:
        stream.send({"m": "x" * 9000})
    error = caught.value
    assert (error.limit, error.oldest_age, error.waited) == (20_000, 12.25, 0.0)
    assert error.used + error.wanted > 20_000
    for words in (f"{error.wanted} bytes wanted", f"{error.used} of 20000 bytes", "12.2 s", "max_block_ms"):
        assert words in str(error)


def test_a_timed_wait_fails_when_its_time_is_over_and_not_before() -> None:
    """A sender waits exactly max_block, then leaves the line."""
    clock = ManualClock()
    budget = MemoryBudget(10, clock)
    _acquire(budget, 10, 0)
    call = Call(lambda: _acquire(budget, 1, 5.0))
    eventually(lambda: clock.waiting == 1)
    clock.advance(4.999)
    eventually(lambda: clock.waiting == 1)
    assert not call.done
    assert budget.waiting == 1
    clock.advance(0.001)
    with pytest.raises(RefusedError) as caught:
        call.result()
    assert caught.value.args == (pytest.approx(5.0),)
    assert (budget.used, budget.waiting) == (10, 0)


def test_without_an_end_a_sender_waits_until_bytes_are_free() -> None:
    """With max_block None a sender waits without a limit."""
    clock = ManualClock()
    budget = MemoryBudget(10, clock)
    _acquire(budget, 10, 0)
    call = Call(lambda: _acquire(budget, 1, None))
    eventually(lambda: clock.waiting == 1)
    clock.advance(10**9)
    eventually(lambda: clock.waiting == 1)
    assert not call.done
    _release(budget, 10)
    call.result()
    assert budget.used == 1


def test_small_requests_wait_behind_a_large_one_although_they_would_fit_then_all_are_served_in_order() -> None:
    """Small requests wait behind a large one although they would fit; then all are served in order."""
    budget = MemoryBudget(100, SystemClock())
    _acquire(budget, 50, 0)
    order: list[str] = []
    lock = threading.Lock()

    def take(name: str, amount: int) -> None:
        _acquire(budget, amount, None)
        with lock:
            order.append(name)

    large = Call(lambda: take("large", 100))
    eventually(lambda: budget.waiting == 1)
    small = []
    for i in range(3):
        small.append(Call(lambda: take("small", 10)))
        eventually(lambda count=i + 2: budget.waiting == count)
    with pytest.raises(RefusedError):  # a request that does not wait does not overtake, either
        _acquire(budget, 10, 0)
    assert order == []
    _release(budget, 50)
    large.result()
    assert order == ["large"]
    assert budget.waiting == 3
    _release(budget, 100)
    for call in small:
        call.result()
    assert budget.used == 30


def test_when_a_large_request_times_out_the_small_one_behind_it_is_served_at_once() -> None:
    """When a large request times out, the small one behind it is served at once."""
    clock = ManualClock()
    budget = MemoryBudget(100, clock)
    _acquire(budget, 50, 0)
    large = Call(lambda: _acquire(budget, 100, 1.0))
    eventually(lambda: clock.waiting == 1)
    small = Call(lambda: _acquire(budget, 10, None))
    eventually(lambda: clock.waiting == 2)
    clock.advance(1.0)
    with pytest.raises(RefusedError):
        large.result()
    small.result()
    assert budget.used == 60


class _Interrupt(ManualClock):
    """A clock whose wait ends with Ctrl-C, after ``before`` ran."""

    def __init__(self) -> None:
        super().__init__()
        self.before = lambda: None

    def wait_for(self, signal: Signal, deadline: Deadline) -> None:
        self.before()
        raise KeyboardInterrupt


def test_ctrl_c_while_waiting_leaves_the_line_bytes_granted_at_that_moment_are_returned() -> None:
    """Ctrl-C while waiting leaves the line; bytes granted at that moment are returned."""
    clock = _Interrupt()
    budget = MemoryBudget(10, clock)
    _acquire(budget, 10, 0)
    memory = Reservation(budget, None)
    with pytest.raises(KeyboardInterrupt):
        _reserve(memory, 5)
    memory.end()
    assert (budget.used, budget.waiting) == (10, 0)

    clock.before = lambda: _release(budget, 10)
    memory = Reservation(budget, None)
    with pytest.raises(KeyboardInterrupt):
        _reserve(memory, 5)
    memory.end()
    assert (budget.used, budget.reserved, budget.waiting) == (0, 0, 0)


def test_after_close_all_waiting_and_new_requests_get_producerclosederror_bytes_can_still_be_returned() -> None:
    """After close, all waiting and new requests get ProducerClosedError; bytes can still be returned."""
    budget = MemoryBudget(10, SystemClock())
    _acquire(budget, 10, 0)
    calls = [Call(lambda: _acquire(budget, 5, None)) for _ in range(5)]
    eventually(lambda: budget.waiting == 5)
    budget.close()
    for call in calls:
        with pytest.raises(ProducerClosedError):
            call.result()
    with pytest.raises(ProducerClosedError):
        _acquire(budget, 1, 0)
    _release(budget, 10)
    assert (budget.used, budget.waiting) == (0, 0)


def test_many_threads_never_exceed_the_limit_and_return_everything() -> None:
    """Eight threads that take and return random amounts stay within the limit, and leave nothing taken."""
    budget, barrier = MemoryBudget(1000, SystemClock()), threading.Barrier(8)
    seen: list[int] = []

    def work(seed: int) -> None:
        barrier.wait()
        for i in range(300):
            amount = 1 + (seed * 7919 + i * 104_729) % 1000
            _acquire(budget, amount, None)
            seen.append(budget.used)
            _release(budget, amount)

    calls = [Call(lambda seed=seed: work(seed)) for seed in range(8)]
    for call in calls:
        call.result()
    assert max(seen) <= 1000
    assert (budget.used, budget.waiting) == (0, 0)


@given(st.lists(st.integers(1, 60), max_size=30))
def test_used_is_the_sum_of_the_granted_bytes(amounts: list[int]) -> None:
    """``used`` is the sum of the granted bytes."""
    budget, taken = MemoryBudget(100, ManualClock()), 0
    for amount in amounts:
        try:
            _acquire(budget, amount, 0)
            taken += amount
        except RefusedError:
            assert taken + amount > 100
    assert budget.used == taken


#: The native and the pure byte counters, by name.
_COUNTS = {"pure": PureBytes, "either": Bytes}


@given(st.lists(st.tuples(st.booleans(), st.integers(-50, 100)), max_size=30), st.integers(0, 200), st.integers(0, 30))
def test_both_implementations_count_the_same(steps: list[tuple[bool, int]], limit: int, until: int) -> None:
    """Both implementations take, refuse and count the same bytes, also while the rest is reserved."""

    def counted(kind: type[PureBytes]) -> list[object]:
        memory, seen = kind(limit), list[object]()
        for turn, (takes, amount) in enumerate(steps):
            memory.reserved_for_others = turn >= until
            seen += [memory.take(abs(amount)) if takes else memory.change(amount), memory.used]
        return seen

    assert counted(PureBytes) == counted(Bytes)


@pytest.mark.parametrize("name", _COUNTS)
def test_no_change_of_the_count_is_lost_among_threads(name: str) -> None:
    """Four threads that take and return without a lock of their own never exceed the limit."""
    memory, seen = _COUNTS[name](5), list[int]()
    usual = sys.getswitchinterval()

    def work() -> None:
        for _ in range(3000):
            if memory.take(2):
                seen.append(memory.used)
                memory.change(-2)

    sys.setswitchinterval(1e-6)
    try:
        for call in [Call(work) for _ in range(4)]:
            call.result()
    finally:
        sys.setswitchinterval(usual)
    assert max(seen) <= 5
    assert memory.used == 0


def test_an_interrupt_as_a_sender_is_granted_bytes_leaves_it_in_the_line() -> None:
    """If a signal handler raises in the thread that returns bytes, the next return serves the waiting sender."""
    budget = MemoryBudget(100, SystemClock())
    _acquire(budget, 100, None)
    waiting = Call(lambda: _acquire(budget, 60, None))
    eventually(lambda: budget.waiting == 1)

    def interrupt(frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and frame.f_code is Reservation.hold.__code__:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            _release(budget, 70)
    finally:
        sys.setprofile(None)
    _release(budget, 10)
    waiting.result()
    assert budget.usage()[0] == 80

"""Permits: room in events and bytes, first come, first served, given back exactly once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.channels.permits import Permits, Waiter
from producer.clock import Deadline, SystemClock
from producer.testing import ManualClock
from tests.support.waiting import Call, eventually

from .interrupts import interrupted_everywhere


def test_room_is_taken_up_to_the_last_event_and_byte() -> None:
    """What fits is taken at once; one more event, or one more byte, is refused."""
    permits = Permits(3, 100)
    assert permits.acquire(2, 60)
    assert not permits.acquire(2, 0)
    assert not permits.acquire(0, 41)
    assert permits.acquire(1, 40)
    assert (permits.events, permits.size) == (3, 100)


def test_without_a_byte_capacity_only_events_count() -> None:
    """None is no limit of bytes."""
    permits = Permits(2, None)
    assert permits.acquire(2, 10**15)
    assert not permits.acquire(1, 0)


def test_more_cannot_be_given_back_than_was_taken() -> None:
    """A second release of the same room is a bug that shows at once, and changes nothing."""
    permits = Permits(3, 100)
    permits.acquire(1, 10)
    permits.release(1, 10)
    for events, size in ((1, 0), (0, 1)):
        with pytest.raises(RuntimeError, match=f"{events} events of {size} bytes given back, of 0 of 0 taken"):
            permits.release(events, size)
    assert (permits.events, permits.size) == (0, 0)


def test_room_that_has_to_be_is_taken_beyond_the_limits() -> None:
    """What a channel finds at its opening counts, also if it is more than fits; nothing fits until it is less."""
    permits = Permits(2, 10)
    permits.force(5, 50)
    assert not permits.acquire(1, 0)
    permits.release(4, 45)
    assert permits.acquire(1, 5)


def test_the_line_is_served_in_order() -> None:
    """One who comes later waits behind one who does not fit yet, even if he would fit himself."""
    permits = Permits(10, None)
    permits.acquire(10, 0)
    large, small = permits.line_up(8, 0), permits.line_up(1, 0)
    permits.release(5, 0)
    assert (large.granted, small.granted) == (False, False)
    assert not permits.acquire(1, 0)
    permits.release(3, 0)
    assert (large.granted, small.granted) == (True, False)
    permits.release(1, 0)
    assert small.granted
    assert (permits.events, permits.waiting) == (10, 0)


def test_who_lines_up_for_what_is_there_gets_it_at_once() -> None:
    """Room that became free between a refusal and the place in the line is not missed."""
    permits = Permits(10, None)
    assert permits.line_up(10, 0).granted


def test_who_leaves_the_line_lets_those_behind_him_through() -> None:
    """A large request gives up; the small one behind it, which fits, is granted."""
    permits = Permits(10, None)
    permits.acquire(5, 0)
    large, small = permits.line_up(8, 0), permits.line_up(5, 0)
    permits.leave(large)
    assert small.granted
    assert (permits.events, permits.waiting) == (10, 0)


def test_room_granted_to_one_who_leaves_goes_back_once() -> None:
    """A timeout in the moment of the grant loses no room, and leaving twice gives it back once."""
    permits = Permits(10, 100)
    permits.acquire(10, 100)
    waiter = permits.line_up(4, 40)
    permits.release(10, 100)
    assert waiter.granted
    permits.leave(waiter)
    permits.leave(waiter)
    assert (permits.events, permits.size) == (0, 0)


def test_a_grant_wakes_the_one_who_waits() -> None:
    """He sleeps without the lock until then."""
    permits, clock = Permits(1, None), SystemClock()
    permits.acquire(1, 0)
    waiter = permits.line_up(1, 0)
    call = Call(lambda: waiter.wait(clock, Deadline(None)))
    permits.release(1, 0)
    call.result()
    assert waiter.granted


def test_a_wait_ends_at_its_deadline() -> None:
    """Nothing was granted; the caller leaves."""
    permits, clock = Permits(1, None), ManualClock()
    permits.acquire(1, 0)
    waiter = permits.line_up(1, 0)
    call = Call(lambda: waiter.wait(clock, Deadline.after(clock, 3.0)))
    eventually(lambda: clock.waiting == 1)
    clock.advance(3.0)
    call.result()
    assert not waiter.granted


def test_wake_all_wakes_everybody_and_grants_nothing() -> None:
    """A close lets all look again."""
    permits = Permits(1, None)
    permits.acquire(1, 0)
    waiters = [permits.line_up(1, 0) for _ in range(3)]
    permits.wake_all()
    assert [waiter.wake.qsize() for waiter in waiters] == [1, 1, 1]
    assert not any(waiter.granted for waiter in waiters)


def test_a_smaller_limit_is_refused_while_more_is_in_use() -> None:
    """Neither of the two limits changes then; both do when there is room."""
    permits = Permits(10, 100)
    permits.acquire(5, 50)
    assert not permits.resize(4, 1000)
    assert not permits.resize(1000, 49)
    assert (permits.capacity, permits.byte_capacity) == (10, 100)
    assert permits.resize(5, 50)
    assert not permits.acquire(1, 0)


def test_a_larger_limit_serves_the_line() -> None:
    """Who waited for room gets what a resize adds."""
    permits = Permits(1, 10)
    permits.acquire(1, 10)
    waiter = permits.line_up(1, 10)
    assert permits.resize(2, None)
    assert waiter.granted


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 30)), max_size=40))
def test_what_is_in_use_is_what_was_granted(steps: list[tuple[int, int, int]]) -> None:
    """Whatever is asked for, given back, waited for and given up: use is the sum of what was granted, in bounds."""
    permits = Permits(10, 60)
    held: list[tuple[int, int]] = []
    line: list[Waiter] = []
    for step, events, size in steps:
        if step == 0 and permits.acquire(events, size):
            held.append((events, size))
        elif step == 1 and held:
            permits.release(*held.pop(events % len(held)))
        elif step == 2:
            line.append(permits.line_up(events, size))
        elif step == 3 and line:
            permits.leave(line.pop(events % len(line)))
        granted = [*held, *[(waiter.events, waiter.size) for waiter in line if waiter.granted]]
        assert permits.events == sum(one[0] for one in granted) <= 10
        assert permits.size == sum(one[1] for one in granted) <= 60
        assert permits.waiting == sum(not waiter.granted for waiter in line)


def test_an_interrupted_line_up_leaves_nobody_in_line() -> None:
    """Wherever it is interrupted, whoever could not learn of his place has none, and no room."""

    def scenario() -> object:
        permits = Permits(1, None)

        def check(interrupted: bool) -> None:
            if interrupted:
                assert (permits.events, permits.waiting) == (0, 0)

        return lambda: permits.line_up(1, 0), check

    interrupted_everywhere(scenario, at_least=3)

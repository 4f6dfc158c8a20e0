"""Clocks, deadlines, and waiting rooms."""

from __future__ import annotations

import math
import sys
import threading
from types import FrameType

import pytest

from producer.runtime.clock import NO_DEADLINE, Deadline, Signal, Stop, SystemClock, WaitingRoom
from producer.testing import ManualClock
from tests.support.waiting import PATIENCE, Call, eventually


def test_a_wait_whose_deadline_passes_before_it_begins_ends() -> None:
    """A wait whose deadline passes before it begins ends."""
    clock = ManualClock()
    deadline = Deadline.after(clock, 5.0)
    assert not deadline.expired(clock)
    clock.advance(5.0)
    Call(lambda: clock.wait_for(Signal(), deadline)).result()


def test_a_clock_moved_past_the_deadline_at_any_moment_ends_a_wait_that_is_beginning() -> None:
    """A clock moved past the deadline at any moment ends a wait that is beginning."""
    clock = ManualClock()
    lock, moved = clock._lock, threading.Event()

    class MovesBefore:
        """The clock's lock, whose clock another thread moves just before it is taken."""

        def __enter__(self) -> None:
            if not moved.is_set():
                moved.set()
                clock._lock = lock
                Call(lambda: clock.advance(10.0)).result()
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    clock._lock = MovesBefore()  # type: ignore[assignment]
    Call(lambda: clock.wait_for(Signal(), Deadline(10.0))).result()
    assert moved.is_set()
    assert clock.waiting == 0


@pytest.mark.parametrize("make", [ManualClock, SystemClock])
def test_a_wake_up_between_the_check_and_the_wait_is_not_missed(make: type[ManualClock]) -> None:
    """A wake-up between the check and the wait is not missed."""
    room, there = WaitingRoom(make()), threading.Event()
    looks: list[bool] = []

    def ready() -> bool:
        looks.append(there.is_set())
        if len(looks) == 2 and not looks[-1]:  # registered, and nothing found: the change comes at this point
            there.set()
            room.wake_all()
        return looks[-1]

    assert Call(lambda: room.wait_until(ready, NO_DEADLINE)).result()
    assert looks == [False, False, True]
    assert not room


class _Moment(Deadline):
    """A deadline that is always a nanosecond away."""

    def remaining(self, clock: object) -> float:
        return 1e-9


def test_each_of_many_waits_of_a_nanosecond_ends() -> None:
    """Each of many waits of a nanosecond ends."""
    clock, moment = SystemClock(), _Moment(0.0)

    def wait_often() -> None:
        for _ in range(5_000):
            clock.wait_for(Signal(), moment)

    Call(wait_often).result()


def test_a_signal_wakes_one_wait_also_if_it_comes_before() -> None:
    """Several signals before a wait end one wait."""
    signal = Signal()
    assert not signal.wait(0)
    signal.set()
    signal.set()
    assert signal.is_set()
    assert signal.wait()
    assert not signal.is_set()
    waiter = Call(signal.wait)
    signal.set()
    assert waiter.result() is True


def test_a_room_is_left_at_the_deadline() -> None:
    """wait_until returns False at its deadline, not before, and leaves the room."""
    clock = ManualClock()
    room = WaitingRoom(clock)
    waiter = Call(lambda: room.wait_until(lambda: False, Deadline(5.0)))
    eventually(lambda: clock.waiting == 1)
    clock.advance(4.9)
    eventually(lambda: clock.waiting == 1)
    assert len(room) == 1
    clock.advance(0.1)
    assert waiter.result() is False
    assert len(room) == 0


def test_a_wake_up_of_a_thread_that_leaves_goes_to_the_next_one() -> None:
    """A wake-up of a thread that leaves goes to the next one."""
    room = WaitingRoom(SystemClock())
    things: list[int] = []
    asked = threading.Event()

    def give_up() -> bool:
        if asked.is_set():
            raise KeyboardInterrupt
        return False

    first = Call(lambda: room.wait_until(give_up, NO_DEADLINE))
    eventually(lambda: len(room) == 1)
    second = Call(lambda: room.wait_until(lambda: things and things.pop(), NO_DEADLINE))
    eventually(lambda: len(room) == 2)
    things.append(1)
    asked.set()
    room.wake_one()
    with pytest.raises(KeyboardInterrupt):
        first.result()
    assert second.result()
    assert not things


def test_two_wakes_wake_two() -> None:
    """Two calls of wake_one wake two threads, in order."""
    room, lock = WaitingRoom(SystemClock()), threading.Lock()
    things: list[int] = []
    order: list[int] = []

    def take(number: int) -> bool:
        with lock:
            if not things:
                return False
            order.append(number)
            return bool(things.pop())

    calls = []
    for number in range(3):
        calls.append(Call(lambda number=number: room.wait_until(lambda: take(number), NO_DEADLINE)))
        eventually(lambda count=number + 1: len(room) == count)
    for _ in range(3):
        with lock:
            things.append(1)
        room.wake_one()
    assert all(call.result() for call in calls)
    assert sorted(order) == [0, 1, 2]


def test_a_waiting_thread_checks_again_after_some_seconds_but_not_beyond_its_deadline() -> None:
    """A waiting thread checks again after some seconds, but not beyond its deadline."""
    clock, looks = ManualClock(), []
    room = WaitingRoom(clock, look_again=1.0)

    def look() -> bool:
        looks.append(clock.monotonic())
        return len(looks) == 4

    call = Call(lambda: room.wait_until(look, NO_DEADLINE))
    for looked in (2, 3):
        eventually(lambda looked=looked: len(looks) == looked and clock.waiting)
        clock.advance(1.0)
    assert call.result() is True
    assert [look - looks[0] for look in looks] == [0, 0, 1, 2]
    call = Call(lambda: room.wait_until(lambda: False, Deadline.after(clock, 0.5)))
    eventually(lambda: clock.waiting)
    clock.advance(0.5)
    assert call.result() is False


def test_a_stop_ends_the_waits_of_all_its_deadlines_at_once() -> None:
    """A stop ends the waits of all its deadlines at once."""
    clock, stop = ManualClock(), Stop()
    deadlines = [
        Deadline(None, stop),
        Deadline.after(clock, 100.0, stop),
        Deadline.after(clock, 100.0, stop).within(clock, 50),
    ]
    room = WaitingRoom(clock)
    calls = [Call(lambda deadline=deadline: room.wait_until(lambda: False, deadline)) for deadline in deadlines]
    eventually(lambda: len(room) == 3)
    assert [deadline.remaining(clock) for deadline in deadlines] == [None, 100.0, 50.0]
    stop.set()
    assert [call.result() for call in calls] == [False] * 3
    assert [(deadline.remaining(clock), deadline.expired(clock)) for deadline in deadlines] == [(0.0, True)] * 3
    assert not room.wait_until(lambda: False, deadlines[0])


def test_an_inner_stop_is_set_with_the_outer_one_and_also_alone() -> None:
    """The outer stop also sets the inner one, and ends its waits; the inner one alone leaves the outer one."""
    outer, woken = Stop(), list[bool]()
    inner = Stop(outer=outer)
    with inner.waking(lambda: woken.append(True)):
        waiting = Call(lambda: inner.wait(60))
        outer.set()
        assert waiting.result()
    assert (woken, inner.is_set()) == ([True], True)
    alone = Stop(outer=Stop())
    alone.set()
    assert alone.wait(0)
    assert alone._outer is not None
    assert not alone._outer.is_set()


def test_a_signal_handler_that_raises_loses_no_wake_up() -> None:
    """A thread that was removed from the room is awake, wherever a handler raises in the thread that wakes it."""
    room, changed = WaitingRoom(SystemClock(), look_again=math.inf), list[bool]()
    waiting = threading.Thread(target=room.wait_until, args=(lambda: changed, NO_DEADLINE), daemon=True)
    waiting.start()
    eventually(lambda: len(room) == 1)

    def interrupt(_frame: FrameType, event: str, _arg: object) -> None:
        if event == "call" and not room._signals:
            sys.setprofile(None)
            raise KeyboardInterrupt

    changed.append(True)
    sys.setprofile(interrupt)
    try:
        room.wake_all()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    waiting.join(PATIENCE)
    assert not waiting.is_alive()

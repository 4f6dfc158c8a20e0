"""Turns: waiting calls are served in order, even after an interrupt."""

from producer.channels.turns import Turn, Turns
from producer.model.owned_lock import OwnedLock
from producer.testing import ManualClock
from tests.support.waiting import Call, eventually


def the_turns(clock: ManualClock) -> Turns:
    return Turns(clock, OwnedLock(), lambda: None)


def in_line(turns: Turns, *, possible: bool) -> Turn:
    turn = Turn(lambda: possible, ManualClock())
    turns.rooms.append(turn)
    return turn


def test_a_call_that_was_interrupted_as_it_left_holds_up_no_other() -> None:
    """An interrupted call does not block the line."""
    turns = the_turns(ManualClock())
    interrupted, behind = in_line(turns, possible=False), in_line(turns, possible=True)
    turns.serve()
    assert not behind.over
    interrupted.over = True
    turns.serve()
    assert behind.over
    assert not turns.rooms


def test_a_call_that_waits_serves_the_lines_though_no_other_wakes_it() -> None:
    """A waiting call serves the lines by polling once a second."""
    clock, possible = ManualClock(), list[bool]()
    turns = the_turns(clock)
    call = Call(lambda: turns.perform(lambda: bool(possible), turns.takers, 60.0))
    eventually(lambda: clock.waiting == 1)
    possible.append(True)
    clock.advance(1.0)
    call.result()


def test_after_a_timeout_the_next_call_is_served_at_once() -> None:
    """After a timeout the next call is served at once."""
    turns = the_turns(ManualClock())
    first, behind = in_line(turns, possible=False), in_line(turns, possible=True)
    turns._leave(first, turns.rooms)
    assert behind.over

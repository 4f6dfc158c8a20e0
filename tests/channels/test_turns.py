"""Turns: in line, whatever was interrupted."""

from __future__ import annotations

import threading

import pytest

from producer.channels.turns import Redo, Turn, Turns
from producer.testing import ManualClock
from tests.support.waiting import Call, eventually


def possible(turn: Turn) -> None:
    turn.done = turn.over = True


def never(_turn: Turn) -> None:
    pass


def the_turns(clock: ManualClock) -> Turns:
    return Turns(clock, threading.Lock(), lambda: None)


@pytest.mark.parametrize("at", range(4))
def test_a_change_that_was_interrupted_is_finished_by_the_next_one_who_looks(at: int) -> None:
    """Wherever it was: all of it is done in the end, and then it is forgotten."""
    done: list[int] = [0, 0, 0, 0]
    interrupts = [at]

    def change() -> None:
        for number in range(4):
            done[number] = number + 1
            if number in interrupts:
                interrupts.clear()
                raise KeyboardInterrupt

    redo = Redo()
    with pytest.raises(KeyboardInterrupt):
        redo.do(change)
    redo.finish()
    assert done == [1, 2, 3, 4]
    done[:] = [0]
    redo.finish()
    assert done == [0]


def test_a_turn_whose_owner_is_gone_holds_up_nobody() -> None:
    """An interrupt kept him from leaving the line; the one behind him has his turn."""
    turns = the_turns(ManualClock())
    gone = Turn(never)
    with turns._lock:
        turns._try_or_line_up(gone, turns.rooms)
    behind = Turn(possible)
    with turns._lock:
        turns._try_or_line_up(behind, turns.rooms)
    assert not behind.over
    del gone
    with turns._lock:
        turns.serve()
    assert behind.done
    assert not turns.rooms


def test_who_waits_serves_himself_though_nobody_wakes_him() -> None:
    """What he waits for became possible, and an interrupt kept somebody from serving: he looks after a second."""
    clock, open_now = ManualClock(), []
    turns = the_turns(clock)

    def attempt(turn: Turn) -> None:
        turn.done = turn.over = bool(open_now)

    turn = Turn(attempt)
    call = Call(lambda: turns.perform(turn, turns.takers, 60.0, lambda: None))
    eventually(lambda: clock.waiting == 1)
    open_now.append(True)
    clock.advance(1.0)
    call.result()
    assert turn.done


def test_who_gives_up_lets_those_behind_have_their_turn_at_once() -> None:
    """They do not wait until they look again."""
    turns, first, behind = the_turns(ManualClock()), Turn(never), Turn(possible)
    with turns._lock:
        turns._try_or_line_up(first, turns.rooms)
        turns._try_or_line_up(behind, turns.rooms)
    assert not behind.over
    turns._leave(first, turns.rooms)
    assert behind.done

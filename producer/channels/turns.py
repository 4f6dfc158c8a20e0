"""Turns: calls that wait in line for capacity or for events.

A thread that changes the channel serves both lines: it does the work of the calls in front, and wakes their threads. So
a later call never overtakes an earlier one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from ..model.owned_lock import OwnedLock
from ..runtime.clock import LOOK_AGAIN, Clock, Deadline, WaitingRoom


class Turn:
    """A waiting call.

    :ivar attempt: does the call's work if possible, on any thread, with the channel's lock held; True if nothing is
        left to wait for.
    :ivar over: True if nothing is left to wait for: the work is done, can never be done, or the call has ended.
    """

    __slots__ = ("attempt", "over", "room")

    def __init__(self, attempt: Callable[[], bool], clock: Clock) -> None:
        self.attempt = attempt
        self.over = False
        self.room = WaitingRoom(clock, LOOK_AGAIN)


#: Waiting calls, in order.
Line = deque[Turn]


class Turns:
    """Two lines: calls that wait for capacity, and calls that wait for events.

    :param lock: the channel's lock; it guards the lines, and no waiting thread holds it.
    :param tidy: called with the lock held before the lines are served.
    """

    def __init__(self, clock: Clock, lock: OwnedLock, tidy: Callable[[], None]) -> None:
        self._clock, self._lock, self._tidy = clock, lock, tidy
        self.rooms: Line = deque()
        self.takers: Line = deque()

    def perform(self, attempt: Callable[[], bool], line: Line, timeout: float, *, queues: bool = True) -> None:
        """Do a call's work now, or in its turn within ``timeout`` seconds.

        :param queues: False for a call that uses neither capacity nor events: it need not wait behind earlier ones.
        """
        turn = Turn(attempt, self._clock)
        try:
            with self._lock:
                if not line or not queues:
                    turn.over = attempt()
                if not turn.over:
                    line.append(turn)
                self.serve()
            if not turn.over:
                deadline = Deadline.after(self._clock, None if timeout == math.inf else timeout)
                turn.room.wait_until(lambda: self._is_over(turn), deadline)
        finally:
            if not turn.over:
                self._leave(turn, line)

    def _is_over(self, turn: Turn) -> bool:
        if not turn.over:
            with self._lock:
                self.serve()
        return turn.over

    def _leave(self, turn: Turn, line: Line) -> None:
        turn.over = True  # if taking the lock raises, serve() removes it
        with self._lock:
            if turn in line:
                line.remove(turn)
            self.serve()

    def serve(self) -> None:
        """Do the work of waiting calls, as far as possible; called with the lock held, after every change."""
        self._tidy()
        while self._serve_line(self.rooms) or self._serve_line(self.takers):
            pass

    @staticmethod
    def _serve_line(line: Line) -> bool:
        served = False
        while line:
            turn = line[0]
            if not turn.over and not turn.attempt():
                break
            turn.over = True
            turn.room.wake_all()
            line.popleft()
            served = True
        return served

    @property
    def waiting(self) -> int:
        """Return the number of calls that wait for capacity."""
        return sum(not turn.over for turn in self.rooms)

    def dismiss(self) -> None:
        """End all waits; called with the lock held."""
        for turn in (*self.rooms, *self.takers):
            turn.over = True
        self.serve()

    def look_again(self) -> None:
        """Wake the first call that waits for events, which serves the lines; takes no lock: finalizers call it."""
        for turn in tuple(self.takers)[:1]:
            turn.room.wake_all()

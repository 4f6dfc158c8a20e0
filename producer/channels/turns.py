"""Turns: what somebody wants from a channel, now or, in line with others, as soon as it is possible.

Whoever changes the channel serves the lines: he does for those in front what they wait for, and wakes them. So nobody
who comes later can be faster, and no wakeup can be lost: between two calls nobody waits for what is possible.

An exception raised by a signal handler may end any call half-way. CPython runs such handlers only after a call, where a
function begins, and at a jump backwards; statements under a comment "At once" have none of these between them.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from ..clock import Clock, Deadline


class Turn:
    """One thing that somebody wants.

    :ivar queues: whether it comes after those in line; what takes nothing from them need not.
    :ivar attempt: does it if that is possible now; called with the turn itself and with the
        channel's lock held, on any thread.
    :ivar over: there is nothing left to wait for: it was done, or can never be.
    :ivar done: it was done.
    """

    __slots__ = ("attempt", "done", "over", "queues", "wake")

    def __init__(self, attempt: Callable[[Turn], None], *, queues: bool = True) -> None:
        self.attempt = attempt
        self.queues = queues
        self.over = self.done = False
        self.wake: SimpleQueue[None] | None = None


class Turns:
    """Two lines, of those who wait for room and of those who wait for events.

    :param lock: the channel's; it guards the lines, and is not held while anybody waits.
    :param tidy: called, with the lock, before the lines are served.
    """

    def __init__(self, clock: Clock, lock: threading.Lock, tidy: Callable[[], None]) -> None:
        self._clock, self._lock, self._tidy = clock, lock, tidy
        self.rooms: deque[Turn] = deque()
        self.takers: deque[Turn] = deque()

    def perform(self, turn: Turn, line: deque[Turn], timeout: float, check: Callable[[], None]) -> None:
        """Do ``turn`` now, or in its turn within ``timeout`` seconds; what it says afterwards is final.

        :param check: called first, with the lock; may raise.
        """
        try:
            with self._lock:
                check()
                self._try_or_line_up(turn, line)
            if not turn.over:
                self._wait(turn, Deadline.after(self._clock, None if timeout == math.inf else timeout))
        finally:
            if not turn.over:
                self._leave(turn, line)

    def _try_or_line_up(self, turn: Turn, line: deque[Turn]) -> None:
        try:
            if not line or not turn.queues:
                turn.attempt(turn)
            if not turn.over:
                turn.wake = SimpleQueue()
                line.append(turn)
        finally:
            self.serve()

    def _wait(self, turn: Turn, deadline: Deadline) -> None:
        while not (turn.over or turn.wake is None or deadline.expired(self._clock)):
            self._clock.wait_for(turn.wake, deadline)
            if not turn.over:  # woken by a clock that was moved, or because there is something to tidy
                with self._lock:
                    self.serve()

    def _leave(self, turn: Turn, line: deque[Turn]) -> None:
        """Give up the place in the line; those behind may have their turn."""
        with self._lock:
            if turn in line:
                line.remove(turn)
            self.serve()

    def serve(self) -> None:
        """Do whatever is possible for those in line; called with the lock, after every change."""
        try:
            self._serve()
        except BaseException:  # an interrupt costs nobody his turn
            self._serve()
            raise

    def _serve(self) -> None:
        self._tidy()
        while self._serve_line(self.rooms) or self._serve_line(self.takers):
            pass

    @staticmethod
    def _serve_line(line: deque[Turn]) -> bool:
        served = False
        while line:
            turn = line[0]
            if not turn.over:
                turn.attempt(turn)
            if not turn.over:
                break
            if turn.wake is not None:
                turn.wake.put(None)
            del line[0]
            served = True
        return served

    def dismiss(self) -> None:
        """Tell everybody in line that it is over; called with the lock."""
        for line in (self.rooms, self.takers):
            for turn in line:
                turn.over = True
        self.serve()

    def look_again(self) -> None:
        """Wake who waits for events, if anybody does, to serve the lines. Takes no lock, so that a finalizer may call
        it.
        """
        try:
            wake = self.takers[0].wake
        except IndexError:
            return
        if wake is not None:
            wake.put(None)

"""Turns: what somebody wants from a channel, now or, in line with others, as soon as it is possible.

Whoever changes the channel serves the lines: he does for those in front what they wait for, and wakes them. So nobody
who comes later can be faster.

An exception raised by a signal handler may end any call half-way. Nothing depends on where: a change that was begun is
finished by whoever takes the lock next (:class:`Redo`), who waits serves the lines himself from time to time, should
nobody have done it, and a turn whose owner is gone is passed over.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import ref

from ..runtime.clock import LOOK_AGAIN, Clock, Deadline, WaitingRoom


class Redo:
    """Makes changes of several values happen as a whole.

    A change sets what is to be afterwards, whatever is before: made twice it is the same as once. It is noted first,
    and forgotten when it was made; one that is still noted was interrupted. Guarded by the lock of what it changes.

    :ivar noted: a change that was begun, and perhaps not finished: what is called, and with what.
    """

    def __init__(self) -> None:
        self.noted: tuple[Callable[..., object], tuple[Any, ...]] | None = None

    def do(self, change: Callable[..., object], *values: Any) -> None:
        """Change something; all of it happens, at the latest when :meth:`finish` is called next."""
        self.noted = change, values
        change(*values)
        self.noted = None

    def finish(self) -> None:
        """Finish what was interrupted; to be called by whoever has taken the lock, before he looks."""
        if self.noted is not None:
            change, values = self.noted
            change(*values)
            self.noted = None


class Turn:
    """One thing that somebody wants.

    :ivar queues: whether it comes after those in line; what takes nothing from them need not.
    :ivar attempt: does it if that is possible now; called with the turn itself and with the
        channel's lock held, on any thread.
    :ivar over: there is nothing left to wait for: it was done, or can never be.
    :ivar done: it was done.
    """

    __slots__ = ("__weakref__", "attempt", "done", "over", "queues", "room")

    def __init__(self, attempt: Callable[[Turn], None], *, queues: bool = True) -> None:
        self.attempt = attempt
        self.queues = queues
        self.over = self.done = False
        self.room: WaitingRoom | None = None


#: Those in line; a turn is its owner's, and gone with him.
Line = deque["ref[Turn]"]


class Turns:
    """Two lines, of those who wait for room and of those who wait for events.

    :param lock: the channel's; it guards the lines, and is not held while anybody waits.
    :param tidy: called, with the lock, before anything is done.
    """

    def __init__(self, clock: Clock, lock: threading.Lock, tidy: Callable[[], None]) -> None:
        self._clock, self._lock, self._tidy = clock, lock, tidy
        self.rooms: Line = deque()
        self.takers: Line = deque()

    def perform(self, turn: Turn, line: Line, timeout: float, check: Callable[[], None]) -> None:
        """Do ``turn`` now, or in its turn within ``timeout`` seconds; what it says afterwards is final.

        :param check: called first, with the lock; may raise.
        """
        try:
            with self._lock:
                self._tidy()
                check()
                self._try_or_line_up(turn, line)
            if turn.room is not None and not turn.over:
                deadline = Deadline.after(self._clock, None if timeout == math.inf else timeout)
                turn.room.wait_until(lambda: self._look(turn), deadline)
        finally:
            if not turn.over:
                self._leave(turn, line)

    def _try_or_line_up(self, turn: Turn, line: Line) -> None:
        try:
            if not line or not turn.queues:
                turn.attempt(turn)
            if not turn.over:
                turn.room = WaitingRoom(self._clock, LOOK_AGAIN)
                line.append(ref(turn))
        finally:
            self.serve()

    def _look(self, turn: Turn) -> bool:
        """Whether it is over; else there may be something to tidy, or an interrupt has kept somebody from serving."""
        if not turn.over:
            with self._lock:
                self.serve()
        return turn.over

    def _leave(self, turn: Turn, line: Line) -> None:
        """Give up the place in the line; those behind may have their turn."""
        with self._lock:
            place = ref(turn)
            if place in line:
                line.remove(place)
            self.serve()

    def serve(self) -> None:
        """Do whatever is possible for those in line; called with the lock, after every change."""
        try:
            self._serve()
        except BaseException:  # after an interrupt they need not wait until they look again
            self._serve()
            raise

    def _serve(self) -> None:
        self._tidy()
        while self._serve_line(self.rooms) or self._serve_line(self.takers):
            pass

    @staticmethod
    def _serve_line(line: Line) -> bool:
        served = False
        while line:
            turn = line[0]()
            if turn is not None:
                if not turn.over:
                    turn.attempt(turn)
                if not turn.over:
                    break
                if turn.room is not None:
                    turn.room.nudge()
            del line[0]
            served = True
        return served

    def dismiss(self) -> None:
        """Tell everybody in line that it is over; called with the lock."""
        for line in (self.rooms, self.takers):
            for place in line:
                turn = place()
                if turn is not None:
                    turn.over = True
        self.serve()

    def look_again(self) -> None:
        """Let who waits for events, if anybody does, serve the lines; takes no lock: a finalizer may call it."""
        try:
            turn = self.takers[0]()
        except IndexError:
            return
        if turn is not None and turn.room is not None:
            turn.room.nudge()

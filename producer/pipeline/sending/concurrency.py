"""AdaptiveLimit: how many attempts may be under way at once, learned from what comes back.

Additive increase, multiplicative decrease: while all of the limit is used and answers come as quickly as ever, it grows
by one for each round of answers; an answer that says "too much", or none at all, takes a part of it away, once for all
that were under way together.

Latency tells of a queue on the other side before any refusal does. Answers are looked at by the window, whose median is
held against the fastest recent one, the base: noise moves neither by much. By Little's law a server that answers
``limit`` requests in ``median`` where one takes ``base`` works on ``limit * base / median`` of them, and the rest wait:
from twice the base on, twice in a row, the limit goes down to that and a few, so that the server never runs dry; up to
one and a half times it may grow, and in between it stays. With a base of 100 ms, a limit of 16 and answers after
400 ms, four are worked on, and the limit becomes eight (never less than half at a time), then six.

The base must not be the latency of a queue of our own. So at the beginning, and whenever it was not seen again for a
while, the limit is lowered to half of what seems to be worked on, for one window, and what is seen then is the base:
also when the other end has become slower for good, which has nothing to do with us.
"""

from __future__ import annotations

import math
from statistics import median

#: Answers in a window, and in the window with a lowered limit.
_WINDOW, _LOOK_WINDOW = 16, 8
#: Answers in a round, at least; else as many as the limit.
_LEAST_IN_ROUND = 4
# What counts as a longer latency: a factor of the base, and seconds beyond it, since a few milliseconds may be this
# process's own.
_SEEN_AGAIN = 1.25, 0.025
_CROWDED = 1.5, 0.05
_OVERLOADED = 2.0, 0.1
#: How old the base may become before the limit is lowered to see it again, seconds.
_LOOK_EVERY = 10.0
#: Latency alone takes no more: with one attempt at a time, each would wait for the way of the one before it.
_LEAST_BY_LATENCY = 2


def _longer(latency: float, base: float, by: tuple[float, float]) -> bool:
    factor, seconds = by
    return latency > max(base * factor, base + seconds)


class AdaptiveLimit:
    """See the module. It has no lock and no clock: its owner brings both.

    :param most: where it begins, and what it never exceeds.
    :param adaptive: False keeps it there.
    :ivar value: the limit at this moment, at least 1.
    """

    __slots__ = (
        "_adaptive",
        "_answers",
        "_base",
        "_base_seen",
        "_changed",
        "_late",
        "_limit",
        "_look",
        "_most",
        "_reached",
        "_round",
        "_window",
        "value",
    )

    def __init__(self, most: int, *, adaptive: bool = True) -> None:
        self._most = self._limit = self.value = most
        self._adaptive = adaptive
        self._look: int | None = None  # in place of the limit, to see the base
        self._changed = -math.inf  # attempts that began before tell of another limit
        self._window: list[float] = []
        self._base = math.inf
        self._base_seen = -math.inf
        self._late = False  # what the last window has shown
        self._reached = False
        self._round: list[float] = []
        self._answers = 0  # in this round

    def used(self, in_flight: int) -> None:
        """An attempt begins; with it ``in_flight`` are under way."""
        if in_flight >= self.value:
            self._reached = True

    def accepted(self, began: float, now: float, seconds: float | None = None) -> None:
        """An attempt that began at ``began`` succeeded.

        :param seconds: how long the answer took; None if that is no measure.
        """
        if not self._adaptive or began <= self._changed:
            return
        if self._limit < self._most and self._look is None:
            self._note_in_round(seconds)
        if seconds is not None:
            self._window.append(seconds)
            if len(self._window) >= (_WINDOW if self._look is None else _LOOK_WINDOW):
                self._conclude(median(self._window), now)

    def refused(self, began: float, now: float, keep: float) -> None:
        """An attempt that began at ``began`` was too much for the other end.

        :param keep: which part of the limit is left.
        """
        if self._adaptive and began > self._changed:
            self._set(max(1, int(self._limit * keep)), now)

    def _note_in_round(self, seconds: float | None) -> None:
        self._answers += 1
        if seconds is not None:
            self._round.append(seconds)
        if self._answers < max(self._limit, _LEAST_IN_ROUND):
            return
        crowded = bool(self._round) and _longer(median(self._round), self._base, _CROWDED)
        if self._reached and not crowded:
            self._limit += 1
            self.value = self._limit
        self._begin_round()

    def _begin_round(self) -> None:
        self._round, self._answers, self._reached = [], 0, False

    def _conclude(self, latency: float, now: float) -> None:
        """Look at what a window has shown."""
        self._window = []
        if self._look is not None:
            # As long as it still falls, the lowered limit was itself too much: another look follows soon.
            self._base_seen = -math.inf if latency < 0.9 * self._base else now
            self._base = latency
            self._set(self._limit, now)
            return
        if math.isfinite(self._base) and not _longer(latency, self._base, _SEEN_AGAIN):
            self._base_seen = now
        if self._limit == 1 or latency < self._base:
            self._base = latency
        if not self._shrunk(latency, now):
            self._look_again(latency, now)

    def _shrunk(self, latency: float, now: float) -> bool:
        was_late, self._late = self._late, _longer(latency, self._base, _OVERLOADED)
        if not (self._late and was_late):
            return False
        worked_on = self._limit * self._base / latency
        wanted = max(math.ceil(worked_on + math.sqrt(self._limit) / 2), math.ceil(self._limit / 2), _LEAST_BY_LATENCY)
        if wanted >= self._limit:
            return False
        self._set(wanted, now)
        return True

    def _look_again(self, latency: float, now: float) -> None:
        if now - self._base_seen < _LOOK_EVERY or self._limit == self._most <= _LEAST_BY_LATENCY:
            return
        less = max(1, int(0.5 * self._limit * self._base / latency))
        if less < self._limit:
            self._set(self._limit, now)
            self._look = self.value = less

    def _set(self, limit: int, now: float) -> None:
        self._limit = self.value = limit
        self._look = None
        self._changed = now
        self._window = []
        self._late = False
        self._begin_round()

"""AdaptiveLimit: the limit of concurrent attempts, learned from responses.

Additive increase, multiplicative decrease. While the whole limit is used and responses are as quick as ever, it grows
by one for each round of responses. A response that says "too much", or no response, reduces it by a share, once for all
attempts that were in flight together.

Latency shows a queue on the other side before any refusal does. Responses are grouped into windows. The median of a
window is compared with the fastest recent one, the base; noise moves neither by much. By Little's law, a server that
answers ``limit`` requests in ``median`` each, and a single one in ``base``, works on ``limit * base / median`` of them.
The rest wait. If the median is at least twice the base in two windows in a row, the limit falls to that number and a
few more, so that the server never runs idle. If the median is at most one and a half times the base, the limit may
grow. In between, it stays. With a base of 100 ms, a limit of 16 and responses after 400 ms, the server works on four.
The limit becomes eight (it is at most halved at a time), then six.

The base must not include our own queue. At the beginning, and whenever the base was not seen for a while, the limit is
lowered for one window to half of what the server seems to work on. The latency of that window is the new base, also if
the other side has become slower permanently for reasons of its own.
"""

from __future__ import annotations

import math
from statistics import median

#: Responses in a window, and in the window with a lowered limit.
_WINDOW, _LOOK_WINDOW = 16, 8
#: The minimum number of responses in a round. A round has as many as the limit, if that is more.
_LEAST_IN_ROUND = 4
# A longer latency exceeds the base by this factor and by these seconds: a few milliseconds may be this process's own.
_SEEN_AGAIN = 1.25, 0.025
_CROWDED = 1.5, 0.05
_OVERLOADED = 2.0, 0.1
#: The age of the base at which the limit is lowered to measure it again, seconds.
_MEASURE_AGAIN_SECONDS = 10.0
#: The lowest limit that latency alone causes. With a limit of 1, each attempt would wait for the round trip of the one
#: before.
_LEAST_BY_LATENCY = 2


def _longer(latency: float, base: float, by: tuple[float, float]) -> bool:
    factor, seconds = by
    return latency > max(base * factor, base + seconds)


class AdaptiveLimit:
    """A limit of concurrent attempts. It has no lock and no clock: the owner has both.

    :param most: the initial and largest limit.
    :param adaptive: False to keep the limit at ``most``.
    :ivar value: the current limit, at least 1.
    """

    __slots__ = (
        "_adaptive",
        "_answers",
        "_base",
        "_base_seen",
        "_changed",
        "_late",
        "_limit",
        "_most",
        "_probe_limit",
        "_reached",
        "_round",
        "_window",
        "value",
    )

    def __init__(self, most: int, *, adaptive: bool = True) -> None:
        self._most = self._limit = self.value = most
        self._adaptive = adaptive
        self._probe_limit: int | None = None  # replaces the limit while the base is measured
        self._changed = -math.inf  # attempts that began before say nothing of this limit
        self._window: list[float] = []
        self._base = math.inf
        self._base_seen = -math.inf
        self._late = False  # True if the last window was overloaded
        self._reached = False
        self._round: list[float] = []
        self._answers = 0  # in this round

    def used(self, in_flight: int) -> None:
        """Note that an attempt begins; it is one of ``in_flight``."""
        if in_flight >= self.value:
            self._reached = True

    def accepted(self, began: float, now: float, seconds: float | None = None) -> None:
        """Note that an attempt that began at ``began`` succeeded.

        :param seconds: the duration of the request; None if it does not measure the server.
        """
        if not self._adaptive or began <= self._changed:
            return
        if self._limit < self._most and self._probe_limit is None:
            self._note_in_round(seconds)
        if seconds is not None:
            self._window.append(seconds)
            if len(self._window) >= (_WINDOW if self._probe_limit is None else _LOOK_WINDOW):
                self._evaluate(median(self._window), now)

    def refused(self, began: float, now: float, keep: float) -> None:
        """Note that an attempt that began at ``began`` was too much for the other side.

        :param keep: the share of the limit that remains.
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

    def _evaluate(self, latency: float, now: float) -> None:
        """Evaluate a full window."""
        self._window = []
        if self._probe_limit is not None:
            # While the base still falls, even the lowered limit was too high: measure again soon.
            self._base_seen = -math.inf if latency < 0.9 * self._base else now
            self._base = latency
            self._set(self._limit, now)
            return
        if math.isfinite(self._base) and not _longer(latency, self._base, _SEEN_AGAIN):
            self._base_seen = now
        if self._limit == 1 or latency < self._base:
            self._base = latency
        if not self._shrink(latency, now):
            self._measure_base(latency, now)

    def _shrink(self, latency: float, now: float) -> bool:
        was_late, self._late = self._late, _longer(latency, self._base, _OVERLOADED)
        if not (self._late and was_late):
            return False
        worked_on = self._limit * self._base / latency
        wanted = max(math.ceil(worked_on + math.sqrt(self._limit) / 2), math.ceil(self._limit / 2), _LEAST_BY_LATENCY)
        if wanted >= self._limit:
            return False
        self._set(wanted, now)
        return True

    def _measure_base(self, latency: float, now: float) -> None:
        if now - self._base_seen < _MEASURE_AGAIN_SECONDS or self._limit == self._most <= _LEAST_BY_LATENCY:
            return
        less = max(1, int(0.5 * self._limit * self._base / latency))
        if less < self._limit:
            self._set(self._limit, now)
            self._probe_limit = self.value = less

    def _set(self, limit: int, now: float) -> None:
        self._limit = self.value = limit
        self._probe_limit = None
        self._changed = now
        self._window = []
        self._late = False
        self._begin_round()

"""Holdback: destinations that refuse or cannot be reached, and until when nothing is sent to each of them.

A logstore over its quota is held back alone; so is a project whose endpoint takes no connections, so that a thousand
batches that wait for a dead server make a request now and then, not each its own.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable


class Holdback:
    """Holds destinations back, each twice as long after every refusal in a row, until something is accepted.

    :param base: how long the first time, seconds.
    :param longest: how long at most, seconds.
    """

    def __init__(self, base: float, longest: float) -> None:
        self._base = base
        self._longest = longest
        self._lock = threading.Lock()  # guards _held
        self._held: dict[Hashable, tuple[float, int]] = {}  # until when, and how many refusals came in a row

    def refused(self, destination: Hashable, now: float) -> float:
        """Something was refused: returns until when the destination is held back (monotonic seconds)."""
        with self._lock:
            until, streak = self._held.get(destination, (now, 0))
            # Batches that were in flight together are refused together; they count as one.
            if now >= until:
                until = now + min(self._base * 2.0 ** min(streak, 64), self._longest)
                streak += 1
            self._held[destination] = until, streak
            return until

    def until(self, destination: Hashable, now: float) -> float | None:
        """Until when the destination is held back; None if it is not."""
        if not self._held:
            return None
        with self._lock:
            until, _ = self._held.get(destination, (now, 0))
        return until if until > now else None

    def accepted(self, destination: Hashable) -> None:
        """Something was accepted: the destination is free."""
        if self._held:
            with self._lock:
                self._held.pop(destination, None)

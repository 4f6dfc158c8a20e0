"""ThinnedLog: when a line is due about something that goes on and on."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

from .clock import Clock

#: Of one kind at most one line is written in this time, seconds.
INTERVAL = 10.0
_MAX_KINDS = 1000


class ThinnedLog:
    """Says the first of each kind at once, and the next ones in sums.

    :param interval: seconds between two lines of one kind.
    """

    def __init__(self, clock: Clock, interval: float = INTERVAL) -> None:
        self._clock = clock
        self._interval = interval
        self._lock = threading.Lock()  # guards _kinds
        #: When the last line was written, and what went by silently since.
        self._kinds: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def due(self, kind: Hashable, amount: int) -> int | None:
        """What went by silently before, if a line is due about ``amount`` more; else None."""
        now = self._clock.monotonic()
        with self._lock:
            written, silent = self._kinds.get(kind, (now - self._interval, 0))
            if now - written < self._interval:
                self._kinds[kind] = written, silent + amount
                return None
            self._kinds[kind] = now, 0
            if len(self._kinds) > _MAX_KINDS:
                self._kinds.popitem(last=False)
        return silent

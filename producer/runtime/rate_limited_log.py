"""RateLimitedLog: whether a line is due about something that happens again and again."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Hashable

from ..text.plural import counted
from .clock import Clock, SystemClock

#: Seconds between two lines of one kind.
INTERVAL = 10.0
_MAX_KINDS = 1000
#: What differs each time in the same error: the ids of requests, signatures; sizes, times, offsets.
_VARYING = re.compile(r"(?=[\w+/=-]*\d)[\w+/=-]{8,}|\d+(?:\.\d+)?")


class RateLimitedLog:
    """Lets the first of each kind have a line at once, and the next ones a line with their sum every ten seconds."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()  # guards _kinds
        #: When the last line was written, and what went by silently since.
        self._kinds: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()
        self._errs = False

    def due(self, kind: Hashable, amount: int) -> int | None:
        """Return what went by silently before if a line is due about ``amount`` more; None if none is."""
        now = self._clock.monotonic()
        with self._lock:
            written, silent = self._kinds.get(kind, (now - INTERVAL, 0))
            if now - written < INTERVAL:
                self._kinds[kind] = written, silent + amount
                return None
            self._kinds[kind] = now, 0
            if len(self._kinds) > _MAX_KINDS:
                self._kinds.popitem(last=False)
        return silent

    def due_error(self, error: BaseException) -> str | None:
        """Return the end of the line that is due about an error, mostly nothing; None if no line is due."""
        silent = self.due((type(error), _VARYING.sub("#", str(error))), 1)
        if silent is None:
            return None
        self._errs = True
        return f" ({counted(silent, 'time')} more since the last line about it)" if silent else ""

    def recovered(self) -> bool:
        """Return True, once, if an error had a line and it works now: that is worth one, too."""
        erred, self._errs = self._errs, False
        return erred

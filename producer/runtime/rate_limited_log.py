"""RateLimitedLog: limit the rate of log lines about repeated events."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Hashable

from ..text.plural import counted
from .clock import Clock, SystemClock
from .locks import Lock

#: Seconds between two lines of one kind.
INTERVAL = 10.0
_MAX_KINDS = 1000
#: The parts of an error's text that vary: ids of requests, signatures, sizes, times, offsets.
_VARYING = re.compile(r"(?=[\w+/=-]*\d)[\w+/=-]{8,}|\d+(?:\.\d+)?")


class RateLimitedLog:
    """Lets the first event of each kind be logged at once, and later ones as a sum every ten seconds."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = Lock()  # guards _kinds
        #: The time of the last line and the amount not logged since, by kind.
        self._kinds: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()
        self._errs = False

    def due(self, kind: Hashable, amount: int) -> int | None:
        """Return the amount not logged before if a line is due for ``amount`` more; None if none is."""
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
        """Return the suffix of the line due for an error, often empty; None if no line is due."""
        silent = self.due((type(error), _VARYING.sub("#", str(error))), 1)
        if silent is None:
            return None
        self._errs = True
        return f" ({counted(silent, 'time')} more since the last line about it)" if silent else ""

    def recovered(self) -> bool:
        """Return True once after a logged error: the recovery is worth a line, too."""
        erred, self._errs = self._errs, False
        return erred

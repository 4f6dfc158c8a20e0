"""RepeatedLog: whether an error is worth a line, when the same one comes again and again."""

from __future__ import annotations

import re

from ..text.plural import counted
from .clock import Clock, SystemClock
from .rate_limited_log import ThinnedLog

#: What differs each time in what is the same: the ids of requests, signatures; sizes, times, offsets.
_VARYING = re.compile(r"(?=[\w+/=-]*\d)[\w+/=-]{8,}|\d+(?:\.\d+)?")


class RepeatedLog:
    """The same error has a line every ten seconds at most, and its end has one, if it had any."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._thinned = ThinnedLog(clock or SystemClock())
        self._is_open = False

    def due(self, error: BaseException) -> str | None:
        """None if there is no line for it now; else what to say behind it, mostly nothing."""
        silent = self._thinned.due((type(error), _VARYING.sub("#", str(error))), 1)
        if silent is None:
            return None
        self._is_open = True
        return f" ({counted(silent, 'time')} more since the last line about it)" if silent else ""

    def ended(self) -> bool:
        """Whether somebody was told of an error, and not yet that it is over: it works now."""
        was, self._is_open = self._is_open, False
        return was

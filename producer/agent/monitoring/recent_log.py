"""Keep the last lines of this process's log, for the page: reloads, rotations, failures, and dead letters with reasons.

Lines are those that the log's levels allow, so secrets are masked as in the log.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Any

from ...runtime.loggers import get_logger
from ...text.printable import shown

#: Maximum number of lines, characters of a line, and seconds for which a line is kept.
_MOST, _LONGEST, _SECONDS = 50, 500, 900.0
#: The logger of the sink ``logger``: its lines are events, which the page must not show.
_OF_EVENTS = "loghub.agent.sink.logger"


class RecentLog(logging.Handler):
    """The last lines of the loggers ``loghub.*``, until :meth:`close`."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.addFilter(lambda record: record.name != _OF_EVENTS)
        self._lines: deque[dict[str, Any]] = deque(maxlen=_MOST)
        get_logger("loghub").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        text = shown(record.getMessage()[: 2 * _LONGEST])[:_LONGEST]
        self._lines.append({"time": record.created, "level": record.levelname, "text": text})

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the last minutes, the newest first."""
        oldest = time.time() - _SECONDS
        return [line for line in reversed(list(self._lines)) if line["time"] >= oldest]

    def close(self) -> None:
        get_logger("loghub").removeHandler(self)
        super().close()

"""Keep the last lines of this process's log, for the page: reloads, rotations, failures, and dead letters with reasons.

Lines are those that the log's levels allow, without secrets.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from ...runtime.loggers import get_logger
from ...text.printable import hide, shown
from .queries import QueryError, parameters_of
from .redaction import redacted_copy

#: Maximum number of lines that are kept, and that are shown; maximum number of characters of a line.
_MOST, _MOST_SHOWN, _LONGEST = 1000, 50, 500
#: The logger of the sink ``logger``: its lines are events, which the page must not show.
_OF_EVENTS = "loghub.agent.sink.logger"
LEVELS = ("info", "warning", "error")


class RecentLog(logging.Handler):
    """The last lines of the loggers ``loghub.*``, until :meth:`close`.

    :param hidden: returns the texts to replace, of :attr:`~..run.agent.Agent.hidden`.
    """

    def __init__(self, hidden: Callable[[], Mapping[str, str]]) -> None:
        super().__init__(logging.INFO)
        self.addFilter(lambda record: record.name != _OF_EVENTS)
        self._hidden = hidden
        self._lines: deque[tuple[int, dict[str, Any]]] = deque(maxlen=_MOST)
        get_logger("loghub").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        hidden, most = self._hidden(), 2 * _LONGEST
        whole = hide(record.getMessage(), hidden)  # before it is cut, since a secret may be long
        text = shown(redacted_copy(whole[:most], hidden, _LONGEST, is_cut=len(whole) > most))[:_LONGEST]
        self._lines.append((record.levelno, {"time": record.created, "level": record.levelname, "text": text}))

    def lines(self, text: str = "", level: str = LEVELS[0]) -> list[dict[str, Any]]:
        """Return the last lines that match a search, the last one first.

        :param text: text of the lines, in upper or lower case.
        :param level: their minimum level, one of :data:`LEVELS`.
        """
        least, wanted = logging.getLevelNamesMapping()[level.upper()], text.casefold()
        lines = reversed(list(self._lines))
        found = (line for number, line in lines if number >= least and wanted in line["text"].casefold())
        return list(islice(found, _MOST_SHOWN))

    def close(self) -> None:
        get_logger("loghub").removeHandler(self)
        super().close()


def search_of(query: str) -> tuple[str, str]:
    """Return text and level of a search.

    :raises QueryError: the level is unknown.
    """
    given = parameters_of(query)
    level = given.get("level", LEVELS[0]).lower()
    if level not in LEVELS:
        raise QueryError(f"level must be {', '.join(LEVELS[:-1])} or {LEVELS[-1]}", level)
    return given.get("text", ""), level

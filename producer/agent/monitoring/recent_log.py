"""Keep the last lines of this process's log, for the page: reloads, rotations, failures, and dead letters with reasons.

Lines are those that the log's levels allow, without secrets.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any
from urllib.parse import parse_qs

from ...runtime.loggers import get_logger
from ...text.printable import one_line, shown
from ..config.references import hide
from .redaction import redacted_copy

#: Maximum number of lines that are kept, and that are shown; maximum number of characters of a line.
_MOST, _MOST_SHOWN, _LONGEST = 1000, 50, 500
#: The logger of the sink ``logger``: its lines are events, which the page must not show.
_OF_EVENTS = "loghub.agent.sink.logger"
LEVELS = ("info", "warning", "error")


class SearchError(ValueError):
    """Raised for an invalid search."""


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

    def lines(self, query: str = "") -> list[dict[str, Any]]:
        """Return the last lines that match a search, the last one first.

        :param query: the query of a URL. Lines contain ``text``, in upper or lower case, and have at least ``level``.
        :raises SearchError: the level is unknown.
        """
        text, level = search_of(query)
        least, wanted = logging.getLevelNamesMapping()[level.upper()], text.casefold()
        lines = reversed(list(self._lines))
        found = (line for number, line in lines if number >= least and wanted in line["text"].casefold())
        return list(islice(found, _MOST_SHOWN))

    def close(self) -> None:
        get_logger("loghub").removeHandler(self)
        super().close()


def search_of(query: str) -> tuple[str, str]:
    """Return text and level of a search.

    :raises SearchError: the level is unknown.
    """
    asked = {name: values[-1] for name, values in parse_qs(query).items()}
    level = asked.get("level", LEVELS[0]).lower()
    if level not in LEVELS:
        raise SearchError(f"level must be {', '.join(LEVELS[:-1])} or {LEVELS[-1]}, got {one_line(level[:200])!r}")
    return asked.get("text", ""), level

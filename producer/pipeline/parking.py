"""Parking: events of stopped streams. They are taken from the channel, and neither sent nor given up.

``resume`` gives them back to the channel, which puts them where they were, and the feeder takes them again; else the
next producer on the channel finds them. An event costs 8 bytes here.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Mapping

from .stopped_streams import Line
from .taking import Taking
from .ticket import Ticket


class Parking:
    """See the module."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _lines
        self._lines: dict[Line, dict[Taking, array[int]]] = {}

    def park(self, line: Line, tickets: Iterable[Ticket]) -> None:
        """Keep these until their stream goes on."""
        with self._lock:
            takings = self._lines.setdefault(line, {})
            for ticket in tickets:
                takings.setdefault(ticket.taking, array("Q")).append(ticket.sequence)

    def holds(self, line: Line) -> bool:
        """Whether events of this stream are here."""
        return line in self._lines

    def leave(self, line: Line) -> Mapping[Taking, array[int]]:
        """All events of this stream, which are here no more."""
        with self._lock:
            return self._lines.pop(line, {})

"""Parking: taken events of stopped streams, which are neither sent nor failed.

``resume`` returns them to their places in the channel, and the feeder takes them again. Otherwise the next producer on
the channel finds them. An event takes 8 bytes here, and the memory of a take in its channel: about 300 bytes for a file
channel (measured on CPython 3.11).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from ..pipeline.batching.stopped_streams import Line
from ..runtime.locks import Lock
from .event_ref import Ticket
from .take_lease import Taking


class Parking:
    """The tickets of events that were taken for stopped streams, by stream."""

    def __init__(self) -> None:
        self._lock = Lock()  # guards _lines
        self._lines: dict[Line, dict[Taking, array[int]]] = {}

    def park(self, line: Line, ticket: Ticket) -> None:
        """Keep an event until its stream is resumed."""
        with self._lock:
            self._lines.setdefault(line, {}).setdefault(ticket.taking, array("Q")).append(ticket.sequence)

    def holds(self, line: Line) -> bool:
        """True if events of this stream are parked."""
        return line in self._lines

    def parked(self, line: Line) -> list[tuple[Taking, Sequence[int]]]:
        """Return all events of this stream, by the transactions that took them."""
        with self._lock:
            return list(self._lines.get(line, {}).items())

    def left(self, line: Line, taking: Taking) -> None:
        """Drop the events of one transaction: they are in the channel again."""
        with self._lock:
            takings = self._lines[line]
            del takings[taking]
            if not takings:
                del self._lines[line]

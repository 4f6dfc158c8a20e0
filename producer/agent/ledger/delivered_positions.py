"""Positions of a channel that forgets its events when the process ends: what of them was delivered.

Of what is read under a name it knows two sets of :class:`~.ranges.Ranges`: what was put, so that it need not be put
again, and what was delivered, which is noted. Each batch in the channel stretches from where the channel had come
before to its position. *Example.* Three batches were put, up to 2, 4 and 6; sinks side by side have delivered the
first and the last::

    put        0 ──────────── 6        delivered  0 ── 2    4 ── 6      noted as "2 4-6"

After a death what was put is what is noted as delivered, and what the channel holds still, which is on the disk. So the
source goes on at 2, and what lies behind 4 need not be put again.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import insort
from collections.abc import Iterable
from typing import Protocol

from ...model.errors import ChannelError
from ...model.interfaces import Event, Notes
from ...runtime.clock import Clock
from ..events.batch import EventBatch, Position
from ..events.event_format import position_of, start_of
from .positions import MOST_NOTED, PREFIX, Undelivered, of_name
from .ranges import Ranges, parse_ranges

#: Positions are noted so often, seconds.
NOTE_INTERVAL = 1.0


class OwnNotes(Notes, Protocol):
    """Notes that whoever uses them also closes."""

    def close(self) -> None:
        """Give the files up."""


class DeliveredPositions:
    """For a channel that forgets.

    :param notes: of the agent's own.
    :param events: those that are in the channel now, since it does not forget all.
    """

    keeps = False

    def __init__(self, notes: OwnNotes, clock: Clock, events: Iterable[Event] = ()) -> None:
        self._notes, self._clock = notes, clock
        # Of a sink and a source that note the same name the one that knows less would else write last.
        self._writing = threading.Lock()  # held from what a note is to say until it is written; before _lock
        self._lock = threading.Lock()  # guards what follows; not held during I/O
        #: Of each name what was delivered; and what was put, or need not be.
        self._delivered = {
            name.removeprefix(PREFIX): parse_ranges(noted) for name, noted in notes.items(PREFIX).items()
        }
        self._put = {name: ranges.copy() for name, ranges in self._delivered.items()}
        #: Of each batch in the channel, by its end, where it begins: of several with one end the nearest last.
        self._undelivered: dict[str, dict[int, list[int]]] = {}
        #: What was in the channel when it was opened.
        self._found: dict[str, Ranges] = {}
        #: Names of which something that was put is lost; and of which the note says too much.
        self._lost: set[str] = set()
        self._taken_back: set[str] = set()
        self._dirty: set[str] = set()
        self._next_note = clock.monotonic()
        for event in events:
            self._find(event)

    def end(self, name: str) -> int:
        """See :class:`Positions`, as for those that follow."""
        with self._lock:
            return self._end(name)

    def ends(self, name: str) -> list[int]:
        with self._lock:
            put = self._put.get(name)
            return [0] if put is None else [put.first, *put.borders]

    def is_safe(self, name: str) -> bool:
        with self._lock:
            return not self._undelivered.get(name) and self._safe_end(name) >= self._end(name)

    def safe_end(self, name: str) -> int:
        with self._lock:
            return self._safe_end(name)

    def names(self) -> list[str]:
        with self._lock:
            return list(self._put)

    def start(self, position: Position) -> int:
        return self.end(position.name)

    def putting(self, position: Position) -> None:
        name, end, _ = position
        with self._lock:
            starts = self._undelivered.setdefault(name, {}).setdefault(end, [])
            insort(starts, min(end, self._end(name)))

    def put(self, position: Position, sequence: int | None) -> None:
        name, end, _ = position
        with self._lock:
            of_name(self._put, name).add(self._end(name), end)

    def failed(self, position: Position) -> None:
        name, end, _ = position
        with self._lock:
            self._leave(name, end, min(end, self._end(name)))

    def passed(self, position: Position) -> None:
        name, end, _ = position
        with self._lock:
            self._have_delivered(name, self._end(name), end)
            of_name(self._put, name).add(self._end(name), end)
            due = self._clock.monotonic() >= self._next_note
        if due:  # its sink may deliver nothing for long
            with contextlib.suppress(ChannelError):  # the batch is where it belongs; the next note has this as well
                self.flush()

    def elsewhere(self, name: str, ranges: Ranges) -> None:
        with self._lock:
            for start, end in ranges:
                self._have_delivered(name, start, end)
                of_name(self._put, name).add(start, end)

    def found(self, prefix: str) -> dict[str, Ranges]:
        with self._lock:
            return {name: self._found.pop(name) for name in list(self._found) if name.startswith(prefix)}

    def again(self, name: str, start: int, end: int, safe: int | None) -> None:
        with self._lock:
            if self._end(name) > start:
                self._put[name].remove(start, end)
                of_name(self._delivered, name).remove(start, end)
                self._dirty.add(name)
                self._taken_back.add(name)
            due = set(self._taken_back)
        if due:
            self.flush()
            with self._lock:
                self._taken_back -= due

    def leaving(self, batches: Iterable[EventBatch]) -> None:
        pass

    def left(self, batches: Iterable[EventBatch]) -> None:
        with self._lock:
            for batch in batches:
                if batch.position is not None:
                    self._deliver(batch.position)
            due = bool(self._dirty) and self._clock.monotonic() >= self._next_note
        if due:
            self.flush()

    def begin(self, prefix: str) -> None:
        with self._lock:
            for name in [name for name in self._lost if name.startswith(prefix)]:
                self._lost.discard(name)
                put = self._put[name] = of_name(self._delivered, name).copy()
                for end, starts in self._undelivered.get(name, {}).items():
                    put.add(starts[-1], end)

    def undelivered(self) -> Undelivered:
        with self._lock:
            return {
                name: {end: list(starts) for end, starts in each.items()} for name, each in self._undelivered.items()
            }

    def empty(self, believed: Undelivered) -> set[str]:
        with self._lock:
            for name, batches in believed.items():
                left = [self._leave(name, end, start) for end, starts in batches.items() for start in starts]
                if any(start is not None for start in left):
                    self._lost.add(name)
            return set(self._lost)

    def lost(self, position: Position, start: int, *, held: bool, furthest: int = 0) -> bool:
        if held:
            with self._lock:
                self._leave(position.name, position.end, start)
                self._lost.add(position.name)
        return True

    def forget(self, name: str) -> None:
        with self._writing:
            with self._lock:
                for known in (self._put, self._delivered, self._undelivered, self._found):
                    known.pop(name, None)
                self._lost.discard(name)
                self._dirty.discard(name)
            self._notes.remove(PREFIX + name)

    def flush(self) -> None:
        with self._writing:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            due = {name: self._delivered[name].dump(MOST_NOTED) for name in self._dirty}
            self._dirty.clear()
            self._next_note = self._clock.monotonic() + NOTE_INTERVAL
        try:
            self._notes.write_many([(PREFIX + name, noted, -1) for name, noted in due.items()])
        except BaseException:
            with self._lock:
                self._dirty |= due.keys() & self._delivered.keys()  # for the next time
            raise

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._notes.close()

    def _find(self, event: Event) -> None:
        position, start = position_of(event), start_of(event)
        if position is not None and 0 <= start < position.end:
            name, end, _ = position
            insort(self._undelivered.setdefault(name, {}).setdefault(end, []), start)
            of_name(self._put, name).add(start, end)
            of_name(self._found, name).add(start, end)

    def _end(self, name: str) -> int:
        put = self._put.get(name)
        return 0 if put is None else put.first

    def _safe_end(self, name: str) -> int:
        delivered = self._delivered.get(name)
        return 0 if delivered is None else delivered.first

    def _have_delivered(self, name: str, start: int, end: int) -> None:
        of_name(self._delivered, name).add(start, end)
        self._dirty.add(name)

    def _deliver(self, position: Position) -> None:
        start = self._leave(position.name, position.end)
        if start is not None:  # or it was forgotten
            self._have_delivered(position.name, start, position.end)

    def _leave(self, name: str, end: int, start: int | None = None) -> int | None:
        """A batch is no longer in the channel; where it began. Of several with one end, it is the nearest that can be
        said of either.
        """
        batches = self._undelivered.get(name, {})
        starts = batches.get(end)
        if not starts:
            return None
        left = starts.pop(starts.index(start) if start in starts else -1)
        if not starts:
            del batches[end]
        return left

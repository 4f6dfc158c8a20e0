"""How far the sources came, as a channel knows it: so that what is read again after a death is put once.

A source that can read again gives each batch a :class:`~.batch.Position`. After a death it goes on behind what its
channels have. There are two kinds of channel:

* In one **that keeps its events**, the position lies with the batch, in the same commit. When the batch is about to
  leave, the position is first written to the channel's notes: there is no instant at which neither has it. So what was
  committed is not read again.
* In one that **forgets**, what was read is only safe once it was delivered: that is noted after it, in the agent's own
  directory, and what had not been delivered is read again. So nothing is lost there either, and what was delivered
  within the last second may come twice after a death. Sinks side by side, and memory that was lost before what had been
  spilled, leave gaps: so what was delivered is kept as :class:`~.ranges.Ranges`, as is what the channel holds when it
  is opened, and only the gaps are read again: see :mod:`.delivered_positions`.

Where each batch goes to one of several channels, and some of these forget, one that keeps its events notes which
stretches it was given behind what is safe, as in ``9 0 6-9``: it has 6 to 9, up to 6 somebody else has it, or had. It
tells the others when it is opened, for what they have not noted yet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from ...model.interfaces import Event, Notes
from ..events.batch import EventBatch, Position
from ..events.event_format import position_of, start_of
from .ranges import Ranges, parse_ranges

#: What the names of notes that are positions begin with.
PREFIX = "position:"
#: Stretches that are noted of one name, at most: what lies in others may come twice.
MOST_NOTED = 1000

#: Of each name where the batches begin that have the same end.
Undelivered = Mapping[str, Mapping[int, Sequence[int]]]


class Positions(Protocol):
    """The ends of one channel, by the name of what is read; a source's name and a slash stand before its own names.

    :ivar keeps: whether the channel keeps its events.
    """

    keeps: bool

    def end(self, name: str) -> int:
        """Up to where the channel has it, without a gap; 0 if nothing."""

    def ends(self, name: str) -> list[int]:
        """That, and where what it has beyond begins and ends, in order."""

    def is_safe(self, name: str) -> bool:
        """Whether nothing that was put is lost if the process dies now, and what was read is not there any more."""

    def safe_end(self, name: str) -> int:
        """Up to where nothing is lost if the process dies now."""

    def names(self) -> Iterable[str]:
        """All that are known."""

    def putting(self, position: Position) -> None:
        """A batch is about to be committed."""

    def put(self, position: Position, sequence: int | None) -> None:
        """It was committed, with this number."""

    def failed(self, position: Position) -> None:
        """It was not."""

    def passed(self, position: Position) -> None:
        """There was nothing for this channel up to there."""

    def start(self, position: Position) -> int:
        """Where a batch begins that is put next."""

    def found(self, prefix: str) -> dict[str, Ranges]:
        """What only this channel knows to have had when it was opened, of a source by its prefix; told once."""

    def elsewhere(self, name: str, ranges: Ranges) -> None:
        """Another channel has found these, where each batch goes to one: this one need not have them."""

    def again(self, name: str, start: int, end: int, safe: int | None) -> None:
        """What another channel had may be put into this one next, where each batch goes to one.

        :param safe: up to where nothing is lost if the process dies now; None if no channel forgets.
        :raises ChannelIOError: the note that says otherwise cannot be changed.
        """

    def leaving(self, batches: Iterable[EventBatch]) -> None:
        """Their take is about to be committed."""

    def left(self, batches: Iterable[EventBatch]) -> None:
        """It was committed."""

    def begin(self, prefix: str) -> None:
        """The source whose names begin so begins: what of it was lost since the last time it is to read once more."""

    def lost(self, position: Position, start: int, *, held: bool, furthest: int = 0) -> bool:
        """A batch that was committed is damaged; whether its source reads it again when it begins next.

        :param start: up to where the channel had come before it.
        :param held: whether it was known to be in the channel; no source has begun yet if it was not.
        :param furthest: up to where its source does not read again whatever this channel has: others have it.
        """

    def undelivered(self) -> Undelivered:
        """What was put, and may be lost with the process."""

    def empty(self, believed: Undelivered) -> set[str]:
        """Nothing was in the channel of what was :meth:`undelivered` then; what of it is lost, for :meth:`begin`."""

    def forget(self, name: str) -> None:
        """It is gone for good."""

    def flush(self) -> None:
        """Note what is due."""

    def close(self) -> None:
        """Note all, and let go of what it has of its own."""


class KeptPositions:
    """For a channel that keeps its events, and has notes.

    :param sync: makes all that was committed as safe as it can be.
    :param events: all that are in the channel now.
    """

    keeps = True

    def __init__(self, notes: Notes, sync: Callable[[], None], events: Iterable[Event]) -> None:
        self._notes, self._sync = notes, sync
        # Of two sinks that note the same name the one that knows less would else write last.
        self._writing = threading.Lock()  # held from what a note is to say until it is written; before _lock
        self._lock = threading.Lock()  # guards what follows; not held during I/O
        self._ends: dict[str, int] = {}
        self._newest: dict[str, int] = {}
        self._noted: dict[str, int] = {}
        #: Of names that are shared with channels that forget: the stretch that is put next, and those it was given.
        self._next: dict[str, tuple[int, int]] = {}
        self._given: dict[str, Ranges] = {}
        #: Whose note has not all of the latter; and what was there when the channel was opened.
        self._changed: set[str] = set()
        self._found: dict[str, Ranges] = {}
        for name, noted in notes.items(PREFIX).items():
            self._read_note(name.removeprefix(PREFIX), noted)
        self._due: set[str] = set()
        #: Of each name how many batches are in the channel.
        self._held: dict[str, int] = {}
        #: Forgotten names with batches in the channel: the newest of these.
        self._forgotten: dict[str, int] = {}
        for event in events:
            position = position_of(event)
            if position is not None and event.sequence is not None:
                self._advance(position, event.sequence)
                self._hold(position.name, 1)
                self._find(position, start_of(event))

    def end(self, name: str) -> int:
        """See :class:`Positions`, as for those that follow."""
        with self._lock:
            return self._ends.get(name, 0)

    def ends(self, name: str) -> list[int]:
        return [self.end(name)]

    def is_safe(self, name: str) -> bool:
        return True

    def safe_end(self, name: str) -> int:
        return self.end(name)

    def names(self) -> list[str]:
        with self._lock:
            return list(self._ends)

    def start(self, position: Position) -> int:
        name, end, _ = position
        with self._lock:
            start, its_end = self._next.get(name, (0, 0))
            return start if its_end == end else self._ends.get(name, 0)

    def putting(self, position: Position) -> None:
        pass

    def failed(self, position: Position) -> None:
        with self._lock:
            self._next.pop(position.name, None)

    def put(self, position: Position, sequence: int | None) -> None:
        with self._lock:
            self._advance(position, -1 if sequence is None else sequence)
            self._hold(position.name, 1)
            self._next.pop(position.name, None)

    def passed(self, position: Position) -> None:
        with self._lock:
            self._advance(position, -1)

    def found(self, prefix: str) -> dict[str, Ranges]:
        with self._lock:
            found = {name: self._found.pop(name) for name in list(self._found) if name.startswith(prefix)}
            for name, ranges in found.items():
                for start, end in ranges:
                    self._give(name, start, end)
        return found

    def elsewhere(self, name: str, ranges: Ranges) -> None:
        pass

    def again(self, name: str, start: int, end: int, safe: int | None) -> None:
        if safe is None:
            return
        with self._lock:
            self._next[name] = start, end
            of_name(self._given, name).add(0, safe)  # or what others have would be gaps for ever

    def leaving(self, batches: Iterable[EventBatch]) -> None:
        taken = set()
        with self._lock:
            for batch in batches:
                position, sequence = batch.position, -1 if batch.sequence is None else batch.sequence
                if position is not None and sequence > self._forgotten.get(position.name, -2):
                    self._advance(position, sequence)  # whoever put it may not have come to say so
                    taken.add(position.name)
        self._note(taken)

    def left(self, batches: Iterable[EventBatch]) -> None:
        with self._lock:
            for batch in batches:
                if batch.position is not None:
                    self._hold(batch.position.name, -1)

    def begin(self, prefix: str) -> None:
        with self._lock:
            for name in [name for name in self._next if name.startswith(prefix)]:
                del self._next[name]

    def undelivered(self) -> Undelivered:
        return {}

    def empty(self, believed: Undelivered) -> set[str]:
        return set()

    def lost(self, position: Position, start: int, *, held: bool, furthest: int = 0) -> bool:
        name, end, _ = position
        with self._lock:
            if held:
                self._hold(name, -1)
                return False
        return furthest < end and self._set_back(name, start, end)

    def _set_back(self, name: str, start: int, end: int) -> bool:
        with self._writing:
            with self._lock:
                if end < self._ends.get(name, 0):
                    return False
                for known in (self._given, self._found):
                    if name in known:
                        known[name].remove(start, end)
                if end > self._ends.get(name, 0):
                    return True
                self._ends[name] = self._noted[name] = start  # nothing behind it was put: it is read again, in order
                noted = self._noting(name)
            self._notes.write(PREFIX + name, noted, -1)
        return True

    def forget(self, name: str) -> None:
        with self._lock:
            if self._held.get(name):
                self._forgotten[name] = self._newest.get(name, -1)
            for known in (self._ends, self._newest, self._noted, self._next, self._given, self._found):
                known.pop(name, None)
            self._due.discard(name)
            self._changed.discard(name)
        self._notes.remove(PREFIX + name)

    def flush(self) -> None:
        with self._lock:
            due = list(self._due)
        self._note(due)

    def close(self) -> None:
        self.flush()

    def _find(self, position: Position, start: int) -> None:
        if 0 <= start < position.end:
            of_name(self._found, position.name).add(start, position.end)

    def _advance(self, position: Position, sequence: int) -> None:
        name, end, _ = position
        if end > self._ends.get(name, 0):
            self._ends[name] = end
            self._due.add(name)
        self._newest[name] = max(sequence, self._newest.get(name, -1))
        if self._next.get(name, (0, 0))[1] == end and sequence >= 0:
            self._give(name, *self._next[name])

    def _give(self, name: str, start: int, end: int) -> None:
        of_name(self._given, name).add(start, end)
        self._changed.add(name)
        self._due.add(name)

    def _hold(self, name: str, count: int) -> None:
        """So many batches more; the one that leaves may be told of before the one that came."""
        held = self._held[name] = self._held.get(name, 0) + count
        if not held:
            del self._held[name]
            self._forgotten.pop(name, None)

    def _note(self, names: Iterable[str]) -> None:
        with self._writing:
            self._note_now(names)

    def _note_now(self, names: Iterable[str]) -> None:
        with self._lock:
            due = {name: self._ends[name] for name in names if self._is_due(name)}
            rows = [(PREFIX + name, self._noting(name), self._newest.get(name, -1)) for name in due]
            changed = self._changed & due.keys()
            self._changed -= changed
        if not rows:
            return
        try:
            self._sync()  # or the note might speak of events that a power cut takes back, and be forgotten with them
            self._notes.write_many(rows)
        except BaseException:
            with self._lock:
                self._changed |= changed & self._given.keys()
            raise
        self._have_noted(due)

    def _is_due(self, name: str) -> bool:
        return self._ends.get(name, 0) > self._noted.get(name, 0) or name in self._changed

    def _noting(self, name: str) -> bytes:
        """What its note is to say."""
        end, given = b"%d" % self._ends[name], self._given.get(name)
        return end if given is None else end + b" " + given.dump(MOST_NOTED)

    def _read_note(self, name: str, noted: bytes) -> None:
        end, _, given = noted.partition(b" ")
        self._ends[name] = self._noted[name] = int(end)
        if given:
            self._given[name] = parse_ranges(given)
            self._found[name] = self._given[name].copy()

    def _have_noted(self, rows: Mapping[str, int]) -> None:
        with self._lock:
            forgotten = [name for name in rows if name not in self._ends]
            for name, end in rows.items():
                if end <= self._ends.get(name, 0):  # or it was forgotten meanwhile, and begun anew
                    self._noted[name] = max(end, self._noted.get(name, 0))
                    if not self._is_due(name):
                        self._due.discard(name)
        for name in forgotten:
            self._notes.remove(PREFIX + name)


def of_name(known: dict[str, Ranges], name: str) -> Ranges:
    """The stretches of a name."""
    ranges = known.get(name)
    if ranges is None:
        ranges = known[name] = Ranges()
    return ranges

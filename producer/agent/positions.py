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
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from ..interfaces import Event, Notes
from .batch import EventBatch, Position
from .event_format import position_of
from .ranges import Ranges

#: What the names of notes that are positions begin with.
PREFIX = "position:"


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

    def found(self, prefix: str) -> dict[str, Ranges]:
        """What a channel that forgets had when it was opened, of the source whose names begin so; told once."""

    def elsewhere(self, name: str, ranges: Ranges) -> None:
        """Another channel has found these, where each batch goes to one: this one need not have them."""

    def again(self, name: str, start: int, end: int) -> None:
        """What another channel had may be put into this one next, where each batch goes to one.

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

    def empty(self) -> set[str]:
        """Nothing is in the channel, and nothing is on its way there; what was put and is lost, for :meth:`begin`."""

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
        self._lock = threading.Lock()  # guards what follows; not held during I/O
        self._ends: dict[str, int] = {}
        self._newest: dict[str, int] = {}
        self._noted = {name.removeprefix(PREFIX): int(end) for name, end in notes.items(PREFIX).items()}
        self._due: set[str] = set()
        #: Of each name how many batches are in the channel.
        self._held: dict[str, int] = {}
        #: Forgotten names with batches in the channel: the newest of these.
        self._forgotten: dict[str, int] = {}
        self._ends.update(self._noted)
        for event in events:
            position = position_of(event)
            if position is not None and event.sequence is not None:
                self._advance(position, event.sequence)
                self._hold(position.name, 1)

    def end(self, name: str) -> int:
        """See :class:`Positions`, as for those that follow."""
        with self._lock:
            return self._ends.get(name, 0)

    def ends(self, name: str) -> list[int]:
        return [self.end(name)]

    def is_safe(self, name: str) -> bool:  # noqa: ARG002  # the protocol's
        return True

    def safe_end(self, name: str) -> int:
        return self.end(name)

    def names(self) -> list[str]:
        with self._lock:
            return list(self._ends)

    def putting(self, position: Position) -> None:
        pass

    def failed(self, position: Position) -> None:
        pass

    def put(self, position: Position, sequence: int | None) -> None:
        with self._lock:
            self._advance(position, -1 if sequence is None else sequence)
            self._hold(position.name, 1)

    def passed(self, position: Position) -> None:
        with self._lock:
            self._advance(position, -1)

    def found(self, prefix: str) -> dict[str, Ranges]:  # noqa: ARG002  # the protocol's
        return {}

    def elsewhere(self, name: str, ranges: Ranges) -> None:
        pass

    def again(self, name: str, start: int, end: int) -> None:
        pass

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
        pass

    def empty(self) -> set[str]:
        return set()

    def lost(self, position: Position, start: int, *, held: bool, furthest: int = 0) -> bool:
        name, end, _ = position
        with self._lock:
            if held:
                self._hold(name, -1)
                return False
            if furthest >= end:
                return False
            if end != self._ends.get(name):
                return end > self._ends.get(name, 0)
            self._ends[name] = self._noted[name] = start  # nothing behind it was put: it is read once more, in order
        self._notes.write(PREFIX + name, b"%d" % start, -1)
        return True

    def forget(self, name: str) -> None:
        with self._lock:
            if self._held.get(name):
                self._forgotten[name] = self._newest.get(name, -1)
            for known in (self._ends, self._newest, self._noted):
                known.pop(name, None)
            self._due.discard(name)
        self._notes.remove(PREFIX + name)

    def flush(self) -> None:
        with self._lock:
            due = list(self._due)
        self._note(due)

    def close(self) -> None:
        self.flush()

    def _advance(self, position: Position, sequence: int) -> None:
        name, end, _ = position
        if end > self._ends.get(name, 0):
            self._ends[name] = end
            self._due.add(name)
        self._newest[name] = max(sequence, self._newest.get(name, -1))

    def _hold(self, name: str, count: int) -> None:
        """So many batches more; the one that leaves may be told of before the one that came."""
        held = self._held[name] = self._held.get(name, 0) + count
        if not held:
            del self._held[name]
            self._forgotten.pop(name, None)

    def _note(self, names: Iterable[str]) -> None:
        with self._lock:
            due = {name: self._ends[name] for name in names if self._ends.get(name, 0) > self._noted.get(name, 0)}
            rows = [(PREFIX + name, b"%d" % end, self._newest.get(name, -1)) for name, end in due.items()]
        if rows:
            self._sync()  # or the note might speak of events that a power cut takes back, and be forgotten with them
            self._notes.write_many(rows)
            self._have_noted(due)

    def _have_noted(self, rows: Mapping[str, int]) -> None:
        with self._lock:
            forgotten = [name for name in rows if name not in self._ends]
            for name, end in rows.items():
                if end <= self._ends.get(name, 0):  # or it was forgotten meanwhile, and begun anew
                    self._noted[name] = max(end, self._noted.get(name, 0))
                    if self._noted[name] == self._ends[name]:
                        self._due.discard(name)
        for name in forgotten:
            self._notes.remove(PREFIX + name)

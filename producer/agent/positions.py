"""How far the sources came, as a channel knows it: so that what is read again after a death is put once.

A source that can read again gives each batch a :class:`~.batch.Position`. After a death it goes on behind what its
channels have. There are two kinds of channel:

* In one **that keeps its events**, the position lies with the batch, in the same commit. When the batch is about to
  leave, the position is first written to the channel's notes: there is no instant at which neither has it. So what was
  committed is not read again.
* In one that **forgets**, what was read is only safe once it was delivered: the position is noted after that, in the
  agent's own directory, and what had not been delivered is read again. So nothing is lost there either, and what was
  delivered within the last second may come twice.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from ..clock import Clock
from ..interfaces import Event, Notes
from .batch import EventBatch, Position
from .event_format import position_of

_PREFIX = "position:"
#: Positions of channels that forget are noted so often, seconds.
NOTE_INTERVAL = 1.0


class OwnNotes(Notes, Protocol):
    """Notes that whoever uses them also closes."""

    def close(self) -> None:
        """Give the files up."""


class Positions(Protocol):
    """The ends of one channel, by the name of what is read; a source's name and a slash stand before its own names.

    :ivar keeps: whether the channel keeps its events.
    """

    keeps: bool

    def end(self, name: str) -> int:
        """Up to where the channel has it; 0 if nothing."""

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
        self._noted = {name.removeprefix(_PREFIX): int(end) for name, end in notes.items(_PREFIX).items()}
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
        self._notes.write(_PREFIX + name, b"%d" % start, -1)
        return True

    def forget(self, name: str) -> None:
        with self._lock:
            if self._held.get(name):
                self._forgotten[name] = self._newest.get(name, -1)
            for known in (self._ends, self._newest, self._noted):
                known.pop(name, None)
            self._due.discard(name)
        self._notes.remove(_PREFIX + name)

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
            rows = [(_PREFIX + name, b"%d" % end, self._newest.get(name, -1)) for name, end in due.items()]
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
            self._notes.remove(_PREFIX + name)


class DeliveredPositions:
    """For a channel that forgets.

    :param notes: of the agent's own.
    """

    keeps = False

    def __init__(self, notes: OwnNotes, clock: Clock) -> None:
        self._notes, self._clock = notes, clock
        self._lock = threading.Lock()  # guards what follows; not held during I/O
        found = notes.items(_PREFIX)
        self._delivered = {name.removeprefix(_PREFIX): int(end) for name, end in found.items()}
        self._ends = dict(self._delivered)
        #: Of each name the ends that are in the channel, in order; the delivered ones have left the set.
        self._waiting: dict[str, deque[int]] = {}
        self._undelivered: dict[str, set[int]] = {}
        #: Those that are lost; and those that are in the channel, and will be read again.
        self._lost: dict[str, set[int]] = {}
        self._old: dict[str, Counter[int]] = {}
        self._dirty: set[str] = set()
        self._next_note = clock.monotonic()

    def end(self, name: str) -> int:
        """See :class:`Positions`, as for those that follow."""
        with self._lock:
            return self._ends.get(name, 0)

    def is_safe(self, name: str) -> bool:
        with self._lock:
            return not self._undelivered.get(name)

    def safe_end(self, name: str) -> int:
        with self._lock:
            return self._delivered.get(name, 0)

    def names(self) -> list[str]:
        with self._lock:
            return list(self._ends)

    def putting(self, position: Position) -> None:
        with self._lock:
            self._waiting.setdefault(position.name, deque()).append(position.end)
            self._undelivered.setdefault(position.name, set()).add(position.end)

    def put(self, position: Position, sequence: int | None) -> None:  # noqa: ARG002  # the protocol's
        with self._lock:
            self._ends[position.name] = max(position.end, self._ends.get(position.name, 0))

    def failed(self, position: Position) -> None:
        with self._lock:
            self._waiting[position.name].remove(position.end)
            self._undelivered[position.name].discard(position.end)

    def passed(self, position: Position) -> None:
        name, end, _ = position
        with self._lock:
            waiting = self._waiting.setdefault(name, deque())
            if waiting and waiting[-1] not in self._undelivered.get(name, ()):
                waiting.pop()  # it waits for the same one
            waiting.append(end)
            self._ends[name] = max(end, self._ends.get(name, 0))
            self._deliver(position)

    def leaving(self, batches: Iterable[EventBatch]) -> None:
        pass

    def left(self, batches: Iterable[EventBatch]) -> None:
        with self._lock:
            for batch in batches:
                if batch.position is not None and not self._is_old(batch.position):
                    self._deliver(batch.position)
            due = bool(self._dirty) and self._clock.monotonic() >= self._next_note
        if due:
            self.flush()

    def begin(self, prefix: str) -> None:
        with self._lock:
            for name in [name for name in self._lost if name.startswith(prefix)]:
                lost, waiting = self._lost.pop(name), self._undelivered.pop(name, set())
                self._old.setdefault(name, Counter()).update(waiting - lost)
                self._waiting.pop(name, None)
                self._ends[name] = self._delivered.get(name, 0)

    def empty(self) -> set[str]:
        with self._lock:
            self._old.clear()
            for name, ends in self._undelivered.items():
                if ends:
                    self._lost.setdefault(name, set()).update(ends)
            return set(self._lost)

    def lost(self, position: Position, start: int, *, held: bool, furthest: int = 0) -> bool:  # noqa: ARG002  # nor is it noted
        if held:
            with self._lock:
                if not self._is_old(position):  # or it is read again already
                    self._lost.setdefault(position.name, set()).add(position.end)
        return True

    def forget(self, name: str) -> None:
        with self._lock:
            for known in (self._ends, self._delivered, self._waiting, self._undelivered, self._lost, self._old):
                known.pop(name, None)
            self._dirty.discard(name)
        self._notes.remove(_PREFIX + name)

    def flush(self) -> None:
        with self._lock:
            due: Mapping[str, int] = {name: self._delivered[name] for name in self._dirty}
            self._dirty.clear()
            self._next_note = self._clock.monotonic() + NOTE_INTERVAL
        try:
            self._notes.write_many([(_PREFIX + name, b"%d" % end, -1) for name, end in due.items()])
        except BaseException:
            with self._lock:
                self._dirty |= due.keys() & self._delivered.keys()  # for the next time
            raise

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._notes.close()

    def _is_old(self, position: Position) -> bool:
        """Whether it was put before its source began anew: what comes with the same end is not delivered with it."""
        old = self._old.get(position.name)
        if not old or position.end not in old:
            return False
        old.subtract([position.end])
        self._old[position.name] = +old
        return True

    def _deliver(self, position: Position) -> None:
        name, end, _ = position
        undelivered, waiting = self._undelivered.get(name, set()), self._waiting.get(name, deque())
        undelivered.discard(end)
        while waiting and waiting[0] not in undelivered:
            self._delivered[name] = max(waiting.popleft(), self._delivered.get(name, 0))
            self._dirty.add(name)

"""Ledger: which ranges of the things that a source reads are safe, so that a restart reads again exactly the others.

A batch covers a range of a file or partition, which its :class:`~..events.batch.Position` says. It is safe once each
channel that is to have it has committed it, if that channel keeps its events, or has delivered it, if that channel
forgets them. A **lane** has two :class:`~.ranges.Ranges` for each name: ``put``, which it need not get
again while the process lives, and ``safe``, which it need not get after a death either. *Example.* Three batches were
put into a channel in memory, and two sinks have delivered the first and the last one::

    put   0 ──────────── 6        safe  0 ── 2    4 ── 6        noted as "2 4-6"

A selector that gives each batch to one channel has one lane for all channels; any other selector has a lane for each
channel. What all lanes have safely is safe. Notes lie in the directory of the source, a row for each lane and name::

    rules           {"channels": ["a", "b"], "lanes": ["a", "b"], "selection": "57a0…"}
    setup           {"kind": "TaildirSource", "places": {"a": ["/state/channels/a/events"]}}
    position:0:s/f  40 60-90

* A channel that keeps its events has the range beside the batch, in one commit. Before the batch leaves, the range is
  noted. A channel that is opened tells which ranges it holds. So no death finds a range in neither place.
* A channel that forgets has delivered a batch before that is noted, within a second.
* Before the first batch, the directories of the channels are noted. So a channel of another name in the same directory
  is the same one, and what waits in a directory that no channel uses any more is known after a death, too.

If channels, selector or interceptors are others at a start, a lane says nothing of the batches that it is to get now.
Then each lane begins with what all lanes had: the rest is read again, and comes twice to a channel that had it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Container, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from ...channels.file.store.notes import FileNotes, copy_notes
from ...runtime.clock import Clock
from ..events.batch import Position
from .lanes import MOST_NOTED, NOTHING, OF_ALL, PREFIX, Holder, Lane, count_uneven, even, lanes_of

_RULES, _SETUP = "rules", "setup"
#: Below the directory of a source.
DIRECTORY = "ledger"
#: Seconds between two notes of what was delivered.
_NOTE_INTERVAL = 1.0


@dataclass(frozen=True, slots=True)
class Setup:
    """A source's type, and the places of those of its channels that are on the disk.

    :ivar kind: the name of its class.
    :ivar places: directories, by channel; the first one is the channel's own, the others have its segments.
    """

    kind: str = ""
    places: Mapping[str, list[str]] = field(default_factory=dict)


class Ledger:
    """The ledger of one source.

    :param directory: the source's.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory, self._clock, self.source = directory / DIRECTORY, clock, directory.name
        self._notes = FileNotes(str(self._directory), self.source)
        # Of two threads that note the same name the one that knows less would else write last.
        self._writing = threading.Lock()  # held from what a note is to say until it is written; before _lock
        self._lock = threading.Lock()  # guards what follows; not held during I/O
        #: Where batches in channels that forget begin and end, by channel and name.
        self._held: dict[str, dict[str, set[tuple[int, int]]]] = {}
        #: Channels and ranges of batches whose commit has not returned.
        self._putting: set[tuple[str, str, int, int]] = set()
        #: What channels held when they were opened, as long as there are no lanes.
        self._found: list[tuple[Holder, Position]] = []
        self._rules = self._notes.read(_RULES)
        self._lanes = lanes_of(self._rules, self._notes.items(PREFIX))
        self.setup = Setup(**json.loads(self._notes.read(_SETUP) or b"{}"))
        #: The noted names of channels, where they differ.
        self._former_names: Mapping[str, str] = {}
        self._has_begun = False
        #: Whether rules and setup are to be noted; and whether by the next flush, as other ones are noted.
        self._rules_due = self._must_note = False
        self._next_note = clock.monotonic()

    @property
    def is_new(self) -> bool:
        """True if no start has noted its rules."""
        return self._rules is None

    def differs(self, rules: bytes, setup: Setup) -> bool:
        """Return True if other rules or another setup are known."""
        return (rules, setup) != (self._rules, self.setup)

    def know_places(self, places: Mapping[str, list[str]]) -> dict[str, list[str]]:
        """Take the directories of all channels, before these say what they hold.

        :returns: those of the source's former channels that no channel uses, with what this process has not counted.
        """
        noted = {place[0]: name for name, place in self.setup.places.items()}
        used = {place[0]: name for name, place in places.items()}
        former_names = {used[own]: name for own, name in noted.items() if own in used}
        with self._lock:
            self._former_names = former_names
        former = {} if self._has_begun else self.setup.places
        return {name: place for name, place in former.items() if place[0] not in used}

    def begin(
        self, rules: bytes, setup: Setup | None = None, former: tuple[bytes, dict[str, Lane]] | None = None
    ) -> int:
        """Begin with a configuration, before the source and the sinks of its channels.

        :param rules: those of the configuration: see :func:`~.lanes.rules_of`.
        :param former: rules and lanes of a state that has no ledger.
        :returns: the number of names of which a range that some channels have is read again, as the rules have changed.
        """
        again, setup = 0, setup or Setup()
        with self._writing, self._lock:
            if former is not None:
                self._rules, self._lanes = former
            if former is not None or self.differs(rules, setup):
                self._must_note, self._rules_due = self._rules is not None, True
            self.setup, self._former_names, self._has_begun = setup, {}, True
            if rules != self._rules:
                again = count_uneven(self._lanes.values())
                self._lanes = even(self._lanes.values(), json.loads(rules)["lanes"])
                self._rules = rules
            found, self._found = self._found, []
            for channel, position in found:
                self._find(channel, position)
        return again

    def find(self, channel: Holder, position: Position) -> None:
        """Count a batch that a channel holds when it is opened."""
        with self._lock:
            if self._rules is None:
                self._found.append((channel, position))
            else:
                self._find(channel, position)

    def _find(self, channel: Holder, position: Position) -> None:
        if not channel.keeps:
            self._hold(channel, position)
        lane = self._lane_of(self._former_names.get(channel.name, channel.name))
        if lane is not None:
            lane.add(position, safe=channel.keeps)

    # -- what a source asks

    def ends(self, name: str) -> list[int]:
        """Up to where all lanes have it, and where what any lane has beyond begins and ends."""
        with self._lock:
            known = [lane.put.get(name, NOTHING) for lane in self._lanes.values()]
            first = min(ranges.first for ranges in known)
            borders = {number for ranges in known for number in (ranges.first, *ranges.borders)}
        return [first, *sorted(number for number in borders if number > first)]

    def safe_end(self, name: str) -> int:
        """Up to where nothing is lost if the process dies now."""
        with self._lock:
            return min(lane.safe.get(name, NOTHING).first for lane in self._lanes.values())

    def names(self) -> set[str]:
        """All names of which anything is known."""
        with self._lock:
            return {name for lane in self._lanes.values() for name in lane.put}

    def has(self, channel: str, position: Position) -> bool:
        """Return True if a channel need not get a batch."""
        with self._lock:
            lane = self._lane_of(channel)
            return lane is not None and lane.covers(position)

    def pass_over(self, position: Position) -> None:
        """Count a range as safe in each lane that did not get it.

        :raises ChannelIOError: it cannot be noted that the rules have changed.
        """
        self._note_change()
        with self._lock:
            for lane in filter(lambda lane: not lane.covers(position), self._lanes.values()):
                lane.add(position)

    def forget(self, name: str) -> None:
        """Drop all that is known of a name: what had it is gone."""
        with self._writing:
            with self._lock:
                for lane in self._lanes.values():
                    lane.forget(name)
                for held in self._held.values():
                    held.pop(name, None)
            for number in range(len(self._lanes)):
                self._notes.remove(f"{PREFIX}{number}:{name}")

    # -- what a channel tells

    def putting(self, channel: Holder, position: Position) -> None:
        """Count a batch that is about to be committed.

        :raises ChannelIOError: it cannot be noted that the rules have changed.
        """
        self._note_change()
        with self._lock:
            self._putting.add(_range(channel, position))
            if not channel.keeps:
                self._hold(channel, position)

    def failed(self, channel: Holder, position: Position) -> None:
        """Drop a batch that could not be committed."""
        with self._lock:
            self._putting.discard(_range(channel, position))
            self._let_go(channel, position)

    def put(self, channel: Holder, position: Position, sequence: int) -> None:
        """Count a batch that was committed."""
        with self._lock:
            self._put(channel, position, sequence)

    def _put(self, channel: Holder, position: Position, sequence: int) -> None:
        batch, lane = _range(channel, position), self._lane_of(channel.name)
        if batch not in self._putting:
            return  # its sink came first, or the name was forgotten
        self._putting.discard(batch)
        if lane is not None:
            lane.add(position, safe=channel.keeps)
            if channel.keeps:
                newest = lane.unsynced.get(channel.name, (channel, -1))[1]
                lane.unsynced[channel.name] = channel, max(sequence, newest)

    def leaving(self, channel: Holder, batches: Iterable[tuple[Position, int]]) -> None:
        """Note batches of a channel that keeps them, with their numbers: their take is about to be committed.

        :raises ChannelIOError: it cannot be noted.
        """
        names = set()
        with self._lock:
            for position, sequence in batches:
                self._put(channel, position, sequence)
                names.add(position.name)
        self._note(channel.name, names)

    def left(self, channel: Holder, positions: Iterable[Position]) -> None:
        """Count batches of a channel that forgets as delivered."""
        with self._lock:
            self._leave(channel, positions)
            is_due = self._clock.monotonic() >= self._next_note
        if is_due:
            self.flush()

    def _leave(self, channel: Holder, positions: Iterable[Position]) -> None:
        for position in positions:
            if self._let_go(channel, position):
                self._have_delivered(channel, position)

    def _have_delivered(self, channel: Holder, position: Position) -> None:
        own, pair = self._lane_of(channel.name), (position.start, position.end)
        holders = [name for name, held in self._held.items() if pair in held.get(position.name, ())]
        for lane in self._lanes.values() if own is None else (own,):
            if not any(self._lane_of(name) in (lane, None) for name in holders):
                lane.add(position, put=False)

    def lost(self, channel: Holder, position: Position, *, held: bool) -> bool:
        """Count a batch that is damaged on the disk; return True if its source reads it again when it begins next.

        :param held: True if it was known to be in the channel; False if it is found when that is opened.
        """
        name, end, _, start = position
        with self._lock:
            lane = self._lane_of(channel.name)
            if not channel.keeps:
                self._let_go(channel, position)
            elif lane is None or held or lane.put.get(name, NOTHING).last > end:
                if lane is not None:
                    lane.add(position)  # what came behind it may have been delivered
                return False
            for each in self._lanes.values() if lane is None else (lane,):
                each.remove(name, start, end)
        if channel.keeps:
            self.flush()
        return True

    # -- notes

    def flush(self) -> None:
        """Note what is due."""
        self._note()

    def close(self) -> None:
        """Note what is due, and close the notes."""
        try:
            self.flush()
        finally:
            self._notes.close()

    def _note_change(self) -> None:
        if self._must_note or (self._rules_due and self.setup.places):
            self._must_note = True
            self.flush()

    def _note(self, channel: str | None = None, names: Container[str] = ()) -> None:
        """Note what is due: of these names of a channel's lane, or all."""
        with self._writing:
            with self._lock:
                due = self._due(channel, names)
                unsynced = [pair for lane in {each.lane for each in due} for pair in lane.unsynced.values()]
                rules = self._rules if self._rules_due else None
                setup = json.dumps(asdict(self.setup)).encode()
                self._next_note = self._clock.monotonic() + _NOTE_INTERVAL
            if not due and (rules is None or not self._must_note):
                return
            for holder, sequence in unsynced:
                holder.make_synced(sequence)  # or a power cut could take back what the note speaks of
            rows = [(f"{PREFIX}{each.number}:{each.name}", each.value, -1) for each in due]
            self._directory.mkdir(parents=True, exist_ok=True)
            more = [] if rules is None else [(_RULES, rules, -1), (_SETUP, setup, -1)]
            self._notes.write_many([*rows, *more])
            if rules is not None:
                self._remove_stale(len(self._lanes))
            with self._lock:
                if rules is not None:
                    self._rules_due = self._must_note = False
                for each in due:
                    each.lane.have_noted(each.name, each.value)

    def _due(self, channel: str | None, names: Container[str]) -> list[_Due]:
        """The notes that are due; the caller holds the lock."""
        is_all = channel is None or self._rules_due
        own = None if channel is None else self._lane_of(channel)
        return [
            _Due(number, lane, name, lane.safe[name].dump(MOST_NOTED))
            for number, lane in enumerate(self._lanes.values())
            if is_all or lane is own
            for name in lane.due
            if is_all or name in names
        ]

    def _remove_stale(self, lanes: int) -> None:
        """Remove notes of former lanes, which would speak for a channel that comes back."""
        for row in self._notes.items(PREFIX):
            if int(row.split(":")[1]) >= lanes:
                self._notes.remove(row)

    # -- lanes; under the lock

    def _lane_of(self, channel: str) -> Lane | None:
        """None for a channel that the source uses no more."""
        return self._lanes.get(OF_ALL) or self._lanes.get(channel)

    def _hold(self, channel: Holder, position: Position) -> None:
        held = self._held.setdefault(channel.name, {}).setdefault(position.name, set())
        held.add((position.start, position.end))

    def _let_go(self, channel: Holder, position: Position) -> bool:
        """Return False for a batch of which the channel did not know, such as one that was forgotten."""
        held, pair = self._held.get(channel.name, {}).get(position.name, set()), (position.start, position.end)
        is_known = pair in held
        held.discard(pair)
        return is_known


class _Due(NamedTuple):
    """A note that is to be written."""

    number: int
    lane: Lane
    name: str
    value: bytes


def _range(channel: Holder, position: Position) -> tuple[str, str, int, int]:
    return channel.name, position.name, position.start, position.end


def copy_ledgers(sources: Path, to: Path) -> None:
    """Copy what the sources of an agent have noted, also while it runs and has the notes locked.

    :raises ChannelError: they cannot be read.
    :raises OSError: likewise, or they cannot be written.
    """
    for found in sources.glob(f"*/{DIRECTORY}"):
        place = to / found.relative_to(sources)
        place.mkdir(parents=True)
        copy_notes(found, place)

"""The ledger of a source: the ranges that are safe, so that a restart reads exactly the others again.

A batch covers a range of a file or partition, given by its :class:`~..events.batch.Position`. It is safe once each of
its channels has committed it, if the channel keeps its events, or has delivered it otherwise. A **lane** has two
:class:`~.ranges.Ranges` for each name. ``put`` need not be put again while the process lives, ``safe`` not after a
crash either. *Example.* Three batches were put into a memory channel, and two sinks have delivered the first and the
last one::

    put   0 ──────────── 6        safe  0 ── 2    4 ── 6        noted as "2 4-6"

A selector that gives each batch to one channel has one lane for all channels. Any other selector has a lane for each
channel. A range is safe once all lanes have it as safe. Notes are in the directory of the source, with a row for each
lane and name::

    rules           {"channels": ["a", "b"], "lanes": ["a", "b"], "selection": "57a0…"}
    setup           {"kind": "TaildirSource", "places": {"a": ["/state/channels/a/events"]}}
    position:0:s/f  40 60-90

* A channel that keeps its events commits the range together with the batch. The range is noted before the batch leaves.
  A channel reports its ranges when it is opened. So after any crash a range is in the channel or in the notes.
* Any other channel delivers a batch first. The range is noted within a second.
* Before the first batch, the directories of the channels are noted. So a channel with a new name in the same directory
  is recognized. Events in a directory that no channel uses are known after a crash, too.

If channels, selector or interceptors have changed at a start, the lanes do not apply to the new configuration. Each
lane then begins with the common ranges of all lanes. The rest is read again, and is duplicated in channels that had it.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from ...channels.file.store.notes import FileNotes, copy_notes
from ...runtime.clock import Clock
from ...runtime.locks import Lock
from ..events.batch import Position
from .lanes import MOST_NOTED, NOTHING, OF_ALL, PREFIX, Holder, Lane, count_uneven, even, lanes_of

_RULES, _SETUP = "rules", "setup"
#: The directory of the notes, below the source's.
DIRECTORY = "ledger"
#: Seconds between two notes of delivered ranges.
_NOTE_INTERVAL = 1.0


@dataclass(frozen=True, slots=True)
class Setup:
    """A source's type, and the directories of its channels on the disk.

    :ivar kind: the name of the source's class.
    :ivar places: the directories of each channel: its own first, then those of its segments.
    """

    kind: str = ""
    places: Mapping[str, list[str]] = field(default_factory=dict)


class Ledger:
    """The ledger of one source.

    :param directory: the source's directory.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory, self._clock, self.source = directory / DIRECTORY, clock, directory.name
        self._notes = FileNotes(str(self._directory), self.source)
        # Without this lock, if two threads note the same name, the one with older ranges could write last.
        self._writing = Lock()  # held from reading ranges until their note is written; taken before _lock
        self._lock = Lock()  # guards the attributes below; not held during I/O
        #: The ranges of batches in channels that do not keep their events, by channel and name.
        self._held: dict[str, dict[str, set[tuple[int, int]]]] = {}
        #: Channels and ranges of batches that are being committed.
        self._putting: set[tuple[str, str, int, int]] = set()
        #: Batches that channels held when they were opened, until there are lanes.
        self._found: list[tuple[Holder, Position]] = []
        self._rules = self._notes.read(_RULES)
        self._lanes = lanes_of(self._rules, self._notes.items(PREFIX))
        self.setup = Setup(**json.loads(self._notes.read(_SETUP) or b"{}"))
        #: The noted names of channels that were renamed.
        self._former_names: Mapping[str, str] = {}
        self._has_begun = False
        #: True if the noted rules and setup are outdated; and True if the next flush must replace them.
        self._rules_due = self._must_note = False
        self._next_note = clock.monotonic()

    @property
    def is_new(self) -> bool:
        """True if no earlier start has noted its rules."""
        return self._rules is None

    def differs(self, rules: bytes, setup: Setup) -> bool:
        """Return True if other rules or another setup are noted."""
        return (rules, setup) != (self._rules, self.setup)

    def know_places(self, places: Mapping[str, list[str]]) -> dict[str, list[str]]:
        """Record the directories of all channels, before these report their ranges.

        :returns: the former channels of the source that no channel uses now, unless this process has counted their
            events.
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

        :param rules: the configuration's rules, of :func:`~.lanes.rules_of`.
        :param setup: the configuration's setup; None for an empty one.
        :param former: the rules and lanes of a state without a ledger; None for none.
        :returns: the number of names of which a range is read again, though some channels have it, since the rules
            changed.
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
        """Count a batch that a channel held when it was opened."""
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

    # -- called by sources

    def ends(self, name: str) -> list[int]:
        """Return the offset up to which all lanes have the name, and the bounds of ranges beyond it."""
        with self._lock:
            known = [lane.put.get(name, NOTHING) for lane in self._lanes.values()]
            first = min(ranges.first for ranges in known)
            borders = {number for ranges in known for number in (ranges.first, *ranges.borders)}
        return [first, *sorted(number for number in borders if number > first)]

    def safe_end(self, name: str) -> int:
        """Return the offset up to which a crash loses nothing of the name."""
        with self._lock:
            return min(lane.safe.get(name, NOTHING).first for lane in self._lanes.values())

    def names(self) -> set[str]:
        """Return all known names."""
        with self._lock:
            return {name for lane in self._lanes.values() for name in lane.put}

    def has(self, channel: str, position: Position) -> bool:
        """Return True if a channel need not get a batch."""
        with self._lock:
            lane = self._lane_of(channel)
            return lane is not None and lane.covers(position)

    def pass_over(self, position: Position) -> None:
        """Count a range as safe in each lane that did not get it.

        :raises ChannelIOError: if changed rules cannot be noted.
        """
        self._note_change()
        with self._lock:
            for lane in filter(lambda lane: not lane.covers(position), self._lanes.values()):
                lane.add(position)

    def forget(self, name: str) -> None:
        """Drop all ranges of a name whose data is gone."""
        with self._writing:
            with self._lock:
                for lane in self._lanes.values():
                    lane.forget(name)
                for held in self._held.values():
                    held.pop(name, None)
            for number in range(len(self._lanes)):
                self._notes.remove(f"{PREFIX}{number}:{name}")

    # -- called by channels

    def putting(self, channel: Holder, position: Position) -> None:
        """Count a batch before it is committed.

        :raises ChannelIOError: if changed rules cannot be noted.
        """
        self._note_change()
        with self._lock:
            self._putting.add(_range(channel, position))
            if not channel.keeps:
                self._hold(channel, position)

    def failed(self, channel: Holder, position: Position) -> None:
        """Drop a batch whose commit failed."""
        with self._lock:
            self._putting.discard(_range(channel, position))
            self._let_go(channel, position)

    def put(self, channel: Holder, position: Position, sequence: int) -> None:
        """Count a committed batch."""
        with self._lock:
            self._put(channel, position, sequence)

    def _put(self, channel: Holder, position: Position, sequence: int) -> None:
        batch, lane = _range(channel, position), self._lane_of(channel.name)
        if batch not in self._putting:
            return  # its sink was faster, or the name was forgotten
        self._putting.discard(batch)
        if lane is not None:
            lane.add(position, safe=channel.keeps)
            if channel.keeps:
                newest = lane.unsynced.get(channel.name, (channel, -1))[1]
                lane.unsynced[channel.name] = channel, max(sequence, newest)

    def leaving(self, channel: Holder, batches: Iterable[tuple[Position, int]]) -> None:
        """Note batches, with their numbers, before their take from a channel that keeps its events is committed.

        :raises ChannelIOError: if they cannot be noted.
        """
        names = set()
        with self._lock:
            for position, sequence in batches:
                self._put(channel, position, sequence)
                names.add(position.name)
        self._note(channel.name, names)

    def left(self, channel: Holder, positions: Iterable[Position]) -> None:
        """Count batches of a channel that does not keep its events as delivered."""
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
        """Count a batch that is damaged on the disk. Return True if its source reads it again at its next start.

        :param held: True if it was counted as in the channel; False if it was found when the channel was opened.
        """
        name, end, _, start = position
        with self._lock:
            lane = self._lane_of(channel.name)
            if not channel.keeps:
                self._let_go(channel, position)
            elif lane is None or held or lane.put.get(name, NOTHING).last > end:
                if lane is not None:
                    lane.add(position)  # later batches may have been delivered already
                return False
            for each in self._lanes.values() if lane is None else (lane,):
                each.remove(name, start, end)
        if channel.keeps:
            self.flush()
        return True

    # -- notes

    def flush(self) -> None:
        """Write the pending notes."""
        self._note()

    def close(self) -> None:
        """Write the pending notes, and close the notes."""
        try:
            self.flush()
        finally:
            self._notes.close()

    def _note_change(self) -> None:
        if self._must_note or (self._rules_due and self.setup.places):
            self._must_note = True
            self.flush()

    def _note(self, channel: str | None = None, names: Container[str] = ()) -> None:
        """Write the pending notes: of some names in a channel's lane, or all."""
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
                holder.make_synced(sequence)  # or a power cut could undo events that the note counts as safe
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
        """Return the pending notes. The caller holds the lock."""
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
        """Remove notes of former lanes, which would count for a channel that returns."""
        for row in self._notes.items(PREFIX):
            if int(row.split(":")[1]) >= lanes:
                self._notes.remove(row)

    # -- lanes; the caller holds the lock

    def _lane_of(self, channel: str) -> Lane | None:
        """Return the lane of a channel; None if the source no longer uses it."""
        return self._lanes.get(OF_ALL) or self._lanes.get(channel)

    def _hold(self, channel: Holder, position: Position) -> None:
        held = self._held.setdefault(channel.name, {}).setdefault(position.name, set())
        held.add((position.start, position.end))

    def _let_go(self, channel: Holder, position: Position) -> bool:
        """Drop a range. Return False if the channel did not have it, as after ``forget``."""
        held, pair = self._held.get(channel.name, {}).get(position.name, set()), (position.start, position.end)
        is_known = pair in held
        held.discard(pair)
        return is_known


class _Due(NamedTuple):
    """A note to write."""

    number: int
    lane: Lane
    name: str
    value: bytes


def _range(channel: Holder, position: Position) -> tuple[str, str, int, int]:
    return channel.name, position.name, position.start, position.end


def copy_ledgers(sources: Path, to: Path) -> None:
    """Copy the notes of an agent's sources, even while the agent runs and has them locked.

    :raises ChannelError: if they cannot be read.
    :raises OSError: if they cannot be read or written.
    """
    for found in sources.glob(f"*/{DIRECTORY}"):
        place = to / found.relative_to(sources)
        place.mkdir(parents=True)
        copy_notes(found, place)

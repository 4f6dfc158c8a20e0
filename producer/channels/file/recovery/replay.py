"""Replay: what a channel holds, read from its checkpoint and the log behind it.

One pass over the log; takes are remembered in a set and subtracted at the end, so that the time is linear in the log.
What is torn and what is damaged is told apart as the package's docstring says. The file is long because a segment's
pass and the sum of all passes decide that together.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from struct import unpack

from ....model.errors import ChannelFormatError
from ....runtime.clock import Clock
from ....runtime.loggers import get_logger
from ....text.plural import counted
from ..queue.event_queue import Columns
from ..store.disk import Disk
from ..store.encryption import OVERHEAD
from ..store.format import (
    COMMIT_SIZE,
    FIRST_RECORD,
    FRAME_SIZE,
    ROLLBACK_SIZE,
    VERSION,
    Kind,
    Live,
    SegmentHeader,
    UnknownVersionError,
    decode_commit,
    decode_live,
    decode_rollback,
    decode_segment_header,
)
from ..store.pointers import MOST_OFFSET, OFFSET_BITS, pointer_to
from ..store.segment import Damage, Record, Segment, opened, scan
from . import checkpoint as checkpoints
from .torn import Flaw, end_looks_torn, has_lost_sector, run_looks_torn

_log = get_logger("loghub.channel")

SEGMENT_NAME = re.compile(r"log-(\d{10,})")
#: A line of progress after so many seconds.
PROGRESS_SECONDS = 5.0
#: The clock is looked at after so many records.
_LOOK = 50_000
#: A damaged stretch is not believed to have cost more events than this.
_MOST_LOST = 10**7


@dataclass(slots=True, kw_only=True)
class Findings:
    """What was found besides events."""

    replayed: int = 0
    torn_tails: int = 0
    damaged_records: int = 0
    lost_events: int = 0
    checkpoint_fallbacks: int = 0
    from_checkpoint: bool = False


@dataclass(slots=True)
class Found:
    """A file that is a segment.

    :ivar size: its bytes, as far as they count.
    """

    path: str
    header: SegmentHeader
    size: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the log ends, as what follows is torn.

    :ivar segment: its number; all later segments are empty of records.
    :ivar offset: where its last whole run ends.
    """

    segment: int
    offset: int


@dataclass(slots=True)
class _Run:
    """What was seen of one transaction's records."""

    transaction: int
    start: int
    puts: list[Record] = field(default_factory=list)
    takes: list[int] = field(default_factory=list)
    has_take: bool = False
    live: Live | None = None
    expected: int | None = None
    time: float = 0.0
    remaining: int = 0
    end: int = 0
    damages: list[Damage] = field(default_factory=list)
    repaired: bool = False
    last: int = 0

    @property
    def complete(self) -> bool:
        return self.expected == len(self.puts) + self.has_take + (self.live is not None)

    @property
    def lost_end(self) -> range:
        """The events that followed the last whole Put, where nothing that follows it could be read."""
        if self.expected is not None or self.repaired or not self.puts:
            return range(0)
        last = self.puts[-1].sequence
        return range(last + 1, last + max(1, self.remaining))  # the last that remains is the Commit


class _SegmentPass:
    """Puts the records of one segment together to transactions.

    :param first: where its first record begins that is read.
    :param following: the sequence number with which the next segment begins; 0 if it is not known.
    """

    def __init__(self, replay: Replay, segment: Segment, data: bytes, first: int, following: int) -> None:
        self._replay, self._segment, self._data, self._following = replay, segment, data, following
        self._end = first  # of what checks out
        self._whole = first == segment.header.first_record  # it is known which sequence number was the last
        self._run: _Run | None = None
        self._loose: Damage | None = None
        self._flaw_before: Flaw | None = None  # what is damaged before the first record of the run
        self._last_sequence = segment.header.first_sequence - 1
        self._last_transaction = 0
        self._written_means_committed = False

    def feed(self, item: Record | Damage) -> None:
        """The next record, or damaged stretch, of the segment."""
        if isinstance(item, Damage):
            self._loose = item
            if self._run is not None:
                self._run.damages.append(item)
            return
        self._end, self._whole = item.offset + FRAME_SIZE + item.length, True
        if item.kind == Kind.GAP:  # damage that was repaired: told and counted then
            if self._run is not None:
                end = item.offset + FRAME_SIZE + item.length
                self._run.damages.append(Damage(item.offset, end, final=False))
                self._run.repaired = True
            return
        if self._written_means_committed:  # it was begun when the one before had been written as a whole
            self._replay.known_committed = max(self._replay.known_committed, item.transaction - 1)
        if self._run is not None and self._run.transaction != item.transaction:
            self._finish()
        damage, self._loose = self._loose, None
        if damage is not None:
            flaw = self._note(damage, item.sequence - (item.kind == Kind.PUT), item.transaction)
            self._flaw_before = flaw if self._run is None else None
        if item.kind == Kind.ROLLBACK:
            self._replay.void(item.transaction, opened(self._segment, self._data, item))
        else:
            self._add(item, damage)
        self._last_sequence, self._last_transaction = item.sequence, item.transaction

    def _add(self, record: Record, damage: Damage | None) -> None:
        run = self._run
        if run is None:
            run = self._run = _Run(record.transaction, record.offset if damage is None else damage.start)
            run.damages = [] if damage is None else [damage]
        run.remaining = record.remaining
        end = record.offset + FRAME_SIZE + record.length
        payload = b"" if record.kind == Kind.PUT else opened(self._segment, self._data, record)
        if payload is None:
            run.damages.append(Damage(record.offset, end, final=False))
        else:
            run.end = end
            self._note_record(run, record, payload)
        if record.kind == Kind.COMMIT:
            self._finish()

    def _note_record(self, run: _Run, record: Record, payload: bytes) -> None:
        run.last = record.sequence
        if record.kind == Kind.PUT:
            run.puts.append(record)
        elif record.kind == Kind.TAKE:
            run.has_take = True
            run.takes += unpack(f"<{len(payload) // 8}Q", payload[: len(payload) // 8 * 8])
        elif record.kind == Kind.LIVE:
            run.live = decode_live(payload)
        elif len(payload) == COMMIT_SIZE:
            run.expected, synced, run.time, self._written_means_committed = decode_commit(payload)
            self._replay.synced(synced)
            if self._written_means_committed:
                self._replay.known_committed = max(self._replay.known_committed, record.transaction)

    def _finish(self) -> None:
        run, self._run = self._run, None
        flaw, self._flaw_before = self._flaw_before, None
        if run is None:
            return
        if run.complete and flaw is not None:  # nothing of this one was lost before its first record
            self._replay.flaws.remove(flaw)
            self._replay.flaws.append(replace(flaw, transaction=min(flaw.transaction, run.transaction - 1)))
        torn = not run.complete and self._looks_torn(run)
        self._replay.finished(run, self._segment, torn=torn)

    def _looks_torn(self, run: _Run) -> bool:
        overhead = OVERHEAD if self._segment.cipher is not None else 0
        has_commit = run.expected is not None
        return run_looks_torn(
            self._data, run.damages, end=run.end, has_commit=has_commit, remaining=run.remaining, overhead=overhead
        )

    def _note(self, damage: Damage, last_lost: int, next_transaction: int) -> Flaw:
        """A damaged stretch between two records: it may hold the end of one transaction and others, whole."""
        torn = has_lost_sector(self._data, damage.start, damage.end)
        seen = max(self._last_transaction, self._replay.next_transaction - 1, self._segment.header.went_past)
        # If none is missing between the last one and this one, it is the beginning of this one that is lost.
        damaged = min(next_transaction, max(next_transaction - 1, seen + 1))
        if torn and damaged < next_transaction:
            self._replay.missing(damaged, damage.start, self._segment)
        flaw = Flaw(self._segment.number, damage, damaged, self._last_sequence + 1, last_lost, torn)
        self._replay.flaws.append(flaw)
        return flaw

    def end(self) -> None:
        """The segment is at its end."""
        run, damage = self._run, self._loose or self._zeroed()
        self._finish()
        if damage is None:
            if run is None:
                self._replay.whole[self._segment.number] = self._end
            return
        if run is not None:
            transaction, torn = run.transaction, self._looks_torn(run)
        else:
            transaction = self._replay.next_transaction
            torn = end_looks_torn(self._data, damage)
            if torn:
                self._replay.missing(transaction, damage.start, self._segment)
        flaw = Flaw(self._segment.number, damage, transaction, self._last_sequence + 1, self._following - 1, torn)
        self._replay.flaws.append(flaw)

    def _zeroed(self) -> Damage | None:
        """The zeros at the end, if they are no room: the next segment tells that events stood there."""
        if self._whole and self._end < len(self._data) and self._last_sequence < self._following - 1:
            return Damage(self._end, len(self._data), final=True)
        return None


class Replay:
    """Reads segments one after the other; afterwards it tells what the channel holds.

    :param segments: all that exist, by number.
    :param start: the checkpoint to go on from; None reads all.
    :param unreadable: numbers of the segments that are there and have no readable header.
    :param emptied: events that the newest checkpoint has in segments that lost their ends or headers, by segment.
    :ivar events: what the channel holds.
    :ivar damaged: numbers of the segments with damaged records.
    :ivar lost: the numbers of events that stood there, as far as they can be told.
    :ivar known_committed: the newest transaction of which the log says that it holds: it, and all before, are not torn.
    :ivar cut: where the log is to be cut, as what follows is torn; None if it is not.
    :ivar dropped: how many transactions are torn before whole ones: the log has to say that they do not count, by a
        Live.
    :ivar unsure_from: a pointer: what stands from there on is not known to be on the disk; None if all is.
    :ivar whole: where the records end, by number, of segments that were read and behind whose records nothing stands
        but room.
    """

    def __init__(
        self,
        disk: Disk,
        name: str,
        segments: Sequence[Segment],
        start: checkpoints.Checkpoint | None,
        clock: Clock,
        unreadable: Collection[int] = (),
        emptied: Mapping[int, frozenset[int]] | None = None,
    ) -> None:
        self._unreadable = frozenset(unreadable)
        self._emptied = emptied or {}
        # Of events in the checkpoint that is gone on from, those without a segment are counted when they are dropped.
        self._counted = frozenset(start.events.sequences) if start is not None and emptied else frozenset[int]()
        self._disk, self._name, self._segments, self._start, self._clock = disk, name, segments, start, clock
        self.findings = Findings(from_checkpoint=start is not None)
        self.events = Columns() if start is None else start.events
        self.next_sequence = 1 if start is None else start.next_sequence
        self.next_transaction = 1 if start is None else start.next_transaction
        self.known_committed = 0
        self.flaws: list[Flaw] = []
        self.lost: frozenset[int] = frozenset()
        self.damaged: list[int] = []
        self.whole: dict[int, int] = {}
        self.cut: Cut | None = None
        self.dropped = 0
        self._taken_by: list[tuple[int, list[int]]] = []
        self._voided: dict[int, tuple[int, int]] = {}
        self._live = Live(0, 0)
        self._torn: list[tuple[_Run, Segment, int]] = []
        self._gone: set[int] = set()
        self._gaps: list[range] = []
        self._cut_short: list[tuple[int, range]] = []  # by segment, events at the ends of transactions that hold
        self._applied = 0
        self._ordered = True
        self._last = self.events.sequences[-1] if len(self.events) else 0
        self._unsure: deque[tuple[int, int]] = deque()  # transactions not known to be on the disk, and where they stand
        self._ends = ends_of([segment.header for segment in segments])
        self._began = self._told = clock.monotonic()

    def run(self) -> Replay:
        """Read everything."""
        for place, segment in enumerate(self._segments):
            first = self._first_record_of(segment)
            if first is not None:
                self._are_sure(segment.header.went_past)
                self._note_unreadable(place)
                self._read(segment, first, self._sequence_after(place))
            self.next_sequence = max(self.next_sequence, segment.header.first_sequence)
            self.next_transaction = max(self.next_transaction, segment.header.went_past + 1)
        self._settle_torn()
        self._subtract()
        self._count_flaws()
        return self

    def _first_record_of(self, segment: Segment) -> int | None:
        if self._start is None or segment.number > self._start.position.segment:
            return segment.header.first_record
        return self._start.position.offset if segment.number == self._start.position.segment else None

    def _note_unreadable(self, place: int) -> None:
        """If only segments that cannot be read are between this one and the one before, what stood in them is lost."""
        before, after = self._segments[max(0, place - 1)].number, self._segments[place]
        between = set(range(before + 1, after.number))
        if between and between <= self._unreadable:
            self._gaps.append(range(self.next_sequence, after.header.first_sequence))

    def _sequence_after(self, place: int) -> int:
        following = self._segments[place + 1 : place + 2]
        follows = following and following[0].number == self._segments[place].number + 1
        return following[0].header.first_sequence if follows else 0

    def _read(self, segment: Segment, first: int, following: int) -> None:
        file = self._disk.open(segment.path)
        try:
            data = self._disk.read(file, self._disk.size(file), 0)
        finally:
            self._disk.close(file)
        data = data[: self._ends.get(segment.number)]
        reading = _SegmentPass(self, segment, data, first, following)
        for item in scan(data, segment.header, first):
            reading.feed(item)
            self.findings.replayed += 1
            if self.findings.replayed % _LOOK == 0:
                self._tell_progress(segment)
        reading.end()

    def synced(self, transaction: int) -> None:
        """A Commit says that this transaction was on the disk."""
        self.known_committed = max(self.known_committed, transaction)
        self._are_sure(transaction)

    def _are_sure(self, transaction: int) -> None:
        while self._unsure and self._unsure[0][0] <= transaction:
            self._unsure.popleft()

    @property
    def unsure_from(self) -> int | None:
        """See the class."""
        return self._unsure[0][1] if self._unsure else None

    def void(self, transaction: int, payload: bytes | None) -> None:
        """A Rollback says that this transaction does not count."""
        if payload is not None and len(payload) == ROLLBACK_SIZE:
            self._voided[transaction] = decode_rollback(payload)

    def finished(self, run: _Run, segment: Segment, *, torn: bool) -> None:
        """All that there is of a transaction was seen."""
        self.next_transaction = max(self.next_transaction, run.transaction + 1)
        self._unsure.append((run.transaction, pointer_to(segment.number, run.start)))
        if torn:
            self._torn.append((run, segment, self._applied))
        else:
            self._apply(run, segment)

    def missing(self, transaction: int, offset: int, segment: Segment) -> None:
        """Nothing is left of a transaction that stood here."""
        self._torn.append((_Run(transaction, offset), segment, self._applied))

    def _apply(self, run: _Run, segment: Segment) -> None:
        self._applied += 1
        lost = run.lost_end
        if lost:
            self._cut_short.append((segment.number, lost))
        self.next_sequence = max(self.next_sequence, run.last + 1, lost.stop)
        if run.takes:
            self._taken_by.append((run.transaction, run.takes))
        if run.live is not None:
            self._say_what_lived(run.live)
        if not run.puts:
            return
        self._ordered = self._ordered and run.puts[0].sequence > self._last
        self._last = max(self._last, run.puts[-1].sequence)
        number = segment.number
        self.events.extend(
            [put.sequence for put in run.puts],
            [pointer_to(number, put.offset) for put in run.puts],
            [put.length for put in run.puts],
            [run.time or segment.header.created] * len(run.puts),
        )

    def _say_what_lived(self, live: Live) -> None:
        """What it says of takes, and of what is void, up to its transaction, counts in the place of their records."""
        self._live = live
        self._taken_by = [taken for taken in self._taken_by if taken[0] > live.transaction]
        self._voided = {number: void for number, void in self._voided.items() if number > live.transaction}
        self.next_sequence = max(self.next_sequence, live.sequence)

    def _settle_torn(self) -> None:
        """Drop what a crash has torn; behind the last whole transaction, end the log there.

        What the log itself says was committed is not torn but damaged: what is left of it counts.
        """
        end = self._applied
        for run, segment, applied in self._torn:
            if self._was_committed(segment.number, run.transaction):
                self._apply(run, segment)
            elif applied < end:
                self.dropped += not self._was_rewritten(segment, run.transaction)
            elif not self._was_rewritten(segment, run.transaction):
                self.cut = Cut(segment.number, run.start)
                return

    def _went_past(self, number: int) -> int:
        """The newest transaction that the writer of a segment behind this one had gone on past."""
        return max((other.header.went_past for other in self._segments if other.number > number), default=0)

    def _was_committed(self, number: int, transaction: int) -> bool:
        """True if the log says that a transaction in this segment holds, so that it cannot be torn."""
        version = next(segment.header.version for segment in self._segments if segment.number == number)
        return transaction <= max(self.known_committed, self._went_past(number) if version > 1 else 0)

    def _was_rewritten(self, segment: Segment, transaction: int) -> bool:
        """True if the end of a segment of version 1, whose sync had failed, does not matter."""
        return segment.header.version == 1 and self._went_past(segment.number) >= transaction

    def is_torn(self, flaw: Flaw) -> bool:
        """True if a crash has left a stretch half written: nothing in it was acknowledged, or a Live says so."""
        if not flaw.looks_torn:
            return False
        lost = range(flaw.first_lost, min(flaw.last_lost, flaw.first_lost + _MOST_LOST) + 1)
        is_over = flaw.transaction <= self._live.transaction and not any(map(self._live.has, lost))
        return is_over or not self._was_committed(flaw.segment, flaw.transaction)

    def _count_flaws(self) -> None:
        gone = {sequence for gap in self._gaps for sequence in gap}
        for flaw in self.flaws:
            if self.is_torn(flaw):
                continue
            self.findings.damaged_records += 1
            self._note_damaged(flaw.segment)
            gone.update(range(flaw.first_lost, min(flaw.last_lost, flaw.first_lost + _MOST_LOST) + 1))
        for number, lost in self._cut_short:
            self._note_damaged(number)
            gone.update(lost)
        gone |= {sequence for events in self._emptied.values() for sequence in events - self._counted}
        if gone:
            known = self._gone | set(self.events.sequences)
            self.lost = frozenset(filter(self._live.has, gone - known))
            self.findings.lost_events += len(self.lost)

    def _note_damaged(self, number: int) -> None:
        if number not in self.damaged:
            self.damaged.append(number)

    def _subtract(self) -> None:
        """Take away what was taken and what was voided."""
        gone = {
            sequence for transaction, takes in self._taken_by if transaction not in self._voided for sequence in takes
        }
        for first, last in self._voided.values():
            gone.update(range(first, last + 1))
            self.next_sequence = max(self.next_sequence, last + 1)
        self._gone = gone
        if not self._ordered:
            self._sort()
        sequences = self.events.sequences
        lived = self._places_that_lived()
        if gone or len(lived) < len(sequences):
            self._keep([place for place in lived if sequences[place] not in gone])
        present = {segment.number for segment in self._segments}
        if any(pointer >> OFFSET_BITS not in present for pointer in self.events.pointers):
            self._drop_missing(present)

    def _places_that_lived(self) -> Sequence[int]:
        """Of all events those of which the newest Live does not say that they are gone."""
        live, sequences = self._live, self.events.sequences
        behind = range(bisect_left(sequences, live.sequence), len(sequences))
        if not behind.start:
            return behind
        bounds = zip(live.firsts, live.lasts, strict=True)
        rows = [range(bisect_left(sequences, first), bisect_right(sequences, last)) for first, last in bounds]
        return [place for row in [*rows, behind] for place in row]

    def _sort(self) -> None:
        """By sequence number; of several records of one event the last counts."""
        places = {sequence: place for place, sequence in enumerate(self.events.sequences)}
        self._keep([places[sequence] for sequence in sorted(places)])

    def _keep(self, places: Sequence[int]) -> None:
        events, kept = self.events, Columns()
        kept.extend(
            [events.sequences[place] for place in places],
            [events.pointers[place] for place in places],
            [events.lengths[place] for place in places],
            [events.times[place] for place in places],
        )
        self.events = kept

    def _drop_missing(self, present: set[int]) -> None:
        before = len(self.events)
        pointers = self.events.pointers
        self._keep([place for place, pointer in enumerate(pointers) if pointer >> OFFSET_BITS in present])
        lost = before - len(self.events)
        self.findings.lost_events += lost
        what = counted(lost, "event is lost: its segment does", "events are lost: their segments do")
        _log.error("channel %s: %s not exist any more", self._name, what)

    def _tell_progress(self, segment: Segment) -> None:
        now = self._clock.monotonic()
        if now - self._told > PROGRESS_SECONDS:
            self._told = now
            _log.info(
                "channel %s: %s replayed in %.0f s, at segment %d of %d",
                self._name,
                counted(self.findings.replayed, "record"),
                now - self._began,
                segment.number,
                self._segments[-1].number,
            )


def find_segments(disk: Disk, name: str, directories: Sequence[str]) -> tuple[list[Found], list[str]]:
    """All segments by number, and the paths of files that should be ones but have no readable header.

    :raises ChannelFormatError: one was written by a newer version of this package.
    """
    found, unreadable = [], []
    for directory in directories:
        for file_name in disk.names(directory):
            match = SEGMENT_NAME.fullmatch(file_name)
            if match is None:
                continue
            path = f"{directory}/{file_name}"
            segment = _look_at(disk, name, path)
            if segment is None or segment.header.number != int(match[1]):
                unreadable.append(path)
            else:
                found.append(segment)
    found.sort(key=lambda segment: segment.header.number)
    ends = ends_of([segment.header for segment in found])
    for segment in found:
        segment.size = min(segment.size, ends.get(segment.header.number, segment.size))
    return found, unreadable


def ends_of(headers: Sequence[SegmentHeader]) -> dict[int, int]:
    """Where segments end, by number, of which later ones say that what follows does not count."""
    ends: dict[int, int] = {}
    for header in headers:
        void, offset = header.void_from >> OFFSET_BITS, header.void_from & MOST_OFFSET
        for earlier in headers if void else ():
            if void <= earlier.number < header.number:
                end = max(earlier.first_record, offset if earlier.number == void else 0)
                ends[earlier.number] = min(end, ends.get(earlier.number, end))
    return ends


def _look_at(disk: Disk, name: str, path: str) -> Found | None:
    file = disk.open(path)
    try:
        size = disk.size(file)
        header = decode_segment_header(disk.read(file, FIRST_RECORD, 0))
    except UnknownVersionError as error:
        message = (
            f"{path} is of format version {error.args[0]}, this package reads versions up to {VERSION}: "
            "use the newer package that wrote it, or give another directory"
        )
        raise ChannelFormatError(name, message) from None
    finally:
        disk.close(file)
    return None if header is None else Found(path, header, size)

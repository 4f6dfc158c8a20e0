"""Replay: rebuild a channel's queue from its checkpoint and the log after it.

It reads the log in one pass. Takes are collected in a set and subtracted at the end, so the time is linear in the log.
The package's docstring says how torn and damaged records are distinguished. The file is long because the pass over a
segment and the sum of all passes decide that together.
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
from ..store.disk import Disk, opened_file
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
#: Seconds between progress lines in the log.
PROGRESS_SECONDS = 5.0
#: Records between two readings of the clock.
_RECORDS_PER_CHECK = 50_000
#: Maximum number of lost events that are counted for one damaged stretch.
_MOST_LOST = 10**7


@dataclass(slots=True, kw_only=True)
class Findings:
    """Counts of a replay."""

    replayed: int = 0
    torn_tails: int = 0
    damaged_records: int = 0
    lost_events: int = 0
    checkpoint_fallbacks: int = 0
    from_checkpoint: bool = False


@dataclass(slots=True)
class Found:
    """A file that is a segment.

    :ivar size: its valid size in bytes.
    """

    path: str
    header: SegmentHeader
    size: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of the log before a torn transaction.

    :ivar segment: number of the segment; all later ones hold no records.
    :ivar offset: the end of its last valid run.
    """

    segment: int
    offset: int


@dataclass(slots=True)
class _Run:
    """Records of one transaction, as far as they were read."""

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
        """Return the events after the last valid Put, if nothing after it could be read."""
        if self.expected is not None or self.repaired or not self.puts:
            return range(0)
        last = self.puts[-1].sequence
        return range(last + 1, last + max(1, self.remaining))  # the last remaining record is the Commit


class _SegmentPass:
    """Assembles the records of one segment into transactions.

    :param first: offset of the first record to read.
    :param following: first sequence number of the next segment; 0 if unknown.
    """

    def __init__(self, replay: Replay, segment: Segment, data: bytes, first: int, following: int) -> None:
        self._replay, self._segment, self._data, self._following = replay, segment, data, following
        self._end = first  # of the last valid record
        self._run: _Run | None = None
        self._loose: Damage | None = None
        self._flaw_before: Flaw | None = None  # damage before the first record of the run
        at_checkpoint = first > segment.header.first_record
        self._last_sequence = (replay.next_sequence if at_checkpoint else segment.header.first_sequence) - 1
        self._last_transaction = 0
        self._written_means_committed = False

    def feed(self, item: Record | Damage) -> None:
        """Process the next record, or damaged stretch, of the segment."""
        if isinstance(item, Damage):
            self._loose = item
            if self._run is not None:
                self._run.damages.append(item)
            return
        self._end = item.offset + FRAME_SIZE + item.length
        if item.kind == Kind.GAP:  # repaired damage, which was reported and counted then
            if self._run is not None:
                end = item.offset + FRAME_SIZE + item.length
                self._run.damages.append(Damage(item.offset, end, final=False))
                self._run.repaired = True
            return
        if self._written_means_committed:  # begun after the previous one was completely written
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
        if run.complete and flaw is not None:  # this run lost nothing before its first record
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
        """Record a damaged stretch between two records: it may hold the end of one transaction and whole others."""
        torn = has_lost_sector(self._data, damage.start, damage.end)
        seen = max(self._last_transaction, self._replay.next_transaction - 1, self._segment.header.newest_transaction)
        # If no transaction is missing in between, the stretch is the start of this one.
        damaged = min(next_transaction, max(next_transaction - 1, seen + 1))
        if torn and damaged < next_transaction:
            self._replay.missing(damaged, damage.start, self._segment)
        flaw = Flaw(self._segment.number, damage, damaged, self._last_sequence + 1, last_lost, torn)
        self._replay.flaws.append(flaw)
        return flaw

    def end(self) -> None:
        """Finish the segment."""
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
        """Return the zeros at the end as damage, if the next segment shows that events were there."""
        if self._end < len(self._data) and self._last_sequence < self._following - 1:
            return Damage(self._end, len(self._data), final=True)
        return None


class Replay:
    """Reads segments in order, and builds the channel's queue.

    :param segments: all segments, by number.
    :param start: the checkpoint to start from; None to read everything.
    :param unreadable: numbers of the segments without a readable header.
    :param emptied: events of the newest checkpoint in segments that lost their ends or headers, by segment.
    :ivar events: the events in the channel.
    :ivar damaged: numbers of the segments with damaged records.
    :ivar lost: sequence numbers of the events lost there, as far as they are known.
    :ivar known_committed: the newest transaction that the log confirms: it and all earlier ones are not torn.
    :ivar cut: where to cut off the torn end of the log; None if there is none.
    :ivar dropped: number of torn transactions before valid ones, which the log has to void by a Live.
    :ivar unconfirmed_from: the pointer from which on records are perhaps missing on the disk; None if all are there.
    :ivar whole: offset where the records end, by number, for segments with nothing but preallocated zeros after it.
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
        # The start checkpoint's events without a segment are counted when they are dropped.
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
        self._cut_short: list[tuple[int, range]] = []  # by segment, events lost at the ends of committed transactions
        self._applied = 0
        self._ordered = True
        self._last = self.events.sequences[-1] if len(self.events) else 0
        self._unconfirmed: deque[tuple[int, int]] = deque()  # transaction and pointer, oldest first
        self._ends = ends_of([segment.header for segment in segments])
        self._began = self._logged = clock.monotonic()

    def run(self) -> Replay:
        """Read everything."""
        for place, segment in enumerate(self._segments):
            first = self._first_record_of(segment)
            if first is not None:
                self._confirm(segment.header.newest_transaction)
                self._note_unreadable(place)
                self._read(segment, first, self._sequence_after(place))
            self.next_sequence = max(self.next_sequence, segment.header.first_sequence)
            self.next_transaction = max(self.next_transaction, segment.header.newest_transaction + 1)
        self._settle_torn()
        self._subtract()
        self._count_flaws()
        return self

    def _first_record_of(self, segment: Segment) -> int | None:
        if self._start is None or segment.number > self._start.position.segment:
            return segment.header.first_record
        return self._start.position.offset if segment.number == self._start.position.segment else None

    def _note_unreadable(self, place: int) -> None:
        """Record the events lost in unreadable segments directly before this one."""
        before, after = self._segments[max(0, place - 1)].number, self._segments[place]
        between = set(range(before + 1, after.number))
        if between and between <= self._unreadable:
            self._gaps.append(range(self.next_sequence, after.header.first_sequence))

    def _sequence_after(self, place: int) -> int:
        following = self._segments[place + 1 : place + 2]
        follows = following and following[0].number == self._segments[place].number + 1
        return following[0].header.first_sequence if follows else 0

    def _read(self, segment: Segment, first: int, following: int) -> None:
        with opened_file(self._disk, segment.path) as file:
            data = self._disk.read(file, self._disk.size(file), 0)
        data = data[: self._ends.get(segment.number)]
        reading = _SegmentPass(self, segment, data, first, following)
        for item in scan(data, segment.header, first):
            reading.feed(item)
            self.findings.replayed += 1
            if self.findings.replayed % _RECORDS_PER_CHECK == 0:
                self._log_progress(segment)
        reading.end()

    def synced(self, transaction: int) -> None:
        """Record that a Commit confirms this transaction."""
        self.known_committed = max(self.known_committed, transaction)
        self._confirm(transaction)

    def _confirm(self, transaction: int) -> None:
        while self._unconfirmed and self._unconfirmed[0][0] <= transaction:
            self._unconfirmed.popleft()

    @property
    def unconfirmed_from(self) -> int | None:
        """Return the first pointer whose record is perhaps not on the disk; None if all are there."""
        return self._unconfirmed[0][1] if self._unconfirmed else None

    def void(self, transaction: int, payload: bytes | None) -> None:
        """Record that a Rollback voids this transaction."""
        if payload is not None and len(payload) == ROLLBACK_SIZE:
            self._voided[transaction] = decode_rollback(payload)

    def finished(self, run: _Run, segment: Segment, *, torn: bool) -> None:
        """Record a transaction whose records are all read."""
        self.next_transaction = max(self.next_transaction, run.transaction + 1)
        self._unconfirmed.append((run.transaction, pointer_to(segment.number, run.start)))
        if torn:
            self._torn.append((run, segment, self._applied))
        else:
            self._apply(run, segment)

    def missing(self, transaction: int, offset: int, segment: Segment) -> None:
        """Record a transaction of which nothing is left."""
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
            self._apply_live(run.live)
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

    def _apply_live(self, live: Live) -> None:
        """Replace the takes and rollbacks up to the Live's transaction by the Live."""
        self._live = live
        self._taken_by = [taken for taken in self._taken_by if taken[0] > live.transaction]
        self._voided = {number: void for number, void in self._voided.items() if number > live.transaction}
        self.next_sequence = max(self.next_sequence, live.sequence)

    def _settle_torn(self) -> None:
        """Drop torn transactions; cut the log if no valid one follows.

        A transaction that the log confirms is not torn but damaged: its remaining records count.
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

    def _newest_transaction(self, number: int) -> int:
        """Return the newest transaction that a header of a later segment confirms."""
        return max((other.header.newest_transaction for other in self._segments if other.number > number), default=0)

    def _was_committed(self, number: int, transaction: int) -> bool:
        """True if the log confirms a transaction in this segment, so that it cannot be torn."""
        version = next(segment.header.version for segment in self._segments if segment.number == number)
        return transaction <= max(self.known_committed, self._newest_transaction(number) if version > 1 else 0)

    def _was_rewritten(self, segment: Segment, transaction: int) -> bool:
        """True if the end of a version 1 segment does not matter, because it was rewritten after a failed sync."""
        return segment.header.version == 1 and self._newest_transaction(segment.number) >= transaction

    def is_torn(self, flaw: Flaw) -> bool:
        """True if a crash interrupted the write of this stretch: nothing in it was acknowledged, or a Live voids it."""
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
        """Remove the taken and the voided events."""
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
        lived = self._live_places()
        if gone or len(lived) < len(sequences):
            self._keep([place for place in lived if sequences[place] not in gone])
        present = {segment.number for segment in self._segments}
        if any(pointer >> OFFSET_BITS not in present for pointer in self.events.pointers):
            self._drop_missing(present)

    def _live_places(self) -> Sequence[int]:
        """Return the positions of the events that the newest Live does not void."""
        live, sequences = self._live, self.events.sequences
        behind = range(bisect_left(sequences, live.sequence), len(sequences))
        if not behind.start:
            return behind
        bounds = zip(live.firsts, live.lasts, strict=True)
        rows = [range(bisect_left(sequences, first), bisect_right(sequences, last)) for first, last in bounds]
        return [place for row in [*rows, behind] for place in row]

    def _sort(self) -> None:
        """Sort by sequence number; of several records of one event the last counts."""
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

    def _log_progress(self, segment: Segment) -> None:
        now = self._clock.monotonic()
        if now - self._logged > PROGRESS_SECONDS:
            self._logged = now
            _log.info(
                "channel %s: %s replayed in %.0f s, at segment %d of %d",
                self._name,
                counted(self.findings.replayed, "record"),
                now - self._began,
                segment.number,
                self._segments[-1].number,
            )


def find_segments(disk: Disk, name: str, directories: Sequence[str]) -> tuple[list[Found], list[str]]:
    """Return all segments by number, and the paths of files without a readable header.

    :raises ChannelFormatError: a segment was written by a newer version of this package.
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
    """Return the ends of segments, by number, that later segments void from there on."""
    ends: dict[int, int] = {}
    for header in headers:
        void, offset = header.void_from >> OFFSET_BITS, header.void_from & MOST_OFFSET
        for earlier in headers if void else ():
            if void <= earlier.number < header.number:
                end = max(earlier.first_record, offset if earlier.number == void else 0)
                ends[earlier.number] = min(end, ends.get(earlier.number, end))
    return ends


def _look_at(disk: Disk, name: str, path: str) -> Found | None:
    try:
        with opened_file(disk, path) as file:
            size = disk.size(file)
            header = decode_segment_header(disk.read(file, FIRST_RECORD, 0))
    except UnknownVersionError as error:
        message = (
            f"{path} has format version {error.args[0]}, and this package reads versions up to {VERSION}: "
            "use the newer package that wrote it, or give another directory"
        )
        raise ChannelFormatError(name, message) from None
    return None if header is None else Found(path, header, size)

"""Inspection: read a channel's directories without changing anything, also while a channel runs on them.

The file is long because reports and events come from the same scan.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, cast

from ....model.errors import ChannelFormatError, ChannelIOError, ChannelKeyError
from ....model.interfaces import Event
from ....runtime.clock import Clock, SystemClock
from ..store.directories import Directories
from ..store.disk import Disk
from ..store.encryption import KeyProvider, SegmentCipher
from ..store.format import FRAME_SIZE, HEADER_SIZES, SECOND_HEADER, Kind, decode_event
from ..store.pointers import OFFSET_BITS, Entry
from ..store.read_only_disk import ReadOnlyDisk
from ..store.segment import Damage, Record, Segment, opened, scan
from ..store.segments import Segments
from . import checkpoint as checkpoints
from . import quarantine
from .checkpoint import Checkpoint
from .ownership import LOCK_NAME, check_contents, read_owner
from .recovery import (
    check_unique,
    emptied_segments,
    known_numbers,
    missing_segments,
    number_of,
    unknown_to,
    was_never_begun,
)
from .replay import Found, Replay, find_segments

#: Tries of a scan that a checkpoint, or a commit, of the running channel interferes with.
_LOOKS = 5

#: Maximum number of directories that a message names.
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """Report on one segment.

    :ivar records: number of its records, by kind.
    :ivar damages: invalid stretches, as offsets; without the key of an encrypted one, torn ones too.
    :ivar torn: stretches that a crash left half written; nothing in them was acknowledged.
    :ivar gaps: stretches that a repair has overwritten.
    :ivar unread: stretches that the disk could not read.
    :ivar unopened: records that cannot be decrypted, because the key is missing or wrong.
    :ivar header_damaged: True if one of the two copies of its header is invalid.
    :ivar emptied: True if it ends before events that the checkpoint lists, which no crash causes.
    """

    number: int
    path: str
    size: int
    created: float
    key_id: str | None
    records: dict[str, int]
    damages: Sequence[Damage]
    torn: Sequence[Damage]
    gaps: Sequence[tuple[int, int]]
    unread: Sequence[tuple[int, int]]
    header_damaged: bool
    unopened: int = 0
    emptied: bool = False

    def holds(self, offset: int) -> bool:
        """True if the record at ``offset`` can still be read."""
        if offset >= self.size:
            return False
        broken = [(damage.start, damage.end) for damage in self.damages]
        return not any(start <= offset < end for start, end in [*broken, *self.gaps])


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryReport:
    """Report on a channel's directories.

    :ivar owner: the content of the lock file, written by the current or last owner.
    :ivar in_use: True if a channel owns them now; the rest of the report may then be slightly outdated.
    :ivar events: number of events in the channel; None if a missing key hides it.
    :ivar event_bytes: their bytes.
    :ivar oldest: put time of the first of them, seconds since the epoch.
    :ivar checkpoint: generation of the checkpoint that an opening would use; None for none.
    :ivar torn: True if a crash has torn transactions. Opening the channel cuts them off at the end of the log and voids
        earlier ones; no acknowledged event is lost.
    :ivar missing: numbers of segments that the checkpoint needs and that do not exist.
    :ivar unknown: segments that were missing when the checkpoint was written; opening the channel quarantines them.
    :ivar unopened: records that cannot be decrypted, because the key is missing or wrong.
    :ivar lost_events: events in damaged records, as far as the sequence numbers tell.
    :ivar unreadable: files named as segments that are not readable as such.
    :ivar quarantine: paths of the files in quarantine.
    """

    directory: str
    owner: dict[str, Any]
    in_use: bool
    events: int | None
    event_bytes: int
    oldest: float | None
    checkpoint: int | None
    bad_checkpoints: int
    torn: bool
    lost_events: int
    missing: Sequence[int] = ()
    unknown: Sequence[str] = ()
    unopened: int = 0
    unreadable: Sequence[str] = ()
    quarantine: Sequence[str] = ()
    segments: Sequence[SegmentReport] = field(default=())

    @property
    def damaged(self) -> bool:
        """True if anything is invalid that a crash does not explain; without keys, as far as is known."""
        flawed = any(
            segment.header_damaged or segment.emptied or segment.unread or (segment.damages and self.events is not None)
            for segment in self.segments
        )
        return bool(flawed or self.bad_checkpoints or self.unreadable or self.missing or self.unknown)

    @property
    def unchecked(self) -> bool:
        """True if a key is missing or wrong, so that not everything could be checked."""
        return self.events is None


def examine(
    directory: str,
    *,
    data_directories: Sequence[str] = (),
    keys: KeyProvider | None = None,
    clock: Clock | None = None,
    disk: Disk | None = None,
) -> DirectoryReport:
    """Inspect a channel's directories without changing anything, also while a channel runs on them.

    :param keys: the keys of encrypted segments; without them records are counted, but not the remaining events.
    :raises ChannelFormatError: it is not a channel's directory, or a segment exists twice.
    :raises ChannelIOError: it cannot be read.
    """
    disk = Disk() if disk is None else disk
    place = place_of(disk, directory, data_directories)
    check_is_channel(place)
    try:
        return _examine(place, keys, clock or SystemClock())
    except OSError as error:
        if isinstance(error, ChannelIOError):
            raise
        raise ChannelIOError(place.name, f"{directory} cannot be read: {error}", error.errno or 0) from error


def look_at_events(
    directory: str,
    *,
    data_directories: Sequence[str] = (),
    keys: KeyProvider | None = None,
    clock: Clock | None = None,
    disk: Disk | None = None,
) -> Iterator[Event]:
    """Yield the events of a channel, in order, without changing anything, also while a channel runs on it.

    Damaged events are missing, and so may be those that are committed away meanwhile.

    :raises ChannelFormatError: it is not a channel's directory, or a segment exists twice.
    :raises ChannelKeyError: the key of an encrypted segment is missing or wrong.
    :raises ChannelIOError: it cannot be read.
    """
    disk = Disk() if disk is None else disk
    place = place_of(disk, directory, data_directories)
    check_is_channel(place)
    try:
        for left in reversed(range(_LOOKS)):
            try:
                found = _Scan(place, keys, clock or SystemClock())
                entries = found.entries()
                break
            except FileNotFoundError:  # a segment was deleted meanwhile
                if not left:
                    raise
        yield from found.events(entries)
    except OSError as error:
        if isinstance(error, ChannelIOError):
            raise
        raise ChannelIOError(place.name, f"{directory} cannot be read: {error}", error.errno or 0) from error


def place_of(disk: Disk, directory: str, data_directories: Sequence[str]) -> Directories:
    """Return the directories of the channel there, named after the first."""
    name = os.path.basename(directory) or directory
    return Directories(disk, name, directory, tuple(data_directories))


def check_is_channel(place: Directories) -> None:
    """Check that there is a channel in these directories, so that a tool does not create one.

    :raises ChannelFormatError: there is none.
    :raises ChannelIOError: they cannot be read.
    """
    try:
        for directory in place.all:
            _check_is_ours(place, directory)
    except OSError as error:
        raise ChannelIOError(place.name, f"{place.main} cannot be read: {error}", error.errno or 0) from error


def _check_is_ours(place: Directories, directory: str) -> None:
    disk, name = place.disk, place.name
    if not disk.is_directory(directory):
        words = "is not a directory" if disk.exists(directory) else "does not exist"
        raise ChannelFormatError(name, f"{directory} {words}")
    names = disk.names(directory)
    if LOCK_NAME not in names:
        _check_is_not_above(disk, name, directory, names)
    check_contents(name, directory, names)
    if not names and directory == place.main:
        raise ChannelFormatError(name, f"{directory} is empty: no channel was ever there")


def _check_is_not_above(disk: Disk, name: str, directory: str, names: Sequence[str]) -> None:
    agents = disk.names(f"{directory}/channels") if disk.is_directory(f"{directory}/channels") else []
    below = [*names, *(f"channels/{other}/events" for other in agents)]
    below = [other for other in below if disk.exists(f"{directory}/{other}/{LOCK_NAME}")]
    if below:
        some = ", ".join(below[:_SHOWN]) + (f" and {len(below) - _SHOWN} more" if len(below) > _SHOWN else "")
        message = f"{directory} is not a channel, but contains the directories of channels: name one of them: {some}"
        raise ChannelFormatError(name, message)


def _examine(place: Directories, keys: KeyProvider | None, clock: Clock) -> DirectoryReport:
    damaged = 0
    for left in reversed(range(_LOOKS)):
        in_use = place.disk.is_locked(f"{place.main}/{LOCK_NAME}") or place.disk.is_locked(place.main)
        before = _generations(place)
        try:
            report = scan_directories(place, keys, clock, in_use=in_use)
        except FileNotFoundError:  # a segment was deleted meanwhile
            if not left:
                raise
            continue
        damaged += report.in_use and report.damaged  # the first time, it may be a commit in progress
        if (_generations(place) == before and damaged != 1) or not left:
            return report
    raise AssertionError("unreachable")


def _generations(place: Directories) -> list[int | None]:
    found: list[int | None] = []
    for name in (checkpoints.NAME, checkpoints.BACKUP_NAME):
        with contextlib.suppress(checkpoints.BadCheckpointError):
            checkpoint = checkpoints.load(cast("Disk", ReadOnlyDisk(place.disk)), place.main, name)
            found.append(None if checkpoint is None else checkpoint.generation)
    return found


def scan_directories(place: Directories, keys: KeyProvider | None, clock: Clock, *, in_use: bool) -> DirectoryReport:
    """Scan everything once.

    :raises OSError: a file cannot be read.
    """
    return _Scan(place, keys, clock).report(in_use=in_use)


class _Scan:
    """One scan of a channel's directories."""

    def __init__(self, place: Directories, keys: KeyProvider | None, clock: Clock) -> None:
        self._disk = ReadOnlyDisk(place.disk)
        self._place = Directories(cast("Disk", self._disk), place.name, place.main, place.data)
        self._clock = clock
        found, self._unreadable = find_segments(self._place.disk, place.name, place.all)
        check_unique(place.name, found)
        for segment in found:
            self._disk.end(segment.path, segment.size)  # a running channel keeps writing: all steps see the same end
        salts = {segment.header.number: segment.header.salt for segment in found}
        sizes = {segment.header.number: segment.size for segment in found}
        self._start, self._bad = checkpoints.load_best(self._place.disk, place.main, place.name, salts, sizes)
        self._missing = missing_segments(self._place, salts, [number_of(path) for path in self._unreadable])
        self._unknown = unknown_to(self._start, found)
        self._found = [segment for segment in found if segment not in self._unknown]
        self._emptied = emptied_segments(self._place, self._found)
        self._ciphers = {segment.header.number: self._cipher(segment, keys) for segment in self._found}

    def _cipher(self, found: Found, keys: KeyProvider | None) -> SegmentCipher | None:
        """Return the cipher of a segment; None if it is plain, or its key is missing or wrong."""
        place = self._place
        segments = Segments(place.disk, place.name, (), keys, self._clock)
        try:
            return segments.cipher_of(found.header)
        except ChannelKeyError:
            return None

    def report(self, *, in_use: bool) -> DirectoryReport:
        """Build the report."""
        looked = [self._scan_segment(segment) for segment in self._found]
        unopened = sum(segment.unopened for segment in looked)
        events: list[Entry] = []
        lost, torn = 0, False
        if not unopened:
            replay, torn = self._replayed()
            looked = self._judged(looked)
            events, lost = _readable(replay, looked)
        place = self._place
        return DirectoryReport(
            directory=place.main,
            owner=read_owner(place.disk, place.main),
            in_use=in_use,
            events=None if unopened else len(events),
            event_bytes=sum(entry.length for entry in events),
            oldest=min((entry.time for entry in events), default=None),
            checkpoint=None if self._start is None else self._start.generation,
            bad_checkpoints=self._bad,
            torn=torn,
            lost_events=lost,
            missing=tuple(self._missing),
            unknown=tuple(segment.path for segment in self._unknown),
            unopened=unopened,
            unreadable=self._headless(),
            quarantine=tuple(quarantine.files(place.disk, place.all)),
            segments=tuple(looked),
        )

    def _headless(self) -> tuple[str, ...]:
        """Return the files whose header was once readable."""
        disk, known = self._place.disk, known_numbers(self._place)
        return tuple(path for path in self._unreadable if not was_never_begun(disk, path, known))

    def entries(self) -> list[Entry]:
        """Return the entries of all events.

        :raises ChannelKeyError: a key is missing or wrong.
        """
        for found in self._found:
            if found.header.key_id is not None and self._ciphers[found.header.number] is None:
                message = f"the key {found.header.key_id!r} of {found.path} is missing or wrong"
                raise ChannelKeyError(self._place.name, found.header.key_id, message)
        events = self._replayed()[0].events
        return list(events.entries(0, len(events)))

    def events(self, entries: Sequence[Entry]) -> Iterator[Event]:
        """Yield the events of these entries, without unreadable ones."""
        found = {one.header.number: one for one in self._found}
        for number, of_segment in groupby(entries, key=lambda entry: entry.segment):
            segment = found[number]
            try:
                data = self._load(segment.path)[: segment.size]
            except FileNotFoundError:  # all its events were committed away meanwhile
                continue
            records = {item.offset: item for item in scan(data, segment.header) if isinstance(item, Record)}
            opener = Segment(segment.path, segment.header, self._ciphers[number])
            for entry in of_segment:
                record = records.get(entry.offset)
                payload = None if record is None else opened(opener, data, record)
                with contextlib.suppress(ValueError):
                    if payload is not None:
                        yield decode_event(payload, entry.sequence)

    def _scan_segment(self, found: Found) -> SegmentReport:
        """Read every record of one segment; invalid stretches count as damaged for now."""
        header, cipher = found.header, self._ciphers[found.header.number]
        data = self._load(found.path)[: found.size]
        items = list(scan(data, header))
        damages = [item for item in items if isinstance(item, Damage)]
        gaps = [item for item in items if isinstance(item, Record) and item.kind == Kind.GAP]
        records = [item for item in items if isinstance(item, Record) and item.kind != Kind.GAP]
        closed = [] if header.key_id is None else [item for item in records if not _opens(cipher, data, item)]
        if len(closed) < len(records):  # some can be decrypted, so the key is right
            damages, closed = [*damages, *(Damage(*_bounds(item), final=False) for item in closed)], []
        copies = data[: HEADER_SIZES[header.version]], data[SECOND_HEADER : header.first_record]
        return SegmentReport(
            number=header.number,
            path=found.path,
            size=len(data),
            created=header.created,
            key_id=header.key_id,
            records=dict(Counter(Kind(item.kind).name.lower() for item in records)),
            damages=tuple(sorted(damages)),
            torn=(),
            gaps=tuple(_bounds(item) for item in gaps),
            unread=tuple(self._disk.unread.get(found.path, ())),
            header_damaged=copies[0] != copies[1],
            unopened=len(closed),
            emptied=header.number in self._emptied,
        )

    def _load(self, path: str) -> bytes:
        file = self._disk.open(path)
        try:
            return self._disk.read(file, self._disk.size(file), 0)
        finally:
            self._disk.close(file)

    def _replayed(self) -> tuple[Replay, bool]:
        """Return the result of a replay, and True if opening would cut or void torn transactions."""
        replay = self._replay(self._start)
        cut = replay.cut
        for segment in self._found:
            if cut is not None and segment.header.number >= cut.segment:
                here = segment.header.number == cut.segment
                self._disk.end(segment.path, cut.offset if here else segment.header.first_record)
        return replay, bool(cut or replay.dropped)

    def _replay(self, start: Checkpoint | None) -> Replay:
        segments = [Segment(one.path, one.header, self._ciphers[one.header.number]) for one in self._found]
        if start is not None:
            start = replace(start, events=start.events.after(0))  # a replay appends to these
        unreadable = [number_of(path) for path in self._unreadable]
        disk, name = self._place.disk, self._place.name
        return Replay(disk, name, segments, start, self._clock, unreadable, self._emptied).run()

    def _judged(self, looked: Sequence[SegmentReport]) -> list[SegmentReport]:
        """Separate torn stretches from damaged ones, also in the part of the log that opening would not read."""
        whole = self._replay(None)
        flaws = {(flaw.segment, flaw.damage.start) for flaw in whole.flaws if whole.is_torn(flaw)}
        live = self._live()

        def is_torn(segment: SegmentReport, damage: Damage) -> bool:
            if damage.start >= self._disk.end_of(segment.path):
                return True
            # An event in a checkpoint was committed, so its record cannot be torn.
            known = any(damage.start <= offset < damage.end for offset in live.get(segment.number, ()))
            return (segment.number, damage.start) in flaws and not known

        return [
            replace(
                segment,
                torn=tuple(damage for damage in segment.damages if is_torn(segment, damage)),
                damages=tuple(damage for damage in segment.damages if not is_torn(segment, damage)),
            )
            for segment in looked
        ]

    def _live(self) -> dict[int, list[int]]:
        """Return the offsets of the checkpoint's events, by segment."""
        live: dict[int, list[int]] = {}
        if self._start is not None:
            for pointer in self._start.events.pointers:
                live.setdefault(pointer >> OFFSET_BITS, []).append(pointer & ((1 << OFFSET_BITS) - 1))
        return live


def _readable(replay: Replay, segments: Sequence[SegmentReport]) -> tuple[list[Entry], int]:
    """Return the events that can still be read, and the number of those that cannot."""
    reports = {segment.number: segment for segment in segments}
    entries = replay.events.entries(0, len(replay.events))
    events = [entry for entry in entries if reports[entry.segment].holds(entry.offset)]
    return events, replay.findings.lost_events + len(entries) - len(events)


def _bounds(record: Record) -> tuple[int, int]:
    return record.offset, record.offset + FRAME_SIZE + record.length


def _opens(cipher: SegmentCipher | None, data: bytes, record: Record) -> bool:
    start = record.offset + FRAME_SIZE
    try:
        if cipher is not None:
            cipher.open(record.kind, record.sequence, record.transaction, data[start : start + record.length])
    except ValueError:
        return False
    return cipher is not None

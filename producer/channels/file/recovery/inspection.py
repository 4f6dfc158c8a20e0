"""Looking into a channel's directories without changing anything, also while a channel runs on them.

The file is long because reports and events come of the same look.
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
from ..store.looking_disk import LookingDisk
from ..store.pointers import OFFSET_BITS, Entry
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

#: A look into which a checkpoint of the running channel fell, or perhaps a commit, is begun anew so often.
_LOOKS = 5

#: So many directories a message names.
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """One segment.

    :ivar records: how many of each kind it holds.
    :ivar damages: stretches that do not check out, as offsets; without the keys of an encrypted one also torn ones.
    :ivar torn: stretches that a crash left half written; nothing in them was ever acknowledged.
    :ivar gaps: stretches that a repair has taken out.
    :ivar unread: stretches that the disk could not read.
    :ivar unopened: records that do not open, for want of their key or with a wrong one.
    :ivar header_damaged: one of the two copies of its header does not check out.
    :ivar emptied: it ends before what the checkpoint knows of, which no crash does.
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
        """Whether what begins at ``offset`` can still be read."""
        if offset >= self.size:
            return False
        broken = [(damage.start, damage.end) for damage in self.damages]
        return not any(start <= offset < end for start, end in [*broken, *self.gaps])


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryReport:
    """A channel's directories.

    :ivar owner: who has them, or had them last.
    :ivar in_use: whether that one has them now; then the rest may be a moment old.
    :ivar events: in the channel; None if that cannot be told without a key.
    :ivar event_bytes: their bytes.
    :ivar oldest: when the first of them was put, seconds since the epoch.
    :ivar checkpoint: the generation of the checkpoint that opening would use; None for none.
    :ivar torn: whether a crash has torn transactions: opening the channel cuts them off at the end of the log, and says
        of those before whole ones that they do not count, which loses nothing that was promised.
    :ivar missing: numbers of segments that the checkpoint needs and that do not exist.
    :ivar unknown: segments that were missing when the checkpoint was written; opening the channel moves them to
        quarantine.
    :ivar unopened: records that do not open, for want of their key or with a wrong one.
    :ivar lost_events: events in damaged records, as far as the sequence numbers tell.
    :ivar unreadable: files that should be segments and are not.
    :ivar quarantine: the paths of what is kept aside.
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
        """Whether anything does not check out that a crash would not have left so; without keys, as far as is known."""
        flawed = any(
            segment.header_damaged or segment.emptied or segment.unread or (segment.damages and self.events is not None)
            for segment in self.segments
        )
        return bool(flawed or self.bad_checkpoints or self.unreadable or self.missing or self.unknown)

    @property
    def unchecked(self) -> bool:
        """Whether a key is missing, or not the right one, so that not everything could be checked."""
        return self.events is None


def examine(
    directory: str,
    *,
    data_directories: Sequence[str] = (),
    keys: KeyProvider | None = None,
    clock: Clock | None = None,
    disk: Disk | None = None,
) -> DirectoryReport:
    """Read a channel's directories without changing anything, also while a channel runs on them.

    :param keys: for encrypted segments; without them their records are counted, but not which events are left.
    :raises ChannelFormatError: it is not a channel's directory, or a segment is there twice.
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
    """The events that are in a channel, in order, without changing anything, also while a channel runs on it.

    Damaged ones are missing, and so may be those that are committed away meanwhile.

    :raises ChannelFormatError: it is not a channel's directory, or a segment is there twice.
    :raises ChannelKeyError: a key of encrypted segments is missing, or is not the right one.
    :raises ChannelIOError: it cannot be read.
    """
    disk = Disk() if disk is None else disk
    place = place_of(disk, directory, data_directories)
    check_is_channel(place)
    try:
        for left in reversed(range(_LOOKS)):
            try:
                look = _Look(place, keys, clock or SystemClock())
                entries = look.entries()
                break
            except FileNotFoundError:  # a segment that was deleted meanwhile
                if not left:
                    raise
        yield from look.events(entries)
    except OSError as error:
        if isinstance(error, ChannelIOError):
            raise
        raise ChannelIOError(place.name, f"{directory} cannot be read: {error}", error.errno or 0) from error


def place_of(disk: Disk, directory: str, data_directories: Sequence[str]) -> Directories:
    """The directories of the channel that lies there, under the name of the first."""
    name = os.path.basename(directory) or directory
    return Directories(disk, name, directory, tuple(data_directories))


def check_is_channel(place: Directories) -> None:
    """Whether there is a channel in these directories; whoever wants to mend or to empty one must not make one.

    :raises ChannelFormatError: there is none.
    :raises ChannelIOError: it cannot be told.
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
        message = f"{directory} is no channel, but holds the directories of some: name one of them: {some}"
        raise ChannelFormatError(name, message)


def _examine(place: Directories, keys: KeyProvider | None, clock: Clock) -> DirectoryReport:
    damaged = 0
    for left in reversed(range(_LOOKS)):
        in_use = place.disk.is_locked(f"{place.main}/{LOCK_NAME}") or place.disk.is_locked(place.main)
        before = _generations(place)
        try:
            report = look(place, keys, clock, in_use=in_use)
        except FileNotFoundError:  # a segment that was deleted meanwhile
            if not left:
                raise
            continue
        damaged += report.in_use and report.damaged  # the first time it may be a commit that is half written
        if (_generations(place) == before and damaged != 1) or not left:
            return report
    raise AssertionError("unreachable")


def _generations(place: Directories) -> list[int | None]:
    found: list[int | None] = []
    for name in (checkpoints.NAME, checkpoints.BACKUP_NAME):
        with contextlib.suppress(checkpoints.BadCheckpointError):
            checkpoint = checkpoints.load(cast("Disk", LookingDisk(place.disk)), place.main, name)
            found.append(None if checkpoint is None else checkpoint.generation)
    return found


def look(place: Directories, keys: KeyProvider | None, clock: Clock, *, in_use: bool) -> DirectoryReport:
    """One look at everything.

    :raises OSError: it cannot be read.
    """
    return _Look(place, keys, clock).report(in_use=in_use)


class _Look:
    """One look at a channel's directories."""

    def __init__(self, place: Directories, keys: KeyProvider | None, clock: Clock) -> None:
        self._disk = LookingDisk(place.disk)
        self._place = Directories(cast("Disk", self._disk), place.name, place.main, place.data)
        self._clock = clock
        found, self._unreadable = find_segments(self._place.disk, place.name, place.all)
        check_unique(place.name, found)
        for segment in found:
            self._disk.end(segment.path, segment.size)  # a channel that runs writes on: all that follows sees the same
        salts = {segment.header.number: segment.header.salt for segment in found}
        sizes = {segment.header.number: segment.size for segment in found}
        self._start, self._bad = checkpoints.load_best(self._place.disk, place.main, place.name, salts, sizes)
        self._missing = missing_segments(self._place, salts, [number_of(path) for path in self._unreadable])
        self._unknown = unknown_to(self._start, found)
        self._found = [segment for segment in found if segment not in self._unknown]
        self._emptied = emptied_segments(self._place, self._found)
        self._ciphers = {segment.header.number: self._cipher(segment, keys) for segment in self._found}

    def _cipher(self, found: Found, keys: KeyProvider | None) -> SegmentCipher | None:
        """What opens the segment; None if it is plain, or its key is missing, or not the right one."""
        place = self._place
        segments = Segments(place.disk, place.name, (), keys, self._clock)
        try:
            return segments.cipher_of(found.header)
        except ChannelKeyError:
            return None

    def report(self, *, in_use: bool) -> DirectoryReport:
        """What there is."""
        looked = [self._look_through(segment) for segment in self._found]
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
        """Files that had a header once."""
        disk, known = self._place.disk, known_numbers(self._place)
        return tuple(path for path in self._unreadable if not was_never_begun(disk, path, known))

    def entries(self) -> list[Entry]:
        """Where the events stand.

        :raises ChannelKeyError: a key is missing, or is not the right one.
        """
        for found in self._found:
            if found.header.key_id is not None and self._ciphers[found.header.number] is None:
                message = f"the key {found.header.key_id!r} of {found.path} is missing, or not the right one"
                raise ChannelKeyError(self._place.name, found.header.key_id, message)
        events = self._replayed()[0].events
        return list(events.entries(0, len(events)))

    def events(self, entries: Sequence[Entry]) -> Iterator[Event]:
        """The events of these entries, but those that cannot be read."""
        found = {one.header.number: one for one in self._found}
        for number, of_segment in groupby(entries, key=lambda entry: entry.segment):
            segment = found[number]
            try:
                data = self._load(segment.path)[: segment.size]
            except FileNotFoundError:  # all of it was committed away meanwhile
                continue
            records = {item.offset: item for item in scan(data, segment.header) if isinstance(item, Record)}
            opener = Segment(segment.path, segment.header, self._ciphers[number])
            for entry in of_segment:
                record = records.get(entry.offset)
                payload = None if record is None else opened(opener, data, record)
                with contextlib.suppress(ValueError):
                    if payload is not None:
                        yield decode_event(payload, entry.sequence)

    def _look_through(self, found: Found) -> SegmentReport:
        """Every record of one segment; what does not check out is damaged as yet."""
        header, cipher = found.header, self._ciphers[found.header.number]
        data = self._load(found.path)[: found.size]
        items = list(scan(data, header))
        damages = [item for item in items if isinstance(item, Damage)]
        gaps = [item for item in items if isinstance(item, Record) and item.kind == Kind.GAP]
        records = [item for item in items if isinstance(item, Record) and item.kind != Kind.GAP]
        closed = [] if header.key_id is None else [item for item in records if not _opens(cipher, data, item)]
        if len(closed) < len(records):  # some open: it is the right key
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
        """What opening the channel would find, and whether it would cut the end of the log."""
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
            start = replace(start, events=start.events.after(0))  # a replay goes on with these
        unreadable = [number_of(path) for path in self._unreadable]
        disk, name = self._place.disk, self._place.name
        return Replay(disk, name, segments, start, self._clock, unreadable, self._emptied).run()

    def _judged(self, looked: Sequence[SegmentReport]) -> list[SegmentReport]:
        """Tell what is torn from what is damaged; also in the part of the log that opening would not read again."""
        whole = self._replay(None)
        flaws = {(flaw.segment, flaw.damage.start) for flaw in whole.flaws if whole.is_torn(flaw)}
        live = self._live()

        def is_torn(segment: SegmentReport, damage: Damage) -> bool:
            if damage.start >= self._disk.end_of(segment.path):
                return True
            # An event of which a checkpoint knows was committed: what is left of it is not torn.
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
        """For each segment the offsets of the events that the checkpoint has in it."""
        live: dict[int, list[int]] = {}
        if self._start is not None:
            for pointer in self._start.events.pointers:
                live.setdefault(pointer >> OFFSET_BITS, []).append(pointer & ((1 << OFFSET_BITS) - 1))
        return live


def _readable(replay: Replay, segments: Sequence[SegmentReport]) -> tuple[list[Entry], int]:
    """The events that can still be read, and how many of those that should be there cannot."""
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

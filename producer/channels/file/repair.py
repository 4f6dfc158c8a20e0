"""Looking into a channel's directory, and mending it, while no channel runs on it.

``examine`` and ``verify`` change nothing. ``repair`` keeps a copy of whatever it changes in ``quarantine/``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...clock import Clock, SystemClock
from ...errors import ChannelFormatError, ChannelIOError, ChannelKeyError
from . import checkpoint as checkpoints
from .disk import Disk
from .encryption import KeyProvider, SegmentCipher
from .event_queue import Entry
from .format import (
    FIRST_RECORD,
    FRAME_SIZE,
    HEADER_SIZE,
    SECOND_HEADER,
    Kind,
    SegmentHeader,
    encode_gap,
    encode_segment_header,
)
from .ownership import LOCK_NAME, QUARANTINE, check_contents, own, read_owner
from .recovery import quarantine_copy
from .replay import Found, Replay, find_segments
from .segment import Damage, Record, Segment, scan


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """One segment.

    :ivar records: how many of each kind it holds.
    :ivar damages: stretches that do not check out, as offsets.
    :ivar gaps: stretches that a repair has taken out.
    :ivar unopened: records that do not open, for want of their key or with a wrong one.
    :ivar header_damaged: one of the two copies of its header does not check out.
    """

    number: int
    path: str
    size: int
    created: float
    key_id: str | None
    records: dict[str, int]
    damages: Sequence[Damage]
    gaps: Sequence[tuple[int, int]]
    header_damaged: bool
    unopened: int = 0

    def holds(self, offset: int) -> bool:
        """Whether what begins at ``offset`` can still be read."""
        broken = [(damage.start, damage.end) for damage in self.damages]
        return not any(start <= offset < end for start, end in [*broken, *self.gaps])


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryReport:
    """A channel's directory.

    :ivar owner: who has it, or had it last.
    :ivar in_use: whether that one has it now; then the rest may be a moment old.
    :ivar events: in the channel; None if that cannot be told without a key.
    :ivar event_bytes: their bytes.
    :ivar oldest: when the first of them was put, seconds since the epoch.
    :ivar checkpoint: the generation of the checkpoint that opening would use; None for none.
    :ivar torn: whether the end of the log is torn: opening the channel cuts it, which loses nothing that was promised.
    :ivar missing: numbers of segments that the checkpoint needs and that do not exist.
    :ivar unopened: records that do not open, for want of their key or with a wrong one.
    :ivar lost_events: events in damaged records, as far as the sequence numbers tell.
    :ivar unreadable: files that should be segments and are not.
    :ivar quarantine: what is kept aside.
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
    unopened: int = 0
    unreadable: Sequence[str] = ()
    quarantine: Sequence[str] = ()
    segments: Sequence[SegmentReport] = field(default=())

    @property
    def damaged(self) -> bool:
        """Whether anything does not check out that a crash would not have left so."""
        flawed = any(segment.header_damaged or segment.damages for segment in self.segments)
        gone = self.bad_checkpoints or self.unreadable or self.missing or self.unopened
        return bool((flawed and not self.torn) or gone)


def examine(
    directory: str, *, data_directories: Sequence[str] = (), keys: KeyProvider | None = None, clock: Clock | None = None
) -> DirectoryReport:
    """Read a directory without changing anything, also while a channel runs on it.

    :param keys: for encrypted segments; without them their records are counted, but not which events are left.
    :raises ChannelFormatError: it is not a channel's directory.
    :raises ChannelIOError: it cannot be read.
    """
    disk, name = Disk(), os.path.basename(directory) or directory  # noqa: PTH119
    if not disk.is_directory(directory):
        raise ChannelFormatError(name, f"{directory} is not a directory")
    every = tuple(data_directories) or (directory,)
    try:
        names = disk.names(directory)
        below = [other for other in names if disk.exists(f"{directory}/{other}/{LOCK_NAME}")]
        if below and LOCK_NAME not in names:
            message = f"{directory} holds the directories of several processes: name one of them: {', '.join(below)}"
            raise ChannelFormatError(name, message)
        check_contents(name, directory, names)
        if not names:
            raise ChannelFormatError(name, f"{directory} is empty: no channel was ever there")
        found, unreadable = find_segments(disk, name, tuple(dict.fromkeys((directory, *every))))
        return _report(disk, name, directory, found, unreadable, keys, clock or SystemClock())
    except OSError as error:
        if isinstance(error, ChannelIOError):
            raise
        raise ChannelIOError(name, f"{directory} cannot be read: {error}", error.errno or 0) from error


def _report(
    disk: Disk,
    name: str,
    directory: str,
    found: Sequence[Found],
    unreadable: Sequence[str],
    keys: KeyProvider | None,
    clock: Clock,
) -> DirectoryReport:
    segments = _segments(name, found, keys)
    salts = {segment.header.number: segment.header.salt for segment in found}
    sizes = {segment.header.number: segment.size for segment in found}
    start, bad = checkpoints.load_best(disk, directory, name, salts, sizes)
    replay = None if segments is None else Replay(disk, name, segments, start, clock).run()
    ciphers = {} if segments is None else {segment.number: segment.cipher for segment in segments}
    looked = tuple(_look_through(disk, segment, ciphers.get(segment.header.number)) for segment in found)
    events, lost = ([], 0) if replay is None else _readable(replay, looked)
    quarantine = f"{directory}/{QUARANTINE}"
    return DirectoryReport(
        directory=directory,
        owner=read_owner(disk, directory),
        in_use=_in_use(disk, directory),
        events=None if replay is None else len(events),
        event_bytes=sum(entry.length for entry in events),
        oldest=min((entry.time for entry in events), default=None),
        checkpoint=None if start is None else start.generation,
        bad_checkpoints=bad,
        torn=replay is not None and replay.cut is not None,
        lost_events=lost,
        missing=tuple(sorted(checkpoints.missing_segments(disk, directory, salts))),
        unopened=sum(segment.unopened for segment in looked),
        unreadable=tuple(unreadable),
        quarantine=tuple(disk.names(quarantine)) if disk.exists(quarantine) else (),
        segments=looked,
    )


def _readable(replay: Replay, segments: Sequence[SegmentReport]) -> tuple[list[Entry], int]:
    """The events that can still be read, and how many of those that should be there cannot."""
    flawed = {segment.number: segment for segment in segments if segment.damages or segment.gaps}
    entries = replay.events.entries(0, len(replay.events))
    events = [entry for entry in entries if entry.segment not in flawed or flawed[entry.segment].holds(entry.offset)]
    return events, replay.findings.lost_events + len(entries) - len(events)


def _segments(name: str, found: Sequence[Found], keys: KeyProvider | None) -> list[Segment] | None:
    """The segments with what opens them; None if a key is missing."""
    try:
        return [Segment(one.path, one.header, _cipher(name, one.header, keys)) for one in found]
    except ChannelKeyError:
        return None


def _cipher(name: str, header: SegmentHeader, keys: KeyProvider | None) -> SegmentCipher | None:
    if header.key_id is None:
        return None
    try:
        if keys is None:
            raise KeyError(header.key_id)
        return SegmentCipher(keys.get_key(header.key_id), header.salt)
    except KeyError:
        raise ChannelKeyError(name, header.key_id, "the key is missing") from None


def _in_use(disk: Disk, directory: str) -> bool:
    path = f"{directory}/{LOCK_NAME}"
    if not disk.exists(path):
        return False
    try:
        disk.close(disk.lock(path))
    except OSError:
        return True
    return False


def _read(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return disk.read(file, disk.size(file), 0)
    finally:
        disk.close(file)


def _look_through(disk: Disk, found: Found, cipher: SegmentCipher | None) -> SegmentReport:
    data = _read(disk, found.path)
    header = found.header
    counts: Counter[str] = Counter()
    damages, gaps, unopened = [], [], 0
    for item in scan(data, header.seed):
        if isinstance(item, Damage):
            damages.append(item)
        elif item.kind == Kind.GAP:
            gaps.append((item.offset, item.offset + FRAME_SIZE + item.length))
        else:
            counts[Kind(item.kind).name.lower()] += 1
            unopened += header.key_id is not None and not _opens(cipher, data, item)
    copies = data[:HEADER_SIZE], data[SECOND_HEADER:FIRST_RECORD]
    return SegmentReport(
        number=header.number,
        path=found.path,
        size=len(data),
        created=header.created,
        key_id=header.key_id,
        records=dict(counts),
        damages=tuple(damages),
        gaps=tuple(gaps),
        header_damaged=copies[0] != copies[1],
        unopened=unopened,
    )


def _opens(cipher: SegmentCipher | None, data: bytes, record: Record) -> bool:
    start = record.offset + FRAME_SIZE
    try:
        if cipher is not None:
            cipher.open(record.kind, record.sequence, record.transaction, data[start : start + record.length])
    except ValueError:
        return False
    return cipher is not None


@dataclass(frozen=True, slots=True)
class Repair:
    """What :func:`repair` did.

    :ivar removed: for each segment that was changed, its path and the bytes that were taken out of it.
    :ivar forgotten: numbers of missing segments that are given up.
    :ivar after: the directory as it is now.
    """

    removed: dict[str, int]
    forgotten: Sequence[int]
    after: DirectoryReport


def repair(
    directory: str,
    *,
    data_directories: Sequence[str] = (),
    keys: KeyProvider | None = None,
    clock: Clock | None = None,
    reopen: Callable[[], None] = lambda: None,
) -> Repair:
    """Put something readable in the place of what is damaged, after a copy of the segment was kept.

    :param reopen: called last, with the directory free: opens a channel once, which cuts what is torn and writes a
        checkpoint.
    :raises ChannelLockedError: a channel runs on it.
    """
    clock = clock or SystemClock()
    disk, name = Disk(), os.path.basename(directory) or directory  # noqa: PTH119
    before = examine(directory, data_directories=data_directories, keys=keys, clock=clock)
    ownership = own(disk, name, (directory, *data_directories), clock)
    removed = {}
    try:
        if before.missing:
            _forget_checkpoints(disk, directory)
        found, _ = find_segments(disk, name, tuple(dict.fromkeys((directory, *(data_directories or (directory,))))))
        headers = {segment.header.number: segment.header for segment in found}
        last = max(headers, default=0)
        for report in before.segments:
            torn_end = report.number == last and before.torn
            damages = [damage for damage in report.damages if not (torn_end and damage.final)]
            if damages or report.header_damaged:
                quarantine_copy(disk, name, directory, report.path)
                removed[report.path] = _mend(disk, report.path, headers[report.number], damages)
    except OSError as error:
        if isinstance(error, ChannelIOError):
            raise
        raise ChannelIOError(name, f"{directory} cannot be repaired: {error}", error.errno or 0) from error
    finally:
        ownership.release()
    reopen()
    after = examine(directory, data_directories=data_directories, keys=keys, clock=clock)
    return Repair(removed, before.missing, after)


def _forget_checkpoints(disk: Disk, directory: str) -> None:
    """Keep aside what says that other segments should be there: they are given up."""
    disk.make_directory(f"{directory}/{QUARANTINE}")
    for name in (checkpoints.NAME, checkpoints.BACKUP_NAME):
        if disk.exists(f"{directory}/{name}"):
            disk.rename(f"{directory}/{name}", f"{directory}/{QUARANTINE}/{name}")
    disk.sync_directory(directory)


def _mend(disk: Disk, path: str, header: SegmentHeader, damages: Sequence[Damage]) -> int:
    """Write gaps over the damaged stretches, and the header anew; returns the bytes of the stretches."""
    data = _read(disk, path)
    before = {
        item.offset + FRAME_SIZE + item.length: item for item in scan(data, header.seed) if isinstance(item, Record)
    }
    file = disk.open(path)
    try:
        for damage in damages:
            size = damage.end - damage.start
            if size < FRAME_SIZE:  # only at the end of a file
                disk.truncate(file, damage.start)
                continue
            previous = before.get(damage.start)
            sequence = header.first_sequence - 1 if previous is None else previous.sequence
            transaction = 0 if previous is None else previous.transaction
            disk.overwrite(file, encode_gap(header.seed, max(0, sequence), transaction, size), damage.start)
        disk.overwrite(file, encode_segment_header(header)[:FIRST_RECORD], 0)
        disk.sync(file)
    finally:
        disk.close(file)
    return sum(damage.end - damage.start for damage in damages)

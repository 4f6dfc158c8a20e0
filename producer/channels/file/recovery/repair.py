"""Repair: overwrite damaged records with readable ones, while no channel runs on the directory.

It takes the lock before it reads. It copies each file before changing it, and syncs and compares the copy; without a
copy the file stays unchanged. It does not repair torn transactions, which would revive half of one. It cuts them off,
as opening the channel would.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass

from ....model.errors import ChannelFormatError, ChannelIOError
from ....runtime.clock import Clock, SystemClock
from ....text.plural import counted
from ..log.run import Position, encode_run
from ..queue.event_queue import Columns
from ..store.directories import Directories
from ..store.disk import Disk, opened_file
from ..store.encryption import KeyProvider
from ..store.format import (
    FIRST_RECORD,
    FRAME_SIZE,
    HEADER_SIZE,
    HEADER_SIZES,
    SECOND_HEADER,
    decode_segment_header,
    encode_gap,
    encode_segment_header,
)
from ..store.segment import Damage, Record, Segment, SegmentState, SegmentWriter, scan
from ..store.segments import Segments
from . import checkpoint as checkpoints
from . import quarantine
from .checkpoint import Checkpoint
from .inspection import DirectoryReport, SegmentReport, check_is_channel, place_of, scan_directories
from .ownership import own
from .recovery import Recovered, check_keys, missing_message, recover
from .replay import find_segments

#: More segments than an abandoned directory may hold after the last checkpoint.
_JUMP = 1000


@dataclass(frozen=True, slots=True)
class Repair:
    """Result of :func:`repair`.

    :ivar repaired: bytes overwritten in each changed segment, by path.
    :ivar copies: path of the copy of each changed segment, by path.
    :ivar failures: what could not be done, and why.
    :ivar given_up: numbers of missing segments.
    :ivar lost_events: events in the overwritten bytes and in missing segments.
    :ivar after: report on the directory after the repair.
    """

    repaired: dict[str, int]
    copies: dict[str, str]
    failures: Sequence[str]
    given_up: Sequence[int]
    lost_events: int
    after: DirectoryReport


def repair(
    directory: str,
    *,
    data_directories: Sequence[str] = (),
    keys: KeyProvider | None = None,
    give_up_missing: bool = False,
    clock: Clock | None = None,
    disk: Disk | None = None,
) -> Repair:
    """Repair damaged records, cut off torn ones, quarantine unreadable files, and write a checkpoint of the rest.

    :param keys: the keys of encrypted segments, without which torn and damaged records look alike.
    :param give_up_missing: True to continue without missing segments.
    :raises ChannelLockedError: a channel runs on the directory.
    :raises ChannelFormatError: it is not a channel's directory, or a segment exists twice.
    :raises ChannelKeyError: a key is missing or wrong.
    :raises ChannelIOError: it cannot be read, or segments are missing.
    """
    disk, clock = Disk() if disk is None else disk, clock or SystemClock()
    place = place_of(disk, directory, data_directories)
    check_is_channel(place)
    ownership = own(place, clock, make=False, give_up_missing=give_up_missing)
    try:
        return _Repair(place, keys, clock, give_up_missing=give_up_missing).run()
    except OSError as error:
        if isinstance(error, ChannelIOError):
            raise
        raise ChannelIOError(place.name, f"{directory} cannot be repaired: {error}", error.errno or 0) from error
    finally:
        ownership.release()


class _Repair:
    """One repair of locked directories."""

    def __init__(self, place: Directories, keys: KeyProvider | None, clock: Clock, *, give_up_missing: bool) -> None:
        self._place, self._keys, self._clock = place, keys, clock
        self._give_up_missing = give_up_missing
        self._ciphers = Segments(place.disk, place.name, (), keys, clock)
        self._repaired: dict[str, int] = {}
        self._copies: dict[str, str] = {}
        self._failures: list[str] = []

    def run(self) -> Repair:
        self._check_keys()
        before = self._look()
        if before.missing and not self._give_up_missing:
            raise ChannelIOError(self._place.name, missing_message(self._place, before.missing), errno.ENOENT)
        for segment in before.segments:
            if segment.damages or segment.header_damaged:
                self._repair_segment(segment)
        if before.damaged or before.torn or self._give_up_missing:
            self._settle()
        return Repair(
            repaired=self._repaired,
            copies=self._copies,
            failures=self._failures,
            given_up=before.missing,
            lost_events=before.lost_events,
            after=self._look(),
        )

    def _look(self) -> DirectoryReport:
        return scan_directories(self._place, self._keys, self._clock, in_use=False)

    def _check_keys(self) -> None:
        """Raise if a key is missing or wrong, before anything is changed."""
        found, _ = find_segments(self._place.disk, self._place.name, self._place.all)
        segments = [Segment(one.path, one.header, self._ciphers.cipher_of(one.header)) for one in found]
        check_keys(self._place.disk, self._place.name, segments)

    def _repair_segment(self, segment: SegmentReport) -> None:
        disk, path = self._place.disk, segment.path
        try:
            if segment.unread:
                stretches = ", ".join(f"{start} to {end}" for start, end in segment.unread)
                raise OSError(f"the disk cannot read its bytes {stretches}: copy it to a sound disk first")
            self._copies[path] = quarantine.copy(disk, path)
        except OSError as error:
            what = "was not repaired, and is unchanged: it could not be copied to quarantine"
            self._failures.append(f"{path} {what}: {error}")
            return
        try:
            self._repaired[path] = _overwrite_damage(disk, segment, self._positions())
        except OSError as error:
            what = f"is only partly repaired; the original is {self._copies[path]}"
            self._failures.append(f"{path} {what}: {error}")

    def _positions(self) -> list[Position]:
        """Return the positions of all checkpoints, where a gap must be split."""
        return [each.position for each in checkpoints.readable(self._place.disk, self._place.main)]

    def _settle(self) -> None:
        """Do what opening the channel would do: cut, quarantine, and write a checkpoint of the remaining events."""
        place = self._place
        try:
            if self._give_up_missing:
                self._keep_checkpoints()
            found = recover(
                place, self._ciphers.cipher_of, self._clock, careful=True, give_up_missing=self._give_up_missing
            )
            if found.uncopied:
                paths = ", ".join(found.uncopied)
                raise OSError(errno.EIO, f"the damaged {paths} could not be copied to quarantine, so it has to stay")
            segments = list(found.segments)
            if self._give_up_missing or found.needs_live or not segments:
                segments.append(self._begin_segment(found))
            self._write_checkpoint(found, segments)
        except (ChannelIOError, ChannelFormatError) as error:
            self._failures.append(str(error))
        except OSError as error:
            what = "no checkpoint of the remaining events could be written; opening the channel writes one"
            self._failures.append(f"{what}: {error}")

    def _begin_segment(self, found: Recovered) -> Segment:
        """Begin an empty segment, with a number above those of all lost ones, unknown ones included."""
        place = self._place
        segments = Segments(place.disk, place.name, place.data or (place.main,), self._keys, self._clock)
        segments.skip_numbers(found.last_number + _JUMP)
        writer = SegmentWriter(place.disk, segments.new(found.next_sequence, found.next_transaction - 1))
        try:
            writer.append(encode_segment_header(writer.segment.header))
            if found.needs_live:
                writer.append(encode_run(found.live_run(self._clock), writer.segment, 0, writer.size)[0])
            writer.activate()
            writer.move(SegmentState.DONE)
        except OSError:
            writer.move(SegmentState.ABANDONED)
            raise
        return writer.segment

    def _keep_checkpoints(self) -> None:
        place = self._place
        for name in (checkpoints.NAME, checkpoints.BACKUP_NAME):
            if place.disk.exists(f"{place.main}/{name}"):
                quarantine.keep(place.disk, f"{place.main}/{name}")

    def _write_checkpoint(self, found: Recovered, segments: Sequence[Segment]) -> None:
        """Write a checkpoint of the readable events, up to the end of the log."""
        last = max(segments, key=lambda segment: segment.number)
        checkpoint = Checkpoint(
            generation=found.generation + 1,
            position=Position(last.number, self._place.disk.size_of(last.path)),
            next_sequence=found.next_sequence,
            next_transaction=found.next_transaction + found.needs_live,
            segments={segment.number: segment.header.salt for segment in segments},
            events=self._readable(found.events),
        )
        data = checkpoints.encode(checkpoint)
        names = (checkpoints.NAME, checkpoints.BACKUP_NAME)
        error = checkpoints.write_both(self._place.disk, self._place.main, names, data)
        if error is not None:
            raise ChannelIOError(self._place.name, f"the second copy of the checkpoint could not be written: {error}")

    def _readable(self, events: Columns) -> Columns:
        """Return the events that are neither in overwritten bytes nor after the end of their segment."""
        segments = {segment.number: segment for segment in self._look().segments}
        kept = Columns()
        for entry in events.entries(0, len(events)):
            if segments[entry.segment].holds(entry.offset):
                kept.append(entry)
        return kept


def _overwrite_damage(disk: Disk, segment: SegmentReport, positions: Sequence[Position]) -> int:
    """Overwrite damaged stretches with gaps, and a bad header copy with the good one; return the bytes overwritten.

    :raises OSError: the disk failed, or a stretch is too short for a gap.
    """
    with opened_file(disk, segment.path) as file:
        data = disk.read(file, disk.size(file), 0)
        cuts = [position.offset for position in positions if position.segment == segment.number]
        for start, gap in _gaps(data, segment.damages, cuts):
            disk.overwrite(file, gap, start)
        if segment.header_damaged:
            _repair_header(disk, file, data)
        disk.sync(file)
    return sum(damage.end - damage.start for damage in segment.damages)


def _gaps(data: bytes, damages: Sequence[Damage], cuts: Sequence[int]) -> list[tuple[int, bytes]]:
    """Return the gaps to write, by offset; a gap has the numbers of the record before it."""
    header = decode_segment_header(data[:FIRST_RECORD])
    if header is None:
        raise OSError(errno.EIO, "its header has become unreadable")
    records = [item for item in scan(data, header) if isinstance(item, Record)]
    before = {item.offset + FRAME_SIZE + item.length: (item.sequence, item.transaction) for item in records}
    gaps = []
    for damage in damages:
        sequence, transaction = before.get(damage.start, (max(0, header.first_sequence - 1), 0))
        for start, end in _parts(damage, cuts):
            # A gap at the end may extend the file; one payload byte distinguishes it from unwritten zeros.
            size = max(end - start, FRAME_SIZE + 1) if damage.final else end - start
            if size < FRAME_SIZE:
                raise OSError(errno.EIO, f"{counted(size, 'damaged byte')} at {start}: too few for a gap")
            gaps.append((start, encode_gap(header.seed, sequence, transaction, size)))
    return gaps


def _parts(damage: Damage, cuts: Sequence[int]) -> list[tuple[int, int]]:
    """Split the stretch where a checkpoint's position is inside it: replay starts there."""
    ends = [*sorted({offset for offset in cuts if damage.start < offset < damage.end}), damage.end]
    parts = list(zip([damage.start, *ends[:-1]], ends, strict=True))
    return parts if all(end - start > FRAME_SIZE for start, end in parts) else [(damage.start, damage.end)]


def _repair_header(disk: Disk, file: int, data: bytes) -> None:
    header = decode_segment_header(data[:FIRST_RECORD])
    size = HEADER_SIZE if header is None else HEADER_SIZES[header.version]
    places = (0, SECOND_HEADER)
    copies = [data[offset : offset + size] for offset in places]
    good = [copy for copy in copies if decode_segment_header(copy.ljust(FIRST_RECORD, b"\0")) is not None]
    for offset, copy in zip(places, copies, strict=True):
        if copy != good[0]:
            disk.overwrite(file, good[0], offset)

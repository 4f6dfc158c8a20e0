"""Recovery: rebuild the queue from a directory; cut off torn transactions, and quarantine damaged records.

All checks that may refuse the opening come first: keys, missing segments, duplicate segments. Only then is anything
changed. The file is long because that order is one thing, with each check beside its refusal.
"""

from __future__ import annotations

import contextlib
import errno
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ....model.errors import ChannelFormatError, ChannelIOError, ChannelKeyError
from ....runtime.clock import Clock
from ....runtime.loggers import get_logger
from ....text.plural import counted
from ..log.run import Run
from ..queue.event_queue import Columns
from ..store.directories import Directories
from ..store.disk import Disk, opened_file
from ..store.encryption import SegmentCipher
from ..store.format import FIRST_RECORD, FRAME_SIZE, SECOND_HEADER, Kind, Live, SegmentHeader
from ..store.lost import OnLost, lost_events_in
from ..store.pointers import MOST_OFFSET, OFFSET_BITS
from ..store.segment import BEGUN, Damage, Record, Segment, content_end, payload_of, scan
from . import checkpoint as checkpoints
from . import quarantine
from .checkpoint import Checkpoint
from .replay import SEGMENT_NAME, Cut, Found, Replay, find_segments

_log = get_logger("loghub.channel")
#: Bytes read to find the first record of a segment, before all are read.
_FIRST_READ = 1 << 14
#: Bytes rewritten at a time.
_BLOCK = 1 << 20

CipherOf = Callable[[SegmentHeader], SegmentCipher | None]


@dataclass(frozen=True, slots=True)
class Recovered:
    """Result of a recovery.

    :ivar sums: counts for :class:`~producer.model.interfaces.FileStats`, by name.
    :ivar last_number: the highest known segment number; it is never reused.
    :ivar dropped: number of torn transactions before valid ones.
    :ivar uncopied: paths of damaged segments without a copy in quarantine.
    """

    segments: Sequence[Segment]
    events: Columns
    next_sequence: int
    next_transaction: int
    generation: int
    sums: dict[str, int]
    last_number: int
    dropped: int = 0
    uncopied: Sequence[str] = ()

    @property
    def needs_live(self) -> bool:
        """True if the log must begin with a Live, before any other record.

        Otherwise another replay of the whole log would report the same damage again, and would take torn transactions
        for damage, since later segments follow them.
        """
        return bool(self.dropped or self.sums["damaged_records"] or self.sums["lost_events"])

    def live_run(self, clock: Clock) -> Run:
        """Build the transaction with the Live."""
        ranges = self.events.ranges()
        firsts, lasts = [first for first, _ in ranges], [last for _, last in ranges]
        live = Live(self.next_transaction - 1, self.next_sequence, firsts, lasts)
        return Run(live=live, time=clock.time(), transaction=self.next_transaction, first=self.next_sequence)


def recover(
    place: Directories,
    cipher_of: CipherOf,
    clock: Clock,
    *,
    careful: bool = False,
    give_up_missing: bool = False,
    lost: OnLost | None = None,
) -> Recovered:
    """Read a channel's directories, which the caller has locked.

    :param cipher_of: returns the cipher of a segment; may raise :class:`~producer.model.errors.ChannelKeyError`.
    :param careful: True to cut off nothing that could not be copied.
    :param give_up_missing: True to continue without missing segments; their events are lost.
    :param lost: callback for lost events, replacing the log line; None for the log line.
    :raises ChannelFormatError: a file is of a newer version, or two files are the same segment.
    :raises ChannelKeyError: a key is not the one that encrypted a segment.
    :raises ChannelIOError: a file cannot be read, a torn end cannot be cut, or segments are missing.
    """
    try:
        return _Recovery(place, clock, careful=careful, give_up_missing=give_up_missing, lost=lost).run(cipher_of)
    except OSError as error:
        if isinstance(error, ChannelIOError):
            raise
        message = f"{place.main} cannot be read: {error}: check the disk and the owner of the files, then try again"
        raise ChannelIOError(place.name, message, error.errno or 0) from error


class _Recovery:
    """One opening of a channel's directories."""

    def __init__(
        self, place: Directories, clock: Clock, *, careful: bool, give_up_missing: bool, lost: OnLost | None
    ) -> None:
        self._place, self._clock, self._lost = place, clock, lost
        self._careful, self._give_up_missing = careful, give_up_missing
        self._sums = {"torn_tails": 0, "quarantined": 0}
        self._uncopied: list[str] = []
        self._emptied: dict[int, frozenset[int]] = {}

    def run(self, cipher_of: CipherOf) -> Recovered:
        """Check everything, then cut and quarantine."""
        place = self._place
        remove_begun(place)
        found, unreadable = find_segments(place.disk, place.name, place.all)
        last_number = last_number_of(place, [segment.header.number for segment in found], unreadable)
        check_unique(place.name, found)
        loaded = self._load(found, unreadable)
        unknown = unknown_to(loaded[0], found)
        found = [segment for segment in found if segment not in unknown]
        segments = [Segment(segment.path, segment.header, cipher_of(segment.header)) for segment in found]
        check_keys(place.disk, place.name, segments)
        for segment in unknown:
            self._set_aside_unknown(segment)
        had_headers = known_numbers(place) if unreadable else set[int]()
        headless = [number_of(path) for path in unreadable if self._set_aside_unreadable(path, had_headers)]
        sizes = {segment.header.number: segment.size for segment in found}
        start, bad = loaded
        replay = self._replayed(start, found, sizes, segments, headless)
        self._keep_damaged(segments, replay)
        self._bring_to_disk(segments, sizes, replay, start)
        self._log_damage(replay, len(headless))
        self._report_lost(segments, replay)
        findings = replay.findings
        self._sums.update(
            replayed=findings.replayed,
            damaged_records=findings.damaged_records + len(headless),
            lost_events=findings.lost_events,
            checkpoint_fallbacks=bad,
            recovered=len(replay.events),
        )
        # Lost segments, and ends cut off by anything but a crash, may have had higher numbers than the rest.
        known = checkpoints.readable(place.disk, place.main) if self._give_up_missing or self._emptied else []
        return Recovered(
            segments,
            replay.events,
            max([replay.next_sequence, *(each.next_sequence for each in known)]),
            max([replay.next_transaction, *(each.next_transaction for each in known)]),
            0 if start is None else start.generation,
            self._sums,
            last_number,
            replay.dropped,
            self._uncopied,
        )

    def _load(self, found: Sequence[Found], unreadable: Sequence[str]) -> tuple[Checkpoint | None, int]:
        """Return the checkpoint to start from and the number of bad copies; raise if it needs missing segments."""
        place = self._place
        salts = {segment.header.number: segment.header.salt for segment in found}
        sizes = {segment.header.number: segment.size for segment in found}
        start, bad = checkpoints.load_best(place.disk, place.main, place.name, salts, sizes)
        if (bad or (start is not None and start.segments.keys() - salts.keys())) and not self._give_up_missing:
            missing = missing_segments(place, salts, [number_of(path) for path in unreadable])
            if missing:
                raise ChannelIOError(place.name, missing_message(place, missing), errno.ENOENT)
        return start, bad

    def _replayed(
        self,
        start: Checkpoint | None,
        found: Sequence[Found],
        sizes: dict[int, int],
        segments: Sequence[Segment],
        headless: Sequence[int],
    ) -> Replay:
        """Read the log, and cut off its torn end, which changes ``sizes``."""
        place = self._place
        self._emptied = emptied_segments(place, found) if headless or start is None else {}
        replay = Replay(place.disk, place.name, segments, start, self._clock, headless, self._emptied).run()
        self._sums["torn_tails"] += replay.dropped
        if replay.cut is not None:
            self._sums["torn_tails"] += 1
            sizes.update(self._cut(segments, replay.cut))
        if replay.dropped:
            what = counted(replay.dropped, "transaction")
            _log.warning(
                "channel %s: dropped %s torn by a crash and never acknowledged; later ones are kept", place.name, what
            )
        return replay

    def _set_aside_unknown(self, segment: Found) -> None:
        """Quarantine a segment that the checkpoint does not list, whose numbers were reused since."""
        place = self._place
        target = quarantine.move(place.disk, segment.path, "unknown")
        self._sums["quarantined"] += 1
        _log.error(
            "channel %s: segment %d is unknown to the checkpoint, because it was missing when that was written: it is "
            "moved to %s. To deliver its events, move it to a directory of its own as log-%010d, and drain that: "
            "producer channel drain",
            *(place.name, segment.header.number, target, segment.header.number),
        )

    def _set_aside_unreadable(self, path: str, known: Collection[int]) -> bool:
        """Quarantine a file without a readable header; remove it and return False if it never held records."""
        place = self._place
        if was_never_begun(place.disk, path, known):
            place.disk.unlink(path)
            return False
        target = quarantine.move(place.disk, path, "unreadable")
        self._sums["quarantined"] += 1
        _log.error("channel %s: %s has no readable header; it is moved to %s", place.name, path, target)
        return True

    def _cut(self, segments: Sequence[Segment], cut: Cut) -> dict[int, int]:
        """End the log at ``cut``, after copying the rest to quarantine; return the new sizes."""
        disk, sizes = self._place.disk, {}
        for segment in reversed(segments):  # last first, so that the log stays contiguous if this is interrupted
            if segment.number < cut.segment:
                break
            offset = cut.offset if segment.number == cut.segment else segment.header.first_record
            with opened_file(disk, segment.path) as file:
                size = disk.size(file)
                if size > offset:
                    size = cut_zeros(disk, file, size, offset)
                    where = self._keep_end(segment.path, offset)
                    disk.truncate(file, offset)
                    disk.sync(file)
                    _log.warning(
                        "channel %s: the end of segment %d %s, %s",
                        *(self._place.name, segment.number, self._torn(segment.number, size - offset), where),
                    )
            sizes[segment.number] = min(size, offset)
        return sizes

    def _torn(self, number: int, size: int) -> str:
        """Return why the end of a segment is cut off, for the log."""
        if number in self._emptied:
            words = (
                "is missing, although the checkpoint needs it, which no crash causes: %s of an incomplete transaction"
            )
        else:
            words = "was torn by a crash: %s, never acknowledged"
        return words % counted(size, "byte")

    def _keep_end(self, path: str, offset: int) -> str:
        """Copy the end that is about to be cut off; return the words for the log.

        Without space for a copy it is cut anyway, unless a repair does it. It was never acknowledged, and a channel on
        a full disk must open to be drained.
        """
        try:
            return f"are in {quarantine.copy(self._place.disk, path, offset)}"
        except OSError as error:
            if not self._careful:
                return f"are gone: they could not be copied to quarantine: {error}"
            message = (
                f"the torn end of {path}, from {offset} on, was not cut: it could not be copied to quarantine: {error}"
            )
            raise ChannelIOError(self._place.name, message, error.errno or 0) from error

    def _keep_damaged(self, segments: Sequence[Segment], replay: Replay) -> None:
        for segment in segments:
            if segment.number in replay.damaged:
                self._keep_copy(segment.path)

    def _bring_to_disk(
        self, segments: Sequence[Segment], sizes: Mapping[int, int], replay: Replay, start: Checkpoint | None
    ) -> None:
        """Sync everything that was read, since the previous process may have left it in the page cache."""
        for segment in segments:
            if start is None or segment.number >= start.position.segment:
                whole = replay.whole.get(segment.number)
                bring_to_disk(self._place.disk, segment, sizes[segment.number], replay.unconfirmed_from, whole)
        for directory in self._place.all:
            self._place.disk.sync_directory(directory)

    def _keep_copy(self, path: str) -> None:
        try:
            self._sums["quarantined"] += quarantine.keep(self._place.disk, path)
        except OSError as error:
            self._uncopied.append(path)
            _log.error(
                "channel %s: the damaged segment %s could not be copied to quarantine: %s",
                self._place.name,
                path,
                error,
            )

    def _log_damage(self, replay: Replay, headless: int) -> None:
        if replay.findings.damaged_records or replay.findings.lost_events or headless:
            _log.error(
                "channel %s: %s in segments %s;%s copies of the segments are in %s/%s",
                self._place.name,
                counted(replay.findings.damaged_records, "damaged record"),
                replay.damaged,
                "" if self._lost else f" {counted(replay.findings.lost_events, 'event is', 'events are')} lost;",
                self._place.main,
                quarantine.QUARANTINE,
            )

    def _report_lost(self, segments: Sequence[Segment], replay: Replay) -> None:
        if self._lost is None or not replay.findings.lost_events:
            return
        found = [
            event
            for segment in segments
            if segment.number in replay.damaged and segment.cipher is None
            for flaw in replay.flaws
            if flaw.segment == segment.number
            for event in lost_events_in(self._stretch(segment, flaw.damage), replay.lost)
        ]
        self._lost(found, replay.findings.lost_events - len(found))

    def _stretch(self, segment: Segment, damage: Damage) -> bytes:
        with opened_file(self._place.disk, segment.path) as file:
            return self._place.disk.read(file, damage.end - damage.start, damage.start)


def remove_begun(place: Directories) -> None:
    """Remove segments and checkpoints that were never completed: they hold nothing."""
    for directory in place.all:
        for name in place.disk.names(directory):
            begun = name.removesuffix(BEGUN)
            if begun != name and (SEGMENT_NAME.fullmatch(begun) or begun in checkpoints.NAMES):
                place.disk.unlink(f"{directory}/{name}")


def number_of(path: str) -> int:
    """Return the number of a segment, from its file name."""
    return int(path.rpartition("-")[2])


def last_number_of(place: Directories, found: Collection[int], unreadable: Sequence[str]) -> int:
    """Return the highest segment number ever used in these directories, as far as is known."""
    kept = quarantine.numbers(place.disk, place.all)
    return max((*found, *map(number_of, unreadable), *known_numbers(place), *kept), default=0)


def known_numbers(place: Directories) -> set[int]:
    """Return the numbers of all segments listed in a checkpoint, which had their headers."""
    return {number for each in checkpoints.readable(place.disk, place.main) for number in each.segments}


def emptied_segments(place: Directories, found: Sequence[Found]) -> dict[int, frozenset[int]]:
    """Return the events of the newest checkpoint in segments that lost their ends; see :func:`.checkpoint.emptied`."""
    salts = {segment.header.number: segment.header.salt for segment in found}
    sizes = {segment.header.number: segment.size for segment in found}
    return checkpoints.emptied(checkpoints.newest_of_log(place.disk, place.main, salts), sizes)


def unknown_to(start: Checkpoint | None, found: Sequence[Found]) -> list[Found]:
    """Return the segments before a checkpoint's position that it does not list."""
    if start is None:
        return []
    return [
        segment
        for segment in found
        if segment.header.number < start.position.segment
        and segment.header.number not in start.segments
        and segment.size > segment.header.first_record
    ]


def was_never_begun(disk: Disk, path: str, known: Collection[int]) -> bool:
    """True if a crash left this file between its creation and its header.

    :param known: numbers of segments that had headers, from :func:`known_numbers`.
    """
    if number_of(path) in known:
        return False
    with opened_file(disk, path) as file:
        size = disk.size(file)
        return size <= FIRST_RECORD and not any(disk.read(file, size, 0)[SECOND_HEADER:])


def check_unique(name: str, segments: Sequence[Found]) -> None:
    """Check that each segment exists once.

    :raises ChannelFormatError: two files are the same segment.
    """
    counts = Counter(segment.header.number for segment in segments)
    twice = [segment.path for segment in segments if counts[segment.header.number] > 1]
    if twice:
        message = f"two files are the same segment: {', '.join(twice)}: find out which is the copy, and remove it"
        raise ChannelFormatError(name, message)


def check_keys(disk: Disk, name: str, segments: Sequence[Segment]) -> None:
    """Refuse keys that do not fit, as after a mix-up of ids: with them every event would count as damaged.

    :raises ChannelKeyError: no record of a segment can be decrypted.
    """
    for segment in segments:
        key_id = segment.header.key_id
        if key_id is not None and not _opens(disk, segment):
            message = (
                f"segment {segment.number} cannot be decrypted with the key {key_id!r}, although its records are "
                "intact: give the key of this id with which it was written"
            )
            raise ChannelKeyError(name, key_id, message)


def _opens(disk: Disk, segment: Segment) -> bool:
    """True if a valid record of the segment can be decrypted, or if it has none."""
    with opened_file(disk, segment.path) as file:
        data = disk.read(file, _FIRST_READ, 0)
        if not any(isinstance(item, Record) for item in scan(data, segment.header)):
            data = disk.read(file, disk.size(file), 0)
    whole = 0
    for item in scan(data, segment.header):
        if isinstance(item, Record) and item.kind != Kind.GAP:
            frame = data[item.offset : item.offset + FRAME_SIZE + item.length]
            if payload_of(segment, frame, item.kind, item.sequence) is not None:
                return True
            whole += 1
    return not whole


def missing_segments(place: Directories, salts: Mapping[int, bytes], unreadable: Collection[int]) -> list[int]:
    """Return the needed segments that do not exist; without them their events would be lost permanently.

    A segment in quarantine as unreadable is not missing; a copy there does not count.

    :param salts: the salt of each existing segment.
    :param unreadable: numbers of the segments with unreadable headers.
    """
    needed = checkpoints.missing_segments(place.disk, place.main, salts) - {*unreadable}
    return sorted(needed - quarantine.numbers(place.disk, place.all, "unreadable")) if needed else []


def missing_message(place: Directories, missing: Sequence[int]) -> str:
    """Return the message for missing segments."""
    return (
        f"segments {', '.join(map(str, missing[:5]))}{', …' if len(missing) > 5 else ''}, which the checkpoint in "
        f"{place.main} needs, are in none of its directories: give the same data_directories as before, or mount the "
        "missing disk; if they are lost, producer channel repair --give-up-missing continues without them"
    )


def cut_zeros(disk: Disk, file: int, size: int, offset: int) -> int:
    """Cut off the preallocated zeros of a segment; return the new size.

    :param offset: the end of its known records.
    """
    content = offset + content_end(disk.read(file, size - offset, offset))
    if content < size:
        disk.truncate(file, content)
    return content


def bring_to_disk(disk: Disk, segment: Segment, size: int, unconfirmed_from: int | None, whole: int | None) -> None:
    """Sync a segment, whose last sync may have failed in the previous process.

    The kernel then keeps unwritten pages and treats them as written. Rewriting them makes the sync effective.

    :param size: the end of the segment.
    :param unconfirmed_from: a pointer: everything before it is known to be on the disk; None if everything is.
    :param whole: the end of the records, if only preallocated zeros of a dead process follow; None if that is unknown.
    """
    with opened_file(disk, segment.path) as file:
        there = disk.size(file)
        if whole is not None and whole < there:
            with contextlib.suppress(OSError):  # every reader ignores the zeros
                cut_zeros(disk, file, there, whole)
        if unconfirmed_from is not None and segment.number >= unconfirmed_from >> OFFSET_BITS:
            offset = unconfirmed_from & MOST_OFFSET if segment.number == unconfirmed_from >> OFFSET_BITS else 0
            while offset < size and (data := disk.read(file, min(_BLOCK, size - offset), offset)):
                disk.overwrite(file, data, offset)
                offset += len(data)
        disk.sync(file)

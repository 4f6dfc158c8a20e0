"""Recovery: a directory as it was left becomes a queue again; what is torn is cut, what is damaged is kept aside."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ...clock import Clock
from ...errors import ChannelFormatError, ChannelIOError, ChannelKeyError
from . import checkpoint as checkpoints
from .disk import Disk
from .encryption import SegmentCipher
from .event_queue import Columns
from .format import FIRST_RECORD, FRAME_SIZE, SegmentHeader
from .ownership import QUARANTINE
from .replay import Cut, Replay, find_segments
from .segment import Record, Segment, payload_of, scan

_log = logging.getLogger("producer.channel")
_BLOCK = 1 << 20
#: The first record of a segment is looked for within so many bytes, before all are read.
_FIRST_LOOK = 1 << 14


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was found.

    :ivar sums: for :class:`~producer.interfaces.FileStats`, by name.
    :ivar damaged: numbers of the segments that are in quarantine already.
    """

    segments: Sequence[Segment]
    events: Columns
    next_sequence: int
    next_transaction: int
    generation: int
    sums: dict[str, int]
    damaged: Sequence[int]


def recover(
    disk: Disk,
    name: str,
    directory: str,
    data_directories: Sequence[str],
    cipher_of: Callable[[SegmentHeader], SegmentCipher | None],
    clock: Clock,
) -> Recovered:
    """Read a channel's directory.

    :param cipher_of: what opens a segment; may raise :class:`~producer.errors.ChannelKeyError`.
    :raises ChannelFormatError: a file is of a newer version, or two files are the same segment.
    :raises ChannelKeyError: a key is not the one with which a segment was written.
    :raises ChannelIOError: it cannot be read, a torn end cannot be cut, or segments are missing.
    """
    try:
        return _recover(disk, name, directory, data_directories, cipher_of, clock)
    except OSError as error:
        if isinstance(error, ChannelIOError):
            raise
        message = f"{directory} cannot be read: {error}: look at the disk and at the owner of the files, then try again"
        raise ChannelIOError(name, message, error.errno or 0) from error


def _recover(
    disk: Disk,
    name: str,
    directory: str,
    data_directories: Sequence[str],
    cipher_of: Callable[[SegmentHeader], SegmentCipher | None],
    clock: Clock,
) -> Recovered:
    sums = {"torn_tails": 0, "quarantined": 0}
    found, unreadable = find_segments(disk, name, tuple(dict.fromkeys((directory, *data_directories))))
    aside = [path for path in unreadable if _set_aside(disk, name, directory, path)]
    headless = len(aside)
    segments = [Segment(segment.path, segment.header, cipher_of(segment.header)) for segment in found]
    salts = {segment.number: segment.header.salt for segment in segments}
    _check_unique(name, segments)
    _check_keys(disk, name, segments)
    sizes = {segment.header.number: segment.size for segment in found}
    while True:
        start, bad = checkpoints.load_best(disk, directory, name, salts, sizes)
        if bad or (start is not None and start.segments.keys() - salts.keys()):
            _check_all_there(disk, name, directory, salts, [_number(path) for path in unreadable])
        generation = 0 if start is None else start.generation
        position = None if start is None else start.position
        replay = Replay(disk, name, segments, start, clock, [_number(path) for path in aside]).run()
        if replay.cut is not None:
            sums["torn_tails"] += 1
            sizes.update(_cut(disk, name, directory, segments, replay.cut))
        if not replay.rerun:
            break
    sums["quarantined"] += headless
    for segment in segments:
        if segment.number in replay.damaged:
            sums["quarantined"] += quarantine_copy(disk, name, directory, segment.path)
        if position is None or segment.number >= position.segment:
            _sync(disk, segment.path)
    findings = replay.findings
    if findings.damaged_records or headless:
        _log.error(
            "channel %s: %d damaged records in segments %s; %d events are lost; the segments are in %s/%s",
            name,
            findings.damaged_records,
            replay.damaged,
            findings.lost_events,
            directory,
            QUARANTINE,
        )
    sums.update(
        replayed=findings.replayed,
        damaged_records=findings.damaged_records + headless,
        lost_events=findings.lost_events,
        checkpoint_fallbacks=bad,
        recovered=len(replay.events),
    )
    return Recovered(
        segments, replay.events, replay.next_sequence, replay.next_transaction, generation, sums, tuple(replay.damaged)
    )


def _number(path: str) -> int:
    return int(path.rpartition("-")[2])


def _check_unique(name: str, segments: Sequence[Segment]) -> None:
    counts = Counter(segment.number for segment in segments)
    twice = [segment.path for segment in segments if counts[segment.number] > 1]
    if twice:
        message = f"these are the same segment: {', '.join(twice)}: find out which is the copy, and remove it"
        raise ChannelFormatError(name, message)


def _check_keys(disk: Disk, name: str, segments: Sequence[Segment]) -> None:
    """Refuse keys that are others of the same name: with them every event would be taken for damaged, and be lost."""
    for segment in segments:
        key_id = segment.header.key_id
        if key_id is not None and not _opens(disk, segment):
            message = (
                f"segment {segment.number} does not open with the key {key_id!r}, though its records are whole: give "
                "the key of this id with which it was written"
            )
            raise ChannelKeyError(name, key_id, message)


def _opens(disk: Disk, segment: Segment) -> bool:
    """Whether one of the segment's whole records opens, if it has any; the first is as good as all."""
    file = disk.open(segment.path)
    try:
        data = disk.read(file, _FIRST_LOOK, 0)
        if not any(isinstance(item, Record) for item in scan(data, segment.header.seed)):
            data = disk.read(file, disk.size(file), 0)
    finally:
        disk.close(file)
    whole = 0
    for item in scan(data, segment.header.seed):
        if isinstance(item, Record):
            frame = data[item.offset : item.offset + FRAME_SIZE + item.length]
            if payload_of(segment, frame, item.kind, item.sequence) is not None:
                return True
            whole += 1
    return not whole


def _check_all_there(
    disk: Disk, name: str, directory: str, salts: Mapping[int, bytes], unreadable: Collection[int]
) -> None:
    """Refuse to open without segments that are needed: what lies in them would be forgotten for good."""
    missing = [
        number
        for number in sorted(checkpoints.missing_segments(disk, directory, salts))
        if number not in unreadable and not disk.exists(f"{directory}/{QUARANTINE}/log-{number:010d}")
    ]
    if missing:
        message = (
            f"segments {', '.join(map(str, missing[:5]))}{', …' if len(missing) > 5 else ''}, which the checkpoint in "
            f"{directory} needs, are in none of its directories: give data_directories as before, or mount what is "
            f"missing; if they are gone for good, remove {checkpoints.NAME} and {checkpoints.BACKUP_NAME}, and what is "
            "left is delivered"
        )
        raise ChannelIOError(name, message, errno.ENOENT)


def _set_aside(disk: Disk, name: str, directory: str, path: str) -> bool:
    """Move a file without a readable header out of the way; False if it never held anything."""
    file = disk.open(path)
    try:
        size = disk.size(file)
        if size <= FIRST_RECORD and not any(disk.read(file, size, 0)[FIRST_RECORD - 128 :]):
            size = 0  # a crash fell between its creation and its header
    finally:
        disk.close(file)
    if size == 0:
        disk.unlink(path)
        return False
    target = _quarantine_path(disk, directory, os.path.basename(path))  # noqa: PTH119
    _log.error("channel %s: %s has no readable header; it is moved to %s", name, path, target)
    if os.path.dirname(path) == directory:  # noqa: PTH120
        disk.rename(path, target)
    else:  # it may be on another disk
        _copy(disk, path, target, 0)
        disk.unlink(path)
    return True


def _cut(disk: Disk, name: str, directory: str, segments: Sequence[Segment], cut: Cut) -> dict[int, int]:
    """End the log at ``cut``; what is cut off is kept aside. Returns the new sizes."""
    sizes = {}
    for segment in reversed(segments):  # so that, if this is interrupted, what is left still ends somewhere
        if segment.number < cut.segment:
            break
        offset = cut.offset if segment.number == cut.segment else FIRST_RECORD
        file = disk.open(segment.path)
        try:
            size = disk.size(file)
            if size > offset:
                base = f"{os.path.basename(segment.path)}.from-{offset}"  # noqa: PTH119
                target = _quarantine_path(disk, directory, base)
                with contextlib.suppress(OSError):  # a full disk: the end was never acknowledged, and is torn
                    _copy(disk, segment.path, target, offset)
                disk.truncate(file, offset)
                disk.sync(file)
                _log.warning(
                    "channel %s: the end of segment %d was torn by a crash: %d bytes, never acknowledged, are in %s",
                    name,
                    segment.number,
                    size - offset,
                    target,
                )
        finally:
            disk.close(file)
        sizes[segment.number] = min(size, offset)
    return sizes


def quarantine_copy(disk: Disk, name: str, directory: str, path: str) -> bool:
    """Keep a copy of a damaged segment; False if there is one already, or none could be made."""
    base = os.path.basename(path)  # noqa: PTH119
    if disk.exists(f"{directory}/{QUARANTINE}/{base}"):
        return False
    try:
        _copy(disk, path, _quarantine_path(disk, directory, base), 0)
    except OSError as error:
        _log.error("channel %s: no copy of the damaged %s could be kept: %s", name, path, error)
        return False
    return True


def _quarantine_path(disk: Disk, directory: str, name: str) -> str:
    """A name in the quarantine that nothing has."""
    disk.make_directory(f"{directory}/{QUARANTINE}")
    path, number = f"{directory}/{QUARANTINE}/{name}", 1
    while disk.exists(path):
        number += 1
        path = f"{directory}/{QUARANTINE}/{name}.{number}"
    return path


def _copy(disk: Disk, path: str, target: str, offset: int) -> None:
    source = disk.open(path)
    try:
        copy = disk.create(target)
        try:
            while data := disk.read(source, _BLOCK, offset):
                left = memoryview(data)
                while left:
                    left = left[disk.append(copy, bytes(left)) :]
                offset += len(data)
            disk.sync(copy)
        except OSError:
            with contextlib.suppress(OSError):
                disk.unlink(target)
            raise
        finally:
            disk.close(copy)
    finally:
        disk.close(source)
    disk.sync_directory(os.path.dirname(target))  # noqa: PTH120


def _sync(disk: Disk, path: str) -> None:
    file = disk.open(path)
    try:
        disk.sync(file)
    finally:
        disk.close(file)

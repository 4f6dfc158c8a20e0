"""Checkpoints: snapshots of the queue; the package's docstring describes the format.

They only shorten recovery: without one, the whole log is read.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from ....runtime.loggers import get_logger
from ....text.plural import counted
from ..log.run import Position
from ..queue.event_queue import Columns
from ..store.disk import Disk, opened_file
from ..store.format import FRAME_SIZE
from ..store.pointers import MOST_OFFSET, OFFSET_BITS
from ..store.segment import BEGUN

_log = get_logger("loghub.channel")

NAME = "checkpoint"
BACKUP_NAME = "checkpoint.backup"
NAMES = (NAME, BACKUP_NAME)
MAGIC = b"LHCHECKP"
VERSION = 1
_HEAD = struct.Struct("<8sH6xQQQQQQQ")
_SEGMENT = struct.Struct("<Q16s")
_CRC = struct.Struct("<I")
#: Size of an event in a checkpoint, bytes.
EVENT_SIZE = 28


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Content of one checkpoint.

    :ivar generation: the number of checkpoints before it.
    :ivar position: the log position to replay from.
    :ivar next_sequence: a number above the sequence numbers of all events before the position.
    :ivar next_transaction: a number above the ids of all transactions before the position.
    :ivar segments: the salt of each segment that existed.
    :ivar events: the events before the position that are in the channel.
    """

    generation: int
    position: Position
    next_sequence: int
    next_transaction: int
    segments: Mapping[int, bytes]
    events: Columns


def size_of(events: int, *, copies: int) -> int:
    """Return the approximate bytes that all copies of a checkpoint take while it is written."""
    return copies * (_HEAD.size + _CRC.size + EVENT_SIZE * events)


class BadCheckpointError(Exception):
    """Raised when a checkpoint cannot be used; the text says why."""


def encode(checkpoint: Checkpoint) -> bytes:
    """Encode a checkpoint file."""
    position, events = checkpoint.position, checkpoint.events
    head = _HEAD.pack(
        MAGIC,
        VERSION,
        checkpoint.generation,
        position.segment,
        position.offset,
        checkpoint.next_sequence,
        checkpoint.next_transaction,
        len(checkpoint.segments),
        len(events),
    )
    segments = b"".join([_SEGMENT.pack(number, salt) for number, salt in checkpoint.segments.items()])
    columns = [_to_bytes(column) for column in (events.sequences, events.pointers, events.lengths, events.times)]
    body = b"".join([head, segments, *columns])
    return body + _CRC.pack(crc32(body))


def decode(data: bytes) -> Checkpoint:
    """Decode a checkpoint file.

    :raises BadCheckpointError: the bytes are not a checkpoint.
    """
    if len(data) < _HEAD.size + _CRC.size:
        raise BadCheckpointError(f"it has only {counted(len(data), 'byte')}")
    if not data.startswith(MAGIC):
        raise BadCheckpointError("it is not a checkpoint")
    if _CRC.unpack_from(data, len(data) - _CRC.size)[0] != crc32(memoryview(data)[: -_CRC.size]):
        raise BadCheckpointError("its checksum is wrong")
    _, version, generation, segment, offset, sequence, transaction, segments, events = _HEAD.unpack_from(data)
    if version != VERSION:
        raise BadCheckpointError(f"it is of version {version}; this package reads version {VERSION}")
    start = _HEAD.size + segments * _SEGMENT.size
    if len(data) != start + events * EVENT_SIZE + _CRC.size:
        raise BadCheckpointError("its length does not fit its content")
    salts = dict(_SEGMENT.iter_unpack(data[_HEAD.size : start]))
    columns = Columns()
    for column, size in ((columns.sequences, 8), (columns.pointers, 8), (columns.lengths, 4), (columns.times, 8)):
        column.frombytes(data[start : start + size * events])
        if sys.byteorder == "big":
            column.byteswap()
        start += size * events
    return Checkpoint(generation, Position(segment, offset), sequence, transaction, salts, columns)


def _to_bytes(column: array[int] | array[float]) -> bytes:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def write(disk: Disk, directory: str, name: str, data: bytes) -> None:
    """Replace the checkpoint ``name``.

    :raises OSError: it could not be written; the previous one remains.
    """
    temporary = f"{directory}/{name}{BEGUN}"
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(temporary)
    try:
        _write_begun(disk, temporary, data)
        disk.rename(temporary, f"{directory}/{name}")
    except BaseException:
        with contextlib.suppress(OSError):  # the next opening removes it
            disk.unlink(temporary)
        raise
    disk.sync_directory(directory)


def _write_begun(disk: Disk, path: str, data: bytes) -> None:
    file = disk.create(path)
    try:
        left = memoryview(data)
        while left:
            left = left[disk.append(file, bytes(left[: 1 << 20])) :]
        disk.sync(file)
    finally:
        disk.close(file)


def load(disk: Disk, directory: str, name: str) -> Checkpoint | None:
    """Return the checkpoint of this name; None if there is none.

    :raises BadCheckpointError: it cannot be used.
    """
    path = f"{directory}/{name}"
    if not disk.exists(path):
        return None
    try:
        with opened_file(disk, path) as file:
            return decode(disk.read(file, disk.size(file), 0))
    except OSError as error:
        raise BadCheckpointError(f"it cannot be read: {error}") from error


def check_fits(checkpoint: Checkpoint, salts: Mapping[int, bytes], sizes: Mapping[int, int]) -> None:
    """Check that a checkpoint belongs to these segments.

    :param salts: the salt of each existing segment.
    :param sizes: the size of each in bytes.
    :raises BadCheckpointError: it belongs to other segments.
    """
    for number, salt in checkpoint.segments.items():
        if number in salts and salts[number] != salt:
            raise BadCheckpointError(f"it belongs to another segment {number}")
    position = checkpoint.position
    if position.segment not in salts:
        raise BadCheckpointError(f"segment {position.segment}, where replay would start, does not exist")
    if sizes[position.segment] < position.offset:
        raise BadCheckpointError(f"segment {position.segment} ends before its position {position.offset}")


def remove_backup(disk: Disk, directory: str) -> None:
    """Remove a second copy that is no longer kept: it would soon need segments that are deleted.

    :raises OSError: it could not be removed.
    """
    if disk.exists(f"{directory}/{BACKUP_NAME}"):
        disk.unlink(f"{directory}/{BACKUP_NAME}")
        disk.sync_directory(directory)


def readable(disk: Disk, directory: str) -> list[Checkpoint]:
    """Return the copies that can be read, whether or not they fit the segments."""
    found = []
    for copy in NAMES:
        with contextlib.suppress(BadCheckpointError):
            checkpoint = load(disk, directory, copy)
            if checkpoint is not None:
                found.append(checkpoint)
    return found


def missing_segments(disk: Disk, directory: str, salts: Mapping[int, bytes]) -> set[int]:
    """Return the segments that the newest readable checkpoint of this log needs and that do not exist.

    Segments are deleted only when no checkpoint needs them. So a directory is missing, or the files were removed.

    :param salts: the salt of each existing segment.
    """
    newest = newest_of_log(disk, directory, salts)
    return set() if newest is None else (newest.events.segments() | {newest.position.segment}) - salts.keys()


def newest_of_log(disk: Disk, directory: str, salts: Mapping[int, bytes]) -> Checkpoint | None:
    """Return the newest readable checkpoint of this log, even if it does not fit the segments.

    :param salts: the salt of each existing segment.
    """
    found = [
        checkpoint
        for checkpoint in readable(disk, directory)
        if all(salts.get(number, salt) == salt for number, salt in checkpoint.segments.items())
    ]
    return max(found, key=lambda checkpoint: checkpoint.generation, default=None)


def emptied(checkpoint: Checkpoint | None, sizes: Mapping[int, int]) -> dict[int, frozenset[int]]:
    """Return the segments that end before events that a checkpoint lists, and these events.

    No crash does that: a checkpoint is written when all its events are on the disk.

    :param sizes: the size of each existing segment in bytes.
    :returns: sequence numbers by segment number, including segments that do not exist.
    """
    if checkpoint is None:
        return {}
    position, events = checkpoint.position, checkpoint.events
    short = {position.segment} if sizes.get(position.segment, 0) < position.offset else set[int]()
    for pointer, length in zip(events.pointers, events.lengths, strict=True):
        if (pointer & MOST_OFFSET) + FRAME_SIZE + length > sizes.get(pointer >> OFFSET_BITS, 0):
            short.add(pointer >> OFFSET_BITS)
    gone: dict[int, set[int]] = {number: set() for number in short}
    for sequence, pointer in zip(events.sequences, events.pointers, strict=True):
        if pointer >> OFFSET_BITS in short:
            gone[pointer >> OFFSET_BITS].add(sequence)
    return {number: frozenset(sequences) for number, sequences in gone.items()}


def load_best(
    disk: Disk, directory: str, name: str, salts: Mapping[int, bytes], sizes: Mapping[int, int]
) -> tuple[Checkpoint | None, int]:
    """Return the newest usable checkpoint, and the number of unusable copies.

    :param name: the channel's name, for messages.
    """
    usable: list[Checkpoint] = []
    bad = 0
    for copy in NAMES:
        try:
            checkpoint = load(disk, directory, copy)
            if checkpoint is not None:
                check_fits(checkpoint, salts, sizes)
                usable.append(checkpoint)
        except BadCheckpointError as error:
            bad += 1
            _log.warning("channel %s: %s/%s cannot be used: %s", name, directory, copy, error)
    return max(usable, key=lambda checkpoint: checkpoint.generation, default=None), bad


def write_both(disk: Disk, directory: str, names: Sequence[str], data: bytes) -> OSError | None:
    """Write all copies, in order.

    :returns: why a copy other than the first could not be written; None if all are.
    :raises OSError: the first could not be written.
    """
    write(disk, directory, names[0], data)
    try:
        for name in names[1:]:
            write(disk, directory, name, data)
    except OSError as error:
        return error
    return None

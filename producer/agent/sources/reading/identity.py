"""By what a file is known again: the name under which its position is kept, and a note of what was seen of it.

A name is made when the first bytes of a file are taken, and never changes::

    1234.2049.0.1024.9ae0daaf
    │    │    │ │    └ CRC-32 of them
    │    │    │ └ how many first bytes tell it from others; at most 1024
    │    │    └ how many files were seen with this inode before
    │    └ device
    └ inode

A note holds what the name cannot, since it changes: the path, the size, and the marks of the place up to which it was
read (:mod:`producer.runtime.file_identity`). By one of them a copy is known that was made before the last bytes were
written.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ....runtime.file_identity import Mark, head_of, holds_marks, mark_at
from ....wire.compressed_heads import compression_of

#: First bytes of a file that its name has the checksum of, at most.
HEAD_BYTES = 1024


class FileName(NamedTuple):
    """See the module."""

    inode: int
    device: int
    generation: int
    head_size: int
    head: int

    def __str__(self) -> str:
        return f"{self.inode}.{self.device}.{self.generation}.{self.head_size}.{self.head:08x}"


def parse_name(text: str) -> FileName | None:
    """The name that a text is; None for something else."""
    parts = text.split(".")
    try:
        inode, device, generation, size = map(int, parts[:4])
        return FileName(inode, device, generation, size, int(parts[4], 16))
    except (ValueError, IndexError):
        return None


@dataclass(slots=True)
class Note:
    """What was seen of a file.

    :ivar path: where it was found first.
    :ivar place: where it was found last.
    :ivar group: to which it belongs.
    :ivar device: of the file that holds it now, as ``inode``: not the name's if that is a copy.
    :ivar size: bytes.
    :ivar end: up to there it was read, at least.
    :ivar tail_size: bytes before ``end``.
    :ivar tail: CRC-32 of them.
    :ivar gone: since when it cannot be found, seconds since the epoch; None if it can.
    :ivar marks: places before ``end``, in order.
    :ivar short: the file that holds it now is a copy that was made before all was read: it ends there.
    """

    path: str
    place: str
    group: str
    device: int
    inode: int
    size: int
    end: int
    tail_size: int
    tail: int
    gone: float | None = None
    marks: Sequence[Mark] = ()
    short: bool = False

    def dump(self) -> bytes:
        """As it is kept."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}).encode()


def parse_note(raw: bytes | None) -> Note | None:
    """The note that was kept; None if it is none."""
    try:
        if raw is None:
            return None
        note = Note(**json.loads(raw))
        note.marks = tuple(Mark(*mark) for mark in note.marks)
        return note
    except (ValueError, TypeError):
        return None


def holds(descriptor: int, name: FileName, note: Note | None, end: int) -> bool:
    """Whether a file holds the bytes that were read under a name.

    :param end: up to there a channel has it.
    """
    size = os.fstat(descriptor).st_size
    if size < max(end, name.head_size) or not _has_head(descriptor, name):
        return False
    if note is None:
        return True
    if size < note.end:
        return False
    tail = zlib.crc32(os.pread(descriptor, note.tail_size, note.end - note.tail_size))
    return tail == note.tail and holds_marks(descriptor, (mark for mark in note.marks if mark.end <= note.end))


def held_part(descriptor: int, name: FileName, note: Note) -> int | None:
    """The size of a file that holds the first part of what was read under a name, such as a copy that was made before
    the rest was written; None if it does not.
    """
    size = os.fstat(descriptor).st_size
    mark = max((mark for mark in note.marks if mark.end <= size), default=None)
    if mark is None or size < name.head_size or not _has_head(descriptor, name):
        return None
    return size if mark_at(descriptor, mark.end) == mark else None


def _has_head(descriptor: int, name: FileName) -> bool:
    return head_of(descriptor, name.head_size) == name.head


class Heads:
    """What a file begins with, to be compared with many names: it is read once for each size of their heads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._size = descriptor, os.fstat(descriptor).st_size
        self._heads: dict[int, int] = {}

    def are_of(self, name: FileName, *, if_shorter: bool = False) -> bool:
        """Whether the file begins as the one of a name did.

        :param if_shorter: what to say of a file that has fewer bytes.
        """
        size = name.head_size
        if self._size < size:
            return if_shorter
        if size not in self._heads:
            self._heads[size] = head_of(self._descriptor, size)
        return self._heads[size] == name.head


def is_compressed(descriptor: int) -> bool:
    """Whether the file's first bytes say so."""
    return compression_of(os.pread(descriptor, 16, 0)) is not None


def open_quickly(path: str) -> int:
    """A descriptor for reading; a named pipe does not hold it up."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOCTTY", 0))

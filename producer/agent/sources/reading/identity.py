"""Identity of files: the name under which a file's position is stored, and a note that helps to recognize the file.

A name is made when the first bytes of a file are read, and never changes::

    1234.2049.0.1024.9ae0daaf
    │    │    │ │    └ CRC-32 of the first bytes
    │    │    │ └ number of these first bytes, at most 1024
    │    │    └ number of earlier files with this inode
    │    └ device
    └ inode

A note holds the parts of a file's state that change: its path, its size, and marks at the place up to which it was
read (:mod:`producer.runtime.file_identity`). A mark identifies a copy that was made before the last bytes were written.
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

#: Maximum number of first bytes whose checksum is in a file's name.
HEAD_BYTES = 1024


class FileName(NamedTuple):
    """The name under which a file's position is stored."""

    inode: int
    device: int
    generation: int
    head_size: int
    head: int

    def __str__(self) -> str:
        return f"{self.inode}.{self.device}.{self.generation}.{self.head_size}.{self.head:08x}"


def parse_name(text: str) -> FileName | None:
    """Parse a name; return None for another text."""
    parts = text.split(".")
    try:
        inode, device, generation, size = map(int, parts[:4])
        return FileName(inode, device, generation, size, int(parts[4], 16))
    except (ValueError, IndexError):
        return None


@dataclass(slots=True)
class Note:
    """The observed state of a file.

    :ivar path: the path where it was found first.
    :ivar place: the path where it was found last.
    :ivar group: the file's group.
    :ivar device: device of the file that holds the bytes. If that file is a copy, device and inode are not those in the
        name.
    :ivar size: bytes.
    :ivar end: the lowest position up to which it was read.
    :ivar tail_size: number of bytes before ``end`` in ``tail``.
    :ivar tail: CRC-32 of these bytes.
    :ivar gone: time at which it was found missing, seconds since the epoch; None if it exists.
    :ivar marks: marks before ``end``, in order.
    :ivar short: True if the file is a copy made before all was read: it ends before ``end``.
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
        """Return the note as it is stored."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}).encode()


def parse_note(raw: bytes | None) -> Note | None:
    """Parse a stored note; return None if it is missing or invalid."""
    try:
        if raw is None:
            return None
        note = Note(**json.loads(raw))
        note.marks = tuple(Mark(*mark) for mark in note.marks)
        return note
    except (ValueError, TypeError):
        return None


def holds(descriptor: int, name: FileName, note: Note | None, end: int) -> bool:
    """Return True if a file holds the bytes that were read under a name.

    :param end: a channel's position in the file.
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
    """Return the size of a file that holds the first part of the bytes read under a name; else None.

    Such a file is a copy that was made before the rest was written.
    """
    size = os.fstat(descriptor).st_size
    mark = max((mark for mark in note.marks if mark.end <= size), default=None)
    if mark is None or size < name.head_size or not _has_head(descriptor, name):
        return None
    return size if mark_at(descriptor, mark.end) == mark else None


def _has_head(descriptor: int, name: FileName) -> bool:
    return head_of(descriptor, name.head_size) == name.head


class Heads:
    """The first bytes of a file, compared with many names; read once for each size."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._size = descriptor, os.fstat(descriptor).st_size
        self._heads: dict[int, int] = {}

    def are_of(self, name: FileName, *, if_shorter: bool = False) -> bool:
        """Return True if the file begins as the named file did.

        :param if_shorter: the result for a file with fewer bytes than the name needs.
        """
        size = name.head_size
        if self._size < size:
            return if_shorter
        if size not in self._heads:
            self._heads[size] = head_of(self._descriptor, size)
        return self._heads[size] == name.head


def is_compressed(descriptor: int) -> bool:
    """Return True if the file's first bytes are those of a compressed format."""
    return compression_of(os.pread(descriptor, 16, 0)) is not None


def open_quickly(path: str) -> int:
    """Open a file for reading; a named pipe does not block."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOCTTY", 0))

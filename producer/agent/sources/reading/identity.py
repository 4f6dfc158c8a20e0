"""By what a file is known again: the name under which its position is kept, and a note of what was seen of it.

A name is made when the first bytes of a file are taken, and never changes::

    1234.2049.0.1024.9ae0daaf
    │    │    │ │    └ CRC-32 of them
    │    │    │ └ how many first bytes tell it from others; at most 1024
    │    │    └ how many files were seen with this inode before
    │    └ device
    └ inode

A note holds what the name cannot, since it changes: the path, the size, and the CRC-32 of the last bytes before a place
up to which it was read. So the part of the file that is known grows with the file.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass
from typing import NamedTuple

from ....wire.compressed_heads import compression_of

HEAD_BYTES = 1024
TAIL_BYTES = 256

#: Device and inode.
Key = tuple[int, int]


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

    def dump(self) -> bytes:
        """As it is kept."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}).encode()


def parse_note(raw: bytes | None) -> Note | None:
    """The note that was kept; None if it is none."""
    try:
        return None if raw is None else Note(**json.loads(raw))
    except (ValueError, TypeError):
        return None


def holds(descriptor: int, name: FileName, note: Note | None, end: int) -> bool:
    """Whether a file holds the bytes that were read under a name.

    :param end: up to there a channel has it.
    """
    size = os.fstat(descriptor).st_size
    if size < max(end, name.head_size) or zlib.crc32(os.pread(descriptor, name.head_size, 0)) != name.head:
        return False
    if note is None:
        return True
    if size < note.end:
        return False
    return zlib.crc32(os.pread(descriptor, note.tail_size, note.end - note.tail_size)) == note.tail


def is_compressed(descriptor: int) -> bool:
    """Whether the file's first bytes say so."""
    return compression_of(os.pread(descriptor, 16, 0)) is not None


def open_quickly(path: str) -> int:
    """A descriptor for reading; a named pipe does not hold it up."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOCTTY", 0))

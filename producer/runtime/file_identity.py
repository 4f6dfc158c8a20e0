"""File identity: recognise a file by its device, its inode, and the bytes before its read offset.

An inode alone is not enough: two volumes have the same ones, and a new file gets that of a deleted one. So bytes are
compared, too: the first ones, and short windows that end at **marks**. The last mark is the read offset, and each mark
before it is about four times as far away::

    0 ..[head].. ... [256]. ... .[256]...[256][256]| unread bytes
                        16 KiB      4 KiB   256    0   bytes before the offset

So the compared part grows with the file. A file that was truncated and rewritten beyond the offset is distinguished
from one that has grown, unless it has the same bytes in all windows. ``ship --follow``, ``taildir`` and ``spooldir``
use this module.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

#: Bytes of a window.
TAIL_BYTES = 256
#: Ratio of the distances of two neighbouring marks from the end, and the largest number of marks.
_MARK_FACTOR, _MOST_MARKS = 4, 12

#: Device and inode.
Key = tuple[int, int]


class Mark(NamedTuple):
    """A read offset of a file.

    :ivar end: the byte after the window.
    :ivar tail: CRC-32 of the window: the last bytes before ``end``, at most 256.
    """

    end: int
    tail: int


def head_of(descriptor: int, size: int) -> int:
    """Return the CRC-32 of the first bytes of a file.

    :raises OSError: the file cannot be read.
    """
    return zlib.crc32(os.pread(descriptor, size, 0))


def mark_at(descriptor: int, end: int) -> Mark:
    """Read the mark at an offset.

    :raises OSError: the file cannot be read.
    """
    seen = min(TAIL_BYTES, end)
    return Mark(end, zlib.crc32(os.pread(descriptor, seen, end - seen)))


def marks_at(descriptor: int, end: int) -> tuple[Mark, ...]:
    """Read all marks of a file up to an offset, in order.

    :raises OSError: the file cannot be read.
    """
    return tuple(mark_at(descriptor, end - distance) for distance in reversed(_distances(end)))


def holds_marks(descriptor: int, marks: Iterable[Mark]) -> bool:
    """Return True if a file has the bytes of all marks.

    :raises OSError: the file cannot be read.
    """
    return all(mark_at(descriptor, mark.end) == mark for mark in marks)


def marks_of(tail: bytes, data: bytes, end: int, earlier: Sequence[Mark]) -> tuple[Mark, ...]:
    """Compute the marks of a file from a block that was just read.

    :param tail: the bytes before the block, at most 256.
    :param data: the block.
    :param end: the byte after the block.
    :param earlier: the marks before the block.
    """
    new = []
    for distance in _distances(len(data)):
        at = len(data) - distance
        seen = data[at - TAIL_BYTES : at] if at >= TAIL_BYTES else (tail + data[:at])[-TAIL_BYTES:]
        new.append(Mark(end - distance, zlib.crc32(seen)))
    return _thinned([*earlier, *reversed(new)])


def _distances(size: int) -> list[int]:
    """Return the distances of the marks from the end of ``size`` bytes."""
    found: list[int] = []
    distance = 0
    while distance < size and len(found) < _MOST_MARKS:
        found.append(distance)
        distance = max(TAIL_BYTES, _MARK_FACTOR * distance)
    return found


def _thinned(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    kept: list[Mark] = []
    least = 0
    for mark in reversed(marks):
        distance = marks[-1].end - mark.end
        if distance >= least and len(kept) < _MOST_MARKS:
            kept.append(mark)
            least = max(TAIL_BYTES, _MARK_FACTOR * distance)
    return tuple(reversed(kept))

"""Divides files into partitions: each is a list of byte ranges that one task reads and ships.

Large plain files are cut into ranges of ``partition_bytes``. Small files share a partition up to that size. A
compressed file is one range, because it can only be read from its start. So is a file of a server without range
requests. This makes tasks about equally long, and limits the bytes that are sent again after a failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .log_file import LogFile

#: The default size of a partition, bytes on disk.
PARTITION_BYTES = 64 << 20

# Maximum ranges of a task: each small file takes a request, so a task of very many files would be long.
_MOST_RANGES = 1_000
# Minimum size of a partition, bytes: the overhead of a task exceeds the gain below it.
_SMALLEST_PARTITION = 256 << 10


@dataclass(frozen=True, slots=True)
class Split:
    """A range of a file: the lines that begin in it.

    :ivar file: the file, as it was when the plan was made.
    :ivar start: the first byte of the range.
    :ivar end: the byte after the range.
    :ivar begins_line: True if a line begins at ``start`` even if the byte before is not a line end.
    """

    file: LogFile
    start: int
    end: int
    begins_line: bool = False

    @property
    def size(self) -> int:
        """Bytes of the range, on disk."""
        return self.end - self.start


def plan(files: Iterable[LogFile], *, partition_bytes: int = PARTITION_BYTES) -> list[tuple[Split, ...]]:
    """Return the partitions of ``files``, in order; an empty file has none.

    :param files: the files to divide.
    :param partition_bytes: the size of a partition, bytes on disk; a compressed file may be larger.
    """
    return pack(
        (split for file in files for split in cut(file, 0, file.size, partition_bytes=partition_bytes)),
        partition_bytes=partition_bytes,
    )


def partition_size(total_bytes: int, parallelism: int, most: int = PARTITION_BYTES) -> int:
    """Return a partition size at which even a small job keeps every core busy.

    :param total_bytes: the bytes to ship, on disk.
    :param parallelism: number of concurrent tasks.
    :param most: maximum size of a partition, bytes.
    """
    return max(min(most, total_bytes // (2 * max(parallelism, 1))), min(most, _SMALLEST_PARTITION))


def pack(splits: Iterable[Split], *, partition_bytes: int = PARTITION_BYTES) -> list[tuple[Split, ...]]:
    """Group ranges into partitions of up to ``partition_bytes``."""
    partitions: list[tuple[Split, ...]] = []
    current: list[Split] = []
    current_bytes = 0
    for split in splits:
        size = split.size
        if current and (current_bytes + size > partition_bytes or len(current) == _MOST_RANGES):
            partitions.append(tuple(current))
            current, current_bytes = [], 0
        current.append(split)
        current_bytes += size
    return [*partitions, tuple(current)] if current else partitions


def cut(file: LogFile, start: int, end: int, *, partition_bytes: int = PARTITION_BYTES) -> Iterator[Split]:
    """Yield ranges of ``file`` from ``start`` to ``end``, of ``partition_bytes`` each; a line begins at ``start``."""
    if file.whole:
        partition_bytes = max(end - start, 1)
    for first in range(start, end, partition_bytes):
        # All bytes before `start` were shipped, possibly up to the middle of a line that was complete by its age.
        yield Split(file, first, min(first + partition_bytes, end), begins_line=first == start)

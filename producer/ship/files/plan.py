"""Divides files into partitions: each a list of byte ranges that one task reads and ships.

Large plain files are cut into ranges of ``partition_bytes``, small files share a partition up to that size, and a
compressed file is one range, because it can only be read from its start, and so is one of a server that knows no
ranges. A task is thus about equally long whatever the files are like, and what has to be sent again when it fails is
bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .log_file import LogFile

#: What a partition holds if not told otherwise, bytes on disk.
PARTITION_BYTES = 64 << 20

# Ranges of a task: each small file takes a request of its own, and a task of very many would be long.
_MOST_RANGES = 1_000
# Less than this is not worth a task.
_SMALLEST_PARTITION = 256 << 10


@dataclass(frozen=True, slots=True)
class Split:
    """A range of a file: the lines that begin in it.

    :ivar file: the file, as it was when the plan was made.
    :ivar start: the first byte of the range.
    :ivar end: the byte after it.
    :ivar begins_line: a line begins at ``start``, also if the byte before is no line end.
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
    """The partitions of ``files``, in their order; a file without a byte has no partition.

    :param files: the files to divide.
    :param partition_bytes: what a partition holds, bytes on disk; a compressed file may be larger.
    """
    return pack(
        (split for file in files for split in cut(file, 0, file.size, partition_bytes=partition_bytes)),
        partition_bytes=partition_bytes,
    )


def partition_size(total_bytes: int, parallelism: int, most: int = PARTITION_BYTES) -> int:
    """How much a partition should hold, so that a small job too keeps every core busy.

    :param total_bytes: what there is to ship, bytes on disk.
    :param parallelism: tasks that run at a time.
    :param most: the largest partition, bytes.
    """
    return max(min(most, total_bytes // (2 * max(parallelism, 1))), min(most, _SMALLEST_PARTITION))


def pack(splits: Iterable[Split], *, partition_bytes: int = PARTITION_BYTES) -> list[tuple[Split, ...]]:
    """Put ranges together until a partition is full."""
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
    """The ranges of ``file`` between two bytes, each of at most ``partition_bytes``; a line begins at ``start``."""
    if file.whole:
        partition_bytes = max(end - start, 1)
    for first in range(start, end, partition_bytes):
        # All before `start` was shipped, perhaps up to the midst of a line that had settled.
        yield Split(file, first, min(first + partition_bytes, end), begins_line=first == start)

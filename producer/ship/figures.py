"""What a job has done: counted where a portion is shipped, and added up where the job is watched."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Figures:
    """Figures of portions, also of those that failed: of their lines, those that were acknowledged.

    :ivar files: files whose first byte was read.
    :ivar file_bytes: bytes of files, as they lie on disk.
    :ivar lines: lines acknowledged.
    :ivar line_bytes: bytes of those lines, without line ends.
    :ivar unparsed: of them, lines that the parser did not know, shipped as text.
    :ivar long_lines: lines longer than the limit, shipped in pieces.
    :ivar records: records acknowledged; each piece of a long line is one.
    :ivar batches: requests that were acknowledged.
    :ivar attempts: requests that those took.
    :ivar retries: requests beyond the first of each batch.
    :ivar skipped_nuls: NULs between lines that were skipped.
    :ivar memory_wait_ms: how long was waited for the producer's memory, milliseconds.
    :ivar already_stored: records of them that an earlier request had stored.
    :ivar failed_attempts: attempts at portions that failed.
    :ivar ended: the numbers of those portions that have one, and all of which is acknowledged.
    :ivar lost: sentences about bytes that cannot be read: they were gone, or are damaged.
    :ivar failed: why portions have failed, after all attempts.
    """

    files: int = 0
    file_bytes: int = 0
    lines: int = 0
    line_bytes: int = 0
    unparsed: int = 0
    long_lines: int = 0
    records: int = 0
    batches: int = 0
    attempts: int = 0
    retries: int = 0
    skipped_nuls: int = 0
    memory_wait_ms: int = 0
    already_stored: int = 0
    failed_attempts: int = 0
    ended: tuple[int, ...] = ()
    lost: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    def __add__(self, other: Figures) -> Figures:
        return Figures(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(Figures)))

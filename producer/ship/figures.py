"""Counters of a job, counted for each portion and added up for the job."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Figures:
    """Counters of portions, including failed ones: of their lines, only acknowledged ones count.

    :ivar files: files whose first byte was read.
    :ivar file_bytes: bytes of files, as stored on disk.
    :ivar lines: lines acknowledged.
    :ivar line_bytes: bytes of these lines, without line ends.
    :ivar unparsed: acknowledged lines that the parser did not recognise, shipped as text.
    :ivar long_lines: lines longer than the limit, shipped in pieces.
    :ivar records: records acknowledged; each piece of a long line is one.
    :ivar batches: requests acknowledged, without retries.
    :ivar attempts: requests that these batches took, with retries.
    :ivar retries: requests beyond the first of each batch.
    :ivar skipped_nuls: NULs skipped between lines.
    :ivar memory_wait_ms: time spent waiting for the producer's memory, milliseconds.
    :ivar already_stored: records that an earlier request had stored.
    :ivar failed_attempts: failed attempts at portions.
    :ivar ended: the numbers of completed portions, if they have one.
    :ivar lost: a sentence for each range of bytes that cannot be read, because it is gone or damaged.
    :ivar failed: the reason of each portion that failed after all attempts.
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

"""The job itself: ranges of files are read, parsed and sent in the workers, a partition a task.

What crosses to the workers is configuration (:class:`ShipJob`) and the plan, never a producer. A task that fails is run
again by Spark from its first line: delivery is at least once, and a record's file, offset and part tell its copies.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..config import ProducerConfig, ProjectConfig
from .compressed import DAMAGE, decompressing
from .counts import Counts
from .errors import FileChangedError
from .files import open_file
from .lines import Line, lines_of
from .parsers import Parser, make_parser
from .plan import Split
from .record import as_text, to_record
from .sender import ACK_TIMEOUT, PartitionSender
from .text import readable

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext

#: A longer line is shipped in pieces of this size. A piece of bytes that are not UTF-8 grows by 5.4 as a record
#: (escaped, and in base64 beside it), and must still fit into the largest batch, 8 MiB.
MAX_LINE_BYTES = 1_500_000

# A record may fill a batch but for the group's own fields.
_MAX_RECORD_BYTES = (8 << 20) - (64 << 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShipJob:
    """What the workers need to know.

    :ivar project: where the records go, and who signs for them.
    :ivar logstore: the logstore.
    :ivar topic: the records' topic.
    :ivar source: the records' source; None is the worker's address.
    :ivar parser: a name of :data:`~producer.spark.parsers.PARSER_NAMES`.
    :ivar pattern: the regular expression of the parser ``regex``.
    :ivar max_line_bytes: longer lines are shipped in pieces.
    :ivar config: options of the producer.
    :ivar ack_timeout: how long a task waits for an acknowledgement, seconds.
    """

    project: ProjectConfig
    logstore: str
    topic: str = ""
    source: str | None = None
    parser: str = "auto"
    pattern: str | None = None
    max_line_bytes: int = MAX_LINE_BYTES
    config: ProducerConfig
    ack_timeout: float = ACK_TIMEOUT


def ship(
    context: SparkContext, partitions: Sequence[tuple[Split, ...]], job: ShipJob, counts: Accumulator[Counts]
) -> None:
    """Ship every partition; returns when each record is acknowledged.

    :param context: the Spark context.
    :param partitions: what :func:`~producer.spark.plan.plan` made.
    :param job: where to, and how.
    :param counts: grows as tasks end.
    """
    if partitions:
        context.parallelize(partitions, len(partitions)).foreachPartition(ShipPartition(job, counts))


class ShipPartition:
    """The function that ``foreachPartition`` runs in the workers."""

    def __init__(self, job: ShipJob, counts: Accumulator[Counts]) -> None:
        self._job = job
        self._counts = counts

    def __call__(self, partitions: Iterable[tuple[Split, ...]]) -> None:
        parser = make_parser(self._job.parser, self._job.pattern)
        for splits in partitions:
            self._counts.add(ship_splits(splits, self._job, parser))


def ship_splits(splits: Iterable[Split], job: ShipJob, parser: Parser) -> Counts:
    """Read, parse and send some ranges of files, and wait until all of it is acknowledged.

    :raises DeliveryFailedError: a record was not.
    :raises FileChangedError: a file is shorter than planned, gone, or damaged.
    """
    counts = Counts()
    sender = PartitionSender(
        job.project,
        job.logstore,
        topic=job.topic,
        source=job.source,
        config=job.config,
        ack_timeout=job.ack_timeout,
    )
    for split in splits:
        counts.files += split.start == 0
        counts.file_bytes += split.size
        _send_split(split, job.max_line_bytes, parser, sender, counts)
    delivered = sender.finish()
    counts.records, counts.batches = delivered.records, delivered.batches
    counts.attempts, counts.retries = delivered.attempts, delivered.retries
    return counts


def _send_split(split: Split, max_line_bytes: int, parser: Parser, sender: PartitionSender, counts: Counts) -> None:
    path = readable(split.file.path)
    for line in read_split(split, max_line_bytes):
        fields, parsed = to_record(line, path, parser)
        if len(line.data) > _MAX_RECORD_BYTES // 8 and _record_bytes(fields) > _MAX_RECORD_BYTES:
            fields, parsed = as_text(fields), False
        sender.send(fields, position=Position(path, line.offset))
        counts.line_bytes += len(line.data)
        # The pieces of a long line are one line.
        if line.part <= 1:
            counts.lines += 1
            counts.unparsed += not parsed
            counts.long_lines += line.part


class Position(NamedTuple):
    """Where a record came from, for people.

    :ivar path: the file.
    :ivar offset: where its line begins, bytes.
    """

    path: str
    offset: int

    def __str__(self) -> str:
        return f"{self.path} byte {self.offset}"


def _record_bytes(fields: dict[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) for name, value in fields.items())


def read_split(split: Split, max_line_bytes: int) -> Iterator[Line]:
    """The lines that begin in a range of a file.

    :raises FileChangedError: the file is shorter than planned, gone, or damaged.
    """
    path, compression = split.file.path, split.file.compression
    try:
        with open_file(split.file) as file:
            _check_length(file.fileno(), split)
            if compression is None:
                yield from _plain_lines(file, split, max_line_bytes)
            else:
                yield from _decompressed_lines(decompressing(file, compression), split, max_line_bytes)
    except OSError as error:
        raise FileChangedError(f"{path}: cannot be read (any more): {error.strerror or error}") from error


def _plain_lines(file: io.BufferedIOBase, split: Split, max_line_bytes: int) -> Iterator[Line]:
    return lines_of(
        file,
        split.start,
        split.end,
        limit=split.file.size,
        max_line_bytes=max_line_bytes,
        begins_line=split.begins_line,
    )


def _check_length(descriptor: int, split: Split) -> None:
    size = os.fstat(descriptor).st_size
    if size < split.file.size:
        raise FileChangedError(
            f"{split.file.path}: has {size} bytes and had {split.file.size} when the job began: it was truncated, and "
            "lines were lost before they could be read. Rotate by renaming, or ship only files that are complete"
        )


def _decompressed_lines(file: io.BufferedIOBase, split: Split, max_line_bytes: int) -> Iterator[Line]:
    """The lines of a compressed file; the error for a damaged one says how far it could be read."""
    last = None
    try:
        for line in lines_of(file, 0, None, limit=None, max_line_bytes=max_line_bytes):
            last = line
            yield line
    except DAMAGE as error:
        read = "nothing could be read" if last is None else f"the last readable line begins at byte {last.offset}"
        raise FileChangedError(
            f"{split.file.path}: damaged or incomplete {split.file.compression} data ({error}); {read}. "
            "Repair it, or leave it out with --exclude"
        ) from error

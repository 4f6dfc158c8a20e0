"""The reading half of the job: in the workers, ranges of files become columns of records, a portion a task.

What crosses to the workers is the plan and the parser's name. A task that fails is run again by Spark from its first
line: delivery is at least once, and a record's file, offset and part tell its copies.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ..spark.text import readable
from .counts import Counts
from .files.plan import Split
from .job import ShipJob
from .lines.columns import COLUMNS, LineColumns
from .lines.parsers import Parser, make_parser
from .lines.record import to_record
from .lines.split_lines import read_split

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession

#: The column of packed portions in a stream.
PORTION = "portion"

# A record may fill a batch but for the group's own fields.
_MAX_RECORD_BYTES = (8 << 20) - (64 << 10)
# No shorter one can come to that.
_LONG_LINE_BYTES = _MAX_RECORD_BYTES // 8


@dataclass(frozen=True, slots=True)
class Portion:
    """What one task reads.

    :ivar splits: ranges of files.
    :ivar lost: sentences about ranges that cannot be read any more.
    """

    splits: tuple[Split, ...]
    lost: tuple[str, ...] = ()

    def packed(self) -> bytes:
        """As the value of a column. Columns of paths would not do: a path may not be UTF-8."""
        return pickle.dumps(self)


def frame_of_plan(
    session: SparkSession, portions: Sequence[Portion], job: ShipJob, counts: Accumulator[Counts]
) -> DataFrame:
    """The records of all portions, a partition for each; at least one portion.

    :param counts: grows as tasks end.
    """
    rows = session.range(0, len(portions), 1, len(portions))
    return rows.mapInArrow(_ReadPortions(job, counts, [portion.packed() for portion in portions]), COLUMNS)


def frame_of_stream(stream: DataFrame, job: ShipJob, counts: Accumulator[Counts]) -> DataFrame:
    """The records of a stream whose only column is :data:`PORTION`."""
    return stream.mapInArrow(_ReadPortions(job, counts, None), COLUMNS)


class _ReadPortions:
    """The function that ``mapInArrow`` runs in the workers.

    :param plan: the packed portions that rows name by number; None if the rows are the portions.
    """

    def __init__(self, job: ShipJob, counts: Accumulator[Counts], plan: Sequence[bytes] | None) -> None:
        # Not the job: its credentials are nothing that reading needs.
        self._parser = job.parser, job.pattern
        self._max_line_bytes = job.max_line_bytes
        self._counts = counts
        self._plan = plan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parser = make_parser(*self._parser)
        for batch in batches:
            for value in batch.column(0).to_pylist():
                packed = value if self._plan is None else self._plan[value]
                counts = Counts()
                yield from read_portion(pickle.loads(packed), parser, self._max_line_bytes, counts)  # noqa: S301
                self._counts.add(counts)


def read_portion(portion: Portion, parser: Parser, max_line_bytes: int, counts: Counts) -> Iterator[pa.RecordBatch]:
    """Read and parse ranges of files.

    :param counts: grows.
    :raises FileChangedError: a file is shorter than planned, gone, or damaged.
    """
    counts.lost += portion.lost
    columns = LineColumns(counts)
    for split in portion.splits:
        counts.files += split.start == 0
        counts.file_bytes += split.size
        path = readable(split.file.path)
        columns.begin(path)
        for line in read_split(split, max_line_bytes):
            record = to_record(line, parser)
            if len(line.data) > _LONG_LINE_BYTES and record.size + len(path) > _MAX_RECORD_BYTES:
                record = record.as_text()
            if columns.add(line, record):
                yield from columns.take()
    yield from columns.take()

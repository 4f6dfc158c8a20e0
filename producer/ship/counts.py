"""What a job has read, counted in the workers and added up in the driver by a Spark accumulator."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from pyspark.accumulators import AccumulatorParam

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext


@dataclass(slots=True)
class Counts:
    """Totals of the tasks that ended well; Spark does not count what a failed attempt of a task did.

    :ivar files: files whose first byte was read.
    :ivar file_bytes: bytes of files, as they lie on disk.
    :ivar lines: lines read.
    :ivar line_bytes: bytes of those lines, without line ends.
    :ivar unparsed: lines that the parser did not know, shipped as text.
    :ivar long_lines: lines longer than the limit, shipped in pieces.
    :ivar lost: sentences about bytes that were gone before they could be read.
    """

    files: int = 0
    file_bytes: int = 0
    lines: int = 0
    line_bytes: int = 0
    unparsed: int = 0
    long_lines: int = 0
    lost: tuple[str, ...] = ()

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(Counts)))


class _CountsParam(AccumulatorParam[Counts]):
    def zero(self, value: Counts) -> Counts:  # noqa: ARG002  (Spark's signature)
        return Counts()

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:  # noqa: N802  (Spark's name)
        return value1 + value2


def counts_accumulator(context: SparkContext) -> Accumulator[Counts]:
    """A new accumulator of :class:`Counts`, at zero."""
    return context.accumulator(Counts(), _CountsParam())

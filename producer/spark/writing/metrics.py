"""What a task of a write did: it travels to the driver as Spark's commit message, and is summed up there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self

from pyspark.sql.datasource import WriterCommitMessage

from ...runtime.loggers import get_logger

_log = get_logger("loghub.spark.write")


@dataclass(slots=True)
class WriteMetrics(WriterCommitMessage):
    """Counts of one task, or of all tasks that ended well.

    :ivar rows: rows acknowledged, by this task or, for ``exactlyOnce``, by another attempt at it.
    :ivar bytes: their bytes as encoded, before compression.
    :ivar batches: requests that were acknowledged.
    :ivar attempts: requests that those took.
    :ivar retries: requests beyond the first of each batch.
    :ivar already_written: rows that LogHub had from another attempt (``exactlyOnce``).
    :ivar dead_lettered: refused rows that went to the dead letters.
    :ivar dropped: refused rows that were dropped.
    :ivar memory_wait_ms: how long tasks waited for the producer's memory, milliseconds.
    :ivar tasks: tasks.
    """

    rows: int = 0
    bytes: int = 0
    batches: int = 0
    attempts: int = 0
    retries: int = 0
    already_written: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    memory_wait_ms: int = 0
    tasks: int = 0

    def __add__(self, other: WriteMetrics) -> Self:
        return type(self)(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(WriteMetrics)))

    @classmethod
    def sum(cls, parts: Iterable[WriteMetrics]) -> Self:
        """The total of several tasks."""
        total = cls()
        for part in parts:
            total += part
        return total


def report(metrics: WriteMetrics, what: str, path: str | None, **names: object) -> None:
    """Tell of a write that ended: in the log, and as a line of JSON where there is a file for it.

    :param what: the write, for the log.
    :param path: the file, to which the line is added; None for no file.
    :param names: what else stands in the line, such as the number of the micro-batch.
    """
    counts = {name: value for name, value in asdict(metrics).items() if value or name == "rows"}
    _log.info("%s: %s", what, ", ".join(f"{name} {value}" for name, value in counts.items()))
    if path is None:
        return
    line = json.dumps({"time": round(time.time(), 3), **names, **asdict(metrics)})
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:  # the rows are delivered: to fail now would have them sent again
        _log.warning("metricsPath %s cannot be written, the counts are lost: %s; %s", path, error, line)


def read_metrics(path: str | Path) -> list[WriteMetrics]:
    """What the writes reported in a file of metrics, in order; none if there is no file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    names = {item.name for item in fields(WriteMetrics)}
    # A line without an end is being written.
    rows = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return [WriteMetrics(**{name: value for name, value in row.items() if name in names}) for row in rows]

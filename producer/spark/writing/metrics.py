"""The metrics of a write: each task sends its own to the driver as Spark's commit message, which adds them up."""

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
    """The counts of one task, or of all successful tasks.

    :ivar rows: rows acknowledged, by this task or, for ``exactlyOnce``, by another attempt at it.
    :ivar bytes: their encoded bytes, before compression.
    :ivar batches: acknowledged batches.
    :ivar attempts: requests of these batches.
    :ivar retries: requests after the first one of each batch.
    :ivar already_written: rows that another attempt had already stored (``exactlyOnce``).
    :ivar dead_lettered: refused rows that were stored as dead letters.
    :ivar dropped: refused rows that were dropped.
    :ivar memory_wait_ms: the time that tasks waited for the producer's memory, milliseconds.
    :ivar tasks: successful tasks.
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
        """Return the total of several tasks."""
        total = cls()
        for part in parts:
            total += part
        return total


def report(metrics: WriteMetrics, title: str, path: str | None, **names: object) -> None:
    """Report a write in the log, and as a line of JSON in a file.

    :param title: the write, for the log.
    :param path: the file to append to; None for no file.
    :param names: further entries of the line, such as the number of the micro-batch.
    """
    counts = {name: value for name, value in asdict(metrics).items() if value or name == "rows"}
    _log.info("%s: %s", title, ", ".join(f"{name} {value}" for name, value in counts.items()))
    if path is None:
        return
    line = json.dumps({"time": round(time.time(), 3), **names, **asdict(metrics)})
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:  # no failure: the rows are delivered, and Spark would send them again
        _log.warning("metricsPath %s cannot be written, the counts are lost: %s; %s", path, error, line)


def read_metrics(path: str | Path) -> list[WriteMetrics]:
    """Return the metrics of the writes in a file, in order; an empty list if there is no file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    names = {item.name for item in fields(WriteMetrics)}
    # The last line is incomplete if it has no line end.
    rows = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return [WriteMetrics(**{name: value for name, value in row.items() if name in names}) for row in rows]

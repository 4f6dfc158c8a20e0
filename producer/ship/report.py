"""What a person sees of a job: a progress bar while it runs, a table at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..spark.writing.metrics import WriteMetrics
from .counts import Counts


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the singular or the plural: ``1 file``, ``1,000 files``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


@dataclass(frozen=True, slots=True)
class Shipment:
    """How a job ended.

    :ivar counts: what the tasks that ended well have read.
    :ivar written: what they have written.
    :ivar seconds: how long it ran.
    :ivar failed_tasks: attempts of tasks that failed; Spark ran them again, up to its limit.
    :ivar failure: why the job failed; None if every record was acknowledged.
    """

    counts: Counts
    written: WriteMetrics
    seconds: float
    failed_tasks: int = 0
    failure: str | None = None


class ProgressBar:
    """The bar, by bytes of files whose lines are all acknowledged."""

    def __init__(self, progress: Progress, total_bytes: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task("shipping", total=total_bytes, detail="")

    def show(self, counts: Counts, failed_tasks: int = 0, retries: int | None = None) -> None:
        """Bring the bar up to date.

        :param counts: what was read and acknowledged.
        :param failed_tasks: attempts of tasks that failed.
        :param retries: of requests; None where that is known only at the end.
        """
        detail = f"{counted(counts.lines, 'line')}, {decimal(counts.file_bytes)}"
        if retries is not None:
            detail += f", retries: {retries:,}"
        if failed_tasks:
            detail += f", {counted(failed_tasks, 'task attempt')} failed"
        self._progress.update(self._task, completed=counts.file_bytes, detail=detail)


@contextmanager
def progress_bar(console: Console, total_bytes: int | None) -> Iterator[ProgressBar]:
    """Show a bar until the block is left; nothing but its last state if the console is no terminal.

    :param console: where to.
    :param total_bytes: what there is to ship, bytes of files; None if that is not known.
    """
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    shown = columns if total_bytes is not None else columns[:2]
    with Progress(*shown, TextColumn("{task.fields[detail]}"), TimeElapsedColumn(), console=console) as progress:
        yield ProgressBar(progress, total_bytes)


def summary(shipment: Shipment) -> Table:
    """The table of what was shipped."""
    counts, written = shipment.counts, shipment.written
    rows = {
        "files": f"{counts.files:,}",
        "lines": f"{counts.lines:,}",
        "bytes": f"{counts.line_bytes:,}",
        "records acknowledged": f"{written.rows:,}",
        "batches": f"{written.batches:,}",
        "attempts": f"{written.attempts:,}",
        "retries": f"{written.retries:,}",
        "waited for memory": f"{written.memory_wait_ms / 1000:.1f} s",
        "rate": _rate(shipment),
        "failures": _failures(shipment),
        "unparsed lines (shipped as text)": f"{counts.unparsed:,}",
    }
    if counts.long_lines:
        rows["long lines (shipped in pieces)"] = f"{counts.long_lines:,}"
    table = Table(show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _rate(shipment: Shipment) -> str:
    if shipment.seconds <= 0:
        return "unknown"
    rows, megabytes = shipment.written.rows / shipment.seconds, shipment.written.bytes / shipment.seconds / 1e6
    return f"{rows:,.0f} rows/s, {megabytes:,.1f} MB/s ({shipment.seconds:.1f} s)"


def _failures(shipment: Shipment) -> str:
    attempts = counted(shipment.failed_tasks, "task attempt") if shipment.failed_tasks else "0"
    return f"{attempts}; the job failed" if shipment.failure is not None else attempts

"""Shows a job to the user: a progress bar while it runs, and a table at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..text import plural
from ..text.printable import shown
from .figures import Figures
from .files.find import Skipped
from .outcome_ledger import FileOutcome

counted = partial(plural.counted, form=",")


@dataclass(frozen=True, slots=True)
class Shipment:
    """The result of a job.

    :ivar figures: counters of the shipped portions.
    :ivar seconds: duration, seconds.
    :ivar failed_attempts: failed attempts at portions; each portion is tried several times.
    :ivar failure: the reason of a failure; None if every record was acknowledged.
    :ivar files: the outcome of each file if the job failed; empty for a query that follows, whose checkpoint has the
        offsets.
    :ivar complete_files: number of other files that were shipped completely before the failure.
    :ivar complete_lines: number of lines of these files.
    :ivar unsearched: True if the job failed before all files were found.
    :ivar unread: (path, reason) of named or found paths that were not read.
    :ivar follows: True if the job continued an earlier run.
    """

    figures: Figures
    seconds: float
    failed_attempts: int = 0
    failure: str | None = None
    files: Sequence[FileOutcome] = ()
    complete_files: int = 0
    complete_lines: int = 0
    unsearched: bool = False
    unread: Skipped = ()
    follows: bool = False


class ProgressBar:
    """A progress bar that counts the bytes of files whose lines are acknowledged."""

    def __init__(self, progress: Progress, total_bytes: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task("shipping", total=total_bytes, detail="")

    def show(self, figures: Figures, failed_attempts: int = 0, total_bytes: int | None = None) -> None:
        """Update the bar.

        :param figures: counters of the shipped portions.
        :param failed_attempts: failed attempts at portions.
        :param total_bytes: the bytes of files to ship; None if they are unknown.
        """
        detail = f"{counted(figures.lines, 'line')}, {decimal(figures.file_bytes)}, retries: {figures.retries:,}"
        if failed_attempts:
            detail += f", {counted(failed_attempts, 'task attempt')} failed"
        self._progress.update(self._task, completed=figures.file_bytes, total=total_bytes, detail=detail)


@contextmanager
def progress_bar(console: Console, total_bytes: int | None, *, bounded: bool = False) -> Iterator[ProgressBar]:
    """Show a bar while the block runs; only its last state if the console is not a terminal.

    :param console: the console to show it on.
    :param total_bytes: the bytes of files to ship; None if they are unknown.
    :param bounded: True if the total is known now or later.
    """
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    shown = columns if bounded else columns[:2]
    with Progress(*shown, TextColumn("{task.fields[detail]}"), TimeElapsedColumn(), console=console) as progress:
        yield ProgressBar(progress, total_bytes)


def summary(shipment: Shipment) -> Table:
    """Return a table of the counters."""
    figures = shipment.figures
    rows = {
        "files begun" if shipment.follows else "files": f"{figures.files:,}",
        "lines": f"{figures.lines:,}",
        "bytes": f"{figures.line_bytes:,}",
        "records acknowledged": f"{figures.records:,}",
        "batches": f"{figures.batches:,}",
        "attempts": f"{figures.attempts:,}",
        "retries": f"{figures.retries:,}",
        "waited for memory": f"{figures.memory_wait_ms / 1000:.1f} s",
        "rate": _rate(shipment),
        "failures": _failures(shipment),
    }
    if figures.unparsed:
        rows["in no known format (sent as text)"] = f"{figures.unparsed:,}"
    if figures.skipped_nuls:
        rows["NULs skipped (of copytruncate)"] = f"{figures.skipped_nuls:,}"
    if figures.already_stored:
        rows["of these, stored by an earlier attempt"] = f"{figures.already_stored:,}"
    if figures.long_lines:
        rows["long lines (shipped in pieces)"] = f"{figures.long_lines:,}"
    table = Table(show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _rate(shipment: Shipment) -> str:
    if shipment.seconds <= 0:
        return "unknown"
    figures, seconds = shipment.figures, shipment.seconds
    return f"{figures.lines / seconds:,.0f} lines/s, {figures.line_bytes / seconds / 1e6:,.1f} MB/s ({seconds:.1f} s)"


def _failures(shipment: Shipment) -> str:
    parts = [counted(shipment.failed_attempts, "task attempt")] if shipment.failed_attempts else []
    return "; ".join([*parts, *(["the job failed"] if shipment.failure is not None else [])]) or "0"


def outcomes(shipment: Shipment) -> list[str]:
    """Return the outcome of the lines of a failed job as text: sums, incomplete files, and advice."""
    files, complete = shipment.files, shipment.complete_files
    if not files:
        return []
    incomplete = [file for file in files if not file.complete]
    total = FileOutcome("all files together", stored=shipment.complete_lines)
    for file in files:
        total += file
    lines = [_outcome(total)]
    if len(files) + complete > 1:
        lines += [f"  {_outcome(file)}" for file in incomplete[:_FILES_SHOWN]]
        if len(incomplete) > _FILES_SHOWN:
            lines.append(f"  and {counted(len(incomplete) - _FILES_SHOWN, 'more file')} that are not stored completely")
        lines.append(f"  {counted(complete + len(files) - len(incomplete), 'file')} stored completely")
    if shipment.unsearched:
        lines.append("  files not yet found at the failure were not sent")
    return [*lines, _ADVICE]


def _outcome(file: FileOutcome) -> str:
    parts = [
        f"{counted(file.stored, 'line')} stored",
        f"{file.not_stored:,} not stored",
        f"{file.in_doubt:,} in doubt",
    ]
    if file.unsent_bytes:
        parts.append(f"{decimal(file.unsent_bytes)} not sent")
    if file.cut_bytes:
        parts.append(f"the rest of {decimal(file.cut_bytes)} (compressed) not sent")
    if file.doubtful_bytes:
        parts.append(f"{decimal(file.doubtful_bytes)} in doubt")
    return shown(f"{file.path}: {', '.join(parts)}")


_FILES_SHOWN = 20
_ADVICE = (
    "To continue, fix the cause and run the same command again. It sends all lines again, including stored ones: leave "
    "stored files out with --exclude. With --file-offset, copies have the same path and offset"
)

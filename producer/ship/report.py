"""What a person sees of a job: a progress bar while it runs, a table at its end."""

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
from .outcome_ledger import FileFate

counted = partial(plural.counted, form=",")


@dataclass(frozen=True, slots=True)
class Shipment:
    """How a job ended.

    :ivar figures: of the portions that are shipped.
    :ivar seconds: how long it ran.
    :ivar failed_attempts: attempts at portions that failed; they were tried again, up to a limit.
    :ivar failure: why the job failed; None if every record was acknowledged.
    :ivar files: what became of each file, if it failed; nothing of a query that follows, whose checkpoint knows.
    :ivar complete_files: how many others were shipped completely before it failed.
    :ivar complete_lines: the lines of those.
    :ivar unsearched: whether it failed before all files were found.
    :ivar unread: (path, reason) of what was named or found and not read.
    :ivar follows: whether it went on where another run had ended.
    """

    figures: Figures
    seconds: float
    failed_attempts: int = 0
    failure: str | None = None
    files: Sequence[FileFate] = ()
    complete_files: int = 0
    complete_lines: int = 0
    unsearched: bool = False
    unread: Skipped = ()
    follows: bool = False


class ProgressBar:
    """The bar, by bytes of files whose lines are all acknowledged."""

    def __init__(self, progress: Progress, total_bytes: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task("shipping", total=total_bytes, detail="")

    def show(self, figures: Figures, failed_attempts: int = 0, total_bytes: int | None = None) -> None:
        """Bring the bar up to date.

        :param figures: of the portions that are shipped.
        :param failed_attempts: attempts at portions that failed.
        :param total_bytes: what there is to ship, bytes of files, where that is known by now.
        """
        detail = f"{counted(figures.lines, 'line')}, {decimal(figures.file_bytes)}, retries: {figures.retries:,}"
        if failed_attempts:
            detail += f", {counted(failed_attempts, 'task attempt')} failed"
        self._progress.update(self._task, completed=figures.file_bytes, total=total_bytes, detail=detail)


@contextmanager
def progress_bar(console: Console, total_bytes: int | None, *, bounded: bool = False) -> Iterator[ProgressBar]:
    """Show a bar until the block is left; nothing but its last state if the console is no terminal.

    :param console: where to.
    :param total_bytes: what there is to ship, bytes of files; None if that is not known.
    :param bounded: whether it will be known.
    """
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    shown = columns if bounded else columns[:2]
    with Progress(*shown, TextColumn("{task.fields[detail]}"), TimeElapsedColumn(), console=console) as progress:
        yield ProgressBar(progress, total_bytes)


def summary(shipment: Shipment) -> Table:
    """The table of what was shipped."""
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
        rows["of them stored before"] = f"{figures.already_stored:,}"
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


def fates(shipment: Shipment) -> list[str]:
    """What became of the lines of a job that failed, for people: sums, the files that are not stored, how to go on."""
    files, complete = shipment.files, shipment.complete_files
    if not files:
        return []
    incomplete = [file for file in files if not file.complete]
    total = FileFate("all files together", stored=shipment.complete_lines)
    for file in files:
        total += file
    lines = [_fate(total)]
    if len(files) + complete > 1:
        lines += [f"  {_fate(file)}" for file in incomplete[:_FILES_SHOWN]]
        if len(incomplete) > _FILES_SHOWN:
            lines.append(f"  and {counted(len(incomplete) - _FILES_SHOWN, 'more file')} that are not stored completely")
        lines.append(f"  {counted(complete + len(files) - len(incomplete), 'file')} stored completely")
    if shipment.unsearched:
        lines.append("  files that had not been found by then were not sent")
    return [*lines, _ADVICE]


def _fate(file: FileFate) -> str:
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
    "To go on, fix the cause and run the same command again. It sends everything again, also what is stored: leave "
    "out with --exclude the files that are; with --file-offset copies have the same path and offset"
)

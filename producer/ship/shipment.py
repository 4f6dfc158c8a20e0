"""Ships files once, as they are found, with a progress bar, and returns the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console

from .errors import InputError
from .figures import Figures
from .files.find import Found, Search
from .files.log_file import LogFile
from .files.plan import PARTITION_BYTES, partition_size, plan
from .job import ShipJob
from .outcome_ledger import FileOutcome
from .plan_file import PlanFile
from .portions import Portion
from .report import ProgressBar, Shipment, progress_bar

if TYPE_CHECKING:
    from .local_engine import LocalEngine, LocalRun
    from .spark_engine import SparkEngine, SparkRun

#: An engine that ships portions, and its run of some. Spark may not be installed.
Engine: TypeAlias = "LocalEngine | SparkEngine"
Run: TypeAlias = "LocalRun | SparkRun"

_POLL_SECONDS = 0.2
#: The number of files to find before the first of them are shipped.
FIRST_FILES = 2_000
# Maximum number of found files that wait, to limit memory.
_MOST_FILES = 50_000


def ship_search(
    engine: Engine,
    search: Search,
    job: ShipJob,
    *,
    console: Console,
    partition_bytes: int = PARTITION_BYTES,
) -> Shipment:
    """Ship files as they are found; the search continues while some are shipped.

    An interrupt (Ctrl-C) cancels the running portions, and is raised again.

    :param engine: the engine that ships them.
    :param search: the search that yields the files.
    :param job: the target and the settings of the job.
    :param console: the console that shows the progress bar.
    :param partition_bytes: maximum size of a task, bytes on disk.
    """
    with progress_bar(console, None, bounded=True) as bar:
        parts = _Parts(engine, search, job, partition_bytes, bar)
        ended = False
        while not ended and parts.failure is None:
            search.advance(files=FIRST_FILES)
            ended = search.ended  # If the search has ended, the next take returns all remaining files.
            parts.ship(search.take())
        return parts.shipment()


class _Parts:
    """Files that are shipped part by part.

    :ivar failure: the reason of a failed part, which ends the shipment; None if none failed.
    """

    def __init__(self, engine: Engine, search: Search, job: ShipJob, partition_bytes: int, bar: ProgressBar) -> None:
        self.failure: str | None = None
        self._engine = engine
        self._search = search
        self._job = job
        self._partition_bytes = partition_bytes
        self._bar = bar
        self._began = time.monotonic()
        self._figures = Figures()
        self._failed_attempts = 0
        self._complete_files = self._complete_lines = 0  # Counters of the parts that were shipped completely.
        self._outcomes: list[FileOutcome] = []

    def ship(self, found: Found) -> None:
        """Ship a part, and search for more files meanwhile."""
        # An empty file has no range that would count it.
        self._figures += Figures(files=sum(file.size == 0 for file in found.files))
        size = partition_size(found.size, self._engine.parallelism, self._partition_bytes)
        portions = [Portion(splits) for splits in plan(found.files, partition_bytes=size)]
        if not portions:
            return
        run = self._engine.start(portions, self._job)
        _watch(run, lambda: self._show(run))
        self._figures += run.figures
        self._failed_attempts += run.failed_attempts
        self.failure = run.failure
        if run.failure is None and not run.figures.lost:
            self._complete_lines += run.figures.lines
            self._complete_files += len(found.files)
            return
        self._complete_files += sum(file.size == 0 for file in found.files)
        self._outcomes += run.account.files(portions, run.doubtful)
        if run.failure is not None:
            self._outcomes += [_unsent(file) for file in self._search.take().files if file.size]

    def _show(self, run: Run) -> None:
        if not self._search.ended:
            self._search.advance(files=_MOST_FILES, seconds=_POLL_SECONDS / 2)
        # The total covers the files found so far: a search through a million files takes minutes.
        figures, failed_attempts = self._figures + run.figures, self._failed_attempts + run.failed_attempts
        self._bar.show(figures, failed_attempts, self._search.found_bytes)

    def shipment(self) -> Shipment:
        """Return the result of all parts."""
        unsearched = self.failure is not None and not self._search.ended
        seconds = time.monotonic() - self._began
        return Shipment(
            self._figures,
            seconds,
            self._failed_attempts,
            self.failure or next(iter(self._figures.lost), None),
            self._outcomes,
            complete_files=self._complete_files,
            complete_lines=self._complete_lines,
            unsearched=unsearched,
        )


def _unsent(file: LogFile) -> FileOutcome:
    return FileOutcome(file.path, unsent_bytes=file.size)


def ship_plan(
    engine: Engine, plan_file: PlanFile, portions: Sequence[Portion], job: ShipJob, *, console: Console
) -> Shipment:
    """Ship the portions of a plan that are not complete, and store the completion of each.

    :param engine: the engine that ships them.
    :param plan_file: stores the plan, and the completed portions.
    :param portions: all portions of the plan.
    :param job: the target and the settings of the job.
    :param console: the console that shows the progress bar.
    """
    began = time.monotonic()
    ended = plan_file.ended()
    left = [portion for portion in portions if portion.number not in ended]
    if not left:
        return Shipment(Figures(), time.monotonic() - began, unread=plan_file.unread)
    run = engine.start(left, job)

    total = sum(split.size for portion in left for split in portion.splits)
    unwritten = None
    with progress_bar(console, total, bounded=True) as bar:

        def update() -> None:
            bar.show(run.figures, run.failed_attempts, total)
            new = set(run.figures.ended) - ended
            plan_file.end(new)
            ended.update(new)

        try:
            _watch(run, update)
        except InputError as error:  # The checkpoint cannot be written, but lines were sent.
            unwritten = str(error)
    failure = run.failure or unwritten or next(iter(run.figures.lost), None)
    seconds = time.monotonic() - began
    return Shipment(run.figures, seconds, run.failed_attempts, failure, unread=plan_file.unread)


def _watch(run: Run, update: Callable[[], None]) -> None:
    """Wait for the end of a run.

    :param update: a callback for each poll, and for the end.
    """
    try:
        while not run.wait(_POLL_SECONDS):
            update()
        update()
    except BaseException:
        run.cancel()
        raise

"""Ships files once, as they are found, with a progress bar, and says how it ended."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from rich.console import Console

from .errors import InputError
from .figures import Figures
from .files.find import Found
from .files.log_file import LogFile
from .files.plan import PARTITION_BYTES, partition_size, plan
from .job import ShipJob
from .outcome_ledger import Account, FileFate
from .plan_file import PlanFile
from .portions import Portion
from .report import ProgressBar, Shipment, progress_bar

_POLL_SECONDS = 0.2
#: Files that are found before the first of them are shipped.
FIRST_FILES = 2_000
# Files that wait while others are shipped: what is found sooner would only take memory.
_MOST_FILES = 50_000


class Run(Protocol):
    """Some portions on their way.

    :ivar figures: of the portions that are shipped.
    :ivar failed_attempts: how many attempts at portions have failed so far.
    :ivar failure: why it failed; None if it did not, or has not ended.
    :ivar account: what is known of the lines, when it has ended.
    :ivar doubtful: numbers of portions of which an attempt ended without a word.
    """

    @property
    def figures(self) -> Figures: ...
    @property
    def failed_attempts(self) -> int: ...
    @property
    def failure(self) -> str | None: ...
    @property
    def account(self) -> Account: ...
    @property
    def doubtful(self) -> Collection[int]: ...

    def wait(self, seconds: float) -> bool:
        """Wait for the end, for a while; whether it has ended."""

    def cancel(self) -> None:
        """End it now, whatever is on its way."""


class Engine(Protocol):
    """What ships portions.

    :ivar parallelism: how many of them at a time.
    """

    @property
    def parallelism(self) -> int: ...

    def start(self, portions: Sequence[Portion], job: ShipJob) -> Run:
        """Begin to ship portions; there is at least one."""


def ship_files(
    engine: Engine,
    found: Found,
    job: ShipJob,
    *,
    console: Console,
    partition_bytes: int = PARTITION_BYTES,
) -> Shipment:
    """Ship files and wait for the end.

    An interrupt (Ctrl-C) cancels what is on its way and is passed on.

    :param engine: what ships them.
    :param found: the files.
    :param job: where to, and how.
    :param console: where the progress bar is shown.
    :param partition_bytes: the most that one task reads, bytes on disk.
    """
    return ship_search(engine, Complete(found), job, console=console, partition_bytes=partition_bytes)


class Searching(Protocol):
    """Files that may not all be found yet.

    :ivar ended: whether they are.
    :ivar found_bytes: of all that were found so far, also of those that are taken.
    """

    @property
    def ended(self) -> bool: ...
    @property
    def found_bytes(self) -> int: ...

    def go_on(self, files: float = math.inf, seconds: float = math.inf) -> None:
        """Look for more, until so many wait to be taken, or for so long, or to the end."""

    def take(self) -> Found:
        """Those that were found since the last time."""


class Complete:
    """Files that were found before.

    :param found: the files.
    """

    ended = True

    def __init__(self, found: Found) -> None:
        self._found = found
        self.found_bytes = found.size

    def go_on(self, files: float = math.inf, seconds: float = math.inf) -> None:
        """There is nothing more."""

    def take(self) -> Found:
        """All of them, once."""
        found, self._found = self._found, Found((), ())
        return found


def ship_search(
    engine: Engine,
    search: Searching,
    job: ShipJob,
    *,
    console: Console,
    partition_bytes: int = PARTITION_BYTES,
) -> Shipment:
    """Ship files as they are found: while some are on their way, it is looked for more.

    An interrupt (Ctrl-C) cancels what is on its way and is passed on.

    :param search: finds them.
    :param engine: and the other parameters: as of :func:`ship_files`.
    """
    with progress_bar(console, None, bounded=True) as bar:
        parts = _Parts(engine, search, job, partition_bytes, bar)
        ended = False
        while not ended and parts.failure is None:
            search.go_on(files=FIRST_FILES)
            ended = search.ended  # then nothing is left behind what is taken now
            parts.ship(search.take())
        return parts.shipment()


class _Parts:
    """Files that are shipped part by part.

    :ivar failure: why a part failed, so that there is no other; None if none did.
    """

    def __init__(self, engine: Engine, search: Searching, job: ShipJob, partition_bytes: int, bar: ProgressBar) -> None:
        self.failure: str | None = None
        self._engine = engine
        self._search = search
        self._job = job
        self._partition_bytes = partition_bytes
        self._bar = bar
        self._began = time.monotonic()
        self._figures = Figures()
        self._failed_attempts = 0
        self._complete_files = self._complete_lines = 0  # of the parts that have ended well
        self._fates: list[FileFate] = []

    def ship(self, found: Found) -> None:
        """Ship a part, and look for more meanwhile."""
        # A file without a byte has no range to be counted by.
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
        self._fates += run.account.files(portions, run.doubtful)
        if run.failure is not None:
            self._fates += [_unsent(file) for file in self._search.take().files if file.size]

    def _show(self, run: Run) -> None:
        if not self._search.ended:
            self._search.go_on(files=_MOST_FILES, seconds=_POLL_SECONDS / 2)
        # Of a search that goes on, of what is found so far: to know all of a million files first would take minutes.
        figures, failed_attempts = self._figures + run.figures, self._failed_attempts + run.failed_attempts
        self._bar.show(figures, failed_attempts, self._search.found_bytes)

    def shipment(self) -> Shipment:
        """What came of all parts."""
        unsearched = self.failure is not None and not self._search.ended
        seconds = time.monotonic() - self._began
        return Shipment(
            self._figures,
            seconds,
            self._failed_attempts,
            self.failure or next(iter(self._figures.lost), None),
            self._fates,
            complete_files=self._complete_files,
            complete_lines=self._complete_lines,
            unsearched=unsearched,
        )


def _unsent(file: LogFile) -> FileFate:
    return FileFate(file.path, unsent_bytes=file.size)


def ship_plan(
    engine: Engine, plan_file: PlanFile, portions: Sequence[Portion], job: ShipJob, *, console: Console
) -> Shipment:
    """Ship the portions of a plan that have not ended, and remember those that do.

    :param engine: what ships them.
    :param plan_file: remembers.
    :param portions: all of the plan.
    :param job: where to, and how.
    :param console: where the progress bar is shown.
    """
    began = time.monotonic()
    ended = plan_file.ended()
    left = [portion for portion in portions if portion.number not in ended]
    if not left:
        return Shipment(Figures(), time.monotonic() - began, unread=plan_file.unread)
    run = engine.start(left, job)

    def remember() -> None:
        new = set(run.figures.ended) - ended
        plan_file.end(new)
        ended.update(new)

    total = sum(split.size for portion in left for split in portion.splits)
    unwritten = None
    with progress_bar(console, total, bounded=True) as bar:

        def look() -> None:
            bar.show(run.figures, run.failed_attempts, total)
            remember()

        try:
            _watch(run, look)
        except InputError as error:  # of the checkpoint, and lines were sent
            unwritten = str(error)
    failure = run.failure or unwritten or next(iter(run.figures.lost), None)
    seconds = time.monotonic() - began
    return Shipment(run.figures, seconds, run.failed_attempts, failure, unread=plan_file.unread)


def _watch(run: Run, look: Callable[[], None]) -> None:
    """Wait until it has ended.

    :param look: is called now and then, and at the end.
    """
    try:
        while not run.wait(_POLL_SECONDS):
            look()
        look()
    except BaseException:
        run.cancel()
        raise

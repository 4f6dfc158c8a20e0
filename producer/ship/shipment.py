"""Ships a set of files once, with a progress bar, and says how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from rich.console import Console

from .account import Account
from .figures import Figures
from .files.find import Found
from .files.plan import PARTITION_BYTES, partition_size, plan
from .job import ShipJob
from .plan_file import PlanFile
from .portions import Portion
from .report import Shipment, progress_bar

_POLL_SECONDS = 0.2


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
    began = time.monotonic()
    size = partition_size(found.size, engine.parallelism, partition_bytes)
    portions = [Portion(splits) for splits in plan(found.files, partition_bytes=size)]
    # A file without a byte has no range to be counted by.
    empty = Figures(files=sum(file.size == 0 for file in found.files))
    if not portions:
        return Shipment(empty, time.monotonic() - began)
    run = engine.start(portions, job)
    _watch(run, console, found.size)
    seconds = time.monotonic() - began
    files = run.account.files(portions, run.doubtful) if run.failure is not None else ()
    return Shipment(run.figures + empty, seconds, run.failed_attempts, run.failure, files)


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
        return Shipment(Figures(), time.monotonic() - began)
    run = engine.start(left, job)

    def remember() -> None:
        new = set(run.figures.ended) - ended
        plan_file.end(new)
        ended.update(new)

    _watch(run, console, sum(split.size for portion in left for split in portion.splits), remember)
    return Shipment(run.figures, time.monotonic() - began, run.failed_attempts, run.failure)


def _watch(run: Run, console: Console, total_bytes: int, look: Callable[[], None] = lambda: None) -> None:
    """Keep the bar moving until it has ended.

    :param look: is called now and then, and at the end.
    """
    try:
        with progress_bar(console, total_bytes) as bar:
            while not run.wait(_POLL_SECONDS):
                bar.show(run.figures, run.failed_attempts)
                look()
            look()
            bar.show(run.figures, run.failed_attempts)
    except BaseException:
        run.cancel()
        raise

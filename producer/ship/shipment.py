"""Runs the job once over a set of files, with a progress bar, and says how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pyspark import InheritableThread
from rich.console import Console

from ..spark.datasource import FORMAT, register
from .counts import Counts, counts_accumulator
from .failure import describe
from .files.find import Found
from .files.plan import PARTITION_BYTES, partition_size, plan
from .job import ShipJob
from .portions import Portion, frame_of_plan
from .report import ProgressBar, Shipment, progress_bar
from .written import Written

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext
    from pyspark.sql import SparkSession

_POLL_SECONDS = 0.2


def ship_files(
    session: SparkSession,
    found: Found,
    job: ShipJob,
    *,
    console: Console,
    partition_bytes: int = PARTITION_BYTES,
) -> Shipment:
    """Ship files and wait for the end.

    An interrupt (Ctrl-C) cancels the job's tasks and is passed on.

    :param session: the Spark session.
    :param found: the files.
    :param job: where to, and how.
    :param console: where the progress bar is shown.
    :param partition_bytes: the most that one task reads, bytes on disk.
    """
    context = session.sparkContext
    counts = counts_accumulator(context)
    size = partition_size(found.size, context.defaultParallelism, partition_bytes)
    portions = [Portion(splits) for splits in plan(found.files, partition_bytes=size)]
    began = time.monotonic()
    with Written() as written, progress_bar(console, found.size) as bar:
        run = _Run(
            context,
            f"loghub-producer-{id(counts)}",
            lambda: _write(session, portions, job, counts, written.path),
        )
        run.watch(bar, counts)
        # A file without a byte has no range to be counted by.
        empty = Counts(files=sum(file.size == 0 for file in found.files))
        return Shipment(
            counts.value + empty, written.total(), time.monotonic() - began, run.failed_tasks(), run.failure
        )


def _write(
    session: SparkSession, portions: Sequence[Portion], job: ShipJob, counts: Accumulator[Counts], metrics_path: str
) -> None:
    """Write every portion; returns when each record is acknowledged."""
    if portions:
        register(session)
        # Spark looks for the format in the session that is active in this thread: createDataFrame makes it so.
        session.createDataFrame([], "nothing int")
        options = job.write_options(metricsPath=metrics_path)
        frame_of_plan(session, portions, job, counts).write.format(FORMAT).options(**options).mode("append").save()


class _Run:
    """A Spark job on a thread of its own, so that the main thread can watch it and be interrupted."""

    def __init__(self, context: SparkContext, group: str, action: Callable[[], None]) -> None:
        self.failure: str | None = None
        self._context = context
        self._group = group
        self._action = action

    def watch(self, bar: ProgressBar, counts: Accumulator[Counts]) -> None:
        """Start it and keep the bar moving until it has ended."""
        thread = InheritableThread(target=self._work, name="loghub-producer-spark-job", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_POLL_SECONDS)
                bar.show(counts.value, self.failed_tasks())
        except BaseException:
            self._context.cancelJobGroup(self._group)
            raise

    def failed_tasks(self) -> int:
        """How many attempts of its tasks have failed so far."""
        tracker = self._context.statusTracker()
        jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group))
        stages = (tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds)
        return sum(stage.numFailedTasks for stage in stages if stage)

    def _work(self) -> None:
        self._context.setJobGroup(self._group, "ship log files")
        try:
            self._action()
        except Exception as error:  # noqa: BLE001  (whatever Spark raises is the job's outcome)
            self.failure = describe(error)

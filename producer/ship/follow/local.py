"""Follows files without Spark: scans the paths, ships new lines in batches, and stores their offsets.

A batch is a set of file ranges. Its end is written to the checkpoint before it is shipped. Its completion is written
after every record of it was acknowledged. A run that died within a batch ships the whole batch again when it is
restarted with the same checkpoint.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from rich.console import Console

from ...runtime.directory_lock import DirectoryLock
from ...runtime.signals import on_stop_signal, wait
from ..errors import InputError
from ..job import ShipJob
from ..lines.log_start import logs_that_start
from ..local_engine import LocalEngine, LocalRun
from ..options import ShipOptions
from ..report import ProgressBar, Shipment, progress_bar
from .losses import Losses
from .path_scan import PathScanner, unread_of
from .progress import Progress, read_progress, write_progress
from .tracking import Offset, advance

_POLL_SECONDS = 0.2


def follow_locally(
    engine: LocalEngine, job: ShipJob, options: ShipOptions, *, console: Console, lock: DirectoryLock | None = None
) -> Shipment:
    """Follow until SIGTERM or SIGINT, until a batch fails, or, with ``once``, until all is shipped.

    :param engine: the engine that ships the batches.
    :param job: the target and the settings of the job.
    :param options: the paths and the checkpoint.
    :param console: the console that shows the progress.
    :param lock: the lock of the checkpoint; None if it is not locked.
    :raises InputError: the checkpoint cannot be read.
    """
    stop = threading.Event()
    began = time.monotonic()
    unwritten = None
    with on_stop_signal(lambda _: stop.set()), progress_bar(console, None) as bar:
        following = _Following(engine, job, options, stop, bar, lock)
        try:
            following.until_end()
        # The checkpoint cannot be written, or a file cannot be read; lines may have been sent.
        except InputError as error:
            unwritten = str(error)
        finally:
            following.run.cancel()
        run = following.run
        failure = run.failure or unwritten or following.losses.last
    seconds = time.monotonic() - began
    return Shipment(run.figures, seconds, run.failed_attempts, failure, unread=unread_of(options), follows=True)


class _Following:
    """One run that follows files.

    :ivar run: the run of the engine that ships the portions.
    :ivar losses: the bytes that were gone before they could be shipped.
    """

    def __init__(
        self,
        engine: LocalEngine,
        job: ShipJob,
        options: ShipOptions,
        stop: threading.Event,
        bar: ProgressBar,
        lock: DirectoryLock | None = None,
    ) -> None:
        self.run: LocalRun = engine.open(job)
        self.losses = Losses()
        self._parallelism = engine.parallelism
        self._options = options
        self._stop = stop
        self._bar = bar
        self._lock = lock
        self._progress = read_progress(options.checkpoint)
        self._target: Offset | None = None
        self._scanner = PathScanner(options, logs_that_start(job.multiline_start, job.max_line_bytes))

    def until_end(self) -> None:
        """Ship batches until stopped, failed or, with ``once``, complete."""
        while not self._stop.is_set():
            began = time.monotonic()
            if self._plan():
                if not self._ship():
                    return
            elif self._options.once:
                return
            if not self._options.once:
                wait(self._stop, began + self._options.interval - time.monotonic())

    def _plan(self) -> bool:
        """Return True if there is a batch to ship: an unfinished one of an earlier run, or a new one."""
        taken = self._progress.taken
        if self._progress.planned is None:
            target = self._target or self._scanner.latest(taken)
            if self._options.once:
                self._target = target
            reached = advance(taken, target, self._options.batch_bytes)
            if reached == taken:
                return False
            self._store(replace(self._progress, planned=reached, batch=self._progress.batch + 1))
        return True

    def _ship(self) -> bool:
        """Ship the batch. Return True if all of it is acknowledged."""
        taken, planned = self._progress.taken, self._progress.planned or {}
        batch = self._progress.batch
        portions = self._scanner.portions(taken, planned, batch=batch, parallelism=self._parallelism)
        self.run.add(portions)
        deadline = None
        while not self.run.wait(_POLL_SECONDS):
            self._show()
            if self._stop.is_set():
                deadline = deadline or time.monotonic() + self._options.stop_timeout
                if time.monotonic() > deadline:
                    return False
        self._show()
        if self.run.failure is not None:
            return False
        self._store(Progress(planned, batch=batch))
        return True

    def _show(self) -> None:
        self._bar.show(self.run.figures, self.run.failed_attempts)
        self.losses.log(self.run.figures)

    def _store(self, progress: Progress) -> None:
        """Write the progress to the checkpoint.

        :raises InputError: it cannot be written, or another command may have taken the checkpoint.
        """
        lost = self._lock.lost() if self._lock is not None else None
        if lost is not None:
            raise InputError(
                f"{lost} was removed or replaced: another command may use the checkpoint; stop it, then start again"
            )
        write_progress(self._options.checkpoint, progress)
        self._progress = progress

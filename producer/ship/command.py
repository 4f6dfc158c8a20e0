"""Run ``producer ship``: check its arguments, then start an engine and ship the files.

All arguments are checked before anything is started. Spark is imported only if it ships the files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console

from ..runtime.directory_lock import DirectoryLock
from ..spark.check import CHECK_SECONDS, fault_of
from ..spark.numbering_check import uses_up_numbers
from ..text.extras import how_to_install, is_installed
from ..text.printable import shown
from .errors import InputError
from .files.find import EXCLUDED, Found, Search, Skipped
from .files.plan import plan
from .follow.checkpoint import claim_checkpoint
from .follow.checkpoint_lock import locked_checkpoint
from .follow.local import follow_locally
from .job import ShipJob
from .local_engine import LocalEngine
from .options import ShipOptions
from .plan_file import PlanFile
from .portions import Portion
from .report import Shipment, counted
from .shipment import FIRST_FILES, Engine, ship_plan, ship_search
from .standard_input import STANDARD_INPUT, ship_standard_input

if TYPE_CHECKING:
    from .spark_engine import SparkEngine

#: The names of the engines.
SPARK, LOCAL = "spark", "local"
ENGINES = (SPARK, LOCAL)

#: The command-line argument of each target option, and the value to show; None for a secret.
_ARGUMENTS: dict[str, tuple[str, Callable[[ShipJob], str] | None]] = {
    "endpoint": ("--endpoint", lambda job: job.project.endpoint),
    "project": ("--project", lambda job: job.project.project),
    "logstore": ("--logstore", lambda job: job.logstore),
    "accessKeyId": ("--access-key-id or LOGHUB_ACCESS_KEY_ID", None),
    "accessKeySecret": ("--access-key-secret or LOGHUB_ACCESS_KEY_SECRET", None),
    "securityToken": ("--security-token or LOGHUB_SECURITY_TOKEN", None),
}


def default_engine() -> str:
    """Return Spark if PySpark is installed, else the local engine."""
    return SPARK if is_installed("pyspark") else LOCAL


def ship(
    job: ShipJob,
    options: ShipOptions,
    *,
    engine: str | None,
    master: str | None,
    workers: int | None,
    console: Console,
) -> Shipment:
    """Find the files, start the engine, ship the files, and stop the engine.

    :param job: the target and the settings of the job.
    :param options: the paths; ``settle`` also applies to a multi-line log of standard input.
    :param engine: one of :data:`ENGINES`; None for :func:`default_engine`.
    :param master: a Spark master URL; None for all cores of this machine.
    :param workers: processes of the local engine; None for one per core.
    :param console: the console that shows the progress.
    :raises ProducerError: an argument is invalid, or the shipment failed.
    """
    paths = options.paths
    if STANDARD_INPUT in paths:
        _check_standard_input(options, engine, workers)
        check_target(job)
        return ship_standard_input(job, settle=options.settle, console=console)
    engine = engine or default_engine()
    _check_engine(engine, master, workers)
    if options.checkpoint:
        check_target(job, patient=options.follow and not options.once)
        _check_numbering(job)
        with locked_checkpoint(options.checkpoint) as lock:
            return _ship_with_checkpoint(job, options, engine, master, workers, console, lock)
    search = options.search(lenient=options.allow_unread, encoding=job.encoding)
    search.advance(files=FIRST_FILES)
    complete = search.ended
    if complete:
        print_skipped((*search.skipped, *_unread(search)), console)
        check_files_left(search.waiting, search.skipped, paths)
    check_target(job)
    if complete and not search.waiting:
        console.print(f"there are no files to ship in {shown(', '.join(paths))}", markup=False, highlight=False)
    with _running(engine, master, workers) as ready:
        shipment = ship_search(ready, search, job, console=console, partition_bytes=options.partition_bytes)
    if not complete:
        print_skipped((*search.skipped, *_unread(search)), console)
    return replace(shipment, unread=_unread(search))


def _unread(found: Search | Found) -> Skipped:
    return (*found.unread, *found.absent)


def _ship_with_checkpoint(
    job: ShipJob,
    options: ShipOptions,
    engine: str,
    master: str | None,
    workers: int | None,
    console: Console,
    lock: DirectoryLock,
) -> Shipment:
    options = replace(options, exactly_once=claim_checkpoint(job, options, engine))
    if not options.follow:
        return _ship_once(job, options, engine, master, workers, console)
    if engine == LOCAL:
        return follow_locally(LocalEngine(workers), job, options, console=console, lock=lock)
    with _running_spark(master, query=True) as running:
        from .follow.query import follow  # Spark may not be installed.

        return follow(running.session, job, options, console=console)


def _ship_once(
    job: ShipJob, options: ShipOptions, engine: str, master: str | None, workers: int | None, console: Console
) -> Shipment:
    """Ship the remaining portions of the checkpoint's plan; without a plan, plan the files that exist."""
    with PlanFile(options.checkpoint) as plan_file:
        portions = plan_file.read()
        if portions is None:
            found = options.search(lenient=options.allow_unread).all()
            print_skipped((*found.skipped, *_unread(found)), console)
            check_files_left(len(found.files), found.skipped, options.paths)
            _check_versions(found)
            ranges = plan(found.files, partition_bytes=options.partition_bytes)
            portions = [
                Portion(splits, run=options.exactly_once, number=number) for number, splits in enumerate(ranges)
            ]
            plan_file.write(portions, _unread(found))
        with _running(engine, master, workers) as ready:
            return ship_plan(ready, plan_file, portions, job, console=console)


def _check_standard_input(options: ShipOptions, engine: str | None, workers: int | None) -> None:
    if len(options.paths) > 1:
        raise InputError("- (standard input) cannot be combined with other paths: ship it alone")
    if options.checkpoint:
        raise InputError("--follow and --exactly-once are for files: a pipe cannot be read again")
    if engine == SPARK or workers is not None:
        raise InputError("standard input is shipped by this process alone: leave out --engine spark and --workers")


def _check_engine(engine: str, master: str | None, workers: int | None) -> None:
    if engine == LOCAL and master is not None:
        raise InputError(f"--master is an option of --engine {SPARK}, but the engine is {LOCAL}")
    if engine == SPARK and workers is not None:
        raise InputError(
            f"--workers is an option of --engine {LOCAL}, but the engine is {SPARK}; use --master local[N]"
        )
    if engine == SPARK and not is_installed("pyspark"):
        raise InputError(f"--engine spark needs PySpark: {how_to_install('spark')}, or use --engine local")


def check_files_left(files: int, skipped: Sequence[tuple[str, str]], paths: Sequence[str]) -> None:
    """Check that ``--exclude`` leaves a file to ship.

    :raises InputError: all files are excluded.
    """
    excluded = sum(reason == EXCLUDED for _, reason in skipped)
    if excluded and not files:
        raise InputError(f"{', '.join(paths)}: --exclude leaves no file to ship ({counted(excluded, 'file')} left out)")


def _check_versions(found: Found) -> None:
    unversioned = next((file for file in found.files if file.address and not file.version), None)
    if unversioned is not None:
        raise InputError(
            f"{unversioned.path}: its server sends neither an ETag nor a modification time, so --exactly-once "
            "cannot recognise the file after a restart: leave it out, or copy it here and ship the copy"
        )


def check_target(job: ShipJob, *, patient: bool = False) -> None:
    """Check the logstore before anything is started.

    :param patient: True if the job waits for an unreachable server; the warning then says so.
    :raises InputError: the target is invalid; the message names the argument at fault.
    """
    fault = fault_of(job.target, job.config, patient=patient, timeout=min(job.ack_timeout, CHECK_SECONDS))
    if fault is None:
        return
    argument, shown = _ARGUMENTS[fault.option]
    value = "" if shown is None else f" {shown(job)}"
    status = "no answer" if fault.cause.http_status is None else f"status {fault.cause.http_status}"
    raise InputError(
        f"{argument}{value}: {fault.cause} ({status}, request id {fault.cause.request_id or 'none'}); "
        "checked before the start, nothing was sent"
    ) from fault.error


def _check_numbering(job: ShipJob) -> None:
    """Check that the server keeps the sequence numbers of refused requests, which ``--exactly-once`` requires.

    :raises InputError: the server uses them up.
    """
    if job.exactly_once and uses_up_numbers(job.target, job.config, min(job.ack_timeout, CHECK_SECONDS)):
        raise InputError(
            f"--exactly-once: {job.target} uses up the sequence numbers of requests that it refuses, so lines of a "
            "refused request could be taken for stored: leave it out; checked before the start, nothing was sent"
        )


def _running(engine: str, master: str | None, workers: int | None) -> AbstractContextManager[Engine]:
    return contextlib.nullcontext(LocalEngine(workers)) if engine == LOCAL else _running_spark(master)


def _running_spark(master: str | None, *, query: bool = False) -> AbstractContextManager[SparkEngine]:
    from .spark_engine import running_spark  # Spark may not be installed, and the local engine does not need it.

    return running_spark(master, query=query)


def print_skipped(skipped: Sequence[tuple[str, str]], console: Console) -> None:
    """Print each skipped path with its reason, and the number of excluded ones."""
    for path, reason in skipped:
        if reason != EXCLUDED:
            console.print(shown(f"skipped {path}: {reason}"), markup=False, highlight=False, soft_wrap=True)
    excluded = sum(reason == EXCLUDED for _, reason in skipped)
    if excluded:
        console.print(f"skipped by --exclude: {counted(excluded, 'path')}", highlight=False)

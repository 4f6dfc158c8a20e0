"""What ``producer ship`` does with its arguments: whatever can be wrong is found before anything is started.

Spark is imported only where it ships.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console

from ..runtime.directory_lock import DirectoryLock
from ..spark.check import CHECK_SECONDS, fault_of
from ..spark.numbering_check import uses_up_numbers
from ..text.extras import how_to_install
from ..text.printable import shown
from .errors import InputError
from .files.find import EXCLUDED, Found, Search, Skipped, find_files
from .files.plan import plan
from .follow.checkpoint import claim_checkpoint
from .follow.checkpoint_lock import only_user
from .follow.local import follow_locally
from .follow.options import FollowOptions
from .job import ShipJob
from .local_engine import LocalEngine
from .plan_file import PlanFile
from .portions import Portion
from .report import Shipment, counted
from .shipment import FIRST_FILES, Engine, ship_plan, ship_search
from .standard_input import STANDARD_INPUT, ship_standard_input

if TYPE_CHECKING:
    from .spark_engine import SparkEngine

#: The names of what can ship.
SPARK, LOCAL = "spark", "local"
ENGINES = (SPARK, LOCAL)

#: How the options of a target are given to the command, and what of them may be shown.
_ARGUMENTS: dict[str, tuple[str, Callable[[ShipJob], str] | None]] = {
    "endpoint": ("--endpoint", lambda job: job.project.endpoint),
    "project": ("--project", lambda job: job.project.project),
    "logstore": ("--logstore", lambda job: job.logstore),
    "accessKeyId": ("--access-key-id or LOGHUB_ACCESS_KEY_ID", None),
    "accessKeySecret": ("--access-key-secret or LOGHUB_ACCESS_KEY_SECRET", None),
    "securityToken": ("--security-token or LOGHUB_SECURITY_TOKEN", None),
}


def default_engine() -> str:
    """Spark where it is installed."""
    return LOCAL if importlib.util.find_spec("pyspark") is None else SPARK


def ship(
    job: ShipJob,
    paths: Sequence[str],
    *,
    exclude: Sequence[str],
    allow_links_to: Sequence[str] = (),
    allow_unread: bool = False,
    following: FollowOptions | None,
    engine: str | None,
    master: str | None,
    workers: int | None,
    partition_bytes: int,
    settle: float,
    console: Console,
) -> Shipment:
    """Find the files, start what ships them, ship them, and end it.

    :param job: where to, and how.
    :param paths: files, directories or globs.
    :param exclude: glob patterns to leave out.
    :param allow_links_to: directories below which links may lead, besides those that are named.
    :param allow_unread: True if a path that is named may not be readable.
    :param following: how to follow, and what; None ships what is there and ends.
    :param engine: one of :data:`ENGINES`; Spark where it is installed if left out.
    :param master: a Spark master URL; every core of this machine if left out.
    :param workers: processes of the engine ``local``; as many as there are cores if left out.
    :param partition_bytes: the most that one task reads, bytes on disk.
    :param settle: a log of several lines on standard input to which nothing was added for this long is complete,
        seconds.
    :param console: where progress is shown.
    :raises ProducerError: something that was asked for cannot be done.
    """
    if STANDARD_INPUT in paths:
        _check_standard_input(paths, engine, workers, following)
        check_target(job)
        return ship_standard_input(job, settle=settle, console=console)
    engine = engine or default_engine()
    _check_engine(engine, master, workers)
    if following is not None:
        check_target(job, patient=following.follow and not following.once)
        _check_numbering(job)
        with only_user(following.checkpoint) as lock:
            return _ship_with_checkpoint(job, following, engine, master, workers, console, lock)
    search = Search(paths, exclude=exclude, allow_links_to=allow_links_to, lenient=allow_unread, encoding=job.encoding)
    search.go_on(files=FIRST_FILES)
    told = search.ended
    if told:
        tell_skipped((*search.skipped, *_unread(search)), console)
        check_something_is_left(search.waiting, search.skipped, paths)
    check_target(job)
    if told and not search.waiting:
        console.print(f"there are no files to ship in {shown(', '.join(paths))}", markup=False, highlight=False)
    with _running(engine, master, workers) as ready:
        shipment = ship_search(ready, search, job, console=console, partition_bytes=partition_bytes)
    if not told:
        tell_skipped((*search.skipped, *_unread(search)), console)
    return replace(shipment, unread=_unread(search))


def _unread(found: Search | Found) -> Skipped:
    return (*found.unread, *found.absent)


def _ship_with_checkpoint(
    job: ShipJob,
    following: FollowOptions,
    engine: str,
    master: str | None,
    workers: int | None,
    console: Console,
    lock: DirectoryLock,
) -> Shipment:
    following = replace(following, exactly_once=claim_checkpoint(job, following, engine))
    if not following.follow:
        return _ship_once(job, following, engine, master, workers, console)
    if engine == LOCAL:
        return follow_locally(LocalEngine(workers), job, following, console=console, lock=lock)
    with _running_spark(master, sql=True) as running:
        from .follow.query import follow  # it needs Spark

        return follow(running.session, job, following, console=console)


def _ship_once(
    job: ShipJob, options: FollowOptions, engine: str, master: str | None, workers: int | None, console: Console
) -> Shipment:
    """Ship what the checkpoint's plan has left; what is there now, if it has none yet."""
    with PlanFile(options.checkpoint) as plan_file:
        portions = plan_file.read()
        if portions is None:
            found = find_files(
                options.paths,
                exclude=options.exclude,
                exclude_directory=options.checkpoint,
                allow_links_to=options.allow_links_to,
                lenient=options.allow_unread,
            )
            tell_skipped((*found.skipped, *_unread(found)), console)
            check_something_is_left(len(found.files), found.skipped, options.paths)
            _check_versions(found)
            ranges = plan(found.files, partition_bytes=options.partition_bytes)
            portions = [
                Portion(splits, run=options.exactly_once, number=number) for number, splits in enumerate(ranges)
            ]
            plan_file.write(portions, _unread(found))
        with _running(engine, master, workers) as ready:
            return ship_plan(ready, plan_file, portions, job, console=console)


def _check_standard_input(
    paths: Sequence[str], engine: str | None, workers: int | None, following: FollowOptions | None
) -> None:
    if len(paths) > 1:
        raise InputError("- is standard input, and is shipped by itself: name no other path beside it")
    if following is not None:
        raise InputError("--follow and --exactly-once are for files: a pipe cannot be read again")
    if engine == SPARK or workers is not None:
        raise InputError("standard input is shipped by this process alone: leave out --engine spark and --workers")


def _check_engine(engine: str, master: str | None, workers: int | None) -> None:
    if engine == LOCAL and master is not None:
        raise InputError(f"--master belongs to --engine {SPARK}, and the engine is {LOCAL}")
    if engine == SPARK and workers is not None:
        raise InputError(f"--workers belongs to --engine {LOCAL}, and the engine is {SPARK}; use --master local[N]")
    if engine == SPARK and importlib.util.find_spec("pyspark") is None:
        raise InputError(f"--engine spark needs PySpark: {how_to_install('spark')}, or use --engine local")


def check_something_is_left(files: int, skipped: Sequence[tuple[str, str]], paths: Sequence[str]) -> None:
    """Tell an ``--exclude`` that leaves no file from paths without any.

    :raises InputError: it leaves none.
    """
    excluded = sum(reason == EXCLUDED for _, reason in skipped)
    if excluded and not files:
        raise InputError(f"{', '.join(paths)}: --exclude leaves no file to ship ({counted(excluded, 'file')} left out)")


def _check_versions(found: Found) -> None:
    untold = next((file for file in found.files if file.address and not file.version), None)
    if untold is not None:
        raise InputError(
            f"{untold.path}: its server sends neither an ETag nor a modification time, so that --exactly-once "
            "could not recognise the file after a restart: leave it out, or copy the file"
        )


def check_target(job: ShipJob, *, patient: bool = False) -> None:
    """Ask for the logstore before anything is started.

    :param patient: whether a server that cannot be reached is waited for: the warning says so.
    :raises InputError: what is wrong with it, by the argument that says it.
    """
    fault = fault_of(job.target, job.config, patient=patient, timeout=min(job.ack_timeout, CHECK_SECONDS))
    if fault is None:
        return
    argument, shown = _ARGUMENTS[fault.option]
    value = "" if shown is None else f" {shown(job)}"
    status = "no answer" if fault.cause.http_status is None else f"status {fault.cause.http_status}"
    raise InputError(
        f"{argument}{value}: {fault.cause} ({status}, request id {fault.cause.request_id or 'none'}); "
        "asked before the job, nothing was sent"
    ) from fault.error


def _check_numbering(job: ShipJob) -> None:
    """Ask for what ``--exactly-once`` stands on.

    :raises InputError: it does not hold.
    """
    if job.exactly_once and uses_up_numbers(job.target, job.config, min(job.ack_timeout, CHECK_SECONDS)):
        raise InputError(
            f"--exactly-once: {job.target} uses up the sequence numbers of requests that it refuses, so lines of a "
            "refused request could be taken for stored: leave it out; asked before the job, nothing was sent"
        )


def _running(engine: str, master: str | None, workers: int | None) -> AbstractContextManager[Engine]:
    return contextlib.nullcontext(LocalEngine(workers)) if engine == LOCAL else _running_spark(master)


def _running_spark(master: str | None, *, sql: bool = False) -> AbstractContextManager[SparkEngine]:
    from .spark_engine import running_spark  # the engine local works without Spark

    return running_spark(master, sql=sql)


def tell_skipped(skipped: Sequence[tuple[str, str]], console: Console) -> None:
    """Tell what is left out, and why; of what the user has excluded how many."""
    for path, reason in skipped:
        if reason != EXCLUDED:
            console.print(shown(f"skipped {path}: {reason}"), markup=False, highlight=False, soft_wrap=True)
    excluded = sum(reason == EXCLUDED for _, reason in skipped)
    if excluded:
        console.print(f"skipped by --exclude: {counted(excluded, 'path')}", highlight=False)

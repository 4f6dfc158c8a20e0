"""What ``producer ship`` does with its arguments: whatever can be wrong is found before Spark is started."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from ..spark.text import readable
from .files.find import Found, find_files
from .follow.checkpoint import claim_checkpoint
from .follow.query import FollowOptions, follow
from .job import ShipJob
from .report import Shipment, counted
from .session import running_session
from .shipment import ship_files

# What would be told about each file is too much for a directory of thousands.
_SKIPPED_SHOWN = 10


def ship(
    job: ShipJob,
    paths: Sequence[str],
    *,
    exclude: Sequence[str],
    following: FollowOptions | None,
    master: str | None,
    partition_bytes: int,
    console: Console,
) -> Shipment:
    """Find the files, start Spark, ship them, and end Spark.

    :param job: where to, and how.
    :param paths: files, directories or globs.
    :param exclude: glob patterns to leave out.
    :param following: how to follow, and what; None ships what is there and ends.
    :param master: a Spark master URL; every core of this machine if left out.
    :param partition_bytes: the most that one task reads, bytes on disk.
    :param console: where progress is shown.
    :raises ProducerError: something that was asked for cannot be done.
    """
    if following is not None:
        claim_checkpoint(job, following)
        with running_session(master=master) as session:
            return follow(session, job, following, console=console)
    found = find_files(paths, exclude=exclude)
    _tell_skipped(found, console)
    if not found.files:
        console.print(f"there are no files to ship in {readable(', '.join(paths))}", markup=False, highlight=False)
    with running_session(master=master) as session:
        return ship_files(session, found, job, console=console, partition_bytes=partition_bytes)


def _tell_skipped(found: Found, console: Console) -> None:
    for path, reason in found.skipped[:_SKIPPED_SHOWN]:
        console.print(readable(f"skipped {path}: {reason}"), markup=False, highlight=False)
    if len(found.skipped) > _SKIPPED_SHOWN:
        more = counted(len(found.skipped) - _SKIPPED_SHOWN, "more file")
        console.print(f"skipped {more} (binary, hidden, unreadable, excluded, or links)")

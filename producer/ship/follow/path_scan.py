"""Scans followed paths for new lines, and divides the range between two offsets into portions."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ...runtime.loggers import get_logger
from ...text.plural import counted
from ...text.printable import shown
from ...wire.log_start import Logs
from ..files.find import EXCLUDED, HIDDEN, Found, Skipped, find_files
from ..files.plan import cut, pack, partition_size
from ..portions import Portion
from .options import FollowOptions
from .tracking import Offset, Range, ranges, scan

_log = get_logger("loghub.ship.follow")


class PathScanner:
    """A scanner of directories, files or globs.

    :param paths: the paths to follow.
    :param exclude: glob patterns to leave out.
    :param allow_links_to: directories below which links may lead, in addition to the named ones.
    :param checkpoint: a directory that is never followed.
    :param settle: time without writes after which a file is complete, seconds.
    :param logs: the start pattern of multi-line logs; None if each line is a log.
    """

    def __init__(
        self,
        paths: Sequence[str],
        exclude: Sequence[str],
        *,
        checkpoint: str,
        settle: float,
        logs: Logs | None,
        allow_links_to: Sequence[str] = (),
    ) -> None:
        self._paths = paths
        self._exclude = exclude
        self._checkpoint = checkpoint
        self._settle = settle
        self._logs = logs
        self._allow_links_to = allow_links_to
        self._reported: frozenset[tuple[str, str]] = frozenset()
        self._unread: set[str] = set()
        self._has_reported = False

    def latest(self, known: Offset) -> Offset:
        """Return the offset after all lines that are complete.

        :param known: the current offset.
        """
        return scan(
            self._paths,
            self._exclude,
            known,
            settle=self._settle,
            now=time.time(),
            checkpoint=self._checkpoint,
            report=self._log_unread,
            logs=self._logs,
            allow_links_to=self._allow_links_to,
        )

    def _log_unread(self, found: Found) -> None:
        """Log once each path that is left out, with its reason, and each path that can be read again.

        Hidden files that appear later are not logged: programs write temporary files under such names.
        """
        unread = frozenset([*found.unread, *found.absent])
        skipped = frozenset(each for each in found.skipped if each[1] != EXCLUDED)
        for path, reason in sorted((unread | skipped) - self._reported):
            if not self._has_reported or reason != HIDDEN:
                _log.warning("skipped %s: %s", shown(path), reason)
        for path in sorted(self._unread - {path for path, _ in unread}):
            _log.warning("%s can be read again", shown(path))
        self._reported, self._unread, self._has_reported = unread | skipped, {path for path, _ in unread}, True

    def portions(
        self, start: Offset, end: Offset, *, partition_bytes: int, parallelism: int, run: str = ""
    ) -> list[Portion]:
        """Return the portions between two offsets.

        :param partition_bytes: maximum size of a portion, bytes on disk.
        :param parallelism: number of concurrent tasks.
        :param run: the name of the batch for exactly-once delivery; empty otherwise. Named portions have the same
            bounds at each attempt, whatever the parallelism.
        """
        found = ranges(start, end, self._exclude)
        present = [each for each in found if not each.lost]
        total = sum(each.file.size - each.start for each in present)
        size = partition_bytes if run else partition_size(total, parallelism, partition_bytes)
        splits = (
            split for each in present for split in cut(each.file, each.start, each.file.size, partition_bytes=size)
        )
        portions = [Portion(part, run=run) for part in pack(splits, partition_bytes=size)]
        lost = tuple(_loss(each) for each in found if each.lost)
        return [*portions, Portion((), lost)] if lost else portions


def unread_of(options: FollowOptions) -> Skipped:
    """Return the paths that cannot be read at the end of a run, so that they were not shipped.

    Named paths that do not exist count only if the run ends by itself: otherwise they may appear later.
    """
    found = find_files(
        options.paths,
        exclude=options.exclude,
        exclude_directory=options.checkpoint,
        allow_links_to=options.allow_links_to,
        lenient=True,
    )
    return (*found.unread, *found.absent) if options.once else found.unread


def _loss(lost: Range) -> str:
    path, size = shown(lost.file.path), lost.file.size - lost.start
    one = f"byte from byte {lost.start} on was deleted before it was shipped"
    several = f"bytes from byte {lost.start} on were deleted before they were shipped"
    return f"{path}: {counted(size, one, several)}"

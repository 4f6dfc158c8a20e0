"""Looks at followed paths: how far they can be taken, and the portions between two offsets."""

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


class Looks:
    """Looks at directories, files or globs.

    :param paths: of what is followed.
    :param exclude: glob patterns to leave out.
    :param allow_links_to: directories below which links may lead, besides those that are named.
    :param checkpoint: a directory that is never followed.
    :param settle: a file not written to for this long is complete, seconds.
    :param logs: how logs of several lines begin; None if each line is one.
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
        self._told: frozenset[tuple[str, str]] = frozenset()
        self._unread: set[str] = set()
        self._has_told = False

    def latest(self, known: Offset) -> Offset:
        """The offset after everything that can be taken now.

        :param known: the offset so far.
        """
        return scan(
            self._paths,
            self._exclude,
            known,
            settle=self._settle,
            now=time.time(),
            checkpoint=self._checkpoint,
            look=self._tell_unread,
            logs=self._logs,
            allow_links_to=self._allow_links_to,
        )

    def _tell_unread(self, found: Found) -> None:
        """Log each path once that is not shipped, and why; and when one that could not be read can.

        Hidden files that come later are not told: programs write temporary files under such names.
        """
        unread = frozenset([*found.unread, *found.absent])
        skipped = frozenset(each for each in found.skipped if each[1] != EXCLUDED)
        for path, reason in sorted((unread | skipped) - self._told):
            if not self._has_told or reason != HIDDEN:
                _log.warning("skipped %s: %s", shown(path), reason)
        for path in sorted(self._unread - {path for path, _ in unread}):
            _log.warning("%s can be read again", shown(path))
        self._told, self._unread, self._has_told = unread | skipped, {path for path, _ in unread}, True

    def portions(
        self, start: Offset, end: Offset, *, partition_bytes: int, parallelism: int, run: str = ""
    ) -> list[Portion]:
        """The portions between two offsets.

        :param partition_bytes: the most that one has, bytes on disk.
        :param parallelism: tasks that run at a time.
        :param run: names the batch if each line is to be stored once. Portions then begin where they did before,
            whatever runs at a time.
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
    """Find what cannot be read at the end of a run, and so is not shipped.

    A path that is named and not there may come, and is waited for, unless the run ends by itself.
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

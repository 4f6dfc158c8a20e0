"""Scans followed paths for new lines, and divides the range between two offsets into portions."""

from __future__ import annotations

import time

from ...runtime.loggers import get_logger
from ...text.plural import counted
from ...text.printable import shown
from ...wire.log_start import Logs
from ..files.find import EXCLUDED, HIDDEN, Found, Skipped
from ..files.plan import cut, pack, partition_size
from ..options import ShipOptions
from ..portions import Portion
from .tracking import Offset, Range, ranges, scan

_log = get_logger("loghub.ship.follow")


class PathScanner:
    """A scanner of followed paths.

    :param options: the paths, and the options of following them.
    :param logs: the start pattern of multi-line logs; None if each line is a log.
    """

    def __init__(self, options: ShipOptions, logs: Logs | None) -> None:
        self._options = options
        self._logs = logs
        self._reported: frozenset[tuple[str, str]] = frozenset()
        self._unread: set[str] = set()
        self._has_reported = False

    def latest(self, known: Offset) -> Offset:
        """Return the offset after all lines that are complete.

        :param known: the current offset.
        """
        found, options = self._options.search().all(), self._options
        self._log_unread(found)
        return scan(found, options.exclude, known, settle=options.settle, now=time.time(), logs=self._logs)

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

    def portions(self, start: Offset, end: Offset, *, batch: int, parallelism: int) -> list[Portion]:
        """Return the portions between two offsets.

        For exactly-once delivery, the portions of a batch have the same bounds at each attempt, whatever the
        parallelism, and its name.

        :param batch: the number of the batch.
        :param parallelism: number of concurrent tasks.
        """
        once, most = self._options.exactly_once, self._options.partition_bytes
        run = f"{once}:{batch}" if once else ""
        found = ranges(start, end, self._options.exclude)
        present = [each for each in found if not each.lost]
        total = sum(each.file.size - each.start for each in present)
        size = most if run else partition_size(total, parallelism, most)
        splits = (
            split for each in present for split in cut(each.file, each.start, each.file.size, partition_bytes=size)
        )
        portions = [Portion(part, run=run) for part in pack(splits, partition_bytes=size)]
        lost = tuple(_loss(each) for each in found if each.lost)
        return [*portions, Portion((), lost)] if lost else portions


def unread_of(options: ShipOptions) -> Skipped:
    """Return the paths that cannot be read at the end of a run, so that they were not shipped.

    Named paths that do not exist count only if the run ends by itself: otherwise they may appear later.
    """
    found = options.search().all()
    return (*found.unread, *found.absent) if options.once else found.unread


def _loss(lost: Range) -> str:
    path, size = shown(lost.file.path), lost.file.size - lost.start
    one = f"byte from byte {lost.start} on was deleted before it was shipped"
    several = f"bytes from byte {lost.start} on were deleted before they were shipped"
    return f"{path}: {counted(size, one, several)}"

"""The paths to ship, and how to follow them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .files.find import Search
from .files.plan import PARTITION_BYTES

#: Time between two scans, seconds.
INTERVAL = 1.0
#: Time without writes after which a file is complete, seconds.
SETTLE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShipOptions:
    """The paths to ship, and how to follow them.

    :ivar paths: directories, files or globs.
    :ivar exclude: glob patterns of files to leave out.
    :ivar allow_links_to: directories below which links may lead, in addition to the named ones.
    :ivar allow_unread: True if unreadable paths do not fail the run.
    :ivar checkpoint: the directory that stores the offset of each file; it is never followed itself. Empty to ship the
        existing files once, without a checkpoint.
    :ivar exactly_once: the name of the checkpoint for exactly-once delivery; empty for at-least-once, where the last
        batch may be sent twice.
    :ivar once: True to ship the existing lines and end.
    :ivar follow: True to ship lines that are added later, too.
    :ivar interval: time between two scans, seconds.
    :ivar settle: time without writes after which a file is complete, seconds.
    :ivar batch_bytes: approximate size of a batch, bytes on disk.
    :ivar partition_bytes: maximum size of a task, bytes on disk.
    :ivar stop_timeout: maximum wait for the running batch at a stop, seconds.
    """

    paths: Sequence[str]
    exclude: Sequence[str] = ()
    allow_links_to: Sequence[str] = ()
    allow_unread: bool = False
    checkpoint: str = ""
    exactly_once: str = ""
    once: bool = False
    follow: bool = True
    interval: float = INTERVAL
    settle: float = SETTLE
    batch_bytes: int = 1 << 30
    partition_bytes: int = PARTITION_BYTES
    stop_timeout: float = 60.0

    def search(self, *, lenient: bool = True, encoding: str = "") -> Search:
        """Begin a search for the files of the paths, without those of the checkpoint.

        :param lenient: True to record the error of a named path instead of raising it.
        :param encoding: the encoding of the files; empty for UTF-8.
        """
        return Search(
            self.paths,
            exclude=self.exclude,
            exclude_directory=self.checkpoint or None,
            allow_links_to=self.allow_links_to,
            lenient=lenient,
            encoding=encoding,
        )

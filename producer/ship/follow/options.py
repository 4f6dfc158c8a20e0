"""How files are followed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..files.plan import PARTITION_BYTES

#: How often to look for something new, seconds.
INTERVAL = 1.0
#: A file that was not written to for this long is complete, seconds.
SETTLE = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions:
    """How to follow.

    :ivar paths: directories, files or globs.
    :ivar exclude: glob patterns of files to leave out.
    :ivar allow_links_to: directories below which links may lead, besides those that are named.
    :ivar allow_unread: True if it is no failure that a path cannot be read.
    :ivar checkpoint: the directory that remembers how far each file was shipped; never followed itself.
    :ivar exactly_once: names the checkpoint, so that each line is stored once; empty if the last batch may come twice.
    :ivar once: ship what is there and end.
    :ivar follow: whether what is added later is shipped, too.
    :ivar interval: how often to look for something new, seconds.
    :ivar settle: a file that was not written to for this long is complete, seconds.
    :ivar batch_bytes: about how much one micro-batch takes, bytes on disk.
    :ivar partition_bytes: what one task reads, bytes on disk.
    :ivar stop_timeout: how long a stop waits for the micro-batch that is running, seconds.
    """

    paths: Sequence[str]
    exclude: Sequence[str] = ()
    allow_links_to: Sequence[str] = ()
    allow_unread: bool = False
    checkpoint: str
    exactly_once: str = ""
    once: bool = False
    follow: bool = True
    interval: float = INTERVAL
    settle: float = SETTLE
    batch_bytes: int = 1 << 30
    partition_bytes: int = PARTITION_BYTES
    stop_timeout: float = 60.0

"""Directories: where one channel's files lie."""

from __future__ import annotations

from dataclasses import dataclass

from .disk import Disk


@dataclass(frozen=True, slots=True)
class Directories:
    """The directories of one channel.

    :ivar name: the channel's, for messages.
    :ivar main: where its checkpoints are.
    :ivar data: where its segments are, too.
    """

    disk: Disk
    name: str
    main: str
    data: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Each of them once, the main one first."""
        return tuple(dict.fromkeys((self.main, *self.data)))

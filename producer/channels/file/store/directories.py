"""Directories: the paths of one channel's files."""

from __future__ import annotations

from dataclasses import dataclass

from .disk import Disk


@dataclass(frozen=True, slots=True)
class Directories:
    """Directories of one channel.

    :ivar name: the channel's name, for messages.
    :ivar main: the directory of its checkpoints.
    :ivar data: the directories of its segments; empty for ``main``.
    """

    disk: Disk
    name: str
    main: str
    data: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Return each directory once, the main one first."""
        return tuple(dict.fromkeys((self.main, *self.data)))

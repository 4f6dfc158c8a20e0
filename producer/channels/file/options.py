"""Options of a file channel, checked once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from ...model.errors import ConfigError
from ...model.interfaces import Stored
from ...model.options import check_all, option
from .store.pointers import MOST_OFFSET

#: The smallest permitted segment size, bytes.
LEAST_SEGMENT = 1280


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChannelOptions:
    """Options of a :class:`~producer.channels.FileChannel`, which documents them and sets their defaults.

    :raises ConfigError: an option has a wrong type or value.
    """

    capacity: int = option(least=1, unit="events")
    byte_capacity: int | None = option(least=1, unit="bytes")
    admit_larger: bool = option()
    transaction_capacity: int = option(least=1, unit="events")
    keep_alive: float = option(least=0, unit="seconds")
    fsync: Literal["commit", "os"] | float = option(least=0.001, unit="seconds")
    segment_size: int = option(least=LEAST_SEGMENT, most=MOST_OFFSET, unit="bytes")
    checkpoint_interval: float | None = option(least=0.001, unit="seconds")
    dual_checkpoints: bool = option()
    minimum_free_space: int = option(least=0, unit="bytes")
    reserve: int = option(least=0, unit="bytes")

    def __post_init__(self) -> None:
        check_all(self)
        if self.transaction_capacity > self.capacity:
            rule = f"must not be above capacity ({self.capacity})"
            raise ConfigError("transaction_capacity", rule, self.transaction_capacity)

    @property
    def waits(self) -> bool:
        """True if a commit waits for the disk."""
        return self.fsync == "commit"

    @property
    def interval(self) -> float | None:
        """Return the seconds between syncs; None if no interval is set."""
        return None if isinstance(self.fsync, str) else float(self.fsync)

    @property
    def keeps(self) -> bool:
        """True if unsynced records are kept in memory, to be written again after a failed sync."""
        return self.fsync != "os"

    @property
    def promise(self) -> Stored:
        """Return the durability of a commit when it returns."""
        return Stored.DISK if self.waits else Stored.CACHE


def check_paths(directory: object, data_directories: object) -> None:
    """Check that ``directory`` is a path and ``data_directories`` a list of paths.

    :raises ConfigError: one of them is not.
    """
    if not os.fspath(directory):  # type: ignore[call-overload]  # raises TypeError if not a path
        raise ConfigError("directory", "must be the path of a directory", directory)
    if isinstance(data_directories, str | bytes | os.PathLike):
        raise ConfigError("data_directories", "must be a list of directories, not one path", data_directories)

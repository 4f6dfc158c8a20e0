"""The options of a file channel, checked once."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from ...model.errors import ConfigError
from ...model.interfaces import Stored
from .store.pointers import MOST_OFFSET

#: Puts, or takes, of one transaction.
TRANSACTION_CAPACITY = 10_000
#: Bytes of the smallest segment.
LEAST_SEGMENT = 1280
_NUMBER = "a number"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChannelOptions:
    """See :class:`~producer.channels.FileChannel`.

    :raises ConfigError: a wrong type or value: name, rule, value.
    """

    capacity: int
    byte_capacity: int | None
    admit_larger: bool
    transaction_capacity: int
    keep_alive: float
    fsync: str | float
    segment_size: int
    checkpoint_interval: float | None
    dual_checkpoints: bool
    minimum_free_space: int
    reserve: int

    def __post_init__(self) -> None:
        self._whole("capacity", 1)
        self._whole("transaction_capacity", 1)
        if self.byte_capacity is not None:
            self._whole("byte_capacity", 1)
        self._whole("segment_size", LEAST_SEGMENT, MOST_OFFSET)
        self._whole("minimum_free_space", 0)
        self._whole("reserve", 0)
        self._seconds("keep_alive", least=0)
        if self.checkpoint_interval is not None:
            self._seconds("checkpoint_interval", least=0.001)
        if self.fsync not in ("commit", "os"):
            if isinstance(self.fsync, str | bool):
                raise ConfigError("fsync", 'must be "commit", "os" or seconds above 0', self.fsync)
            self._seconds("fsync", least=0.001)
        for name in ("dual_checkpoints", "admit_larger"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(name, "must be True or False", getattr(self, name))
        if self.transaction_capacity > self.capacity:
            rule = f"must not be above capacity ({self.capacity})"
            raise ConfigError("transaction_capacity", rule, self.transaction_capacity)

    def _whole(self, name: str, least: int, most: int | None = None) -> None:
        value = getattr(self, name)
        above = most is not None and isinstance(value, int) and value > most
        if isinstance(value, bool) or not isinstance(value, int) or value < least or above:
            upper = "" if most is None else f" and at most {most}"
            raise ConfigError(name, f"must be a whole number, at least {least}{upper}", value)

    def _seconds(self, name: str, least: float) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value < least:
            raise ConfigError(name, f"must be seconds, at least {least}", value)

    @property
    def waits(self) -> bool:
        """Whether a commit waits for the disk."""
        return self.fsync == "commit"

    @property
    def interval(self) -> float | None:
        """Seconds between syncs, if there is such a rule."""
        return None if isinstance(self.fsync, str) else float(self.fsync)

    @property
    def keeps(self) -> bool:
        """Whether what is not synced is kept in memory, to be written again if a sync fails."""
        return self.fsync != "os"

    @property
    def promise(self) -> Stored:
        """Where a commit is when it returns."""
        return Stored.DISK if self.waits else Stored.CACHE


def fewest(capacity: object) -> int:
    """The ``transaction_capacity`` of a channel whose user gave none."""
    return min(TRANSACTION_CAPACITY, capacity) if isinstance(capacity, int) else TRANSACTION_CAPACITY


def check_paths(directory: object, data_directories: object) -> None:
    """Whether these are a path, and a list of paths.

    :raises ConfigError: they are not.
    """
    if not os.fspath(directory):  # type: ignore[call-overload]  # raises for what is no path
        raise ConfigError("directory", "must be the path of a directory", directory)
    if isinstance(data_directories, str | bytes | os.PathLike):
        raise ConfigError("data_directories", "must be a list of directories, not one path", data_directories)

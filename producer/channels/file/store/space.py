"""Space: refuses puts while some of the disk is still free, so that takes and checkpoints can always be written.

Puts leave the minimum that the user has named, or what a checkpoint takes, whichever is more.

Besides, a file of a fixed size is kept; when the disk is full all the same, filled by somebody else, it is given up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from ....model.errors import DiskFullError
from ....runtime.clock import Clock
from ....runtime.loggers import get_logger
from ....text.plural import counted
from .disk import Disk

_log = get_logger("loghub.channel")

#: How long a look at the free space is trusted, seconds; what is written meanwhile is subtracted.
FRESH = 1.0
#: What is not needed now may take this part of what is free.
_MANY = 16
RESERVE_NAME = "reserve"


class Space:
    """Knows how much of the disk is free for one channel, and keeps its reserve. Called with the log's write lock held.

    :param directories: the channel's; the fullest counts.
    :param minimum: bytes that puts leave free.
    :param reserve: bytes of the file.
    :param checkpoint: bytes that a checkpoint would take at this moment.
    """

    def __init__(
        self,
        disk: Disk,
        name: str,
        directories: Iterable[str],
        *,
        minimum: int,
        reserve: int,
        clock: Clock,
        checkpoint: Callable[[], int] = lambda: 0,
    ) -> None:
        self._disk = disk
        self._name = name
        self._directories = tuple(dict.fromkeys(directories))
        self._minimum = minimum
        self._reserve = reserve
        self._checkpoint, self._needed = checkpoint, minimum
        self._clock = clock
        self._path = f"{self._directories[0]}/{RESERVE_NAME}"
        self._free: int | None = None
        self._where = self._directories[0]
        self._looked = 0.0
        self._told = False  # that there is no reserve

    @property
    def free(self) -> int:
        """Bytes free on the fullest of the disks, as far as it is known."""
        now = self._clock.monotonic()
        if self._free is None or not 0 <= now - self._looked < FRESH:
            self._free, self._where = min((self._disk.free(path), path) for path in self._directories)
            self._looked, self._needed = now, max(self._minimum, self._checkpoint())
        return self._free

    def admit(self, size: int) -> None:
        """Whether a put of ``size`` bytes may be written.

        :raises DiskFullError: it may not.
        """
        free = self._free
        if free is not None and free >= self._needed + size and 0 <= self._clock.monotonic() - self._looked < FRESH:
            return
        if self.free < self._needed + size:
            self._free = None  # what was seen up to a second ago is no reason to refuse: look again, now and next time
            if self.free < self._needed + size:
                self._free = None
                raise self.full(size)

    def has(self, size: int) -> bool:
        """Whether ``size`` bytes are free many times over."""
        return self.free >= self._minimum + _MANY * size

    def full(self, size: int) -> DiskFullError:
        """What to tell the one who wanted to put ``size`` bytes."""
        try:
            free = min(self._disk.free(path) for path in self._directories)
        except OSError:
            free = 0
        return DiskFullError(self._name, free, self._needed + size, self._where)

    def used(self, size: int) -> None:
        """So many bytes were written."""
        if self._free is not None:
            self._free -= size

    def keep_reserve(self) -> None:
        """Make the reserve, unless it is there, as large as it should be, or the disk is too full for it."""
        if not self._reserve:
            return
        try:
            if self._disk.exists(self._path):
                if self._disk.size_of(self._path) >= self._reserve:
                    return
                self._disk.unlink(self._path)  # a crash, or a full disk, came while it was made
            free = self._disk.free(self._directories[0])
            if free < self._minimum + self._reserve:
                self._tell_of_none(free)
                return
            file = self._disk.create(self._path)
            try:
                self._disk.allocate(file, self._reserve)
            finally:
                self._disk.close(file)
            self._told = False
        except OSError as error:
            _log.warning("channel %s: no reserve for a full disk can be kept: %s", self._name, error)
            with contextlib.suppress(OSError):
                self._disk.unlink(self._path)

    def _tell_of_none(self, free: int) -> None:
        """Once: where puts may take all of the disk, takes could not be committed any more."""
        if not self._told and self._minimum < self._reserve:
            self._told = True
            _log.warning(
                "channel %s: %s has %s free, too few for a reserve of %d (reserve) besides %d "
                "(minimum_free_space): if the disk becomes full, what is delivered cannot be acknowledged until "
                "some space is freed",
                self._name,
                self._directories[0],
                counted(free, "byte"),
                self._reserve,
                self._minimum,
            )

    def give_up_reserve(self) -> bool:
        """Free the reserve; False if it is gone already."""
        try:
            self._disk.unlink(self._path)
        except OSError:
            return False
        self._free = None
        _log.warning("channel %s: the disk is full: its reserve is released, so that takes go on", self._name)
        return True

"""Space: refuse puts while the disk still has some space, so that takes and checkpoints can always be written.

Puts leave ``minimum_free_space``, or the size of a checkpoint if that is more. There is also a reserve file of a fixed
size, which is deleted if other programs fill the disk.
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

#: Seconds for which a reading of the free space is valid; bytes written meanwhile are subtracted.
FRESH = 1.0
#: Optional writes need this many times their size of free space.
_MANY = 16
RESERVE_NAME = "reserve"


class Space:
    """Free space and reserve of one channel's disks. Called with the log's write lock held.

    :param directories: the channel's directories; the fullest disk counts.
    :param minimum: bytes that puts leave free.
    :param reserve: size of the reserve file, bytes.
    :param checkpoint: returns the bytes that a checkpoint would take now.
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
        self._read_at = 0.0
        self._logged = False  # True once the missing reserve was logged

    @property
    def free(self) -> int:
        """Return the free bytes of the fullest disk, at most ``FRESH`` seconds old."""
        now = self._clock.monotonic()
        if self._free is None or not 0 <= now - self._read_at < FRESH:
            self._free, self._where = min((self._disk.free(path), path) for path in self._directories)
            self._read_at, self._needed = now, max(self._minimum, self._checkpoint())
        return self._free

    def admit(self, size: int) -> None:
        """Check that a put of ``size`` bytes may be written.

        :raises DiskFullError: too little free space.
        """
        if self.free < self._needed + size:
            self._free = None  # do not refuse on an old reading: read again, now and next time
            if self.free < self._needed + size:
                self._free = None
                raise self.full(size)

    def has(self, size: int) -> bool:
        """True if the free space above the minimum is at least 16 times ``size`` bytes."""
        return self.free >= self._minimum + _MANY * size

    def full(self, size: int) -> DiskFullError:
        """Build the error for a put of ``size`` bytes."""
        try:
            free = min(self._disk.free(path) for path in self._directories)
        except OSError:
            free = 0
        return DiskFullError(self._name, free, self._needed + size, self._where)

    def used(self, size: int) -> None:
        """Subtract bytes that were written."""
        if self._free is not None:
            self._free -= size

    def keep_reserve(self) -> None:
        """Create the reserve file, unless it has its full size or the disk is too full."""
        if not self._reserve:
            return
        try:
            if self._disk.exists(self._path):
                if self._disk.size_of(self._path) >= self._reserve:
                    return
                self._disk.unlink(self._path)  # incomplete, after a crash or on a full disk
            free = self._disk.free(self._directories[0])
            if free < self._minimum + self._reserve:
                self._warn_no_reserve(free)
                return
            file = self._disk.create(self._path)
            try:
                self._disk.allocate(file, self._reserve)
            finally:
                self._disk.close(file)
            self._logged = False
        except OSError as error:
            _log.warning("channel %s: the reserve file cannot be created: %s", self._name, error)
            with contextlib.suppress(OSError):
                self._disk.unlink(self._path)

    def _warn_no_reserve(self, free: int) -> None:
        """Warn once that there is no reserve although puts may fill the disk."""
        if not self._logged and self._minimum < self._reserve:
            self._logged = True
            _log.warning(
                "channel %s: %s has %s free, too few for a reserve of %d (reserve) in addition to %d "
                "(minimum_free_space): if the disk becomes full, delivered events cannot be acknowledged until "
                "some space is freed",
                self._name,
                self._directories[0],
                counted(free, "byte"),
                self._reserve,
                self._minimum,
            )

    def release_reserve(self) -> bool:
        """Delete the reserve file; False if it does not exist."""
        try:
            self._disk.unlink(self._path)
        except OSError:
            return False
        self._free = None
        _log.warning("channel %s: the disk is full: the reserve is released, so that takes can continue", self._name)
        return True

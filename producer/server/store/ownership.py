"""Ownership: one server has a data directory, by the lock of :mod:`producer.runtime.directory_lock`.

SQLite locks its files by itself, but with locks that a process loses when any part of it opens and closes such a file
once more, as a copy of the directory does; then a second server would write into the same files.
"""

from __future__ import annotations

from pathlib import Path

from ...runtime.directory_lock import DirectoryLock, owner_of
from ..errors import ServerStartError

LOCK_NAME = "loghub.lock"


def own(directory: Path) -> DirectoryLock:
    """Make ``directory``, if it is missing, and be its only server from now on.

    :raises ServerStartError: another server has it, or it cannot be used.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = DirectoryLock(directory, LOCK_NAME, mode=0o644)
    except BlockingIOError:
        owner = owner_of(directory / LOCK_NAME)
        raise in_use(directory, f" ({owner})" if owner else "") from None
    except (OSError, ValueError) as error:  # the latter: a path that no system has
        raise unusable(directory, error) from error
    try:
        lock.say_owner()
    except OSError as error:
        lock.release()
        raise unusable(directory, error) from error
    return lock


def in_use(place: Path | None, owner: str = "") -> ServerStartError:
    """Another server has the data."""
    return ServerStartError(
        f"the data in {place} is in use by another server{owner}: stop it, or use another directory"
    )


def unusable(place: Path | None, error: Exception) -> ServerStartError:
    """Nobody can have the data."""
    return ServerStartError(
        f"the data in {place} cannot be used ({error}): give a directory that can be written, or move the file away"
    )

"""Ownership of a data directory by one server, with a lock of :mod:`producer.runtime.directory_lock`.

SQLite's own locks do not suffice. A process loses them when any part of it opens and closes the file once more, as a
copy of the directory does. A second server would then write to the same files.
"""

from __future__ import annotations

from pathlib import Path

from ...runtime.directory_lock import DirectoryLock, owner_of
from ..errors import ServerStartError

LOCK_NAME = "loghub.lock"


def own(directory: Path) -> DirectoryLock:
    """Create ``directory`` if missing, and lock it.

    :raises ServerStartError: another server has it, or it cannot be used.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = DirectoryLock(directory, LOCK_NAME, mode=0o644)
    except BlockingIOError:
        owner = owner_of(directory / LOCK_NAME)
        raise in_use(directory, f" ({owner})" if owner else "") from None
    except (OSError, ValueError) as error:  # ValueError: an invalid path
        raise unusable(directory, error) from error
    try:
        lock.write_owner()
    except OSError as error:
        lock.release()
        raise unusable(directory, error) from error
    return lock


def in_use(place: Path | None, owner: str = "") -> ServerStartError:
    """Return the error for data that another server uses."""
    return ServerStartError(
        f"the data in {place} is in use by another server{owner}: stop it, or use another directory"
    )


def unusable(place: Path | None, error: Exception) -> ServerStartError:
    """Return the error for data that cannot be used."""
    return ServerStartError(
        f"the data in {place} cannot be used ({error}): give a writable directory, or move the file away"
    )

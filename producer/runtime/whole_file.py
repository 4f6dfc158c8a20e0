"""Files that are written as a whole: after a crash there is the old one, or the new one, and no part of either."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path


def write_whole(path: Path, data: bytes, beside: Path) -> None:
    """Write a file under another name, sync it, rename it, and sync the directory.

    What a failed write leaves is removed, so that it takes no room on a full disk; the next write replaces what a crash
    leaves.

    :param beside: the other name, in the same directory.
    :raises OSError: it could not be written; the one before is still there.
    """
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Return when the names in a directory are on the disk.

    :raises OSError: the disk could not.
    """
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has no need of it
            raise
    finally:
        os.close(directory)

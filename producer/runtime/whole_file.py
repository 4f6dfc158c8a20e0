"""Whole files: replace files atomically, so that a crash leaves the old one or the new one, complete."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path


def write_whole(path: Path, data: bytes, beside: Path) -> None:
    """Write a file under another name, sync it, rename it, and sync the directory.

    After a failed write the partial file is removed, so that it takes no space on a full disk. After a crash the next
    write replaces it.

    :param beside: the other name, in the same directory.
    :raises OSError: it could not be written; the previous file is unchanged. The error names the file.
    """
    try:
        _write(path, data, beside)
        sync_directory(path.parent)
    except OSError as error:
        if error.filename is None:  # of a write or a sync
            error.filename = str(path)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            error.strerror = f"{error.strerror}; free some space"
        raise


def _write(path: Path, data: bytes, beside: Path) -> None:
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


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on the disk.

    :raises OSError: the sync failed.
    """
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that does not need it
            raise
    finally:
        os.close(directory)

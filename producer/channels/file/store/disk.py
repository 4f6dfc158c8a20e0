"""Disk: all file system operations of the file channel, in one object that tests can replace to simulate crashes.

Paths are strings. Files are file descriptors. All methods raise ``OSError``, which callers translate.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ....runtime.directory_lock import has_name, is_free, lock_alone, lock_directory
from ....text.plural import counted

_ZEROS = bytes(256 << 10)


class Disk:
    """The real file system."""

    def create(self, path: str) -> int:
        """Create a file, for appending and reading.

        :raises FileExistsError: it exists.
        """
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)

    def open(self, path: str) -> int:
        """Open an existing file, for reading and truncating."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def open_to_read(self, path: str) -> int:
        """Open an existing file for reading only, since this user may lack write permission."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def append(self, file: int, data: bytes, end: int | None = None) -> int:
        """Write at the end of the content; return the number of bytes written, which may be less than given.

        :param end: the end of the content; None for the end of the file.
        """
        return os.pwrite(file, data, self.size(file) if end is None else end)

    def preallocate(self, file: int, start: int, end: int) -> None:
        """Write zeros from ``start`` to ``end``, after the content.

        Later appends there change neither the file's size nor its extents, so that a sync only writes their bytes.
        """
        while start < end:
            start += os.pwrite(file, _ZEROS[: end - start], start)

    def read(self, file: int, size: int, offset: int) -> bytes:
        """Read ``size`` bytes from ``offset``; fewer only at the end of the file."""
        data = os.pread(file, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        while data and (left := size - sum(map(len, parts))):
            data = os.pread(file, left, offset + size - left)
            parts.append(data)
        return b"".join(parts)

    def size(self, file: int) -> int:
        """Return the size of an open file, bytes."""
        return os.fstat(file).st_size

    def size_of(self, path: str) -> int:
        """Return the size of a file by its path, bytes."""
        return Path(path).stat().st_size

    def overwrite(self, file: int, data: bytes, offset: int) -> None:
        """Replace bytes in the middle of a file, for repairs."""
        written = os.pwrite(file, data, offset)
        if written != len(data):
            raise OSError(errno.EIO, f"only {written} of {counted(len(data), 'byte')} were written")

    def truncate(self, file: int, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        os.ftruncate(file, size)

    def sync(self, file: int) -> None:
        """Wait until the file's bytes are on the disk."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(file)
        else:  # macOS, where fsync alone stops at the drive's cache
            fcntl.fcntl(file, getattr(fcntl, "F_FULLFSYNC", 51))

    def close(self, file: int) -> None:
        """Close the file, without a sync."""
        os.close(file)

    def sync_directory(self, path: str) -> None:
        """Wait until the directory's entries (created, renamed, removed) are on the disk."""
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing any file at ``new``."""
        Path(old).replace(new)

    def link(self, path: str, other: str) -> None:
        """Give a file a second, unused name."""
        os.link(path, other)

    def unlink(self, path: str) -> None:
        Path(path).unlink()

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents, and sync their entries."""
        missing = []
        place = Path(path)
        while not place.exists():
            missing.append(place)
            place = place.parent
        for directory in reversed(missing):
            with contextlib.suppress(FileExistsError):
                directory.mkdir(mode=0o700)
            self.sync_directory(str(directory.parent))

    def is_directory(self, path: str) -> bool:
        return Path(path).is_dir()

    def exists(self, path: str) -> bool:
        """True if anything has this name."""
        return os.path.lexists(path)

    def free(self, path: str) -> int:
        """Return the bytes that a file in this directory could still take."""
        return shutil.disk_usage(path).free

    def allocate(self, file: int, size: int) -> None:
        """Make ``size`` bytes of a new file occupy the disk."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, size)
        else:
            written = 0
            while written < size:
                written += os.write(file, bytes(min(size - written, 1 << 20)))

    def lock(self, path: str) -> int:
        """Open or create the file, and lock it exclusively until it is closed or the process ends.

        :raises BlockingIOError: another owner has it.
        """
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            lock_alone(file)
            if not has_name(file, path):  # its owner removed it meanwhile
                raise BlockingIOError(errno.EWOULDBLOCK, "the lock file was removed", path)
        except BaseException:
            os.close(file)
            raise
        return file

    def lock_directory(self, path: str) -> int | None:
        """Lock a directory itself; None if its file system cannot lock directories.

        :raises BlockingIOError: another process holds it.
        """
        return lock_directory(path)

    def has_name(self, file: int, path: str) -> bool:
        """True if the open file, or directory, is the one at ``path``."""
        return has_name(file, path)

    def is_locked(self, path: str) -> bool:
        """True if the lock is held; the check itself never blocks an owner."""
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not is_free(file)
        finally:
            os.close(file)

    def unlock(self, file: int) -> None:
        """Release the lock of :meth:`lock`, also for a forked child that still has a copy of the descriptor."""
        try:
            fcntl.flock(file, fcntl.LOCK_UN)
        finally:
            os.close(file)

    def rewrite(self, file: int, data: bytes) -> None:
        """Replace a small file's content in place, which needs no space on a full disk; for the lock file."""
        os.pwrite(file, data, 0)
        os.ftruncate(file, len(data))

    def load(self, path: str, limit: int) -> bytes:
        """Return the first ``limit`` bytes of a small file."""
        with Path(path).open("rb") as file:
            return file.read(limit)


@contextlib.contextmanager
def opened_file(disk: Disk, path: str) -> Iterator[int]:
    """Open an existing file inside the block."""
    file = disk.open(path)
    try:
        yield file
    finally:
        disk.close(file)

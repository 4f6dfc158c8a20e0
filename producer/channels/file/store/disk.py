"""Disk: everything that the file channel does to the file system, as one small object, so that tests can put another
in its place which loses what was not synced.

Paths are strings. Files are known by small integers. All methods raise ``OSError``; callers translate.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from pathlib import Path

from ....runtime.directory_lock import has_name, is_free, lock_alone, lock_directory
from ....text.plural import counted

_ZEROS = bytes(256 << 10)


class Disk:
    """The real file system."""

    def create(self, path: str) -> int:
        """A new file, for appending and reading.

        :raises FileExistsError: there is one.
        """
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)

    def open(self, path: str) -> int:
        """An existing file, for reading and truncating."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def open_to_read(self, path: str) -> int:
        """An existing file, which this user may perhaps not write."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def append(self, file: int, data: bytes, end: int | None = None) -> int:
        """Write behind the content; returns how many bytes were written, which may be fewer than were given.

        :param end: where the content ends, if not where the file does.
        """
        return os.pwrite(file, data, self.size(file) if end is None else end)

    def lay_out(self, file: int, start: int, end: int) -> None:
        """Write zeros from ``start`` to ``end``, behind the content: what is appended there later does not change the
        file's size, nor where it lies, so that a sync of it is the writing of its bytes alone.
        """
        while start < end:
            start += os.pwrite(file, _ZEROS[: end - start], start)

    def read(self, file: int, size: int, offset: int) -> bytes:
        """Up to ``size`` bytes from ``offset``; fewer only at the end of the file."""
        data = os.pread(file, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        while data and (left := size - sum(map(len, parts))):
            data = os.pread(file, left, offset + size - left)
            parts.append(data)
        return b"".join(parts)

    def size(self, file: int) -> int:
        """Bytes in the file."""
        return os.fstat(file).st_size

    def size_of(self, path: str) -> int:
        """Bytes in a file that is not open."""
        return Path(path).stat().st_size

    def overwrite(self, file: int, data: bytes, offset: int) -> None:
        """Replace bytes in the middle of a file; for repairs only."""
        written = os.pwrite(file, data, offset)
        if written != len(data):
            raise OSError(errno.EIO, f"only {written} of {counted(len(data), 'byte')} were written")

    def truncate(self, file: int, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        os.ftruncate(file, size)

    def sync(self, file: int) -> None:
        """Return when the file's bytes are on the disk."""
        if hasattr(os, "fdatasync"):
            os.fdatasync(file)
        else:  # macOS, where fsync alone stops at the drive's cache
            fcntl.fcntl(file, getattr(fcntl, "F_FULLFSYNC", 51))

    def close(self, file: int) -> None:
        """Give the file back; says nothing about the disk."""
        os.close(file)

    def sync_directory(self, path: str) -> None:
        """Return when the directory's entries (names made, renamed, removed) are on the disk."""
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in the place of whatever had it."""
        Path(old).replace(new)

    def link(self, path: str, other: str) -> None:
        """Give a file a second name, which nothing has."""
        os.link(path, other)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        Path(path).unlink()

    def names(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it; nothing if it is there. The parent's entries are synced."""
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
        """Whether it is one."""
        return Path(path).is_dir()

    def exists(self, path: str) -> bool:
        """Whether there is anything of that name."""
        return os.path.lexists(path)

    def free(self, path: str) -> int:
        """Bytes that a file in this directory could still take."""
        return shutil.disk_usage(path).free

    def allocate(self, file: int, size: int) -> None:
        """Make sure that ``size`` bytes of a new file really occupy the disk."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, size)
        else:
            written = 0
            while written < size:
                written += os.write(file, bytes(min(size - written, 1 << 20)))

    def lock(self, path: str) -> int:
        """Open, or make, the file and lock it for this owner alone, until it is closed or the process ends.

        :raises BlockingIOError: somebody else has it.
        """
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            lock_alone(file)
            if not has_name(file, path):  # its owner removed it while it was opened here
                raise BlockingIOError(errno.EWOULDBLOCK, "the lock file was removed", path)
        except BaseException:
            os.close(file)
            raise
        return file

    def lock_directory(self, path: str) -> int | None:
        """Lock a directory itself; None if its file system locks none.

        :raises BlockingIOError: another process holds it.
        """
        return lock_directory(path)

    def has_name(self, file: int, path: str) -> bool:
        """True if the open file, or directory, is the one at ``path``."""
        return has_name(file, path)

    def is_locked(self, path: str) -> bool:
        """Whether somebody has the lock; whoever wants it in this moment gets it all the same."""
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not is_free(file)
        finally:
            os.close(file)

    def unlock(self, file: int) -> None:
        """Give up what :meth:`lock` returned, also for a forked child that has not closed its copy yet."""
        try:
            fcntl.flock(file, fcntl.LOCK_UN)
        finally:
            os.close(file)

    def rewrite(self, file: int, data: bytes) -> None:
        """Replace a small file's content in place, which needs no room on a full disk; for the lock file."""
        os.pwrite(file, data, 0)
        os.ftruncate(file, len(data))

    def load(self, path: str, limit: int) -> bytes:
        """The first ``limit`` bytes of a small file."""
        with Path(path).open("rb") as file:
            return file.read(limit)

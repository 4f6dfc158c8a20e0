"""DirectoryLock: admit one process at a time to a directory, even if its lock file is deleted.

``flock`` is taken twice. One lock is on the directory itself, which cannot be removed without its content. The other is
on a lock file in it, whose text names the owner. Some file systems cannot lock directories: on NFS an exclusive lock
needs a writable descriptor. Only the second lock is taken there. So the owner checks from time to time that both are
still in place (:meth:`DirectoryLock.lost`), and stops if not.

A forked child closes its copies, which unlocks nothing: the locks end with the process that took them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from pathlib import Path

from .forks import Stage, call_in_child, hold_across_fork
from .locks import RLock

#: Tries to take a lock: a process that checks if it is free holds it for microseconds.
_TRIES = 1000
_MOST_BYTES = 4096

# Guards _held. Held across a fork, and while a lock is taken: a child forked in between would not know of its copies,
# and would keep the lock as long as it lives.
_lock = RLock()
_held: set[DirectoryLock] = set()


def has_name(file: int, path: str | Path) -> bool:
    """True if the open file is the one at ``path``, or if the disk cannot tell."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        return error.errno != errno.ESTALE  # on NFS, if another machine has deleted it


def is_free(file: int) -> bool:
    """True if no process holds the exclusive lock of an open file, or its file system has none."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_UN)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def lock_alone(file: int) -> None:
    """Take the exclusive lock of an open file, in spite of processes that only check if it is free.

    :raises BlockingIOError: another process holds it.
    :raises OSError: the file system has no such locks.
    """
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not is_free(file):
                raise
        else:
            return
    raise BlockingIOError(errno.EWOULDBLOCK, "the lock is checked all the time")


def lock_directory(path: str | Path) -> int | None:
    """Lock a directory itself. Return the descriptor; None if its file system cannot lock directories.

    :raises BlockingIOError: another process holds it, or it was removed meanwhile.
    :raises OSError: it cannot be opened.
    """
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lock_alone(directory)
        if not has_name(directory, path):
            raise BlockingIOError(errno.EWOULDBLOCK, "the directory was removed", str(path))
    except OSError as error:
        os.close(directory)
        if isinstance(error, BlockingIOError):
            raise
        return None
    return directory


class DirectoryLock:
    """A directory that belongs to this process until :meth:`release`.

    :param directory: an existing directory.
    :param name: the name of the lock file in it. The file is never removed: a process may be waiting for its lock.
    :param must_lock: False to continue without a lock if the file system has none.
    :ivar path: the lock file.
    :raises BlockingIOError: another process has it.
    :raises OSError: it cannot be locked.
    """

    def __init__(self, directory: Path, name: str, *, mode: int = 0o600, must_lock: bool = True) -> None:
        self.path = directory / name
        self._files: list[tuple[int, Path]] = []
        with _lock:
            try:
                self._take(directory, mode, must_lock=must_lock)
            except BaseException:
                self.close()
                raise
            _held.add(self)

    def _take(self, directory: Path, mode: int, *, must_lock: bool) -> None:
        locked = lock_directory(directory)
        if locked is not None:
            self._files.append((locked, directory))
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        self._files.append((file, self.path))
        try:
            lock_alone(file)
        except BlockingIOError:
            raise
        except OSError:
            if must_lock:
                raise

    def write_owner(self) -> None:
        """Write the owning process into the lock file.

        :raises OSError: it could not be written.
        """
        text = f"process {os.getpid()} on {socket.gethostname()}\n".encode()[:_MOST_BYTES]
        file, _ = self._files[-1]
        os.pwrite(file, text, 0)  # in place, then truncated: needs no new space on a full disk
        os.ftruncate(file, len(text))

    def lost(self) -> Path | None:
        """Return the lock file or directory if it was removed or replaced, so that another process may own it; else
        None.
        """
        return next((path for file, path in self._files if not has_name(file, path)), None)

    def release(self) -> None:
        """Release the directory for another process; may be called again."""
        with _lock:
            _held.discard(self)
            for file, _ in self._files:
                with contextlib.suppress(OSError):  # explicitly: a child being forked may have a copy of the descriptor
                    fcntl.flock(file, fcntl.LOCK_UN)
            self.close()

    def close(self) -> None:
        """Close the files in a forked child, without unlocking: the locks are the parent's."""
        files, self._files = self._files, []
        for file, _ in files:
            os.close(file)


def owner_of(path: Path) -> str:
    """Return the text of a lock file, which names its owner; empty if unreadable."""
    try:
        return path.read_bytes()[:_MOST_BYTES].decode(errors="backslashreplace").strip()
    except OSError:
        return ""


def _close_copies() -> None:
    for lock in list(_held):
        lock.close()
    _held.clear()


hold_across_fork(_lock)
call_in_child(_close_copies, Stage.LOCKS)

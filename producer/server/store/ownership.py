"""Who may use a data directory: one server, told by ``flock`` on a file beside the database.

SQLite locks its files by itself, but with locks that a process loses when any part of it opens and closes such a file
once more, as a copy of the directory does; then a second server would write into the same files. The lock of
``loghub.lock`` belongs to the open file instead, and its text says who has it.

A forked child shares the open file, and with it the lock. It closes its copy, which unlocks nothing: the lock ends
with the server, or with the process that made it, however long the child lives. The file itself stays: who removed it
could not know whether somebody waits for the lock of just this file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
from dataclasses import dataclass
from pathlib import Path

from ...forks import Stage, call_in_child, hold_across_fork
from ..errors import ServerStartError

LOCK_NAME = "loghub.lock"
#: The text of a lock file is shorter than this.
_MOST_BYTES = 4096

# Guards _held. Taken across a fork, and held while a file is opened and locked: a child that was forked in between
# would not know of its copy, and keep the lock as long as it lives.
_lock = threading.RLock()
_held: set[Ownership] = set()


@dataclass(eq=False, slots=True)
class Ownership:
    """The lock of one data directory, as this process has it.

    :ivar file: the open lock file; None when it was given up.
    """

    file: int | None

    def release(self) -> None:
        """Let another server have the directory. Calling it again does nothing, nor does it in a forked child."""
        with _lock:
            _held.discard(self)
            file, self.file = self.file, None
        if file is not None:
            # By word, not by closing alone: a child that is just being forked can still have a copy.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)


def own(directory: Path) -> Ownership:
    """Make ``directory``, if it is missing, and be its only server from now on.

    :raises ServerStartError: another server has it, or it cannot be used.
    """
    path = directory / LOCK_NAME
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _lock:
            file = _locked(path)
            ownership = Ownership(file)
            _held.add(ownership)
    except BlockingIOError:
        raise in_use(directory, _owner(path)) from None
    except (OSError, ValueError) as error:  # the latter: a path that no system has
        raise unusable(directory, error) from error
    try:
        _say(file)
    except OSError as error:
        ownership.release()
        raise unusable(directory, error) from error
    return ownership


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


def _locked(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(file)
        raise
    return file


def _say(file: int) -> None:
    text = f"process {os.getpid()} on {socket.gethostname()}\n".encode()[:_MOST_BYTES]
    # Written over the old text, then cut: it needs no room that the file does not have.
    os.pwrite(file, text, 0)
    os.ftruncate(file, len(text))


def _owner(path: Path) -> str:
    """Who wrote the lock file, for the error; empty when it does not tell."""
    try:
        text = path.read_bytes()[:_MOST_BYTES].decode().strip()
    except (OSError, ValueError):
        return ""
    return f" ({text})" if text else ""


def _close_copies() -> None:
    """Close this process's copies, in a forked child: the locks are the parent's."""
    for ownership in _held:
        if ownership.file is not None:
            os.close(ownership.file)
            ownership.file = None
    _held.clear()


hold_across_fork(_lock)
call_in_child(_close_copies, Stage.LOCKS)

"""Locks a checkpoint for one command: two would ship the same lines, under the same names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...runtime.directory_lock import DirectoryLock, owner_of
from ..errors import InputError

LOCK_FILE = "loghub-producer-lock"


@contextmanager
def locked_checkpoint(checkpoint: str) -> Iterator[DirectoryLock]:
    """Lock a checkpoint for this process while the block runs.

    :param checkpoint: the directory; it is created if missing.
    :raises InputError: another process holds the lock, or the directory cannot be written.
    """
    directory = Path(checkpoint)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = DirectoryLock(directory, LOCK_FILE, mode=0o644, must_lock=False)
    except BlockingIOError as error:
        holder = owner_of(directory / LOCK_FILE)
        raise InputError(
            f"the checkpoint {checkpoint} is in use by another command{f' ({holder})' if holder else ''}: "
            "end it first, or use another --checkpoint"
        ) from error
    except OSError as error:
        raise _not_written(directory / LOCK_FILE, error) from error
    try:
        try:
            lock.write_owner()
        except OSError as error:
            raise _not_written(lock.path, error) from error
        yield lock
    finally:
        lock.release()


def _not_written(file: Path, error: OSError) -> InputError:
    return InputError(f"the checkpoint cannot be written: {file}: {error.strerror}")

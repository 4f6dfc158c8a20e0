"""One command at a time uses a checkpoint: two would each ship what the other has planned, under the same names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...runtime.directory_lock import DirectoryLock, owner_of
from ..errors import InputError

LOCK_FILE = "loghub-producer-lock"


@contextmanager
def only_user(checkpoint: str) -> Iterator[DirectoryLock]:
    """Have a checkpoint to this process alone, for a block.

    :param checkpoint: the directory; made where there is none.
    :raises InputError: another process has it, or it cannot be written.
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
            lock.say_owner()
        except OSError as error:
            raise _not_written(lock.path, error) from error
        yield lock
    finally:
        lock.release()


def _not_written(file: Path, error: OSError) -> InputError:
    return InputError(f"the checkpoint cannot be written: {file}: {error.strerror}")

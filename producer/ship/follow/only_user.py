"""One command at a time uses a checkpoint: two would each ship what the other has planned, under the same names."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import InputError

LOCK_FILE = "loghub-producer-lock"

_MOST_BYTES = 100


@contextmanager
def only_user(checkpoint: str) -> Iterator[None]:
    """Have a checkpoint to this process alone, for a block.

    :param checkpoint: the directory; made where there is none.
    :raises InputError: another process has it, or it cannot be written.
    """
    file = Path(checkpoint) / LOCK_FILE
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _not_written(file, error) from error
    try:
        _lock(descriptor, checkpoint)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, checkpoint: str) -> None:
    """
    :raises InputError: another process has it, or it cannot be written.
    """
    try:
        # Of this process and of none that it forks: a worker that ends a moment later holds up no other start.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        holder = os.pread(descriptor, _MOST_BYTES, 0).decode(errors="backslashreplace").strip()
        raise InputError(
            f"the checkpoint {checkpoint} is in use by another command{f' ({holder})' if holder else ''}: "
            "end it first, or use another --checkpoint"
        ) from error
    except OSError:
        return  # a file system without locks
    text = f"process {os.getpid()}\n".encode()
    try:
        os.pwrite(descriptor, text, 0)
        os.ftruncate(descriptor, len(text))
    except OSError as error:
        raise _not_written(Path(checkpoint) / LOCK_FILE, error) from error


def _not_written(file: Path, error: OSError) -> InputError:
    return InputError(f"the checkpoint cannot be written: {file}: {error.strerror}")

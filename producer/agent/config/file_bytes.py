"""Read the bytes of a configuration from a file or a pipe, within limits of size and time."""

from __future__ import annotations

import contextlib
import os
import select
import stat
from pathlib import Path

from .options import AgentConfigError, Problem

#: Maximum bytes of a configuration.
_MOST = 4 << 20
#: Longest wait for data from a pipe, in seconds.
_PATIENCE = 2.0
_PIECE = 1 << 16


def read_file(path: Path) -> bytes:
    """Return the bytes of a configuration.

    :raises AgentConfigError: if the file cannot be read or is too large, or is a pipe without a writer.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return _content(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise AgentConfigError([Problem("", "", f"cannot be read: {error.strerror}")], str(path)) from error
    except ValueError as error:
        raise AgentConfigError([Problem("", "", str(error))], str(path)) from error


def _content(descriptor: int) -> bytes:
    """Read the descriptor to its end.

    :raises ValueError: if it has too many bytes, or is a pipe without a writer.
    """
    pieces: list[bytes] = []
    size = 0
    while piece := _piece(descriptor):
        pieces.append(piece)
        size += len(piece)
        if size > _MOST:
            raise ValueError(f"is too large for a configuration: it has more than {_MOST} bytes")
    if not pieces and not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise ValueError("is a pipe without a writer")
    return b"".join(pieces)


def _piece(descriptor: int) -> bytes:
    """Return the next bytes, or ``b""`` at the end.

    :raises ValueError: if nothing arrives in time.
    """
    with contextlib.suppress(BlockingIOError):
        return os.read(descriptor, _PIECE)
    asked = select.poll()  # poll(), unlike select(), takes descriptors of any number
    asked.register(descriptor, select.POLLIN)
    if not asked.poll(_PATIENCE * 1000):
        raise ValueError(f"is a pipe that has delivered nothing for {_PATIENCE:.0f} s")
    return os.read(descriptor, _PIECE)

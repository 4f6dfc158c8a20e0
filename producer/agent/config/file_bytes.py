"""What a configuration's file holds, also if it is a pipe; within bounds of size and time."""

from __future__ import annotations

import contextlib
import os
import select
import stat
from pathlib import Path

from .options import AgentConfigError, Problem

#: Bytes of a configuration.
_MOST = 4 << 20
#: Seconds in which something has to come from a pipe.
_PATIENCE = 2.0
_PIECE = 1 << 16


def read_file(path: Path) -> bytes:
    """The bytes of a configuration.

    :raises AgentConfigError: it cannot be read, is too large, or a pipe into which nobody writes.
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
    """
    :raises ValueError: it is none, in words.
    """
    pieces: list[bytes] = []
    size = 0
    while piece := _piece(descriptor):
        pieces.append(piece)
        size += len(piece)
        if size > _MOST:
            raise ValueError(f"is too large for a configuration: more than {_MOST} bytes")
    if not pieces and not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise ValueError("is a pipe without a writer")
    return b"".join(pieces)


def _piece(descriptor: int) -> bytes:
    """What comes next; nothing at the end.

    :raises ValueError: nothing comes in time.
    """
    with contextlib.suppress(BlockingIOError):
        return os.read(descriptor, _PIECE)
    asked = select.poll()  # which takes descriptors of any number
    asked.register(descriptor, select.POLLIN)
    if not asked.poll(_PATIENCE * 1000):
        raise ValueError(f"is a pipe that has delivered nothing for {_PATIENCE:.0f} s")
    return os.read(descriptor, _PIECE)

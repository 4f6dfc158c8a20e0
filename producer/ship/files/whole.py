"""Files that are written as a whole: after a crash there is the old one, or the new one."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import InputError


def write_whole(file: Path, text: str) -> None:
    """Write a file, and see to it that it is on the disk.

    :raises InputError: it cannot be written.
    """
    temporary = file.with_name(f".{file.name}")
    try:
        with temporary.open("w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        temporary.replace(file)
        descriptor = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InputError(f"the checkpoint cannot be written: {file}: {error.strerror}") from error

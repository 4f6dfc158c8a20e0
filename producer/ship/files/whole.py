"""Writes files atomically: after a crash there is either the old file or the new one.

The files of a checkpoint are JSON objects with a checksum, so that damage is detected::

    {"taken": {}, "batch": 7, "checksum": 2596069104}

The checksum is the CRC-32 of the object without it, as ``json.dumps`` writes it with sorted keys.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from ...runtime.whole_file import write_whole
from ..errors import InputError


def write_checked(file: Path, held: dict[str, Any]) -> None:
    """Write a JSON object with its checksum atomically, and sync it to the disk.

    :raises InputError: it cannot be written.
    """
    text = json.dumps({**held, "checksum": _checksum(held)})
    try:
        write_whole(file, text.encode(), file.with_name(f".{file.name}"))
    except OSError as error:
        raise InputError(f"the checkpoint cannot be written: {file}: {error.strerror}") from error


def read_checked(file: Path) -> dict[str, Any]:
    """Read an object of :func:`write_checked`.

    :raises OSError: the file cannot be read.
    :raises ValueError: the file is not JSON, or its checksum is wrong.
    """
    held: Any = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(held, dict) or held.pop("checksum", None) != _checksum(held):
        raise ValueError("its checksum is wrong, so it is damaged: restore it, or start again with an empty directory")
    return held


def _checksum(held: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(held, sort_keys=True).encode())

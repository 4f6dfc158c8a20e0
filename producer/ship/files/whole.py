"""Files that are written as a whole: after a crash there is the old one, or the new one.

Those of a checkpoint are JSON objects with a checksum, so that a damaged one is not believed::

    {"taken": {}, "batch": 7, "checksum": 2596069104}

The checksum is CRC-32 of the object without it, as ``json.dumps`` writes it with sorted keys.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from ...runtime import whole_file
from ..errors import InputError


def write_whole(file: Path, text: str) -> None:
    """Write a file, and see to it that it is on the disk.

    :raises InputError: it cannot be written.
    """
    try:
        whole_file.write_whole(file, text.encode(), file.with_name(f".{file.name}"))
    except OSError as error:
        raise InputError(f"the checkpoint cannot be written: {file}: {error.strerror}") from error


def write_checked(file: Path, held: dict[str, Any]) -> None:
    """Write a JSON object with its checksum, as :func:`write_whole`.

    :raises InputError: it cannot be written.
    """
    write_whole(file, json.dumps({**held, "checksum": _checksum(held)}))


def read_checked(file: Path) -> Any:
    """Read what :func:`write_checked` has written, or JSON that an earlier version wrote without a checksum.

    :raises OSError: the file cannot be read.
    :raises ValueError: the file is not JSON, or its checksum is wrong.
    """
    held = json.loads(file.read_text(encoding="utf-8"))
    checksum = held.pop("checksum", None) if isinstance(held, dict) else None
    if checksum is not None and checksum != _checksum(held):
        raise ValueError("its checksum is wrong, it is damaged: restore it, or begin anew with an empty directory")
    return held


def _checksum(held: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(held, sort_keys=True).encode())

"""Flume's position file: a list of objects with ``inode``, ``pos`` and ``file``."""

from __future__ import annotations

import json
from pathlib import Path

from ....runtime.loggers import get_logger

_log = get_logger("loghub.agent.taildir")


def read_flume_positions(path: Path | None) -> dict[int, int]:
    """Return Flume's byte position of each file by inode; empty if the file is missing or invalid."""
    if path is None:
        return {}
    try:
        rows = json.loads(path.expanduser().read_bytes())
        positions = {int(row["inode"]): int(row["pos"]) for row in rows}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.error("%s: Flume's positions cannot be read, so every file is read from byte 0: %s", path, error)
        return {}
    _log.info("%s: %d of Flume's positions are used", path, len(positions))
    return positions

"""Flume's position file: a list of objects with ``inode``, ``pos`` and ``file``."""

from __future__ import annotations

import json
from pathlib import Path

from ....runtime.loggers import get_logger

_log = get_logger("loghub.agent.taildir")


def read_flume_positions(path: Path | None) -> dict[int, int]:
    """How far Flume read each file, bytes by inode; empty if there is no such file, or it is none of Flume's."""
    if path is None:
        return {}
    try:
        rows = json.loads(path.expanduser().read_bytes())
        positions = {int(row["inode"]): int(row["pos"]) for row in rows}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.error("%s: Flume's positions cannot be read, and every file begins at its first byte: %s", path, error)
        return {}
    _log.info("%s: %d positions of Flume's are taken over", path, len(positions))
    return positions

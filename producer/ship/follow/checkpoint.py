"""Binds a checkpoint to its target, as the offsets in it are valid for one target only.

Patterns to exclude may be added later; files that match are left out from then on. They cannot be removed: the offsets
of these files are lost, so they would be shipped again from their beginning.

The target is stored in the checkpoint directory as ``loghub-producer-target.json``, next to Spark's files.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from pathlib import Path

from ..errors import InputError
from ..files.find import lies_in, local_path
from ..files.remote.address import scheme_of
from ..files.whole import read_checked, write_checked
from ..job import ShipJob
from ..options import ShipOptions

_FILE = "loghub-producer-target.json"


def checkpoint_directory(given: str, paths: Iterable[str]) -> str:
    """Return the absolute path of the checkpoint directory.

    :param given: the path that the user named.
    :param paths: the paths to follow.
    :raises InputError: it is not on a local file system, or a followed path is in it, which would never be shipped.
    """
    if scheme_of(given) is not None:
        raise InputError(f"--checkpoint {given}: must be a local directory, not a remote address")
    directory = os.path.abspath(local_path(given))  # Path.absolute keeps ".."
    for path in paths:
        if scheme_of(path) is None and lies_in(path, directory):
            raise InputError(
                f"{path} is in the checkpoint directory {directory}, which is never shipped: use another --checkpoint"
            )
    return directory


def claim_checkpoint(job: ShipJob, options: ShipOptions, engine: str) -> str:
    """Check that the checkpoint belongs to this target; bind a new checkpoint to it.

    :param job: the target.
    :param options: the followed paths and the checkpoint.
    :param engine: the engine; each keeps offsets in its own form.
    :return: the unique name of the checkpoint for exactly-once delivery; empty for at-least-once.
    :raises InputError: it belongs to another target, or cannot be read or written.
    """
    file = Path(options.checkpoint) / _FILE
    asked = {"engine": engine, **_target(job, options), **_cuts(job, options)}
    try:
        held = _compare(file, read_checked(file), asked) if file.exists() else {}
        name = str(held["id"]) if "id" in held else uuid.uuid4().hex if job.exactly_once else ""
        named = {**asked, "id": name} if name else asked
        if held != named:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_checked(file, named)  # Synced: the name of exactly-once delivery must survive a crash.
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"the target of the checkpoint cannot be read or written: {file}: {reason}") from error
    return name


def _target(job: ShipJob, options: ShipOptions) -> dict[str, object]:
    return {
        "endpoint": job.project.endpoint,
        "project": job.project.project,
        "logstore": job.logstore,
        "paths": sorted(set(options.paths)),
        "exclude": sorted(set(options.exclude)),
    }


def _cuts(job: ShipJob, options: ShipOptions) -> dict[str, object]:
    """Return the settings that decide how lines are divided into requests; exactly-once needs them unchanged."""
    if not job.exactly_once:
        return {"exactly_once": False}
    return {
        "exactly_once": True,
        "follow": options.follow,
        "partition_bytes": options.partition_bytes,
        "max_line_bytes": job.max_line_bytes,
        "multiline_start": job.multiline_start,
        "parser": job.parser,
        "pattern": job.pattern,
        "delimiter": job.delimiter,
        "columns": None if job.columns is None else list(job.columns),
        "file_offset": job.file_offset,
    }


def _compare(file: Path, held: dict[str, object], asked: dict[str, object]) -> dict[str, object]:
    """Return the stored target if it equals the requested one."""
    differing = [
        f"{name} {_shown(held.get(name))}, not {_shown(wanted)}"
        for name, wanted in asked.items()
        if held.get(name) != wanted and not (name == "exclude" and _adds_to(held.get(name), wanted))
    ]
    if differing:
        raise InputError(
            f"the checkpoint {file.parent} belongs to {'; '.join(differing)}. "
            "Each target and set of paths needs a --checkpoint DIR of its own; a new one ships all files from "
            "the beginning"
        )
    return held


def _adds_to(held: object, wanted: object) -> bool:
    return isinstance(held, list) and isinstance(wanted, list) and all(pattern in wanted for pattern in held)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "(none)"
    return str(value)

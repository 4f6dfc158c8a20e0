"""The progress of the local engine, in the checkpoint directory as ``loghub-producer-progress.json``::

    {"taken": {…}, "planned": {…}, "batch": 7, "checksum": 2596069104}

``taken`` is the offset up to which everything is acknowledged. ``planned`` is the end of the running batch; null if
there is none. ``batch`` counts the batches. The file is written before each step, so a run that died within a batch
ships it again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import InputError
from ..files.whole import read_checked, write_checked
from .tracking import Offset

PROGRESS_FILE = "loghub-producer-progress.json"


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run.

    :ivar taken: the offset up to which everything is acknowledged.
    :ivar planned: the end of the running batch; None between two batches.
    :ivar batch: number of batches begun.
    """

    taken: Offset
    planned: Offset | None = None
    batch: int = 0


def read_progress(checkpoint: str) -> Progress:
    """Read the progress of a checkpoint directory; a new one has an empty offset.

    :raises InputError: it cannot be read.
    """
    file = Path(checkpoint) / PROGRESS_FILE
    try:
        held = read_checked(file) if file.exists() else {"taken": {}, "planned": None, "batch": 0}
        return Progress(held["taken"], held["planned"], held["batch"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "strerror", None) or (str(error) if isinstance(error, ValueError) else repr(error))
        raise InputError(f"the progress of the checkpoint cannot be read: {file}: {reason}") from error


def write_progress(checkpoint: str, progress: Progress) -> None:
    """Write the progress, and sync it to the disk.

    :raises InputError: it cannot be written.
    """
    write_checked(Path(checkpoint) / PROGRESS_FILE, asdict(progress))

"""How far the engine ``local`` has come, in the checkpoint directory as ``loghub-producer-progress.json``::

    {"taken": {…}, "planned": {…}, "batch": 7, "checksum": 2596069104}

``taken`` is the offset up to which everything is acknowledged, ``planned`` the one up to which the batch goes that was
begun; null where there is none; ``batch`` counts the batches that were begun. Each is written before the next step, so
that what died in a batch ships it again.
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
    """How far a run has come.

    :ivar taken: everything up to here is acknowledged.
    :ivar planned: where the batch ends that was begun; None between two batches.
    :ivar batch: batches that were begun.
    """

    taken: Offset
    planned: Offset | None = None
    batch: int = 0


def read_progress(checkpoint: str) -> Progress:
    """What a checkpoint directory remembers; nothing taken where it is new.

    :raises InputError: it cannot be read.
    """
    file = Path(checkpoint) / PROGRESS_FILE
    try:
        held = read_checked(file) if file.exists() else {"taken": {}, "planned": None}
        return Progress(held["taken"], held["planned"], held.get("batch", 0))
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "strerror", None) or (str(error) if isinstance(error, ValueError) else repr(error))
        raise InputError(f"the progress of the checkpoint cannot be read: {file}: {reason}") from error


def write_progress(checkpoint: str, progress: Progress) -> None:
    """Remember, also if the machine dies.

    :raises InputError: it cannot be written.
    """
    write_checked(Path(checkpoint) / PROGRESS_FILE, asdict(progress))

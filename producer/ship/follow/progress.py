"""How far the engine ``local`` has come, in the checkpoint directory as ``loghub-producer-progress.json``::

    {"taken": {…}, "planned": {…}}

``taken`` is the offset up to which everything is acknowledged, ``planned`` the one up to which the batch goes that was
begun; null where there is none. Each is written before the next step, so that what died in a batch ships it again.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from .tracking import Offset

PROGRESS_FILE = "loghub-producer-progress.json"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come.

    :ivar taken: everything up to here is acknowledged.
    :ivar planned: where the batch ends that was begun; None between two batches.
    """

    taken: Offset
    planned: Offset | None = None


def read_progress(checkpoint: str) -> Progress:
    """What a checkpoint directory remembers; nothing taken where it is new.

    :raises InputError: it cannot be read.
    """
    file = Path(checkpoint) / PROGRESS_FILE
    try:
        held = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"taken": {}, "planned": None}
        return Progress(held["taken"], held["planned"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "strerror", None) or repr(error)
        raise InputError(f"the progress of the checkpoint cannot be read: {file}: {reason}") from error


def write_progress(checkpoint: str, progress: Progress) -> None:
    """Remember, also if the machine dies.

    :raises InputError: it cannot be written.
    """
    folder = Path(checkpoint)
    file, temporary = folder / PROGRESS_FILE, folder / f".{PROGRESS_FILE}"
    try:
        with temporary.open("w", encoding="utf-8") as opened:
            json.dump({"taken": progress.taken, "planned": progress.planned}, opened)
            opened.flush()
            os.fsync(opened.fileno())
        temporary.replace(file)
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InputError(f"the progress of the checkpoint cannot be written: {file}: {error.strerror}") from error

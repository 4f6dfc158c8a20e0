"""Written: a note of the events in a sink's files, so that after a crash none is written twice.

A batch from a file channel keeps its number and the number's origin (:mod:`..origins`). Once a delivery is in a file,
and synced to the disk, one note records the size of the file and the highest batch number in it. Then the take is
committed. So after a crash

* bytes after the noted size were never acknowledged: they are truncated, and delivered again;
* a batch whose number is noted was written: it is skipped when it is delivered again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ...channels.file.store.notes import FileNotes
from ...runtime.loggers import get_logger
from ..events.batch import EventBatch

_log = get_logger("loghub.agent.sink.file_roll")

_NOTE = "written"
#: Maximum number of remembered origins: a channel has a new one each time it is opened, and gives batches in order.
_MOST_NAMES = 16


class Written:
    """Record of the written batches.

    :param state: the sink's own directory.
    :param name: the sink's name, for messages.
    """

    def __init__(self, state: Path, name: str) -> None:
        state.mkdir(parents=True, exist_ok=True)
        self._notes = FileNotes(str(state), name)
        self._sizes: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        try:
            noted = self._notes.read(_NOTE)
            if noted is not None:
                self._sizes, self._numbers = json.loads(noted)
        except BaseException:  # a retry opens the notes again
            self._notes.close()
            raise
        self.is_new = noted is None

    def size_of(self, file: str) -> int:
        """Return the acknowledged bytes of a file."""
        return self._sizes.get(file, 0)

    def has(self, batch: EventBatch) -> bool:
        """Return True if a batch was written."""
        return batch.origin is not None and (batch.sequence or 0) <= self._numbers.get(batch.origin, -1)

    def note(self, file: str, size: int, batches: Sequence[EventBatch]) -> None:
        """Note the size of a file after batches were written to it.

        :raises ChannelIOError: the note cannot be written; the next note includes it.
        """
        numbers = dict(self._numbers)
        for batch in batches:
            if batch.origin is not None and batch.sequence is not None:
                numbers[batch.origin] = max(batch.sequence, numbers.pop(batch.origin, -1))
        numbers = dict(list(numbers.items())[-_MOST_NAMES:])
        sizes = {**self._sizes, file: size}
        self._notes.write(_NOTE, json.dumps([sizes, numbers]).encode(), -1)
        self._sizes, self._numbers, self.is_new = sizes, numbers, False

    def ended(self, file: str) -> None:
        """Forget a completed file; the next note omits it."""
        self._sizes.pop(file, None)

    def forget_numbers(self) -> None:
        """Forget all numbers because a file lacks noted bytes: batches delivered again are written."""
        self._numbers.clear()

    def close(self) -> None:
        """Close the notes."""
        self._notes.close()

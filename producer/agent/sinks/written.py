"""Written: what a sink has in its files, so that after a death nothing stands there twice.

Behind a file channel a batch keeps its number, and the name of the number (:mod:`..origins`). Once a file has a
delivery, and the disk has the file, one note says how long the file is now and up to which number batches stand in it;
then the take is committed. So after a death

* what stands in a file behind the noted length was never acknowledged: it is cut off, and comes again;
* what comes again although the note knows its number was written: it is passed over.
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
#: Names that are remembered: a channel has a new one each time it is opened, and gives batches in order.
_MOST_NAMES = 16


class Written:
    """See the module.

    :param state: the sink's own directory.
    :param name: the sink's, for messages.
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
        except BaseException:  # whoever tries again opens them anew
            self._notes.close()
            raise
        self.is_new = noted is None

    def size_of(self, file: str) -> int:
        """The bytes of a file that were acknowledged."""
        return self._sizes.get(file, 0)

    def has(self, batch: EventBatch) -> bool:
        """Whether a batch stands in a file."""
        return batch.origin is not None and (batch.sequence or 0) <= self._numbers.get(batch.origin, -1)

    def note(self, file: str, size: int, batches: Sequence[EventBatch]) -> None:
        """A file is so long now, and has these.

        :raises ChannelIOError: it cannot be noted; a next one says the same.
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
        """A file has its own name; the next note leaves it out."""
        self._sizes.pop(file, None)

    def distrust(self) -> None:
        """Files lack what was noted of them: what comes again is written."""
        self._numbers.clear()

    def close(self) -> None:
        """Let go of the notes."""
        self._notes.close()

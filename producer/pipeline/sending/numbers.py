"""NumberJournal: where the numbers of idempotent streams are written down, so that they outlive the process."""

from __future__ import annotations

from typing import Protocol

from ...model.interfaces import SequenceId
from ..batching.batch import ProducerBatch


class NumberJournal(Protocol):
    """Is told under which number a batch is about to be sent, before it is; on an IO thread."""

    def write(self, batch: ProducerBatch, sequence: SequenceId) -> None:
        """Write it down, as safe as what ``batch`` was made of; it may block on the disk.

        :raises NumberNotNotedError: it could not be written; the batch must not be sent, and is tried again later.
        """

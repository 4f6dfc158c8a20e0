"""Backing: where the records of a pipeline are kept until they are settled, as far as the pipeline has to know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...model.interfaces import SequenceId
from ...model.results import Result
from ..batching.batch import ProducerBatch
from ..batching.memory import Refund


@dataclass(frozen=True, slots=True)
class Abandonment:
    """The error code and the message of a record that was not delivered when its producer was closed."""

    code: str
    message: str


class NumberJournal(Protocol):
    """Keeps the numbers of idempotent streams, so that they outlive the process."""

    def write(self, batch: ProducerBatch, sequence: SequenceId) -> None:
        """Note under which number ``batch`` is about to be sent, as safely as its records are kept. It is called on an
        IO thread, and may block on the disk.

        :raises NumberNotNotedError: it could not be written; the batch must not be sent, and is tried again later.
        """


class Backing:
    """Hears of the end of each batch, once, before its futures do, on the thread that settled it, which it must not
    block. It is not told of batches that are abandoned at the close. As it is, for records that exist only in the
    pipeline: what failed is gone, and what waits behind it fails, too.

    :ivar keeps: True if it keeps the records of batches that are neither delivered nor failed. They are tried without
        an end, unless the options say otherwise, and wait for what an operator can fix. Of every stream one batch is in
        flight at a time. What waits behind a failure of its ordered stream is parked until the stream goes on, and what
        is abandoned is left; else both fail.
    :ivar abandonment: what is said of records that are abandoned.
    :ivar journal: None if the numbers of idempotent streams do not outlive the process.
    :ivar without_threads: what becomes of records if no threads can be started; for the log.
    """

    keeps = False
    abandonment = Abandonment("ProducerClosed", "the producer was closed before the record could be delivered")
    journal: NumberJournal | None = None
    without_threads = "records are sent by those who call send, flush and close"

    def delivered(self, batch: ProducerBatch) -> None:
        """The server has the records of ``batch``."""

    def failed(self, batch: ProducerBatch, result: Result, refund: Refund) -> None:  # noqa: ARG002  # for those that keep
        """The records of ``batch`` have failed permanently; it forgets them when this returns.

        :param refund: the memory of the records, to be paid when it needs them no longer.
        """
        refund.pay()

    def parked(self, batch: ProducerBatch) -> None:
        """``batch`` waits behind one that failed, or it cannot be known whether it is stored; its futures fail, since
        their stream is stopped.
        """

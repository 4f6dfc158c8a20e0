"""Backing: the pipeline's interface to the storage of records that are not completed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ...model.interfaces import Payload, Record, SequenceId
from ...model.results import Result
from ..batching.batch import ProducerBatch
from ..batching.memory import Refund


class Body(NamedTuple):
    """The bytes of a batch: its records, or its encoded body."""

    records: Sequence[Record]
    payload: Payload | None


class NumberJournal(Protocol):
    """A journal of the numbers of idempotent streams, so that they outlive the process."""

    def write(self, batch: ProducerBatch, sequence: SequenceId) -> None:
        """Write the sequence number of a batch before it is sent, as durably as its records are stored.

        Called on an IO thread; may block on the disk.

        :raises NumberNotNotedError: it could not be written; the batch must not be sent, and is retried later.
        """


class Backing:
    """Receiver of each batch's outcome, on the thread that completed the batch, before its futures. It must not block.

    It is not notified of batches that the close abandons. This base class is for records that exist only in
    memory: failed records are dropped, and the batches behind them in an ordered stream fail, too.

    :ivar keeps: True if it stores the records of batches that are neither delivered nor failed. These are then retried
        without a limit, unless the options set one, also after errors that an operator can fix. Every stream has one
        batch in flight. Batches behind a failure of an ordered stream are parked until the stream is resumed, and
        abandoned batches are retained. If False, both fail.
    :ivar abandonment: the error code and the message of records that were not delivered when the producer closed.
    :ivar journal: None if the numbers of idempotent streams do not outlive the process.
    :ivar without_threads: the consequence for records if no threads can be started; for the log.
    """

    keeps = False
    abandonment = "ProducerClosed", "the producer was closed before the record could be delivered"
    journal: NumberJournal | None = None
    without_threads = "the threads that call send, flush and close send the records"

    def delivered(self, batch: ProducerBatch) -> None:
        """Note that the server has the records of ``batch``."""

    def failed(self, batch: ProducerBatch, result: Result, refund: Refund, body: Body) -> None:  # noqa: ARG002  # for subclasses
        """Note that the records of ``batch`` failed permanently; they are dropped when this returns.

        :param refund: the memory of the records, to be paid when it is no longer needed.
        :param body: the bytes of the batch.
        """
        refund.pay()

    def parked(self, batch: ProducerBatch) -> None:
        """Park a batch of a stopped stream: one behind a failure, or with an unknown outcome. Its futures fail."""

"""OutcomeListener: who hears how each batch ended, because the records are kept elsewhere until they are settled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...model.results import Result
from ..batching.batch import ProducerBatch
from ..batching.memory import Refund


@dataclass(frozen=True, slots=True)
class Abandonment:
    """What is said of a record that was not delivered when its producer was closed.

    :ivar code: the error code.
    :ivar message: the error's text.
    """

    code: str
    message: str


class OutcomeListener(Protocol):
    """Hears of the end of each batch, once, before its futures do; on the thread that settled it, which it must not
    hold up. It is not told of what was abandoned when the producer was closed.
    """

    @property
    def keeps(self) -> bool:
        """Whether it keeps the records of batches that are neither delivered nor given up. Then what waits behind a
        failure of its ordered stream is parked until the stream goes on, and what is abandoned is left; else both
        fail.
        """

    @property
    def abandonment(self) -> Abandonment:
        """What is said of what is abandoned."""

    def delivered(self, batch: ProducerBatch) -> None:
        """The server has the records of ``batch``."""

    def failed(self, batch: ProducerBatch, result: Result, refund: Refund) -> None:
        """The records of ``batch`` are given up; it forgets them when this returns.

        :param refund: the memory of the records, to be paid when it needs them no longer.
        """

    def parked(self, batch: ProducerBatch) -> None:
        """``batch`` waits behind one that failed, or nobody can tell whether it is stored; its futures are told that
        their stream is stopped.
        """


class NobodyListens:
    """For records that exist only in the pipeline: what failed is gone, and what waits behind it fails, too."""

    keeps = False
    abandonment = Abandonment("ProducerClosed", "the producer was closed before the record could be delivered")

    def delivered(self, batch: ProducerBatch) -> None:
        """Nobody asks."""

    def failed(self, batch: ProducerBatch, result: Result, refund: Refund) -> None:  # noqa: ARG002  # for the durable kind
        """The memory is free at once."""
        refund.pay()

    def parked(self, batch: ProducerBatch) -> None:
        """Nothing is ever parked."""

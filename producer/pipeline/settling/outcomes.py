"""OutcomeListener: who keeps the records elsewhere until they are settled, and so hears how each batch ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...results import Result
from ..batching.batch import ProducerBatch


class OutcomeListener(Protocol):
    """Hears of the end of each batch, once, before its futures do; on the thread that settled it, which it must not
    hold up.
    """

    @property
    def parks(self) -> bool:
        """What becomes of the batches of an ordered stream that wait behind one that failed for good: parked, for their
        records are kept until the stream goes on; else they fail with it.
        """

    def delivered(self, batch: ProducerBatch) -> None:
        """The server has the records of ``batch``."""

    def failed(self, batch: ProducerBatch, result: Result, release: Callable[[], None]) -> None:
        """The records of ``batch`` are given up; it forgets them when this returns.

        :param release: gives the memory of the records back to the budget; to be called once, when it needs them no
            longer.
        """

    def parked(self, batch: ProducerBatch) -> None:
        """``batch`` waits behind one that failed, or nobody can tell whether it is stored; its futures are told that
        their stream is stopped.
        """


class NobodyListens:
    """For records that exist only in the pipeline: what failed is gone, and what waits behind it fails, too."""

    parks = False

    def delivered(self, batch: ProducerBatch) -> None:
        """Nobody asks."""

    def failed(self, batch: ProducerBatch, result: Result, release: Callable[[], None]) -> None:  # noqa: ARG002
        """The memory is free at once."""
        release()

    def parked(self, batch: ProducerBatch) -> None:
        """Nothing is ever parked."""

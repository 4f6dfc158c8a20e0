"""Origins: the places, such as a channel, where the records of a batch are kept until it is completed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...model.futures import SendFuture


class Origin(Protocol):
    """The place where the record of one send is kept; takes the place of its callback.

    :ivar future: the future of the send, until a batch takes it over; None for a record without a future.
    """

    future: SendFuture | None

    def cut(self) -> None:
        """Count one more batch that carries a part of the record."""


class Origins:
    """The origins of a batch's sends, in order; a single send that was split is in both halves.

    A batch with origins keeps its records apart until it is completed, since they may have to go to the dead letters.
    It drops the body made of them whenever it waits, so that memory holds them once.
    """

    __slots__ = ("all",)

    def __init__(self, origins: Sequence[Origin] = ()) -> None:
        self.all = list(origins)

    def split(self, middle: int) -> tuple[Origins, Origins]:
        """Return the origins of two halves.

        :param middle: the number of sends of the first half; 0 if the only send is split.
        """
        if middle:
            return Origins(self.all[:middle]), Origins(self.all[middle:])
        self.all[0].cut()
        return Origins(self.all), Origins(self.all)

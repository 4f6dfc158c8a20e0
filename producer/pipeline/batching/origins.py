"""Origins: where the records of a batch are kept besides, such as in a channel, until the batch is settled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...model.futures import SendFuture


class Origin(Protocol):
    """Where the record of one send is kept; stands in place of its callback.

    :ivar future: of its send, until a batch takes it over; None for a record that no code asks about.
    """

    future: SendFuture | None

    def cut(self) -> None:
        """One more batch carries a part of the record."""


class Origins:
    """The origins of a batch's sends, in order; of the one send that was cut, in both halves.

    A batch that has them keeps its records, each for itself, until it is settled, for they may have to go to the dead
    letters. So that memory holds them once, it drops the body made of them whenever it waits.
    """

    __slots__ = ("all",)

    def __init__(self, origins: Sequence[Origin] = ()) -> None:
        self.all = list(origins)

    def split(self, middle: int) -> tuple[Origins, Origins]:
        """Return those of two halves.

        :param middle: the sends that the first half took; 0 if the only send is cut itself.
        """
        if middle:
            return Origins(self.all[:middle]), Origins(self.all[middle:])
        self.all[0].cut()
        return Origins(self.all), Origins(self.all)

"""Doubt: what became of requests under one number whose answers were lost, also when the batch is cut afterwards.

A request of an idempotent stream whose answer was lost may be stored. It is asked about again, as it was and under its
number, until the server stores it or knows the number. Should the server find it too large instead, again and again,
it is cut; but no record of it may go under a new number before that is known to be free. So the number in doubt goes
with the first part, the other parts wait, and the answer to the first part tells of all of them::

    [0 1 2 3 4 5 6 7]       number 9: the answer was lost; then it is too large
    [0 1 2 3] [4 5 6 7]     number 9, and waiting

    the first part is stored              nothing was before: the rest goes under new numbers
    number 9 is known                     the whole was stored: the rest is written, too
    its answer is lost, then 9 is known   the part was stored, or the whole: nobody can tell what became of the rest

What cannot be told fails, or stays in its channel, and the stream stops: to send it might store it twice, to pass it
over might lose it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from ...model.errors import InvalidSequenceError
from ...model.interfaces import SequenceId
from .attempt_history import AttemptHistory

#: How often a request in doubt has to be found too large before it is cut: a server that refuses it for its size each
#: time has, as a rule, never stored it.
SURE_AFTER = 3


class Fate(enum.Enum):
    """What a known number says of a part."""

    WRITTEN = "written"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SentBefore:
    """What a batch may have been sent under before a restart.

    :ivar sequence: its key and number.
    :ivar shorter: whether the first of its records may have been sent under it without the others.
    """

    sequence: SequenceId
    shorter: bool = False


class Part(Protocol):
    """A batch, as far as it matters here."""

    doubt: Doubt[Any] | None
    history: AttemptHistory


_P = TypeVar("_P", bound=Part)


class Doubt(Generic[_P]):
    """What requests under one number may have been stored; touched by the owner of the part that is in flight.

    :param batch: a request with its records may have been stored.
    :param shorter: so may one with only the first of them, nobody knows how many.
    :ivar parts: what it was cut into, in order; only the first one is sent under the number.
    :ivar refusals: how often the first part was found too large since a request with its records was lost.
    :ivar answer: the server knows the number; None as long as it has not said so.
    """

    __slots__ = ("_ends", "answer", "parts", "refusals", "shorter")

    def __init__(self, batch: _P, *, shorter: bool = False) -> None:
        self.parts: list[_P] = [batch]
        self.refusals = 0
        self.answer: InvalidSequenceError | None = None
        self.shorter = shorter
        #: The last part of each request that may have been stored.
        self._ends = {0}

    @property
    def of_first(self) -> bool:
        """Whether a request with the first part alone may have been stored."""
        return 0 in self._ends or self.shorter

    def lost(self) -> None:
        """A request with the first part alone may have been stored."""
        self._ends.add(0)

    def cut(self, halves: tuple[_P, _P]) -> None:
        """The first part was cut in two."""
        self.parts[:1] = halves
        self._ends = {end + 1 for end in self._ends}
        self.refusals = 0
        for half in halves:
            half.doubt = self

    def dispel(self) -> None:
        """The server has stored the first part, so nothing under the number before it."""
        for part in self.parts:
            part.doubt = None
            part.history.may_have_been_stored = False

    def fate_of(self, part: _P) -> Fate:
        """What became of a part, once the server knows the number."""
        position = self.parts.index(part)
        written = not self.shorter and all(end >= position for end in self._ends)
        return Fate.WRITTEN if written else Fate.UNKNOWN

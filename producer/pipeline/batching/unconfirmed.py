"""Unconfirmed: requests under one sequence number whose responses were lost.

A request of an idempotent stream whose response was lost may have been stored. It is repeated unchanged, under its
number, until the server stores it or reports the number as known. If the server refuses it as too large, again and
again, the batch is split. But no record of it may use a new number until the old number is known to be free. So the
first part is sent under the old number, the other parts wait, and the answer to the first part decides for all of
them::

    [0 1 2 3 4 5 6 7]       number 9: the response was lost; then it is too large
    [0 1 2 3] [4 5 6 7]     number 9, and waiting

    the first part is stored               nothing was stored before: the rest is sent under new numbers
    number 9 is known                      the whole was stored: the rest is written, too
    its response is lost, then 9 is known  the part or the whole was stored: the fate of the rest is unknown

A part with an unknown fate fails, or stays in its channel, and the stream stops: sending it might duplicate it, and
skipping it might lose it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from ...model.errors import InvalidSequenceError
from ...model.interfaces import SequenceId
from .attempt_history import AttemptHistory

#: How often an unconfirmed request must be refused as too large before it is split. A server that always refuses its
#: size has, as a rule, never stored it.
REFUSALS_BEFORE_SPLIT = 3


@dataclass(frozen=True, slots=True)
class SentBefore:
    """The key and number that a batch may have been sent under before a restart.

    :ivar sequence: the key and number.
    :ivar shorter: True if the first of its records may have been sent under it without the others.
    """

    sequence: SequenceId
    shorter: bool = False


class Part(Protocol):
    """A batch, as far as this module needs it."""

    unconfirmed: Unconfirmed[Any] | None
    history: AttemptHistory


_P = TypeVar("_P", bound=Part)


class Unconfirmed(Generic[_P]):
    """Requests under one number that may have been stored; used by the owner of the part in flight.

    :param batch: the batch whose request may have been stored.
    :param shorter: True if a request with only its first records may have been stored, of unknown number.
    :ivar parts: the parts that it was split into, in order; only the first is sent under the number.
    :ivar refusals: how often the first part was refused as too large since its last lost request.
    :ivar answer: the server's error that it knows the number; None until then.
    """

    __slots__ = ("_end", "answer", "parts", "refusals", "shorter")

    def __init__(self, batch: _P, *, shorter: bool = False) -> None:
        self.parts: list[_P] = [batch]
        self.refusals = 0
        self.answer: InvalidSequenceError | None = None
        self.shorter = shorter
        #: The last part of the shortest request that may have been stored.
        self._end = 0

    @property
    def of_first(self) -> bool:
        """True if a request with the first part alone may have been stored."""
        return self._end == 0 or self.shorter

    def lost(self) -> None:
        """Note that a request with the first part alone may have been stored."""
        self._end = 0

    def cut(self, halves: tuple[_P, _P]) -> None:
        """Replace the first part by its halves."""
        self.parts[:1] = halves
        self._end += 1
        self.refusals = 0
        for half in halves:
            half.unconfirmed = self

    def clear(self) -> None:
        """Clear all parts: the server stored the first part, so it had stored nothing under the number before."""
        for part in self.parts:
            part.unconfirmed = None
            part.history.may_have_been_stored = False

    def is_stored(self, part: _P) -> bool:
        """Return True if the server, which knows the number, must have stored a part; else its fate is unknown."""
        return not self.shorter and self._end >= self.parts.index(part)

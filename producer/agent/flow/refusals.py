"""Account for the refused events of a delivery and their reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...text.printable import without_userinfo
from ..events.batch import EventBatch
from ..events.interfaces import Refusal


class Known(NamedTuple):
    """The taken batches that were refused, at least in part, and those after them."""

    refused: Sequence[EventBatch]
    later: Sequence[EventBatch]

    def left(self, done: int) -> Sequence[EventBatch]:
        """Return the batches that are not stored elsewhere, each once.

        :param done: the number of refused batches that are done, such as dead letters.
        """
        return list({batch.sequence: batch for batch in (*self.refused[done:], *self.later)}.values())


class Progress(NamedTuple):
    """The progress of putting refusals into the dead letters.

    :ivar done: the number of refusals that need not wait.
    :ivar dead: those of them that are in the dead letters.
    :ivar error: the error because of which the next one waits; None if all are done.
    """

    done: int
    dead: Sequence[Refusal]
    error: Exception | None


def known_of(refused: Sequence[EventBatch], later: Sequence[EventBatch], taken: Sequence[EventBatch]) -> Known | None:
    """Find the taken batches that were refused, and those after them; None if they cannot be matched."""
    taken_as = {batch.sequence: batch for batch in taken}
    if any(batch.sequence not in taken_as for batch in (*refused, *later)):
        return None
    return Known(*([taken_as[batch.sequence] for batch in some] for some in (refused, later)))


def by_reason(refusals: Sequence[Refusal]) -> Mapping[str, int]:
    """Return the number of refused events for each reason."""
    found: Counter[str] = Counter()
    for refusal in refusals:
        found[without_userinfo(refusal.reason)] += refusal.batch.count
    return found


def count_of(refusals: Sequence[Refusal]) -> int:
    """Return the number of refused events."""
    return events_of(refusal.batch for refusal in refusals)


def events_of(batches: Iterable[EventBatch]) -> int:
    """Return the number of events in all batches."""
    return sum(batch.count for batch in batches)

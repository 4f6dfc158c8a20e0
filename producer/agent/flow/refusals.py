"""Which of a delivery was refused, for which reasons, and how much of it is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...text.printable import without_userinfo
from ..events.batch import EventBatch
from ..events.interfaces import Refusal


class Known(NamedTuple):
    """Which batches of a delivery were refused, in part at least, and which come behind them."""

    refused: Sequence[EventBatch]
    later: Sequence[EventBatch]

    def left(self, buried: int) -> Sequence[EventBatch]:
        """Those that are nowhere else, each once; so many of the refused ones are dead letters."""
        return list({batch.sequence: batch for batch in (*self.refused[buried:], *self.later)}.values())


class Buried(NamedTuple):
    """How far refusals were put into the dead letters.

    :ivar done: refusals that need not wait.
    :ivar dead: those of them that are in the dead letters.
    :ivar why: why the next one must wait; None if all are done.
    """

    done: int
    dead: Sequence[Refusal]
    why: Exception | None


def known_of(refused: Sequence[EventBatch], later: Sequence[EventBatch], taken: Sequence[EventBatch]) -> Known | None:
    """Find the taken batches that were refused, and those that come behind; None if nobody knows which they were."""
    taken_as = {batch.sequence: batch for batch in taken}
    if any(batch.sequence not in taken_as for batch in (*refused, *later)):
        return None
    return Known(*([taken_as[batch.sequence] for batch in some] for some in (refused, later)))


def by_reason(refusals: Sequence[Refusal]) -> Mapping[str, int]:
    """How many events were refused for each reason."""
    found: Counter[str] = Counter()
    for refusal in refusals:
        found[without_userinfo(refusal.reason)] += refusal.batch.count
    return found


def count_of(refusals: Sequence[Refusal]) -> int:
    """How many events were refused."""
    return events_of(refusal.batch for refusal in refusals)


def events_of(batches: Iterable[EventBatch]) -> int:
    """How many events there are in all batches."""
    return sum(batch.count for batch in batches)

"""Ranges: which stretches of what is read somebody has, as pairs of numbers: behind the first, up to the second.

*Example.* Up to 4, and what lies behind 6 up to 9::

    [(0, 4), (6, 9)]

In a note that is ``4 6-9``; where nothing begins at 0, as in ``[(6, 9)]``, it is ``0 6-9``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import reduce


class Ranges:
    """See the module: sorted, disjoint, and no two that touch."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    @property
    def first(self) -> int:
        """Up to where it has all from 0 on."""
        return self._ends[0] if self._starts and self._starts[0] <= 0 else 0

    @property
    def borders(self) -> list[int]:
        """Where what it has begins and ends behind :attr:`first`, in order."""
        return sorted({number for pair in self for number in pair if number > self.first})

    @property
    def last(self) -> int:
        """Where it ends; 0 if it has nothing."""
        return self._ends[-1] if self._ends else 0

    def has(self, start: int, end: int) -> bool:
        """Return True if it has all of that stretch; an empty one is nothing."""
        at = bisect_left(self._ends, end)
        return start >= end or (at < len(self._ends) and self._starts[at] <= start)

    def copy(self) -> Ranges:
        """One with the same stretches."""
        other = Ranges()
        other._starts, other._ends = self._starts.copy(), self._ends.copy()
        return other

    def add(self, start: int, end: int) -> None:
        """It has that stretch as well; an empty one is nothing."""
        if start >= end:
            return
        low, high = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [start], [end]

    def remove(self, start: int, end: int) -> None:
        """It no longer has anything of that stretch."""
        low, high = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if start >= end or low >= high:
            return
        left = [(self._starts[low], start)] if self._starts[low] < start else []
        right = [(end, self._ends[high - 1])] if self._ends[high - 1] > end else []
        self._starts[low:high] = [pair[0] for pair in (*left, *right)]
        self._ends[low:high] = [pair[1] for pair in (*left, *right)]

    def dump(self, most: int) -> bytes:
        """As it is noted.

        :param most: stretches that are noted, at most, beside the first.
        """
        others = [pair for pair in self if pair[1] > self.first][:most]
        return " ".join([str(self.first), *(f"{start}-{end}" for start, end in others)]).encode()


def intersection(all_ranges: Iterable[Ranges]) -> Ranges:
    """What all have, of at least one; none of them itself."""
    return reduce(_common, all_ranges).copy()


def _common(one: Ranges, other: Ranges) -> Ranges:
    """What is in both: the one without what the other lacks."""
    common, place = one.copy(), 0
    for start, end in other:
        common.remove(place, start)
        place = end
    if one._ends:
        common.remove(place, one._ends[-1])
    return common


def parse_ranges(raw: bytes) -> Ranges:
    """What was noted.

    :raises ValueError: it is no such note.
    """
    first, *others = raw.decode().split()
    ranges = Ranges()
    ranges.add(0, int(first))
    for text in others:
        start, _, end = text.partition("-")
        ranges.add(int(start), int(end))
    return ranges

"""Sets of ranges of offsets. A range is a pair of offsets: the data between a start and an end.

*Example.* From offset 0 to 4, and from 6 to 9::

    [(0, 4), (6, 9)]

The ledger stores this set on the disk as the text ``4 6-9``, and a set that does not begin at 0, ``[(6, 9)]``, as ``0
6-9``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import reduce


class Ranges:
    """A set of ranges: sorted, disjoint, and not adjacent."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    @property
    def first(self) -> int:
        """The end of the range that begins at 0; 0 if there is none."""
        return self._ends[0] if self._starts and self._starts[0] <= 0 else 0

    @property
    def borders(self) -> list[int]:
        """The starts and ends of all later ranges, sorted."""
        return sorted({number for pair in self for number in pair if number > self.first})

    @property
    def last(self) -> int:
        """The end of the last range; 0 for an empty set."""
        return self._ends[-1] if self._ends else 0

    def has(self, start: int, end: int) -> bool:
        """Return True if the set covers the whole range. An empty range is always covered."""
        at = bisect_left(self._ends, end)
        return start >= end or (at < len(self._ends) and self._starts[at] <= start)

    def copy(self) -> Ranges:
        """Return a copy."""
        other = Ranges()
        other._starts, other._ends = self._starts.copy(), self._ends.copy()
        return other

    def add(self, start: int, end: int) -> None:
        """Add a range. An empty range changes nothing."""
        if start >= end:
            return
        low, high = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [start], [end]

    def remove(self, start: int, end: int) -> None:
        """Remove a range."""
        low, high = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if start >= end or low >= high:
            return
        left = [(self._starts[low], start)] if self._starts[low] < start else []
        right = [(end, self._ends[high - 1])] if self._ends[high - 1] > end else []
        self._starts[low:high] = [pair[0] for pair in (*left, *right)]
        self._ends[low:high] = [pair[1] for pair in (*left, *right)]

    def dump(self, most: int) -> bytes:
        """Encode the set as the ledger stores it.

        :param most: maximum number of encoded ranges, besides the one that begins at 0.
        """
        others = [pair for pair in self if pair[1] > self.first][:most]
        return " ".join([str(self.first), *(f"{start}-{end}" for start, end in others)]).encode()


def intersection(all_ranges: Iterable[Ranges]) -> Ranges:
    """Return the intersection of at least one set, as a new set."""
    return reduce(_common, all_ranges).copy()


def _common(one: Ranges, other: Ranges) -> Ranges:
    """Return the intersection of two sets."""
    common, place = one.copy(), 0
    for start, end in other:
        common.remove(place, start)
        place = end
    if one._ends:
        common.remove(place, one._ends[-1])
    return common


def parse_ranges(raw: bytes) -> Ranges:
    """Decode a stored set.

    :raises ValueError: if the text has another form.
    """
    first, *others = raw.decode().split()
    ranges = Ranges()
    ranges.add(0, int(first))
    for text in others:
        start, _, end = text.partition("-")
        ranges.add(int(start), int(end))
    return ranges

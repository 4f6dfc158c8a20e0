"""Turns: members in an order that changes, the next one found in O(log n)."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Hashable
from typing import Generic, TypeVar

M = TypeVar("M", bound=Hashable)


class Turns(Generic[M]):
    """Members in the order of their turns, the lowest first; equal turns in the order of arrival."""

    __slots__ = ("_heap", "members")

    _count = itertools.count()

    def __init__(self) -> None:
        #: The current entry of each member: its turn, a number that increases with time, and the member.
        self.members: dict[M, tuple[float, int, M]] = {}
        self._heap: list[tuple[float, int, M]] = []

    def put(self, member: M, turn: float) -> None:
        """Add ``member``, or change its turn; with the same turn it keeps its place."""
        entry = self.members.get(member)
        if entry is not None and entry[0] == turn:
            return
        entry = self.members[member] = turn, next(self._count), member
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self.members) + 16:  # drop entries that were replaced
            self._heap = list(self.members.values())
            heapq.heapify(self._heap)

    def remove(self, member: M) -> None:
        """Remove ``member``, if it is there."""
        self.members.pop(member, None)

    def turn_of(self, member: M) -> float:
        """Return the turn of ``member``; infinite if it is not there."""
        entry = self.members.get(member)
        return math.inf if entry is None else entry[0]

    def first(self) -> tuple[float, int, M] | None:
        """Return the entry with the lowest turn; None without members."""
        heap = self._heap
        while heap and self.members.get(heap[0][2]) is not heap[0]:
            heapq.heappop(heap)
        return heap[0] if heap else None


def sooner(one: tuple[float, int, M] | None, other: tuple[float, int, M] | None) -> tuple[float, int, M] | None:
    """Return the entry with the lower turn."""
    if one is None or other is None:
        return one or other
    return min(one, other)


def member_of(turns: Turns[M]) -> M:
    """Return the next member; there must be one."""
    first = turns.first()
    if first is None:
        raise RuntimeError("no member is left, where there should be one: a bug")
    return first[2]

# cython: language_level=3
"""The compiled twin of ``turns.py``, which says what it does."""

import math
from heapq import heapify, heappop, heappush

cdef long long _count = 0
cdef object NEVER = math.inf


cdef class Turns:
    """See the pure twin."""

    cdef readonly dict members
    cdef list _heap

    def __cinit__(self):
        self.members, self._heap = {}, []

    def put(self, member, turn):
        """See the pure twin."""
        global _count
        cdef tuple entry = self.members.get(member)
        if entry is not None and entry[0] == turn:
            return
        entry = (turn, _count, member)
        _count += 1
        self.members[member] = entry
        heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self.members) + 16:
            self._heap = list(self.members.values())
            heapify(self._heap)

    def remove(self, member):
        """See the pure twin."""
        self.members.pop(member, None)

    def turn_of(self, member):
        """See the pure twin."""
        cdef tuple entry = self.members.get(member)
        return NEVER if entry is None else entry[0]

    def first(self):
        """See the pure twin."""
        cdef list heap = self._heap
        cdef tuple entry
        while heap:
            entry = heap[0]
            if self.members.get(entry[2]) is entry:
                return entry
            heappop(heap)
        return None

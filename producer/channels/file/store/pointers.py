"""Pointers: the place of an event in the log, segment and offset in one number."""

from __future__ import annotations

from typing import NamedTuple

#: Bits of a pointer that hold the offset within the segment.
OFFSET_BITS = 32
#: The largest offset that a pointer can hold.
MOST_OFFSET = (1 << OFFSET_BITS) - 1


class Entry(NamedTuple):
    """One event: its sequence number, pointer, payload size in bytes, and put time."""

    sequence: int
    pointer: int
    length: int
    time: float

    @property
    def segment(self) -> int:
        """Return the number of its segment."""
        return self.pointer >> OFFSET_BITS

    @property
    def offset(self) -> int:
        """Return the offset of its record in the segment."""
        return self.pointer & MOST_OFFSET


def pointer_to(segment: int, offset: int) -> int:
    """Return segment and offset in one number."""
    return segment << OFFSET_BITS | offset

"""Pointers: where an event stands in the log, segment and offset in one number."""

from __future__ import annotations

from typing import NamedTuple

#: Bits of a pointer that hold the offset within the segment.
OFFSET_BITS = 32
#: The greatest offset that a pointer can hold.
MOST_OFFSET = (1 << OFFSET_BITS) - 1


class Entry(NamedTuple):
    """One event: its sequence number, where it stands, the bytes of its record's payload, when it was put."""

    sequence: int
    pointer: int
    length: int
    time: float

    @property
    def segment(self) -> int:
        """The segment's number."""
        return self.pointer >> OFFSET_BITS

    @property
    def offset(self) -> int:
        """Where the record begins in the segment."""
        return self.pointer & MOST_OFFSET


def pointer_to(segment: int, offset: int) -> int:
    """Segment and offset in one number."""
    return segment << OFFSET_BITS | offset

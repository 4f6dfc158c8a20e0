"""EventQueue: the events of a channel, in order, as pointers into the log; their bodies stay on the disk.

It uses columns of numbers, 28 bytes an event. It has no lock of its own: the channel's lock guards it.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from ...limits import first_within
from ..store.pointers import OFFSET_BITS, Entry

_LENGTH = attrgetter("length")

#: Taken events are cut off the columns when they are at least this many, and at least half of all.
_CUT = 4096


class Columns:
    """Entries of the queue, by column; ``array`` stores each number in 8 or 4 bytes."""

    __slots__ = ("lengths", "pointers", "sequences", "times")

    def __init__(self) -> None:
        self.sequences = array("Q")
        self.pointers = array("Q")
        self.lengths = array("I")
        self.times = array("d")

    def __len__(self) -> int:
        return len(self.sequences)

    def append(self, entry: Entry) -> None:
        """Add one entry."""
        self.sequences.append(entry.sequence)
        self.pointers.append(entry.pointer)
        self.lengths.append(entry.length)
        self.times.append(entry.time)

    def extend(
        self, sequences: Iterable[int], pointers: Iterable[int], lengths: Iterable[int], times: Iterable[float]
    ) -> None:
        """Add many entries; all or none, if interrupted."""
        count = len(self)
        try:
            self.sequences.extend(sequences)
            self.pointers.extend(pointers)
            self.lengths.extend(lengths)
            self.times.extend(times)
        except BaseException:
            self.keep(count)
            raise

    def entries(self, start: int, stop: int) -> list[Entry]:
        """Return the entries at positions ``start`` to ``stop``."""
        columns = (self.sequences, self.pointers, self.lengths, self.times)
        return list(map(Entry._make, zip(*[column[start:stop] for column in columns], strict=True)))

    def segments(self) -> set[int]:
        """Return the numbers of the segments that hold these events."""
        high = array("I", self.pointers.tobytes())[1 if sys.byteorder == "little" else 0 :: 2]
        return set(high)

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges of consecutive sequence numbers, as first and last."""
        numbers, ranges, start = self.sequences, [], 0
        while start < len(numbers):
            stop = bisect_right(range(start, len(numbers)), 0, key=lambda at: numbers[at] - numbers[start] - at + start)
            ranges.append((numbers[start], numbers[start + stop - 1]))
            start += stop
        return ranges

    def keep(self, count: int) -> None:
        """Remove all but the first ``count``."""
        for column in (self.sequences, self.pointers, self.lengths, self.times):
            del column[count:]

    def after(self, start: int) -> Columns:
        """Return a copy of the entries from position ``start`` on."""
        copy = Columns()
        copy.sequences, copy.pointers = self.sequences[start:], self.pointers[start:]
        copy.lengths, copy.times = self.lengths[start:], self.times[start:]
        return copy


class EventQueue:
    """Events of one channel, by sequence number: queued ones and taken ones.

    :ivar taken: events in open transactions, by sequence number.
    """

    def __init__(self) -> None:
        self._columns = Columns()
        self._head = 0
        self._returned: list[Entry] = []  # taken and given back, in order
        self.taken: dict[int, Entry] = {}
        self._last = 0  # the newest sequence number ever appended
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._columns) - self._head + len(self._returned)

    def sums(self) -> tuple[int, int]:
        """Return the number of events, taken ones included, and the sum of their lengths in bytes."""
        return len(self) + len(self.taken), self._bytes

    def restore(self, columns: Columns) -> None:
        """Start with recovered entries."""
        self._columns = columns
        self._last = columns.sequences[-1] if columns.sequences else 0
        self._bytes = sum(columns.lengths)

    def append(self, first: int, segment: int, offsets: Sequence[int], lengths: Sequence[int], time: float) -> None:
        """Add one transaction's events at the tail, unless they are there already.

        :param first: sequence number of the first; the others follow consecutively.
        """
        count, base = len(offsets), segment << OFFSET_BITS
        last = first + count - 1
        if last <= self._last:
            return
        size = sum(lengths)
        pointers = [base | offset for offset in offsets]
        self._columns.extend(range(first, first + count), pointers, lengths, [time] * count)
        self._last = last
        self._bytes += size

    def take(self, count: int, max_bytes: int | None, into: dict[int, Entry]) -> list[Entry]:
        """Take up to ``count`` events from the head, at least one if there are any.

        :param into: the events that the transaction has taken; the new ones are added to it.
        """
        returned = sorted(self._returned) if self._returned else []
        early = returned[:count]
        entries = early + self._columns.entries(self._head, self._head + count - len(early))
        if max_bytes is not None:
            del entries[first_within(map(_LENGTH, entries), max_bytes) :]
        new = {entry.sequence: entry for entry in entries}
        returned, later = returned[len(entries) :], max(0, len(entries) - len(early))
        into |= new
        self.taken |= new
        self._returned = returned
        self._head += later
        if self._head >= _CUT and self._head * 2 >= len(self._columns):
            self._columns, self._head = self._columns.after(self._head), 0
        return entries

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Return taken events to their places, before all events with a greater sequence number."""
        gone = {entry.sequence for entry in entries}
        # Use the queue's entry: after a failed sync the event may be in another segment.
        back = [self.taken[sequence] for sequence in gone if sequence in self.taken]
        taken = {sequence: entry for sequence, entry in self.taken.items() if sequence not in gone}
        self._returned, self.taken = sorted([*self._returned, *back]), taken

    def remove(self, sequences: Sequence[int]) -> None:
        """Forget taken events."""
        self._bytes -= sum(map(_LENGTH, map(self.taken.pop, sequences)))

    def repoint(self, pointers: Mapping[int, int]) -> None:
        """Replace the pointers of events that were rewritten, by sequence number."""
        columns = self._columns
        for position in range(self._head, len(columns)):
            pointer = pointers.get(columns.sequences[position])
            if pointer is not None:
                columns.pointers[position] = pointer
        for sequence in self.taken.keys() & pointers.keys():
            self.taken[sequence] = self.taken[sequence]._replace(pointer=pointers[sequence])
        self._returned = [
            entry._replace(pointer=pointers.get(entry.sequence, entry.pointer)) for entry in self._returned
        ]

    def snapshot(self, before: int) -> Columns:
        """Return every event whose pointer is below ``before``, taken ones included, by sequence number."""
        columns = Columns()
        # Taken events, including those given back, come before all that were never taken.
        for entry in sorted([*self.taken.values(), *self._returned]):
            columns.append(entry)
        rest = self._columns.after(self._head)
        columns.extend(rest.sequences, rest.pointers, rest.lengths, rest.times)
        late = len(columns)
        while late and columns.pointers[late - 1] >= before:
            late -= 1
        columns.keep(late)
        return columns

    @property
    def oldest(self) -> float | None:
        """Return the put time of the first queued event; None if the queue is empty."""
        times = [self._returned[0].time] if self._returned else []
        if self._head < len(self._columns):
            times.append(self._columns.times[self._head])
        return min(times, default=None)

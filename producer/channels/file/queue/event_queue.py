"""EventQueue: which events are in the channel, in order, as pointers into the log; their bodies stay on the disk.

Columns of numbers, 28 bytes an event. It has no lock of its own: the channel guards it.
"""

from __future__ import annotations

import heapq
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from ..store.pointers import OFFSET_BITS, Entry

_LENGTH = attrgetter("length")

#: Taken events are cut off the columns when they are this many, and the greater part.
_CUT = 4096


class Columns:
    """Entries, by column; ``array`` keeps each number in 8 or 4 bytes."""

    __slots__ = ("lengths", "pointers", "sequences", "times")

    def __init__(self) -> None:
        self.sequences = array("Q")
        self.pointers = array("Q")
        self.lengths = array("I")
        self.times = array("d")

    def __len__(self) -> int:
        return len(self.sequences)

    def append(self, entry: Entry) -> None:
        """Add one."""
        self.sequences.append(entry.sequence)
        self.pointers.append(entry.pointer)
        self.lengths.append(entry.length)
        self.times.append(entry.time)

    def extend(
        self, sequences: Iterable[int], pointers: Iterable[int], lengths: Iterable[int], times: Iterable[float]
    ) -> None:
        """Add many."""
        self.sequences.extend(sequences)
        self.pointers.extend(pointers)
        self.lengths.extend(lengths)
        self.times.extend(times)

    def entries(self, start: int, stop: int) -> list[Entry]:
        """Those at positions ``start`` to ``stop``."""
        if stop - start == 1 and start < len(self.times):
            return [Entry(self.sequences[start], self.pointers[start], self.lengths[start], self.times[start])]
        columns = (self.sequences, self.pointers, self.lengths, self.times)
        return list(map(Entry._make, zip(*[column[start:stop] for column in columns], strict=True)))

    def even(self) -> None:
        """Forget what an interrupt has added to some of the columns only."""
        count = len(self.times)
        if not len(self.sequences) == len(self.pointers) == len(self.lengths) == count:
            self.keep(min(len(self.sequences), len(self.pointers), len(self.lengths), count))

    def segments(self) -> set[int]:
        """The numbers of the segments in which these events stand."""
        high = array("I", self.pointers.tobytes())[1 if sys.byteorder == "little" else 0 :: 2]
        return set(high)

    def ranges(self) -> list[tuple[int, int]]:
        """The sequence numbers, first and last of each row of consecutive ones."""
        numbers, ranges, start = self.sequences, [], 0
        while start < len(numbers):
            stop = bisect_right(range(start, len(numbers)), 0, key=lambda at: numbers[at] - numbers[start] - at + start)
            ranges.append((numbers[start], numbers[start + stop - 1]))
            start += stop
        return ranges

    def cut_from(self, sequence: int) -> bool:
        """Remove what has this sequence number or a later one, at the end; whether there was any."""
        self.even()
        count = before = len(self.sequences)
        while count and self.sequences[count - 1] >= sequence:
            count -= 1
        if count < before:
            self.keep(count)
        return count < before

    def keep(self, count: int) -> None:
        """Remove all but the first ``count``."""
        for column in (self.sequences, self.pointers, self.lengths, self.times):
            del column[count:]

    def after(self, start: int) -> Columns:
        """A copy of those from ``start`` on."""
        copy = Columns()
        copy.sequences, copy.pointers = self.sequences[start:], self.pointers[start:]
        copy.lengths, copy.times = self.lengths[start:], self.times[start:]
        return copy


class EventQueue:
    """The events of one channel, by sequence number: those that wait, and those that are taken.

    :ivar taken: events in open transactions, by sequence number.
    :ivar handing: events of a :meth:`take` whose caller has not said yet, by emptying it, that he has them.
    """

    def __init__(self) -> None:
        self._columns = Columns()
        self._head = 0
        self._returned: list[Entry] = []  # a heap: what was taken and given back
        self._returning: int | None = None  # what is being given back, or was when an interrupt came
        self.taken: dict[int, Entry] = {}
        self.handing: Sequence[Entry] = ()
        self._last = 0  # the newest that was ever appended
        self._total: tuple[int, int] | None = (0, 0)  # None while it changes, and if an interrupt came meanwhile

    def __len__(self) -> int:
        return len(self._columns) - self._head + len(self._returned)

    def sums(self) -> tuple[int, int]:
        """How many events there are, taken ones included, and the sum of their lengths."""
        if self._total is None:
            self._total = self._counted()
        return self._total

    def _counted(self) -> tuple[int, int]:
        """An interrupt may have left an event in two places."""
        self._columns.even()
        rest = self._columns.after(self._head)
        lengths = dict(zip(rest.sequences, rest.lengths, strict=True))
        lengths.update({entry.sequence: entry.length for entry in (*self._returned, *self.taken.values())})
        return len(lengths), sum(lengths.values())

    def restore(self, columns: Columns) -> None:
        """Begin with these."""
        self._columns = columns
        self._last = columns.sequences[-1] if columns.sequences else 0
        self._total = len(columns), sum(columns.lengths)

    def append(self, first: int, segment: int, offsets: Sequence[int], lengths: Sequence[int], time: float) -> None:
        """Add one transaction's events at the tail, with consecutive sequence numbers from ``first`` on.

        May be called again with the same events, after a call that was interrupted.
        """
        count, base = len(offsets), segment << OFFSET_BITS
        last = first + count - 1
        if last <= self._last:
            return
        total, self._total = self._total, None
        columns = self._columns
        if total is None or (columns.sequences and columns.sequences[-1] >= first):  # an interrupt came before
            columns.cut_from(first)
            total = None
        pointers = [base | offset for offset in offsets]
        columns.extend(range(first, first + count), pointers, lengths, [time] * count)
        self._last = last
        if total is not None:
            self._total = total[0] + count, total[1] + sum(lengths)

    def take(self, count: int, max_bytes: int | None) -> list[Entry]:
        """Up to ``count`` events from the head, at least one if there are any; they are taken from now on.

        An interrupt may come anywhere: an event is among the taken ones before it leaves the others, lest a checkpoint
        misses it.
        """
        self._columns.even()
        self._end_interrupted_return()
        early = heapq.nsmallest(count, self._returned) if self._returned else []
        entries = early + self._columns.entries(self._head, self._head + count - len(early))
        if max_bytes is not None:
            del entries[_within(entries, max_bytes) :]
        self.handing = entries
        self.taken.update({entry.sequence: entry for entry in entries})
        for _ in entries[: len(early)]:
            heapq.heappop(self._returned)
        self._head += max(0, len(entries) - len(early))
        if self._head >= _CUT and self._head * 2 >= len(self._columns):
            self._columns, self._head = self._columns.after(self._head), 0
        return entries

    def take_back(self) -> list[int]:
        """What a :meth:`take` was handing out when it was interrupted waits again; the sequence numbers."""
        columns, handed = self._columns, [entry.sequence for entry in self.handing]
        waiting = {entry.sequence for entry in self._returned}
        first = columns.sequences[self._head] if self._head < len(columns) else self._last + 1
        for sequence in handed:
            if sequence in self.taken and (sequence >= first or sequence in waiting):
                del self.taken[sequence]
            elif sequence in self.taken:
                self.put_back((self.taken[sequence],))
        self.handing = ()
        return handed

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Events, if they are taken, return to where they were: before all that has a greater sequence number."""
        self._end_interrupted_return()
        for entry in entries:
            if entry.sequence in self.taken:
                self._returning = entry.sequence
                # Another segment may hold it by now, if a sync failed meanwhile.
                heapq.heappush(self._returned, self.taken[entry.sequence])
                del self.taken[entry.sequence]
        self._returning = None

    def _end_interrupted_return(self) -> None:
        """What has returned already is not taken any more, or it would return once more."""
        sequence = self._returning
        if sequence in self.taken and any(entry.sequence == sequence for entry in self._returned):
            del self.taken[sequence]
        self._returning = None

    def remove(self, sequences: Sequence[int]) -> None:
        """Taken events are gone for good."""
        total, self._total = self._total, None
        size = sum(map(_LENGTH, map(self.taken.pop, sequences)))
        if total is not None:
            self._total = total[0] - len(sequences), total[1] - size

    def repoint(self, pointers: Mapping[int, int]) -> None:
        """These sequence numbers stand somewhere else now."""
        columns = self._columns
        for position in range(self._head, len(columns)):
            pointer = pointers.get(columns.sequences[position])
            if pointer is not None:
                columns.pointers[position] = pointer
        for sequence in self.taken.keys() & pointers.keys():
            self.taken[sequence] = self.taken[sequence]._replace(pointer=pointers[sequence])
        # The order stays: still a heap.
        self._returned = [
            entry._replace(pointer=pointers.get(entry.sequence, entry.pointer)) for entry in self._returned
        ]

    def snapshot(self, before: int) -> Columns:
        """Every event, taken ones included, whose pointer is below ``before``, by sequence number."""
        columns = Columns()
        self._columns.even()
        # What was taken was ahead of all that was not, also where it was given back since. An interrupt may have left
        # an event in two places.
        early = {entry.sequence: entry for entry in (*self.taken.values(), *self._returned)}
        for sequence in sorted(early):
            columns.append(early[sequence])
        rest = self._columns.after(self._head)
        columns.extend(rest.sequences, rest.pointers, rest.lengths, rest.times)
        late = len(columns)
        while late and columns.pointers[late - 1] >= before:
            late -= 1
        columns.keep(late)
        return columns

    @property
    def oldest(self) -> float | None:
        """When the first event in the queue was put; None if it is empty."""
        times = [self._returned[0].time] if self._returned else []
        if self._head < len(self._columns):
            times.append(self._columns.times[self._head])
        return min(times, default=None)


def _within(entries: Sequence[Entry], max_bytes: int) -> int:
    """How many of the first entries stay within ``max_bytes``; at least one."""
    if sum(map(_LENGTH, entries)) <= max_bytes:
        return len(entries)
    size = 0
    for position, entry in enumerate(entries):
        size += entry.length
        if size > max_bytes and position:
            return position
    return len(entries)

"""Model of a file channel: a list of events, and the states permitted after a crash.

Each event is a function of its number. ``history`` holds commits, certain or possible, that are not known to be on the
disk. After a crash of the machine, the channel holds ``durable`` plus a prefix of the history. If no commit waits for
the disk, it holds any part of the history, and counts gaps as lost. After a crash of the process alone it holds
everything. A transaction whose commit raised may be found whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from producer.model.interfaces import Event


def event_of(number: int) -> Event:
    """Return the event of this number; size, headers and body are a function of it."""
    headers: dict[str, str | None] = {"id": str(number)}
    if number % 3 == 1:
        headers["größe"] = "x" * (number * 7 % 90)
    if number % 5 == 2:
        headers["none"] = None
    size = (0, 1, 40, 333, 900, 3000)[number * 2654435761 % 6]
    return Event(headers, (b"%d:" % number * (size // 2 + 1))[:size])


def number_of(event: Event) -> int:
    text = event.headers.get("id")
    assert text, f"an event that was never put: {event!r}"
    whole = event_of(int(text))
    assert dict(event.headers) == dict(whole.headers), f"the headers of event {text} have changed: {event.headers}"
    assert event.body == whole.body, f"the body of event {text} has changed: {event.body[:50]!r}…"
    return int(text)


@dataclass(frozen=True, slots=True)
class Entry:
    owner: int
    puts: tuple[int, ...] = ()
    takes: frozenset[int] = frozenset()
    doubt: bool = False

    def without(self, gone: frozenset[int]) -> Entry:
        """The same, but for events that are gone for certain."""
        return Entry(
            self.owner, tuple(number for number in self.puts if number not in gone), self.takes - gone, self.doubt
        )


@dataclass(slots=True)
class Model:
    """The expected content of one channel.

    :ivar durable: events certainly on the disk, in order.
    :ivar history: later entries, whose end may be lost.
    :ivar visible: events in the channel now, in order, including those in open transactions.
    :ivar taken: events whose take was committed.
    :ivar sequences: the known sequence numbers.
    """

    durable: list[int] = field(default_factory=list)
    history: list[Entry] = field(default_factory=list)
    visible: list[int] = field(default_factory=list)
    taken: set[int] = field(default_factory=set)
    sequences: dict[int, int] = field(default_factory=dict)

    def commit(self, entry: Entry, *, on_disk: bool) -> None:
        self.history = [other for other in self.history if not (other.doubt and other.owner == entry.owner)]
        self.history.append(entry)
        self.visible = [number for number in (*self.visible, *entry.puts) if number not in entry.takes]
        self.taken |= entry.takes
        if on_disk:
            self.synced()
            # Later writes void earlier failures; only doubts of an earlier life remain.
            self.history = [
                entry for entry in self.history if {*entry.puts} & {*self.visible} or entry.takes - {*self.visible}
            ]

    def doubt(self, owner: int, puts: Iterable[int], takes: Iterable[int]) -> None:
        """Record a commit that raised, and may have happened, until the next crash decides."""
        self.history.append(Entry(owner, tuple(puts), frozenset(takes), doubt=True))

    def synced(self) -> None:
        """Record that all commits are on the disk; doubtful ones remain so."""
        gone = frozenset(number for entry in self.history if not entry.doubt for number in entry.takes)
        puts = [number for entry in self.history if not entry.doubt for number in entry.puts]
        self.durable = [number for number in (*self.durable, *puts) if number not in gone]
        self.history = [entry.without(gone) for entry in self.history if entry.doubt]

    def found(self, numbers: Sequence[int], *, machine_died: bool, synced_sequence: int = -1) -> int:
        """Apply the content found at a reopening; return the number of lost transactions."""
        whole = len(self.history)
        least = self._least(synced_sequence) if machine_died else whole
        problem = self._problem(numbers, whole)
        kept = whole
        while problem and kept > least:
            kept -= 1
            if not self._problem(numbers, kept):
                break
        else:
            assert not problem, problem
        lost = sum(not entry.doubt for entry in self.history[kept:])
        self.visible = list(numbers)
        if machine_died:
            self.durable, self.history = list(numbers), []
        return lost

    def found_with_holes(self, numbers: Sequence[int], *, synced_sequence: int, counted: int | None) -> int:
        """Apply the content found after a crash without syncs at commit; return the number lost."""
        least = self._least(synced_sequence)
        safe, unsafe = self.history[:least], self.history[least:]
        found, taken = frozenset(numbers), {number for entry in self.history for number in entry.takes}
        assert len(found) == len(numbers), f"events are there twice: {numbers}"
        gone = {number for entry in safe if not entry.doubt for number in entry.takes}
        assert not found & gone, f"after their take was committed came {found & gone}"
        puts = [number for entry in self.history if not entry.doubt for number in entry.puts]
        doubtful = {number for entry in self.history if entry.doubt for number in entry.puts}
        assert found <= {*self.durable, *puts, *doubtful}, "new events"
        certain = {*self.durable, *(number for entry in safe if not entry.doubt for number in entry.puts)}
        assert not (lost := certain - found - taken), f"events that were on the disk are lost: {sorted(lost)}"
        assert not (problem := self._order(numbers, [*self.durable, *puts])), problem
        missing = {number for entry in unsafe if not entry.doubt for number in entry.puts} - found
        known = [self.sequences[number] for entry in unsafe for number in entry.puts if number in found & {*puts}]
        before = {number for number in missing - taken if self.sequences[number] < max(known, default=0)}
        if counted is not None:
            assert len(before) <= counted <= len(missing | doubtful), f"{counted} are counted, {before} are missing"
        self.visible = self.durable = list(numbers)
        self.history = []
        return len(missing)

    def _least(self, synced_sequence: int) -> int:
        """Return the length of the history certainly on the disk, as the channel reported."""
        least = 0
        for place, entry in enumerate(self.history):
            if not entry.doubt and entry.puts and self.sequences[entry.puts[-1]] <= synced_sequence:
                least = place + 1
        return least

    def _problem(self, numbers: Sequence[int], kept: int) -> str:
        """Return the contradiction if this much of the history was kept; empty if there is none."""
        history = self.history[:kept]
        gone = frozenset(number for entry in history if not entry.doubt for number in entry.takes)
        puts = [number for entry in history if not entry.doubt for number in entry.puts]
        certain = [number for number in (*self.durable, *puts) if number not in gone]
        doubts = [entry.without(gone) for entry in history if entry.doubt]
        found = frozenset(numbers)
        optional: dict[int, list[tuple[int, ...]]] = {}  # by owner: a commit may raise, and be retried with more events
        for entry in doubts:
            if entry.puts:
                optional.setdefault(entry.owner, []).append(entry.puts)
        if len(found) != len(numbers):
            return f"events are there twice: {numbers}"
        known = found & {*certain, *(number for groups in optional.values() for group in groups for number in group)}
        if known != found:
            strange = sorted(found - known)
            return f"after their take was committed came {strange}" if strange[0] in self.taken else f"new: {strange}"
        excused = self._excused(frozenset(certain) - found, frozenset(certain), doubts)
        if lost := frozenset(certain) - found - excused:
            return f"committed events are lost: {sorted(lost)}"
        return self._halves(numbers, optional.values(), excused) or self._order(numbers, certain)

    @staticmethod
    def _excused(missing: frozenset[int], certain: frozenset[int], doubts: Iterable[Entry]) -> frozenset[int]:
        """Return the events that may be missing, because a take whose commit raised may have happened."""
        excused: frozenset[int] = frozenset()
        for entry in doubts:
            if entry.takes & certain <= missing:
                excused |= entry.takes
        return excused

    @staticmethod
    def _halves(numbers: Sequence[int], attempts: Iterable[Sequence[Sequence[int]]], excused: frozenset[int]) -> str:
        for groups in attempts:
            known = {number for group in groups for number in group}
            part = [number for number in numbers if number in known]
            whole = [list(group) for group in groups]
            whole += [[number for number in group if number not in excused] for group in groups]
            if part and part not in whole:
                return f"half a transaction: {part} of {groups}"
            if part and list(numbers[(start := numbers.index(part[0])) : start + len(part)]) != part:
                return f"a transaction in pieces: {groups} in {numbers}"
        return ""

    @staticmethod
    def _order(numbers: Sequence[int], certain: Sequence[int]) -> str:
        present = set(certain)
        order = [number for number in numbers if number in present]
        there = set(numbers)
        return "" if order == [number for number in certain if number in there] else f"the order is {order}"

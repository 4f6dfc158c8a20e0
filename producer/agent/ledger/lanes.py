"""Lanes: for each name, the ranges of a source's data that a channel has, so that they are not put again."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from ..events.batch import Position
from .ranges import Ranges, intersection, parse_ranges

#: The prefix of the names of notes that hold ranges.
PREFIX = "position:"
#: The maximum number of ranges noted for one name; events of other ranges may be duplicated.
MOST_NOTED = 1000
NOTHING = Ranges()
#: The name of the single lane for all channels of an exclusive selector.
OF_ALL = ""


class Holder(Protocol):
    """A channel, as a ledger sees it.

    :ivar keeps: True if its events survive the process.
    """

    keeps: bool

    @property
    def name(self) -> str:
        """The channel's name."""

    def make_synced(self, sequence: int) -> None:
        """Wait until all events up to this number are on the disk."""


class Lane:
    """The ranges of one channel, or of all channels if each batch goes to one of them.

    :ivar put: the ranges put into the channel, by name.
    :ivar safe: the ranges that survive a crash, by name.
    :ivar due: names whose notes are to be written.
    :ivar unsynced: channels in whose events safe ranges are stored, with the number of the newest such event.
    """

    def __init__(self) -> None:
        self.put: dict[str, Ranges] = {}
        self.safe: dict[str, Ranges] = {}
        self.due: set[str] = set()
        self.unsynced: dict[str, tuple[Holder, int]] = {}

    def add(self, position: Position, *, put: bool = True, safe: bool = True) -> None:
        """Count a range as put, as safe, or as both."""
        name, end, _, start = position
        if put:
            self.put.setdefault(name, Ranges()).add(start, end)
        if safe:
            self.safe.setdefault(name, Ranges()).add(start, end)
            self.due.add(name)

    def remove(self, name: str, start: int, end: int) -> None:
        """Remove a range, so that it is put again."""
        for known in (self.put, self.safe):
            known.setdefault(name, Ranges()).remove(start, end)
        self.due.add(name)

    def covers(self, position: Position) -> bool:
        """Return True if the range was put."""
        return self.put.get(position.name, NOTHING).has(position.start, position.end)

    def have_noted(self, name: str, value: bytes) -> None:
        """Record that a note was written. It stays due if the ranges have changed meanwhile."""
        if name in self.safe and self.safe[name].dump(MOST_NOTED) == value:
            self.due.discard(name)

    def forget(self, name: str) -> None:
        """Drop all ranges of a name."""
        self.put.pop(name, None)
        self.safe.pop(name, None)
        self.due.discard(name)


def rules_of(channels: Iterable[str], selection: str, *, exclusive: bool) -> bytes:
    """Encode the rules that decide which batches each lane gets, for the notes.

    :param selection: a text that differs if the selector or the interceptors differ.
    :param exclusive: True if each batch goes to one channel.
    """
    names = sorted(channels)
    lanes = [OF_ALL] if exclusive else names
    return json.dumps({"channels": names, "lanes": lanes, "selection": selection}).encode()


def lanes_of(rules: bytes | None, rows: Mapping[str, bytes]) -> dict[str, Lane]:
    """Decode the noted lanes."""
    lanes = {} if rules is None else {name: Lane() for name in json.loads(rules)["lanes"]}
    for number, lane in enumerate(lanes.values()):
        prefix = f"{PREFIX}{number}:"
        for row, value in rows.items():
            if row.startswith(prefix):
                lane.safe[row.removeprefix(prefix)] = parse_ranges(value)
        lane.put = {name: ranges.copy() for name, ranges in lane.safe.items()}
    return lanes


def count_uneven(lanes: Collection[Lane]) -> int:
    """Count the names whose ranges differ between lanes."""
    names = {name for lane in lanes for name in lane.put}
    return sum(len({lane.put.get(name, NOTHING).dump(sys.maxsize) for lane in lanes}) > 1 for name in names)


def even(former: Collection[Lane], names: Iterable[str]) -> dict[str, Lane]:
    """Return new lanes that all have the common ranges of the former lanes."""
    lanes = {name: Lane() for name in names}
    for lane in lanes.values():
        lane.unsynced = {name: newest for each in former for name, newest in each.unsynced.items()}
    for of in {of for lane in former for of in lane.put}:
        for lane in lanes.values():
            lane.put[of] = intersection(each.put.get(of, NOTHING) for each in former)
            lane.safe[of] = intersection(each.safe.get(of, NOTHING) for each in former)
            lane.due.add(of)
    return lanes

"""Lanes: of each thing that a source reads, the ranges that a channel need not get again."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from ..events.batch import Position
from .ranges import Ranges, intersection, parse_ranges

#: What the names of notes that are ranges begin with.
PREFIX = "position:"
#: Ranges that are noted for one name, at most: what lies in others may come twice.
MOST_NOTED = 1000
NOTHING = Ranges()
#: The one lane of channels of which each batch goes to one.
OF_ALL = ""


class Holder(Protocol):
    """A channel, as a ledger sees it.

    :ivar keeps: True if its events survive the process.
    """

    keeps: bool

    @property
    def name(self) -> str:
        """Its name."""

    def make_synced(self, sequence: int) -> None:
        """Wait until all events up to this number are on the disk."""


class Lane:
    """Ranges of one channel, or of all channels of which each batch goes to one.

    :ivar due: names whose note is to be written.
    :ivar unsynced: channels that keep what is safe, with the number of their newest event.
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
        """Have a range put again."""
        for known in (self.put, self.safe):
            known.setdefault(name, Ranges()).remove(start, end)
        self.due.add(name)

    def covers(self, position: Position) -> bool:
        """Return True if the range was put."""
        return self.put.get(position.name, NOTHING).has(position.start, position.end)

    def have_noted(self, name: str, value: bytes) -> None:
        """Count a note as written; it is due again if it says too little by now."""
        if name in self.safe and self.safe[name].dump(MOST_NOTED) == value:
            self.due.discard(name)

    def forget(self, name: str) -> None:
        """Drop all that is known of a name."""
        self.put.pop(name, None)
        self.safe.pop(name, None)
        self.due.discard(name)


def rules_of(channels: Iterable[str], selection: str, *, exclusive: bool) -> bytes:
    """What says which batches a lane gets, as it is noted.

    :param selection: another text where a selector or interceptor is another one.
    """
    names = sorted(channels)
    lanes = [OF_ALL] if exclusive else names
    return json.dumps({"channels": names, "lanes": lanes, "selection": selection}).encode()


def lanes_of(rules: bytes | None, rows: Mapping[str, bytes]) -> dict[str, Lane]:
    """The lanes that were noted."""
    lanes = {} if rules is None else {name: Lane() for name in json.loads(rules)["lanes"]}
    for number, lane in enumerate(lanes.values()):
        prefix = f"{PREFIX}{number}:"
        for row, value in rows.items():
            if row.startswith(prefix):
                lane.safe[row.removeprefix(prefix)] = parse_ranges(value)
        lane.put = {name: ranges.copy() for name, ranges in lane.safe.items()}
    return lanes


def count_uneven(lanes: Collection[Lane]) -> int:
    """Names of which some lanes have more than others."""
    names = {name for lane in lanes for name in lane.put}
    return sum(len({lane.put.get(name, NOTHING).dump(sys.maxsize) for lane in lanes}) > 1 for name in names)


def even(former: Collection[Lane], names: Iterable[str]) -> dict[str, Lane]:
    """Lanes that all have what all former lanes had."""
    lanes = {name: Lane() for name in names}
    for lane in lanes.values():
        lane.unsynced = {name: newest for each in former for name, newest in each.unsynced.items()}
    for of in {of for lane in former for of in lane.put}:
        for lane in lanes.values():
            lane.put[of] = intersection(each.put.get(of, NOTHING) for each in former)
            lane.safe[of] = intersection(each.safe.get(of, NOTHING) for each in former)
            lane.due.add(of)
    return lanes

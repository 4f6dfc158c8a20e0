"""Members: which channels that forget have a part in what a source has read.

Where each batch goes to one of several channels, what was read is safe if none of those that forget has it undelivered:
each notes what it does not have (see :mod:`.positions`). So it matters whose notes are asked:

* A channel that is **new** has no notes, and has nothing undelivered. One whose notes are damaged has none either, and
  may have lost anything.
* One that is **gone**, or has another name now, may have had something undelivered when the process died.

So a source notes in its own directory which channels these are, before its first batch: who is not among them is new,
and who is among them and no longer there is asked still. What the notes of those that are gone have in common is copied
into the source's own, and kept up like theirs until what was missing in it has been read again. *Example*, as noted::

    members         {"channels": ["m1", "m2"], "gone": true}
    position:s/f    40 60-90

A channel that the source no longer uses, but others do, is a member until it has delivered what it was given.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

from ..channels.file.store.notes import FileNotes
from ..clock import Clock
from ..errors import ChannelError
from .batch import Position
from .delivered_positions import DeliveredPositions
from .positions import MOST_NOTED, PREFIX, Positions
from .ranges import Ranges, intersection, parse_ranges

_NAME = "members"
#: Below the source's directory.
_DIRECTORY = "channels"


@dataclass(frozen=True, slots=True)
class _Noted:
    """See the module."""

    channels: frozenset[str]
    gone: bool = False

    def dump(self) -> bytes:
        return json.dumps({"channels": sorted(self.channels), "gone": self.gone}).encode()


class Members:
    """See the module.

    :param source: the directory of the source.
    :param channels: the directory below which each channel has its own, by name.
    :param live: the positions of a channel that is open, and forgets; None if there is none of that name.
    """

    def __init__(self, source: Path, channels: Path, live: Callable[[str], Positions | None], clock: Clock) -> None:
        self._directory, self._channels, self._live, self._clock = source / _DIRECTORY, channels, live, clock
        self._present: Mapping[str, Positions] = {}
        #: Channels that the source uses no more: those that are still open, and all others together.
        self._left: dict[str, Positions] = {}
        self._gone: DeliveredPositions | None = None
        self._own: FileNotes | None = None  # what the latter has open
        self._noted: _Noted | None = None
        self._is_noted = False

    def begin(self, prefix: str, present: Mapping[str, Positions], *, exclusive: bool) -> list[Positions]:
        """The source begins; whose positions it goes by: those of its channels, and of others that it had.

        :param prefix: what the names of its positions begin with.
        :param present: of its channels, by name.
        :param exclusive: whether each batch goes to one of them.
        :raises ChannelIOError: notes cannot be read, or written; as for the other methods.
        """
        self._present, self._left, self._gone = present, {}, None
        self._noted, self._is_noted = self._read(), False
        if not exclusive:
            return list(present.values())
        if self._noted is not None:
            self._find_those_that_left(self._noted, prefix)
        tell_found(prefix, self._all())
        if self._noted is not None:
            self._tell_new(self._noted.channels, prefix)
            self._drop_complete(prefix)
        return self._all()

    def note(self) -> None:
        """Something is about to be put, or passed over."""
        if self._is_noted:
            return
        now = self._now()
        if now != self._noted:
            for each in self._present.values():
                each.flush()  # what one that is new need not have
            self._write(now)
        self._is_noted = True

    def end(self, prefix: str) -> None:
        """The source has ended."""
        with contextlib.suppress(ChannelError):  # the next run finds the same, and knows a little less
            if self._noted is not None:
                self.note()  # what those that left were told when it began is perhaps not told again
            if self._former():
                self._drop_complete(prefix)
                self._write(self._now())
        with contextlib.suppress(ChannelError):
            self._close_gone()

    def _now(self) -> _Noted:
        return _Noted(frozenset({*_forgetting(self._present), *self._left}), self._gone is not None)

    def _all(self) -> list[Positions]:
        return [*self._present.values(), *self._former()]

    def _former(self) -> list[Positions]:
        return [*self._left.values(), *([] if self._gone is None else [self._gone])]

    def _find_those_that_left(self, noted: _Noted, prefix: str) -> None:
        left = noted.channels - _forgetting(self._present)
        found = {name: self._live(name) for name in left}
        self._left = {name: each for name, each in found.items() if each is not None}
        for each in self._left.values():
            each.begin(prefix)
        gone = left - self._left.keys()
        if gone or noted.gone:
            self._gone = self._gather(gone, prefix, also_own=noted.gone)

    def _gather(self, gone: Iterable[str], prefix: str, *, also_own: bool) -> DeliveredPositions:
        """What the notes of these have in common, and of those that were gone before, as the source's own."""
        each = [_delivered(self._channels / name, name, prefix) for name in gone]
        notes = self._own = self._notes()
        own = notes.items(PREFIX)
        if also_own:
            each.append({name.removeprefix(PREFIX): parse_ranges(noted) for name, noted in own.items()})
        common = {name: intersection([one[name] for one in each]) for name in set.intersection(*map(set, each))}
        notes.write_many([(PREFIX + name, ranges.dump(MOST_NOTED), -1) for name, ranges in common.items()])
        for name in own.keys() - {PREFIX + name for name in common}:
            notes.remove(name)
        return DeliveredPositions(notes, self._clock)

    def _tell_new(self, known: frozenset[str], prefix: str) -> None:
        old = [each for name, each in self._present.items() if each.keeps or name in known] + self._former()
        furthest = _furthest(prefix, old)
        for name, each in self._present.items():
            if each.keeps or name not in known:
                for of, end in furthest.items():
                    if each.end(of) < end:
                        each.passed(Position(of, end))

    def _drop_complete(self, prefix: str) -> None:
        """Those that left need not be asked any more once they lack nothing."""
        furthest = _furthest(prefix, self._all())

        def lacks(positions: Positions) -> bool:
            return any(positions.safe_end(name) < end for name, end in furthest.items())

        self._left = {name: each for name, each in self._left.items() if lacks(each)}
        if self._gone is not None and not lacks(self._gone):
            self._close_gone()

    def _close_gone(self) -> None:
        gone, self._gone, self._own = self._gone, None, None
        if gone is not None:
            gone.close()

    def _notes(self) -> FileNotes:
        return FileNotes(str(self._directory), self._directory.parent.name)

    def _read(self) -> _Noted | None:
        with closing(self._notes()) as notes:
            noted = notes.read(_NAME)
        if noted is None:
            return None
        values = json.loads(noted)
        return _Noted(frozenset(values["channels"]), values["gone"])

    def _write(self, now: _Noted) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        with nullcontext(self._own) if self._own is not None else closing(self._notes()) as notes:
            notes.write(_NAME, now.dump(), -1)


def tell_found(prefix: str, all_positions: Iterable[Positions]) -> None:
    """What channels had when they were opened the others need not have, since each batch goes to one."""
    asked = list(all_positions)
    if all(each.keeps for each in asked):
        return
    for each in asked:
        for name, ranges in each.found(prefix).items():
            for other in asked:
                if other is not each:
                    other.elsewhere(name, ranges)


def joint_end(all_positions: Iterable[Positions], name: str, *, safe: bool = False) -> int:
    """Up to where channels have it together, of which each batch goes to one.

    Those that keep their events have all up to the furthest. One that forgets was told of each batch: whether it got
    that and has delivered it, or another one got it.
    """
    asked = list(all_positions)
    forgetting = [each.safe_end(name) if safe else each.end(name) for each in asked if not each.keeps]
    return min(forgetting) if forgetting else max(each.end(name) for each in asked)


def _forgetting(present: Mapping[str, Positions]) -> set[str]:
    return {name for name, each in present.items() if not each.keeps}


def _furthest(prefix: str, all_positions: Iterable[Positions]) -> dict[str, int]:
    """Of each name up to where anybody has it."""
    furthest: dict[str, int] = {}
    for each in all_positions:
        for name in each.names():
            if name.startswith(prefix):
                furthest[name] = max(furthest.get(name, 0), each.ends(name)[-1])
    return furthest


def _delivered(directory: Path, channel: str, prefix: str) -> dict[str, Ranges]:
    """What a channel that is closed has noted of a source."""
    with closing(FileNotes(str(directory), channel)) as notes:
        found = notes.items(PREFIX + prefix)
    return {name.removeprefix(PREFIX): parse_ranges(noted) for name, noted in found.items()}

"""Members: which channels that forget have a part in what a source has read.

Where each batch goes to one of several channels, what was read is safe if none of those that forget has it undelivered:
each notes what it does not have (see :mod:`.positions`). So it matters whose notes are asked:

* A channel that is **new** has no notes, and has nothing undelivered. One whose notes are damaged has none either, and
  may have lost anything.
* One that is **gone**, or has another name now, may have had something undelivered when the process died.

So a source notes in its own directory which channels these are, before its first batch: who is not among them is new,
and who is among them and no longer there is asked still. What the notes of those that are gone have in common is copied
into the source's own, and kept up like theirs until what was missing in it has been read again. *Example*, as noted::

    members         {"channels": ["m1", "m2"], "gone": true, "used": ["f", "m1"]}
    position:s/f    40 60-90

A channel that the source no longer uses, but others do, is a member until it has delivered what it was given.

Where a batch may go to several, each channel reads again what it lacks itself, and only two things are to be known of
the time before and after:

* What one that forgets was given when no channel got every batch no other one has, though all came further. So it is
  a member until it has delivered that. What is missing of those that are gone is put once more, into all that are to
  have it (see :class:`.routing.SourceOutlet`); so is, where another channel may be to have it now, what is missing of
  those that are owing it.
* Which channels had **every** batch: what these have safely none needs to read once each batch goes to one::

    members         {"channels": [], "gone": false, "exclusive": false, "complete": ["f", "m1"], "owing": [],
                     "used": ["f", "m1"], "rules": "57a0…"}

Where other rules choose, what a channel had not delivered may be another one's now, though that came further.
Which ones a source used tells, too, which channel another one was before: see :mod:`.former_channels`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from ...channels.file.store.notes import FileNotes
from ...model.errors import ChannelError
from ...runtime.clock import Clock
from ..events.batch import Position
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
    used: frozenset[str] = frozenset()
    exclusive: bool = True
    complete: frozenset[str] = frozenset()
    owing: frozenset[str] = frozenset()
    rules: str = ""

    def dump(self) -> bytes:
        values = {"channels": sorted(self.channels), "gone": self.gone, "used": sorted(self.used)}
        if not self.exclusive:
            values |= {"exclusive": False, "complete": sorted(self.complete), "owing": sorted(self.owing)}
            values["rules"] = self.rules
        return json.dumps(values).encode()


class Members:
    """See the module.

    :param source: the directory of the source.
    :param channels: the directory below which each channel has its own, by name.
    :param live: the positions of a channel that is open, and forgets; None if there is none of that name.
    :param rules: another text where other rules choose the channels of a batch.
    """

    def __init__(
        self, source: Path, channels: Path, live: Callable[[str], Positions | None], clock: Clock, rules: str = ""
    ) -> None:
        self._rules = rules
        self._directory, self._channels, self._live, self._clock = source / _DIRECTORY, channels, live, clock
        self._present: Mapping[str, Positions] = {}
        #: Channels that the source uses no more: those that are still open, and all others together.
        self._left: dict[str, Positions] = {}
        self._gone: DeliveredPositions | None = None
        self._own: FileNotes | None = None  # what the latter has open
        self._noted: _Noted | None = None
        self._is_noted = False
        #: What is to be noted of the channels that the source uses.
        self._now_present = _Noted(frozenset())

    def begin(
        self, prefix: str, present: Mapping[str, Positions], *, exclusive: bool, complete: Iterable[str] = ()
    ) -> list[Positions]:
        """The source begins; whose positions it goes by: those of its channels, then of others that it had.

        :param prefix: what the names of its positions begin with.
        :param present: of its channels, by name.
        :param exclusive: whether each batch goes to one of them.
        :param complete: those of them that get every batch.
        :raises ChannelIOError: notes cannot be read, or written; as for the other methods.
        """
        self._present, self._left, self._gone = present, {}, None
        self._noted, self._is_noted = self._read(), False
        before = self._noted or _Noted(frozenset())
        self._find_those_that_left(before, prefix)
        if exclusive:
            self._tell_what_is_complete(before.complete, prefix)
            tell_found(prefix, self._all())
            if self._noted is not None and before.exclusive:
                self._tell_new(before.channels, prefix)
        else:
            tell_found(prefix, self._all(), self._former())
        self._drop_complete(prefix)
        self._now_present = (
            _Noted(_forgetting(present)) if exclusive else self._not_exclusive(before, frozenset(complete), prefix)
        )
        if exclusive or complete:
            return self._all()
        return [*self._all(), *(present[name] for name in self._now_present.owing)]

    def note(self, *, read_again: bool = True) -> None:
        """Something is about to be put, or passed over.

        :param read_again: whether its source can read it again.
        """
        if self._is_noted:
            return
        now = self._now()
        if now != self._noted:
            # Without any note more is read again, later perhaps: that is no reason to read nothing now.
            needed = read_again and (now.exclusive or self._noted is not None)
            with nullcontext() if needed else contextlib.suppress(ChannelError):
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
        now = self._now_present
        channels, used = now.channels | self._left.keys(), frozenset(self._present)
        return replace(now, channels=channels, gone=self._gone is not None, used=used)

    def _not_exclusive(self, before: _Noted, every: frozenset[str], prefix: str) -> _Noted:
        """What is to be noted of the channels, of which those of ``every`` get each batch."""
        furthest = _furthest(prefix, self._all())
        is_another = before.exclusive or before.used != self._present.keys() or before.rules != self._rules
        given = (before.channels if is_another else before.owing) & self._present.keys()
        owing = frozenset(name for name in given if _lacks(self._present[name], furthest))
        channels = owing if every else owing | _forgetting(self._present)  # what each is given no other has
        if any(_lacks(each, furthest) for each in self._all()):
            new = {name for name, each in self._present.items() if not any(each.ends(of)[-1] for of in furthest)}
            every &= before.complete | new
        return _Noted(channels, exclusive=False, complete=every, owing=owing, rules=self._rules)

    def _tell_what_is_complete(self, complete: Iterable[str], prefix: str) -> None:
        """What channels that had every batch have safely the others need not have."""
        for one in (self._present[name] for name in complete if name in self._present):
            for name in (name for name in one.names() if name.startswith(prefix)):
                safe = Ranges()
                safe.add(0, one.safe_end(name))
                for other in self._all():
                    if other is not one:
                        other.elsewhere(name, safe)

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
        self._left = {name: each for name, each in self._left.items() if _lacks(each, furthest)}
        if self._gone is not None and not _lacks(self._gone, furthest):
            self._close_gone()

    def _close_gone(self) -> None:
        gone, self._gone, self._own = self._gone, None, None
        if gone is not None:
            gone.close()

    def _notes(self) -> FileNotes:
        return _notes_of(self._directory.parent)

    def _read(self) -> _Noted | None:
        return _noted_of(self._directory.parent)

    def _write(self, now: _Noted) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        with nullcontext(self._own) if self._own is not None else closing(self._notes()) as notes:
            notes.write(_NAME, now.dump(), -1)


@dataclass(frozen=True, slots=True)
class Used:
    """Channels of a source when it was last at work.

    :ivar channels: their names.
    :ivar asked: those that are asked by their names what they had not delivered.
    """

    channels: frozenset[str]
    asked: frozenset[str]


def used_by(source: Path) -> Used | None:
    """The channels that a source has used; None if that is not noted.

    :param source: its directory.
    """
    try:
        noted = _noted_of(source)
    except ChannelError:
        return None
    return None if noted is None else Used(noted.used, noted.channels)


def tell_found(prefix: str, all_positions: Iterable[Positions], told: Iterable[Positions] | None = None) -> None:
    """What channels had when they were opened the others need not have, since each batch goes to one.

    :param told: the others; None for all.
    """
    asked = list(all_positions)
    others = asked if told is None else list(told)
    if all(each.keeps for each in others):
        return
    for each in asked:
        for name, ranges in each.found(prefix).items():
            for other in others:
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


def _notes_of(source: Path) -> FileNotes:
    return FileNotes(str(source / _DIRECTORY), source.name)


def _noted_of(source: Path) -> _Noted | None:
    with closing(_notes_of(source)) as notes:
        noted = notes.read(_NAME)
    if noted is None:
        return None
    values = json.loads(noted)
    names = {key: frozenset(values.get(key, ())) for key in ("channels", "used", "complete", "owing")}
    rules = values.get("rules", "")
    return _Noted(gone=values["gone"], exclusive=values.get("exclusive", True), rules=rules, **names)


def _forgetting(present: Mapping[str, Positions]) -> frozenset[str]:
    return frozenset(name for name, each in present.items() if not each.keeps)


def _lacks(positions: Positions, furthest: Mapping[str, int]) -> bool:
    return any(positions.safe_end(name) < end for name, end in furthest.items())


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

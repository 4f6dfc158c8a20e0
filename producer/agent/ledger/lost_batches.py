"""Losses: batches of a channel that are damaged on the disk, told so that somebody can read their events again.

Where it is the newest that a channel has of a file, and is found when the channel is opened, its source reads it again;
where the channel forgets, its source begins anew at once. Nothing else is read again by itself: what came behind may
have been delivered, an interceptor such as ``dedupe`` has seen the events, and the file may be gone. But a batch's
headers tell how many events it had and which bytes of which file those were, and they are few of its bytes, so that the
damage is mostly elsewhere.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from ...channels.file.store.lost import LostEvent
from ...model.interfaces import Event
from ...runtime.loggers import get_logger
from ..events.batch import Position
from ..events.counters import Counters
from ..events.event_format import count_of, is_batch, position_of, start_of
from .positions import Positions, Undelivered

_log = get_logger("producer.agent.channel")

#: Stretches that are told one by one.
_MOST_TOLD = 20


@dataclass(frozen=True, slots=True)
class LostBatch:
    """A batch, as far as its headers tell; nothing has checked them.

    :ivar sequence: its number in the channel.
    :ivar events: how many it had; None if that cannot be told.
    :ivar start: where what it was read from began; None if that cannot be told.
    :ivar position: where that ended; None as for ``start``, and if its source cannot read anything again.
    """

    sequence: int
    events: int | None
    start: int | None = None
    position: Position | None = None


class Losses:
    """Tells and counts what is lost of one channel.

    :param name: the channel's.
    :param counters: get ``EventLostCount``, as far as it can be told, and ``BatchLostCount``.
    """

    def __init__(self, name: str, positions: Positions, counters: Counters) -> None:
        self._name, self._positions, self._counters = name, positions, counters
        self._told: set[int] = set()
        self._found: tuple[Sequence[LostBatch], int] = (), 0
        self._furthest: Callable[[str], int] = lambda _name: 0
        self._read_again: Callable[[Collection[str]], object] = lambda _names: None

    def found_at_opening(self, events: Sequence[LostEvent], others: int, waiting: Sequence[LostEvent]) -> None:
        """What is damaged was not counted when the channel was opened; :meth:`begin` tells it.

        :param others: batches of which nothing is left.
        :param waiting: those that are in the channel until they are taken.
        """
        self._told.update(event.sequence for event in waiting)
        self._found = [lost_batch(event) for event in (*events, *waiting)], others

    def begin(self, furthest: Callable[[str], int], read_again: Callable[[Collection[str]], object]) -> None:
        """All channels are open, and no source has begun that was not at work before; calling it again changes little.

        :param furthest: up to where other channels have what was read under a name, if they take turns with this one.
        :param read_again: has the sources begin anew that have read under these names.
        """
        self._furthest, self._read_again = furthest, read_again
        (batches, others), self._found = self._found, ((), 0)
        self._tell(batches, others, held=False)

    def found(self, events: Sequence[LostEvent], others: int) -> tuple[int, bool]:
        """Of what was taken some is damaged; how many events that was counted with, and whether that is known."""
        news = [lost_batch(event) for event in events if event.sequence not in self._told]
        self._told.difference_update(event.sequence for event in events)
        self._tell(news, others, held=True)
        return sum(each.events or 0 for each in news), not others and all(each.events is not None for each in news)

    def _tell(self, batches: Sequence[LostBatch], others: int, *, held: bool) -> None:
        again, gone = list[LostBatch](), list[LostBatch]()
        for batch in sorted(batches, key=lambda each: -each.sequence):  # the newest may be read again, then others
            position, start = batch.position, batch.start or 0
            (again if position is not None and self._is_read_again(position, start, held) else gone).append(batch)
        if again:
            text = "channel %s: %s damaged on the disk, but not lost: their sources read them again"
            _log.error(text, self._name, told(again, 0))
        if again and held:
            self._read_again({each.position.name for each in again if each.position is not None})
        if not (gone or others):
            return
        self._counters.add(EventLostCount=sum(each.events or 0 for each in gone), BatchLostCount=len(gone) + others)
        text = "channel %s: %s damaged on the disk and lost; a copy of their segment is in its quarantine"
        _log.error(text, self._name, told(gone, others))
        for line in told_stretches(stretches(gone)):
            _log.error("channel %s: what is lost was read from %s", self._name, line)

    def _is_read_again(self, position: Position, start: int, held: bool) -> bool:
        furthest = 0 if held else self._furthest(position.name)
        return self._positions.lost(position, start, held=held, furthest=furthest)

    def emptied(self, believed: Undelivered) -> None:
        """Nothing was in the channel: what was put and not delivered is lost, though nobody could tell what it was.

        :param believed: that, from before it was looked at.
        """
        names = self._positions.empty(believed)
        if names:
            self._read_again(names)


def lost_batch(lost: LostEvent) -> LostBatch:
    """The batch that an event was."""
    if lost.headers is None:
        return LostBatch(lost.sequence, None)
    event = Event(lost.headers)
    events, position, start = count_of(event), position_of(event), start_of(event)
    is_ours = any(name.startswith("~") for name in lost.headers)
    if is_ours and not (is_batch(event) and 0 < events <= lost.size):
        return LostBatch(lost.sequence, None)
    if position is not None and not 0 <= start < position.end:
        return LostBatch(lost.sequence, events)
    return LostBatch(lost.sequence, events, None if position is None else start, position)


def stretches(batches: Iterable[LostBatch]) -> list[tuple[int, Position]]:
    """Where what was lost had been read, each as a start and the position at its end; neighbours are joined."""
    found = sorted(
        (each.position.name, each.start, each.position)
        for each in batches
        if each.position is not None and each.start is not None
    )
    joined: list[tuple[int, Position]] = []
    for name, start, position in found:
        if joined and joined[-1][1].name == name and joined[-1][1].end == start:
            joined[-1] = joined[-1][0], position
        else:
            joined.append((start, position))
    return joined


def told(batches: Sequence[LostBatch], others: int) -> str:
    """How much it was, in words.

    :param others: batches of which nothing is left.
    """
    unknown = others + sum(each.events is None for each in batches)
    events = sum(each.events or 0 for each in batches)
    count = len(batches) + others
    known = f"{events} events" if unknown < count else ""
    more = f"an unknown number of events in {unknown} of them" if known else "an unknown number of events"
    text = " and ".join(filter(None, (known, more if unknown else "")))
    return f"{count} {'batch' if count == 1 else 'batches'} with {text} {'is' if count == 1 else 'are'}"


def told_stretches(found: Sequence[tuple[int, Position]]) -> list[str]:
    """A line for each, and how to read it again; of very many the first ones."""
    lines = [_told(start, position) for start, position in islice(found, _MOST_TOLD)]
    return [*lines, f"{len(found) - _MOST_TOLD} stretches more"] if len(found) > _MOST_TOLD else lines


def _told(start: int, position: Position) -> str:
    source, _, name = position.name.partition("/")
    if not position.place:
        return f"source {source}: {start} to {position.end} of {name}"
    size, inode = position.end - start, name.partition(".")[0]
    place = shlex.quote(position.place)
    if not _is_inode(position.place, inode):  # it was rotated since
        place = f'"$(find {shlex.quote(os.path.dirname(position.place))} -inum {inode})"'
    command = f"tail -c +{start + 1} {place} | head -c {size}"
    return f"source {source}: bytes {start} to {position.end} of {position.place}: {command}"


def _is_inode(path: str, inode: str) -> bool:
    try:
        return str(os.stat(path).st_ino) == inode
    except OSError:
        return False

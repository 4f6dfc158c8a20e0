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
from ..events.event_format import count_of, is_batch, position_of
from .lanes import Holder
from .ledgers import Ledgers

_log = get_logger("loghub.agent.channel")

#: Stretches that are told one by one.
_MOST_TOLD = 20


@dataclass(frozen=True, slots=True)
class LostBatch:
    """A batch, as far as its headers tell; nothing has checked them.

    :ivar sequence: its number in the channel.
    :ivar events: how many it had; None if that cannot be told.
    :ivar position: where it was read; None if that cannot be told, and if its source cannot read anything again.
    """

    sequence: int
    events: int | None
    position: Position | None = None


class Losses:
    """Tells and counts what is lost of one channel.

    :param counters: get ``EventLostCount``, as far as it can be told, and ``BatchLostCount``.
    """

    def __init__(self, channel: Holder, counters: Counters) -> None:
        self._channel, self._name, self._counters = channel, channel.name, counters
        self._told: set[int] = set()
        self._found: tuple[Sequence[LostBatch], int] = (), 0
        self._ledgers: Ledgers | None = None
        self._read_again: Callable[[Collection[str]], object] = lambda _names: None

    def found_at_opening(self, events: Sequence[LostEvent], others: int, waiting: Sequence[LostEvent]) -> None:
        """What is damaged was not counted when the channel was opened; :meth:`begin` tells it.

        :param others: batches of which nothing is left.
        :param waiting: those that are in the channel until they are taken.
        """
        self._told.update(event.sequence for event in waiting)
        self._found = [lost_batch(event) for event in (*events, *waiting)], others

    def begin(self, ledgers: Ledgers, read_again: Callable[[Collection[str]], object]) -> None:
        """Report what was found: all channels are open, and no new source has begun.

        :param read_again: has the sources begin anew that have read under these names.
        """
        self._ledgers, self._read_again = ledgers, read_again
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
            (again if self._is_read_again(batch.position, held=held) else gone).append(batch)
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

    def _is_read_again(self, position: Position | None, *, held: bool) -> bool:
        if position is None or self._ledgers is None:
            return False
        return self._ledgers.of_name(position.name).lost(self._channel, position, held=held)


def lost_batch(lost: LostEvent) -> LostBatch:
    """The batch that an event was."""
    if lost.headers is None:
        return LostBatch(lost.sequence, None)
    event = Event(lost.headers)
    events, position = count_of(event), position_of(event)
    is_ours = any(name.startswith("~") for name in lost.headers)
    if is_ours and not (is_batch(event) and 0 < events <= lost.size):
        return LostBatch(lost.sequence, None)
    is_known = position is not None and position.start < position.end
    return LostBatch(lost.sequence, events, position if is_known else None)


def stretches(batches: Iterable[LostBatch]) -> list[Position]:
    """Where what was lost had been read; neighbours are joined."""
    joined: list[Position] = []
    for position in sorted(each.position for each in batches if each.position is not None):
        if joined and joined[-1].name == position.name and joined[-1].end == position.start:
            position = position._replace(start=joined.pop().start)  # noqa: PLW2901  # it grows by the one before
        joined.append(position)
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


def told_stretches(found: Sequence[Position]) -> list[str]:
    """A line for each, and how to read it again; of very many the first ones."""
    lines = [_told(position) for position in islice(found, _MOST_TOLD)]
    return [*lines, f"{len(found) - _MOST_TOLD} stretches more"] if len(found) > _MOST_TOLD else lines


def _told(position: Position) -> str:
    source, _, name = position.name.partition("/")
    start = position.start
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

"""Report batches of a channel that are damaged on the disk, so that an operator can read their events again.

If a damaged batch is the newest of its file in the channel, and is found when the channel is opened, its source reads
it again. If the channel does not keep its events, its source restarts at once. Nothing else is read again
automatically: later batches may have been delivered, an interceptor such as ``dedupe`` has seen the events, and the
file may be gone. But a batch's headers have the number of its events, the file, and the range in it. They are a small
part of its bytes, so that they usually survive.
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

#: The maximum number of ranges that are logged one by one.
_MOST_LOGGED = 20


@dataclass(frozen=True, slots=True)
class LostBatch:
    """A lost batch, described by its headers, which are not checked.

    :ivar sequence: its number in the channel.
    :ivar events: the number of its events; None if unknown.
    :ivar position: the source's read offset; None if unknown, or if its source cannot read again.
    """

    sequence: int
    events: int | None
    position: Position | None = None


class Losses:
    """Counts and logs the lost batches of one channel.

    :param counters: the channel's counters; ``EventLostCount`` has the known events, ``BatchLostCount`` the batches.
    """

    def __init__(self, channel: Holder, counters: Counters) -> None:
        self._channel, self._name, self._counters = channel, channel.name, counters
        self._reported: set[int] = set()
        self._found: tuple[Sequence[LostBatch], int] = (), 0
        self._ledgers: Ledgers | None = None
        self._read_again: Callable[[Collection[str]], object] = lambda _names: None

    def found_at_opening(self, events: Sequence[LostEvent], others: int, waiting: Sequence[LostEvent]) -> None:
        """Record batches that were damaged when the channel was opened. :meth:`begin` reports them.

        :param others: the number of batches of which nothing is left.
        :param waiting: damaged batches that are in the channel until they are taken.
        """
        self._reported.update(event.sequence for event in waiting)
        self._found = [lost_batch(event) for event in (*events, *waiting)], others

    def begin(self, ledgers: Ledgers, read_again: Callable[[Collection[str]], object]) -> None:
        """Report the recorded batches, once all channels are open and before new sources start.

        :param read_again: restarts the sources that have read the given names.
        """
        self._ledgers, self._read_again = ledgers, read_again
        (batches, others), self._found = self._found, ((), 0)
        self._report(batches, others, held=False)

    def found(self, events: Sequence[LostEvent], others: int) -> tuple[int, bool]:
        """Report damaged batches of a take. Return the known number of their events, and True if all are known."""
        news = [lost_batch(event) for event in events if event.sequence not in self._reported]
        self._reported.difference_update(event.sequence for event in events)
        self._report(news, others, held=True)
        return sum(each.events or 0 for each in news), not others and all(each.events is not None for each in news)

    def _report(self, batches: Sequence[LostBatch], others: int, *, held: bool) -> None:
        again, gone = list[LostBatch](), list[LostBatch]()
        # The newest first: if it is read again, those before it can be, too.
        for batch in sorted(batches, key=lambda each: -each.sequence):
            (again if self._is_read_again(batch.position, held=held) else gone).append(batch)
        if again:
            text = "channel %s: %s damaged on the disk, but not lost: their sources read them again"
            _log.error(text, self._name, amount(again, 0))
        if again and held:
            self._read_again({each.position.name for each in again if each.position is not None})
        if not (gone or others):
            return
        self._counters.add(EventLostCount=sum(each.events or 0 for each in gone), BatchLostCount=len(gone) + others)
        text = "channel %s: %s damaged on the disk and lost; a copy of their segment is in its quarantine"
        _log.error(text, self._name, amount(gone, others))
        for line in range_lines(lost_ranges(gone)):
            _log.error("channel %s: lost events were read from %s", self._name, line)

    def _is_read_again(self, position: Position | None, *, held: bool) -> bool:
        if position is None or self._ledgers is None:
            return False
        return self._ledgers.of_name(position.name).lost(self._channel, position, held=held)


def lost_batch(lost: LostEvent) -> LostBatch:
    """Describe a lost event as a batch."""
    if lost.headers is None:
        return LostBatch(lost.sequence, None)
    event = Event(lost.headers)
    events, position = count_of(event), position_of(event)
    is_ours = any(name.startswith("~") for name in lost.headers)
    if is_ours and not (is_batch(event) and 0 < events <= lost.size):
        return LostBatch(lost.sequence, None)
    is_known = position is not None and position.start < position.end
    return LostBatch(lost.sequence, events, position if is_known else None)


def lost_ranges(batches: Iterable[LostBatch]) -> list[Position]:
    """Return the read ranges of lost batches, with adjacent ones joined."""
    joined: list[Position] = []
    for position in sorted(each.position for each in batches if each.position is not None):
        if joined and joined[-1].name == position.name and joined[-1].end == position.start:
            position = position._replace(start=joined.pop().start)  # noqa: PLW2901  # extends the previous range
        joined.append(position)
    return joined


def amount(batches: Sequence[LostBatch], others: int) -> str:
    """Describe the number of batches and events for a log line.

    :param others: the number of batches of which nothing is left.
    """
    unknown = others + sum(each.events is None for each in batches)
    events = sum(each.events or 0 for each in batches)
    count = len(batches) + others
    known = f"{events} events" if unknown < count else ""
    more = f"an unknown number of events in {unknown} of them" if known else "an unknown number of events"
    text = " and ".join(filter(None, (known, more if unknown else "")))
    return f"{count} {'batch' if count == 1 else 'batches'} with {text} {'is' if count == 1 else 'are'}"


def range_lines(found: Sequence[Position]) -> list[str]:
    """Return a line for each range, with a command to read it again. Only the first of very many are listed."""
    lines = [_range_line(position) for position in islice(found, _MOST_LOGGED)]
    return [*lines, f"{len(found) - _MOST_LOGGED} more ranges"] if len(found) > _MOST_LOGGED else lines


def _range_line(position: Position) -> str:
    source, _, name = position.name.partition("/")
    start = position.start
    if not position.place:
        return f"source {source}: {start} to {position.end} of {name}"
    size, inode = position.end - start, name.partition(".")[0]
    place = shlex.quote(position.place)
    if not _is_inode(position.place, inode):  # the file was rotated meanwhile
        place = f'"$(find {shlex.quote(os.path.dirname(position.place))} -inum {inode})"'
    command = f"tail -c +{start + 1} {place} | head -c {size}"
    return f"source {source}: bytes {start} to {position.end} of {position.place}: {command}"


def _is_inode(path: str, inode: str) -> bool:
    try:
        return str(os.stat(path).st_ino) == inode
    except OSError:
        return False

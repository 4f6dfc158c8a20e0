"""EventReader: entries become events; what is damaged is lost and kept aside, and the rest goes on."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence

from ....model.errors import ChannelIOError
from ....model.interfaces import Event
from ....runtime.loggers import get_logger
from ....text.plural import counted
from ..store.disk import Disk
from ..store.format import decode_event
from ..store.lost import LostEvent, TellLost
from ..store.pointers import Entry
from ..store.segments import Segments
from .event_queue import Columns
from .ledger import Ledger, Taken

_log = get_logger("loghub.channel")

#: When the disk fails so often in a row to read an event, it is set aside, and the channel goes on with the next.
TRIES = 3
_PEEKED_AT_ONCE = 1000
#: In the place of a payload: the disk fails to read it, which says nothing of what it is.
_UNREAD = memoryview(b"")


class EventReader:
    """Reads what was taken from the ledger, each entry from its segment.

    :param keep: keeps a damaged segment's bytes aside for people, by its path; whether there were none yet. Raises
        ``OSError`` if it cannot.
    :param passed: is told, before others pass an event that is set aside, that this one will come behind them.
    :param lost: is told what is damaged, in place of the log.
    """

    def __init__(
        self,
        disk: Disk,
        name: str,
        segments: Segments,
        ledger: Ledger,
        keep: Callable[[str], bool],
        passed: Callable[[int], None] = lambda _sequence: None,
        lost: TellLost | None = None,
    ) -> None:
        self._disk, self._name, self._keep, self._passed = disk, name, keep, passed
        self._tell_lost = lost
        self._segments, self._ledger = segments, ledger
        self._kept: dict[int, int] = {}  # for each segment with damage, its size when a copy was kept
        self._failures: dict[int, int] = {}

    def read(self, taken: Taken, entries: Sequence[Entry]) -> list[Event]:
        """The events of entries that were taken into ``taken``; fewer if some are lost, or cannot be read.

        :raises ChannelIOError: the first could not be read; the entries are back in the queue.
        """
        events = self._ledger.recent_events(entries)
        return self._read_from_disk(taken, entries) if events is None else events

    def _read_from_disk(self, taken: Taken, entries: Sequence[Entry]) -> list[Event]:
        try:
            payloads = self._segments.read(entries)
        except OSError:
            entries, payloads = self._read_singly(taken, entries)
        self._forget_failures(entries)
        events: list[Event] = []
        lost: list[Entry] = []
        for entry, payload in zip(entries, payloads, strict=True):
            event = _decode(payload, entry.sequence) or self._read_elsewhere(entry)
            if event is None:
                lost.append(entry)
            else:
                events.append(event)
        if lost:
            self._lose(taken, lost)
        return events

    def _read_singly(
        self, taken: Taken, entries: Sequence[Entry]
    ) -> tuple[list[Entry], list[bytes | memoryview | None]]:
        """Entry by entry, so that only what is seen to fail is blamed: those that can be read, and their payloads.

        What comes before an entry that fails is given at once, and the entry is the first of the next take. As the
        first it is tried again, since its disk may only have a bad moment; then it is set aside, with all others that
        fail in the same take.

        :raises ChannelIOError: the first fails, and is to be tried again.
        """
        whole: list[Entry] = []
        payloads: list[bytes | memoryview | None] = []
        aside: list[Entry] = []
        for place, entry in enumerate(entries):
            try:
                payloads.append(self._segments.read([entry])[0])
            except OSError as error:
                if not aside and self._is_tried_again(taken, entries[place:], error, first=not whole):
                    break
                aside.append(entry)
            else:
                whole.append(entry)
        self._set_aside(taken, aside)
        return whole, payloads

    def _is_tried_again(self, taken: Taken, entries: Sequence[Entry], error: OSError, *, first: bool) -> bool:
        """Whether the first of these, which cannot be read, is worth another try: then all go back.

        :param first: whether nothing before it could be read in this take: then the try counts, and is told.
        """
        sequence = entries[0].sequence
        failures = self._failures[sequence] = self._failures.get(sequence, 0) + first
        if failures >= TRIES:
            return False
        self._ledger.put_back(taken, [entry.sequence for entry in entries])
        if first:
            self._ledger.count_takes(1, 1)
            message = f"an event cannot be read ({failures} of {TRIES} tries before it is set aside): {error}"
            raise ChannelIOError(self._name, message, error.errno or errno.EIO) from error
        return True

    def _forget_failures(self, entries: Sequence[Entry]) -> None:
        if self._failures:
            for entry in entries:
                self._failures.pop(entry.sequence, None)

    def _read_elsewhere(self, entry: Entry) -> Event | None:
        """The event, if it was written again to another segment since it was taken."""
        with self._ledger.lock:
            now = self._ledger.queue.taken.get(entry.sequence, entry)
        if now.pointer == entry.pointer:
            return None
        try:
            return _decode(self._segments.read([now])[0], now.sequence)
        except OSError:
            return None

    def _set_aside(self, taken: Taken, entries: Sequence[Entry]) -> None:
        """Let what is behind these events pass; they may be whole, but cannot be read, and stay in the channel."""
        if entries:
            self._passed(max(entry.sequence for entry in entries))
        for entry in entries:
            self._failures[entry.sequence] = TRIES  # the next time it is set aside at once, while it cannot be read
            self._ledger.set_aside(taken, entry.sequence)
        if entries:
            _log.error(
                "channel %s: %s, the first of them event %d of segment %d; what is set aside comes back with the next "
                "checkpoint",
                self._name,
                counted(
                    len(entries), "event cannot be read and is set aside", "events cannot be read and are set aside"
                ),
                entries[0].sequence,
                entries[0].segment,
            )

    def _lose(self, taken: Taken, entries: Sequence[Entry]) -> None:
        self._ledger.lose(taken, entries)
        for entry in entries:
            self._keep_damaged(entry)
        if self._tell_lost is not None:
            self._tell_lost([self._segments.left_of(entry) for entry in entries], 0)
            return
        _log.error(
            "channel %s: %s damaged on the disk and lost; the next ones follow",
            self._name,
            counted(len(entries), "event is", "events are"),
        )

    def _keep_damaged(self, entry: Entry) -> None:
        """Keep a copy of the segment in which this one stood, unless it was there when one was made."""
        segment = self._segments.get(entry.segment)
        if segment is None or entry.offset < self._kept.get(entry.segment, 0):
            return
        try:
            self._kept[entry.segment] = self._disk.size_of(segment.path)
            if self._keep(segment.path):
                self._ledger.add("quarantined", 1)
        except OSError as error:
            _log.error("channel %s: no copy of the damaged %s could be kept: %s", self._name, segment.path, error)

    def peek(self, events: Columns, damaged: Callable[[LostEvent], object] | None = None) -> Iterator[Event]:
        """The events of these entries, but those that cannot be read.

        :param damaged: is told of those that do not check out.
        """
        for start in range(0, len(events), _PEEKED_AT_ONCE):
            entries = events.entries(start, start + _PEEKED_AT_ONCE)
            for entry, payload in zip(entries, self._peeked(entries), strict=True):
                event = _decode(payload, entry.sequence)
                if event is not None:
                    yield event
                elif damaged is not None and payload is not _UNREAD:
                    damaged(self._segments.left_of(entry))

    def _peeked(self, entries: Sequence[Entry]) -> list[bytes | memoryview | None]:
        """The payloads; what cannot be read, such as in a segment that was deleted meanwhile, is ``_UNREAD``."""
        try:
            return self._segments.read(entries)
        except OSError:
            return [self._peeked([entry])[0] for entry in entries] if len(entries) > 1 else [_UNREAD]


def _decode(payload: bytes | memoryview | None, sequence: int) -> Event | None:
    if payload is None:
        return None
    try:
        return decode_event(payload, sequence)
    except ValueError:
        return None

"""EventReader: read the events of queue entries. A damaged event is lost and quarantined, and the others are still
delivered.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence

from ....model.errors import ChannelIOError
from ....model.interfaces import Event
from ....runtime.loggers import get_logger
from ....text.plural import counted
from ..store.disk import Disk
from ..store.format import decode_event
from ..store.lost import LostEvent, OnLost
from ..store.pointers import Entry
from ..store.segments import Segments
from .event_queue import Columns
from .ledger import Ledger, Taken

_log = get_logger("loghub.channel")

#: Reads of one event that may fail in a row before it is set aside and the next one is delivered.
TRIES = 3
_PEEKED_AT_ONCE = 1000
#: Stands for a payload that the disk could not read, which does not mean that it is damaged.
_UNREAD = memoryview(b"")


class EventReader:
    """Reads the events of entries that were taken from the ledger.

    :param keep: copies the segment with this path to quarantine, and returns True if there was no copy yet. It raises
        ``OSError`` if it cannot.
    :param passed: called with the sequence number of an event that later events are about to overtake.
    :param lost: callback for damaged events, replacing the log line; None for the log line.
    """

    def __init__(
        self,
        disk: Disk,
        name: str,
        segments: Segments,
        ledger: Ledger,
        keep: Callable[[str], bool],
        passed: Callable[[int], None] = lambda _sequence: None,
        lost: OnLost | None = None,
    ) -> None:
        self._disk, self._name, self._keep, self._passed = disk, name, keep, passed
        self._on_lost = lost
        self._segments, self._ledger = segments, ledger
        self._kept: dict[int, int] = {}  # size of each damaged segment when it was copied
        self._failures: dict[int, int] = {}

    def read(self, taken: Taken, entries: Sequence[Entry]) -> list[Event]:
        """Read the events of entries that were taken into ``taken``; fewer if some are damaged or unreadable.

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
        """Read entry by entry, so that only those that fail are blamed. Return the readable entries and their payloads.

        If an entry fails after others, the others are delivered at once and it becomes the first of the next take. A
        failing first entry is tried again, since the failure may be temporary. After ``TRIES`` failures it is set
        aside, with all others that fail in the same take.

        :raises ChannelIOError: the first fails, and will be tried again.
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
        """Return entries to the queue if the first of them, which cannot be read, may be tried again. True if so.

        :param first: True if it is the first of this take: then the failure is counted and raised.
        """
        sequence = entries[0].sequence
        failures = self._failures[sequence] = self._failures.get(sequence, 0) + first
        if failures >= TRIES:
            return False
        self._ledger.put_back(taken, [entry.sequence for entry in entries])
        if first:
            self._ledger.count_takes(1, 1)
            message = f"an event cannot be read (try {failures} of {TRIES} before it is set aside): {error}"
            raise ChannelIOError(self._name, message, error.errno or errno.EIO) from error
        return True

    def _forget_failures(self, entries: Sequence[Entry]) -> None:
        if self._failures:
            for entry in entries:
                self._failures.pop(entry.sequence, None)

    def _read_elsewhere(self, entry: Entry) -> Event | None:
        """Read the event from another segment, if it was rewritten after it was taken."""
        with self._ledger.lock:
            now = self._ledger.queue.taken.get(entry.sequence, entry)
        if now.pointer == entry.pointer:
            return None
        try:
            return _decode(self._segments.read([now])[0], now.sequence)
        except OSError:
            return None

    def _set_aside(self, taken: Taken, entries: Sequence[Entry]) -> None:
        """Let later events overtake these. They may be intact but cannot be read, and stay in the channel."""
        if entries:
            self._passed(max(entry.sequence for entry in entries))
        for entry in entries:
            self._failures[entry.sequence] = TRIES  # set aside at the first failure next time
            self._ledger.set_aside(taken, entry.sequence)
        if entries:
            _log.error(
                "channel %s: %s, the first of them event %d of segment %d; they are tried again after the next "
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
        if self._on_lost is not None:
            self._on_lost([self._segments.lost_event(entry) for entry in entries], 0)
            return
        _log.error(
            "channel %s: %s damaged on the disk and lost; delivery continues with the next event",
            self._name,
            counted(len(entries), "event is", "events are"),
        )

    def _keep_damaged(self, entry: Entry) -> None:
        """Copy the segment of a damaged event to quarantine, unless an earlier copy includes that event."""
        segment = self._segments.get(entry.segment)
        if segment is None or entry.offset < self._kept.get(entry.segment, 0):
            return
        try:
            self._kept[entry.segment] = self._disk.size_of(segment.path)
            if self._keep(segment.path):
                self._ledger.add("quarantined", 1)
        except OSError as error:
            _log.error(
                "channel %s: the damaged segment %s could not be copied to quarantine: %s",
                self._name,
                segment.path,
                error,
            )

    def peek(self, events: Columns, damaged: Callable[[LostEvent], object] | None = None) -> Iterator[Event]:
        """Yield the events of these entries, without those that cannot be read.

        :param damaged: callback for damaged events; None to skip them.
        """
        for start in range(0, len(events), _PEEKED_AT_ONCE):
            entries = events.entries(start, start + _PEEKED_AT_ONCE)
            for entry, payload in zip(entries, self._peeked(entries), strict=True):
                event = _decode(payload, entry.sequence)
                if event is not None:
                    yield event
                elif damaged is not None and payload is not _UNREAD:
                    damaged(self._segments.lost_event(entry))

    def _peeked(self, entries: Sequence[Entry]) -> list[bytes | memoryview | None]:
        """Return the payloads; ``_UNREAD`` for those that cannot be read, as in a segment deleted meanwhile."""
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

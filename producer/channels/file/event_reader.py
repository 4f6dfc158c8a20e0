"""EventReader: entries become events; what is damaged is lost and kept aside, and the rest goes on."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable, Iterator, Sequence

from ...errors import ChannelIOError
from ...interfaces import Event
from .disk import Disk
from .event_queue import Columns, Entry
from .format import decode_event
from .ledger import Ledger, Taken
from .recovery import quarantine_copy
from .segments import Segments

_log = logging.getLogger("producer.channel")

#: When the disk fails so often in a row to read an event, it is set aside, and the channel goes on with the next.
TRIES = 3
_PEEKED_AT_ONCE = 1000


class EventReader:
    """See the module.

    :param directory: the channel's, for ``quarantine/``.
    :param damaged: numbers of the segments that are in quarantine already.
    """

    def __init__(
        self, disk: Disk, name: str, directory: str, segments: Segments, ledger: Ledger, damaged: Iterable[int]
    ) -> None:
        self._disk, self._name, self._directory = disk, name, directory
        self._segments, self._ledger = segments, ledger
        self._damaged = set(damaged)
        self._failures: dict[int, int] = {}

    def read(self, taken: Taken, entries: Sequence[Entry]) -> list[Event]:
        """The events of entries that were taken into ``taken``; fewer if some are lost.

        :raises ChannelIOError: the disk could not be read; the entries are back in the queue.
        """
        try:
            payloads = self._segments.read(entries)
        except OSError as error:
            self._failed(taken, entries, error)
            return []
        self._failures.clear()
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

    def _failed(self, taken: Taken, entries: Sequence[Entry], error: OSError) -> None:
        first = entries[0].sequence
        failures = self._failures[first] = self._failures.get(first, 0) + 1
        if failures >= TRIES:
            self._set_aside(taken, first, error)
            self._ledger.put_back(taken, [entry.sequence for entry in entries[1:]])
            return
        self._ledger.put_back(taken, [entry.sequence for entry in entries])
        self._ledger.count(take_attempts=1, take_errors=1)
        message = f"an event cannot be read ({failures} of {TRIES} tries before it is set aside): {error}"
        raise ChannelIOError(self._name, message, error.errno or errno.EIO) from error

    def _set_aside(self, taken: Taken, sequence: int, error: OSError) -> None:
        """Let what is behind an event pass that may be whole, but cannot be read; it stays in the channel."""
        self._failures.pop(sequence, None)
        self._ledger.set_aside(taken, sequence)
        _log.error(
            "channel %s: event %d cannot be read and is set aside; it comes back with the next checkpoint: %s",
            *(self._name, sequence, error),
        )

    def _lose(self, taken: Taken, entries: Sequence[Entry]) -> None:
        self._ledger.lose(taken, entries)
        _log.error(
            "channel %s: %d events are damaged on the disk and lost; the next ones follow", self._name, len(entries)
        )
        for number in {entry.segment for entry in entries} - self._damaged:
            self._damaged.add(number)
            segment = self._segments.get(number)
            if segment is not None and quarantine_copy(self._disk, self._name, self._directory, segment.path):
                self._ledger.add("quarantined", 1)

    def peek(self, events: Columns) -> Iterator[Event]:
        """The events of these entries, but those that cannot be read."""
        for start in range(0, len(events), _PEEKED_AT_ONCE):
            entries = events.entries(start, start + _PEEKED_AT_ONCE)
            try:
                payloads = self._segments.read(entries)
            except OSError:  # a segment that was deleted meanwhile
                continue
            for entry, payload in zip(entries, payloads, strict=True):
                event = _decode(payload, entry.sequence)
                if event is not None:
                    yield event


def _decode(payload: bytes | None, sequence: int) -> Event | None:
    if payload is None:
        return None
    try:
        return decode_event(payload, sequence)
    except ValueError:
        return None

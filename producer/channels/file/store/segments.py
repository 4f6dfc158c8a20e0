"""Segments: create, read and delete the segment files of one log."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence

from ....model.errors import ChannelKeyError
from ....runtime.clock import Clock
from ....runtime.locks import Lock
from ....text.plural import counted
from .disk import Disk
from .encryption import KEY_SIZE, MAX_KEY_ID, KeyProvider, SegmentCipher
from .format import FRAME_SIZE, SegmentHeader, damaged_headers
from .lost import LostEvent
from .pointers import OFFSET_BITS, Entry
from .segment import Segment, puts_in

#: Files kept open for reading.
_OPEN_FILES = 32
#: Records of one segment are read together if they are within this many bytes.
_SPAN = 1 << 20
#: Event size in bytes from which on a view is cheaper than a copy.
_LARGE = 4096


class Segments:
    """All segments of one channel, by number.

    :param directories: the directories for new ones, used in turn.
    :param keys: keys for new ones, and for encrypted old ones; None for plain.
    :param check_owned: called before each new one; raises if the directories no longer belong to the channel.
    """

    def __init__(
        self,
        disk: Disk,
        name: str,
        directories: Sequence[str],
        keys: KeyProvider | None,
        clock: Clock,
        check_owned: Callable[[], object] = lambda: None,
    ) -> None:
        self._disk, self._name, self._directories = disk, name, tuple(directories)
        self._keys, self._clock, self._check_owned = keys, clock, check_owned
        self._next = 1  # guarded by the log's write lock
        self._lock = Lock()  # guards _known
        self._known: dict[int, Segment] = {}
        # Guards the files open for reading; held during reads, so that no thread closes the file.
        self._reading = Lock()
        self._files: OrderedDict[int, int] = OrderedDict()

    def resume(self, segments: Iterable[Segment]) -> None:
        """Start with the recovered segments."""
        self._known = {segment.number: segment for segment in segments}
        self._next = max(self._known, default=0) + 1

    def skip_numbers(self, number: int) -> None:
        """Skip all segment numbers up to this one."""
        self._next = max(self._next, number + 1)

    def new(self, first_sequence: int, newest_transaction: int, void_from: int = 0) -> Segment:
        """Return the next segment, which is not registered before :meth:`add`.

        :param newest_transaction: the newest transaction so far; details in :class:`~.format.SegmentHeader`.
        :param void_from: a pointer to the void records before it; 0 for none.
        :raises ChannelLockedError: the directories no longer belong to the channel.
        """
        self._check_owned()
        number = self._next
        self._next += 1
        key_id = self._current_key_id()
        now = self._clock.time()
        header = SegmentHeader(number, first_sequence, os.urandom(16), now, newest_transaction, key_id, void_from)
        directory = self._directories[number % len(self._directories)]
        return Segment(f"{directory}/log-{number:010d}", header, self.cipher_of(header))

    def _current_key_id(self) -> str | None:
        if self._keys is None:
            return None
        key_id: object = self._keys.current_key_id()
        if not isinstance(key_id, str) or not 1 <= len(key_id.encode()) <= MAX_KEY_ID:
            message = f"the key provider's current key id must be text of 1 to {MAX_KEY_ID} bytes, got {key_id!r}"
            raise ChannelKeyError(self._name, str(key_id), message)
        return key_id

    def cipher_of(self, header: SegmentHeader) -> SegmentCipher | None:
        """Return the cipher of a segment; None if it is plain.

        :raises ChannelKeyError: its key is missing.
        """
        if header.key_id is None:
            return None
        if self._keys is None:
            message = f"segment {header.number} is encrypted with the key {header.key_id!r}: give encryption=…"
            raise ChannelKeyError(self._name, header.key_id, message)
        try:
            key: object = self._keys.get_key(header.key_id)
        except KeyError:
            message = f"segment {header.number} needs the key {header.key_id!r}, which the key provider does not have"
            raise ChannelKeyError(self._name, header.key_id, message) from None
        if not isinstance(key, bytes) or len(key) != KEY_SIZE:
            what = counted(len(key), "byte") if isinstance(key, bytes) else type(key).__name__
            message = f"the key provider returned {what} as the key {header.key_id!r}: a key has {KEY_SIZE} bytes"
            raise ChannelKeyError(self._name, header.key_id, message)
        return SegmentCipher(key, header.salt)

    def add(self, segment: Segment) -> None:
        """Register a segment."""
        with self._lock:
            self._known[segment.number] = segment

    def all(self) -> list[Segment]:
        """Return all segments, by number."""
        with self._lock:
            return [self._known[number] for number in sorted(self._known)]

    def unneeded(self, referenced: Collection[int], before: int) -> list[int]:
        """Return the segments below number ``before`` that can be deleted.

        A segment whose header voids records of others is needed until these are deleted.

        :param referenced: numbers of the segments with events.
        """
        every = self.all()
        numbers = [segment.number for segment in every]
        unneeded = []
        for segment in every:
            void = segment.header.void_from >> OFFSET_BITS
            says = void and any(void <= number < segment.number for number in numbers)
            if segment.number not in referenced and segment.number < before and not says:
                unneeded.append(segment.number)
        return unneeded

    def get(self, number: int) -> Segment | None:
        """Return the segment of this number; None if there is none."""
        return self._known.get(number)

    def read(self, entries: Sequence[Entry]) -> list[bytes | memoryview | None]:
        """Read the payloads of Puts; None for damaged ones.

        :raises OSError: the disk could not be read.
        """
        payloads: list[bytes | memoryview | None] = []
        start = 0
        while start < len(entries):
            stop = _span(entries, start)
            payloads += self._read_span(entries[start:stop])
            start = stop
        return payloads

    def _read_span(self, entries: Sequence[Entry]) -> list[bytes | memoryview | None]:
        segment = self.get(entries[0].segment)
        if segment is None:
            return [None] * len(entries)
        begin = entries[0].offset
        end = entries[-1].offset + FRAME_SIZE + entries[-1].length
        with self._reading:
            data = self._disk.read(self._file(segment), end - begin, begin)
        # A view of large events, so that only their bodies are copied.
        whole = data if len(data) < _LARGE * len(entries) else memoryview(data)
        return puts_in(segment, whole, begin, entries)

    def lost_event(self, entry: Entry) -> LostEvent:
        """Return what is known of a damaged Put."""
        segment = self.get(entry.segment)
        if segment is None or segment.cipher is not None:
            return LostEvent(entry.sequence, entry.length, None)
        try:
            with self._reading:
                payload = self._disk.read(self._file(segment), entry.length, entry.offset + FRAME_SIZE)
        except OSError:
            return LostEvent(entry.sequence, entry.length, None)
        return LostEvent(entry.sequence, entry.length, damaged_headers(payload))

    def _file(self, segment: Segment) -> int:
        file = self._files.pop(segment.number, None)
        if file is None:
            file = self._disk.open(segment.path)
            if len(self._files) >= _OPEN_FILES:
                self._disk.close(self._files.popitem(last=False)[1])
        self._files[segment.number] = file
        return file

    def remove(self, numbers: Iterable[int]) -> None:
        """Delete these segments.

        :raises OSError: one could not be deleted; the others are.
        """
        failed: OSError | None = None
        directories = set()
        for segment in filter(None, map(self.get, numbers)):
            try:
                self._remove(segment)
            except OSError as error:
                failed = error
            else:
                directories.add(os.path.dirname(segment.path))
        for directory in directories:
            self._disk.sync_directory(directory)
        if failed is not None:
            raise failed

    def _remove(self, segment: Segment) -> None:
        with self._reading:
            file = self._files.pop(segment.number, None)
            if file is not None:
                self._disk.close(file)
        if self._disk.exists(segment.path):
            self._disk.unlink(segment.path)
        with self._lock:
            del self._known[segment.number]

    def close(self) -> None:
        """Close the open files."""
        with self._reading:
            self._close_files()

    def close_in_child(self) -> None:
        """Close the open files in a forked child, with new locks: a thread of the parent may hold the old ones."""
        self._lock, self._reading = Lock(), Lock()
        self._close_files()

    def _close_files(self) -> None:
        for file in self._files.values():
            self._disk.close(file)
        self._files.clear()


def _span(entries: Sequence[Entry], start: int) -> int:
    """Return the end of the entries that can be read together with the one at ``start``."""
    segment, begin, before = entries[start].segment, entries[start].offset, entries[start].offset
    stop = start + 1
    while stop < len(entries):
        entry = entries[stop]
        end = entry.offset + FRAME_SIZE + entry.length
        if entry.segment != segment or entry.offset < before or end - begin > _SPAN:
            break
        before, stop = entry.offset, stop + 1
    return stop

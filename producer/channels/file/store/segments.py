"""Segments: all files of one log; makes new ones, reads from any, deletes those that nobody needs."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence

from ....model.errors import ChannelKeyError
from ....runtime.clock import Clock
from ....text.plural import counted
from .disk import Disk
from .encryption import KEY_SIZE, MAX_KEY_ID, KeyProvider, SegmentCipher
from .format import FRAME_SIZE, SegmentHeader, headers_left
from .lost import LostEvent
from .pointers import OFFSET_BITS, Entry
from .segment import Segment, puts_in

#: Files kept open for reading.
_OPEN_FILES = 32
#: Records of one segment are read together if they lie within this, bytes.
_SPAN = 1 << 20
#: Bytes of an event, from which on a copy costs more than a view.
_LARGE = 4096


class Segments:
    """All segments of one channel, by number.

    :param directories: where new ones go, in turn.
    :param keys: for new ones, and for old ones that are encrypted; None for plain.
    :param check_owned: raises if the directories are not the channel's any more; called before each new one.
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
        self._lock = threading.Lock()  # guards _known
        self._known: dict[int, Segment] = {}
        # Guards the files open for reading; held while one of them is read, so that nobody closes it meanwhile.
        self._reading = threading.Lock()
        self._files: OrderedDict[int, int] = OrderedDict()

    def resume(self, segments: Iterable[Segment]) -> None:
        """Begin with those that were found."""
        self._known = {segment.number: segment for segment in segments}
        self._next = max(self._known, default=0) + 1

    def pass_over(self, number: int) -> None:
        """Give no new segment this number, nor a lower one."""
        self._next = max(self._next, number + 1)

    def new(self, first_sequence: int, went_past: int, void_from: int = 0) -> Segment:
        """The next segment, which is not known before :meth:`add`.

        :param went_past: and
        :param void_from: see :class:`~.format.SegmentHeader`.
        :raises ChannelLockedError: the directories are not the channel's any more.
        """
        self._check_owned()
        number = self._next
        self._next += 1
        key_id = self._current_key_id()
        now = self._clock.time()
        header = SegmentHeader(number, first_sequence, os.urandom(16), now, went_past, key_id, void_from)
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
        """What opens this segment's payloads.

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
            message = f"the key provider gave {what} as the key {header.key_id!r}: a key is {KEY_SIZE} bytes"
            raise ChannelKeyError(self._name, header.key_id, message)
        return SegmentCipher(key, header.salt)

    def add(self, segment: Segment) -> None:
        """It exists from now on."""
        with self._lock:
            self._known[segment.number] = segment

    def all(self) -> list[Segment]:
        """Every segment, by number."""
        with self._lock:
            return [self._known[number] for number in sorted(self._known)]

    def unneeded(self, referenced: Collection[int], before: int) -> list[int]:
        """The segments below number ``before`` that nobody needs.

        One that says of others where they end is needed until these are gone for certain.

        :param referenced: numbers of those with events.
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
        """The segment of this number; None if there is none."""
        return self._known.get(number)

    def read(self, entries: Sequence[Entry]) -> list[bytes | memoryview | None]:
        """The payloads of these Puts; None for those that do not check out.

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
        # Of large events nothing is copied before their bodies are.
        whole = data if len(data) < _LARGE * len(entries) else memoryview(data)
        return puts_in(segment, whole, begin, entries)

    def left_of(self, entry: Entry) -> LostEvent:
        """What can still be told of a Put that does not check out."""
        segment = self.get(entry.segment)
        if segment is None or segment.cipher is not None:
            return LostEvent(entry.sequence, entry.length, None)
        try:
            with self._reading:
                payload = self._disk.read(self._file(segment), entry.length, entry.offset + FRAME_SIZE)
        except OSError:
            return LostEvent(entry.sequence, entry.length, None)
        return LostEvent(entry.sequence, entry.length, headers_left(payload))

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

        :raises OSError: one could not be deleted; the rest are.
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
        """Give the open files back."""
        with self._reading:
            self._close_files()

    def close_in_child(self) -> None:
        """As :meth:`close`, in a forked child, where a thread of the parent may hold the locks: they are made anew."""
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._close_files()

    def _close_files(self) -> None:
        for file in self._files.values():
            self._disk.close(file)
        self._files.clear()


def _span(entries: Sequence[Entry], start: int) -> int:
    """Where the entries end that can be read in one go with the one at ``start``."""
    segment, begin, before = entries[start].segment, entries[start].offset, entries[start].offset
    stop = start + 1
    while stop < len(entries):
        entry = entries[stop]
        end = entry.offset + FRAME_SIZE + entry.length
        if entry.segment != segment or entry.offset < before or end - begin > _SPAN:
            break
        before, stop = entry.offset, stop + 1
    return stop

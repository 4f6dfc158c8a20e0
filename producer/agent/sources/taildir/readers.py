"""Readers: all file readers, the order of their turns, and which files are open.

A **live** reader is polled in each scan. A resting one is **watched** by the kernel (:mod:`.watches`), and polled
seldom, in case the watch reports nothing. Where no watch is possible it is **quiet**, and quiet readers are polled in
turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ....runtime.file_identity import Key
from ..reading.reader import FileReader
from .file_registry import stem_of
from .watches import Watches

#: Polls a second of quiet readers, and of watched readers; and the maximum seconds until each watched reader is polled
#: once. That maximum raises the polls a second if there are very many watched readers.
_QUIET_POLLS, _WATCHED_POLLS, _WATCHED_ROUND_SECONDS = 800, 80, 12


class Readers:
    """All file readers of a source.

    :param most_open: the maximum number of files that are open at a time.
    :ivar by_key: all readers, by device and inode.
    """

    def __init__(self, most_open: int) -> None:
        self._most_open = most_open
        self.by_key: dict[Key, FileReader] = {}
        # Readers by directory and stem. A stem is the beginning of a file's name that its rotated files share.
        self._by_stem: dict[tuple[str, str], dict[Key, FileReader]] = {}
        self._live: dict[Key, FileReader] = {}
        self._quiet: deque[FileReader] = deque()
        self._watched: deque[FileReader] = deque()
        self._watches = Watches()
        self._opened: dict[FileReader, None] = {}

    def add(self, reader: FileReader) -> None:
        """Add a reader; it replaces another one of the same file."""
        before = self.by_key.get(reader.key)
        if before is not None:
            self._forget_stem(before)
        self._note_stem(reader)
        self.by_key[reader.key] = self._live[reader.key] = reader
        self.keep_open(reader)

    def drop(self, reader: FileReader) -> None:
        """Close and remove a reader."""
        self.shut(reader)
        if self.by_key.get(reader.key) is reader:
            self._forget_stem(reader)
        for readers in (self.by_key, self._live):
            if readers.get(reader.key) is reader:
                del readers[reader.key]
        self._take_out(reader)

    def moved(self, reader: FileReader, place: str, path: str | None = None) -> None:
        """Record a file's new path.

        :param path: the new path for its events; None to keep the old one.
        """
        self._forget_stem(reader)
        reader.place, reader.path = place, path or reader.path
        self._note_stem(reader)

    def named_alike(self, directory: str, base: str) -> Iterator[FileReader]:
        """Yield the readers in a directory whose rotated files could have this name."""
        for length in range(len(base) + 1):
            yield from self._by_stem.get((directory, base[:length]), {}).values()

    def _note_stem(self, reader: FileReader) -> None:
        self._by_stem.setdefault((reader.directory, stem_of(reader.path)), {})[reader.key] = reader

    def _forget_stem(self, reader: FileReader) -> None:
        place = reader.directory, stem_of(reader.path)
        alike = self._by_stem.get(place, {})
        alike.pop(reader.key, None)
        if not alike:
            self._by_stem.pop(place, None)

    def due(self, elapsed: float) -> list[FileReader]:
        """Return the readers to poll: all live ones, and some of the others in turn.

        :param elapsed: seconds since the last call.
        """
        self._wake_notified()
        watched = max(_WATCHED_POLLS, len(self._watched) / _WATCHED_ROUND_SECONDS)
        return [
            *self._live.values(),
            *_next(self._quiet, 1 + int(elapsed * _QUIET_POLLS)),
            *_next(self._watched, 1 + int(elapsed * watched)),
        ]

    def is_live(self, reader: FileReader) -> bool:
        """Return True if a reader is polled in each scan."""
        return reader.key in self._live

    def wake(self, reader: FileReader) -> None:
        """Make a reader live: its file may be written."""
        if self.by_key.get(reader.key) is reader and reader.key not in self._live:
            self._live[reader.key] = reader
            self._take_out(reader)

    def written(self, reader: FileReader) -> None:
        """Make a reader live because a poll found its file written. If it has a watch, count that the watch missed
        this.
        """
        if reader.key in self._watches:
            self._wake_notified()
            if reader.key in self._watches:
                self._watches.missed(reader.key)
                self._distrust_watches(reader.key[0])
        self.wake(reader)

    def watch(self, reader: FileReader) -> bool:
        """Watch a reader's file instead of polling it; return False if no watch is possible.

        :raises OSError: the file cannot be opened.
        """
        was_open = reader.is_open
        if not self._watches.add(reader.key, reader.open()):
            return False
        if not was_open:
            reader.close()
        if self._live.pop(reader.key, None) is not None:
            self._watched.append(reader)
        return True

    def rest(self, reader: FileReader) -> None:
        """Make a reader quiet: its file has not been written for a long time."""
        self.shut(reader)
        if self._live.pop(reader.key, None) is not None:
            self._quiet.append(reader)

    def _wake_notified(self) -> None:
        for key in self._watches.notified():
            if key in self.by_key:
                self.wake(self.by_key[key])

    def _distrust_watches(self, device: int) -> None:
        """Make the watched readers of a device quiet, if its watches have missed too many writes."""
        if not self._watches.trusts(device):
            blind = [reader for reader in self._watched if reader.key[0] == device]
            for reader in blind:
                self._take_out(reader)
            self._quiet.extend(blind)

    def _take_out(self, reader: FileReader) -> None:
        """Remove a reader from the resting ones."""
        self._watches.drop(reader.key)
        for resting in (self._quiet, self._watched):
            if reader in resting:
                resting.remove(reader)

    def keep_open(self, reader: FileReader) -> None:
        """Mark a reader as the most recently used; close the least recently used files beyond the limit."""
        self._opened.pop(reader, None)
        self._opened[reader] = None
        self._close_others()

    def limit_open(self, reader: FileReader) -> None:
        """Count a file that was opened only to be compared, and keep the limit."""
        if reader.is_open:
            self._opened.setdefault(reader, None)
            self._close_others()

    def _close_others(self) -> None:
        while len(self._opened) > self._most_open:
            self.shut(next(iter(self._opened)))

    def shut(self, reader: FileReader) -> None:
        """Close a reader's file."""
        self._opened.pop(reader, None)
        reader.close()

    def close(self) -> None:
        """Close all files."""
        self._watches.close()
        for reader in list(self.by_key.values()):
            self.shut(reader)


def _next(resting: deque[FileReader], most: int) -> list[FileReader]:
    """Return the next readers in turn, and put them at the end."""
    found = [resting.popleft() for _ in range(min(len(resting), most))]
    resting.extend(found)
    return found

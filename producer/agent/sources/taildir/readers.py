"""Readers: all files that are being read: whose turn it is, and which are open."""

from __future__ import annotations

from collections import deque

from ..reading.identity import Key
from ..reading.reader import FileReader

#: Files that have not been written for long are looked at, so many a second.
_QUIET_LOOKS = 800


class Readers:
    """See the module.

    :param most_open: files that are open at a time.
    :ivar by_key: all of them.
    """

    def __init__(self, most_open: int) -> None:
        self._most_open = most_open
        self.by_key: dict[Key, FileReader] = {}
        self._live: dict[Key, FileReader] = {}
        self._quiet: deque[FileReader] = deque()
        self._opened: dict[FileReader, None] = {}

    def add(self, reader: FileReader) -> None:
        """Read it from now on, in place of another one of the same file."""
        self.by_key[reader.key] = self._live[reader.key] = reader
        self.keep_open(reader)

    def drop(self, reader: FileReader) -> None:
        """Read it no more."""
        self.shut(reader)
        for readers in (self.by_key, self._live):
            if readers.get(reader.key) is reader:
                del readers[reader.key]
        if reader in self._quiet:
            self._quiet.remove(reader)

    def due(self, elapsed: float) -> list[FileReader]:
        """Those that were written lately, and some of the others in turn.

        :param elapsed: seconds since the last call.
        """
        count = min(len(self._quiet), 1 + int(elapsed * _QUIET_LOOKS))
        quiet = [self._quiet.popleft() for _ in range(count)]
        self._quiet.extend(quiet)
        return [*self._live.values(), *quiet]

    def wake(self, reader: FileReader) -> None:
        """It was written, or may be."""
        if self.by_key.get(reader.key) is reader and reader.key not in self._live:
            self._live[reader.key] = reader
            if reader in self._quiet:
                self._quiet.remove(reader)

    def rest(self, reader: FileReader) -> None:
        """It was not written for long."""
        self.shut(reader)
        if self._live.pop(reader.key, None) is not None:
            self._quiet.append(reader)

    def keep_open(self, reader: FileReader) -> None:
        """It was read now; those that were not for the longest time are closed, if there are too many."""
        self._opened.pop(reader, None)
        self._opened[reader] = None
        self._close_others()

    def limit_open(self, reader: FileReader) -> None:
        """It was opened, if it was not, to be compared."""
        if reader.is_open:
            self._opened.setdefault(reader, None)
            self._close_others()

    def _close_others(self) -> None:
        while len(self._opened) > self._most_open:
            self.shut(next(iter(self._opened)))

    def shut(self, reader: FileReader) -> None:
        """Close its file."""
        self._opened.pop(reader, None)
        reader.close()

    def close(self) -> None:
        """Close all files."""
        for reader in list(self.by_key.values()):
            self.shut(reader)

"""Readers: all files that are being read: whose turn it is, and which are open.

A **live** one is looked at each time; one that rests is **watched** (:mod:`.watches`), and looked at seldom, in case
the watch is blind; or else it is **quiet**, and takes turns with its like.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ....runtime.file_identity import Key
from ..reading.reader import FileReader
from .file_registry import stem_of
from .watches import Watches

#: Of the quiet so many are looked at in a second; of those that are watched so many, and more if there are so many that
#: one of them would not be looked at for longer than so many seconds.
_QUIET_LOOKS, _WATCHED_LOOKS, _WATCHED_ROUND = 800, 80, 12


class Readers:
    """See the module.

    :param most_open: files that are open at a time.
    :ivar by_key: all of them.
    """

    def __init__(self, most_open: int) -> None:
        self._most_open = most_open
        self.by_key: dict[Key, FileReader] = {}
        # By directory and by what the names of a file's rotated ones begin with.
        self._by_stem: dict[tuple[str, str], dict[Key, FileReader]] = {}
        self._live: dict[Key, FileReader] = {}
        self._quiet: deque[FileReader] = deque()
        self._watched: deque[FileReader] = deque()
        self._watches = Watches()
        self._opened: dict[FileReader, None] = {}

    def add(self, reader: FileReader) -> None:
        """Read it from now on, in place of another one of the same file."""
        before = self.by_key.get(reader.key)
        if before is not None:
            self._forget_stem(before)
        self._note_stem(reader)
        self.by_key[reader.key] = self._live[reader.key] = reader
        self.keep_open(reader)

    def drop(self, reader: FileReader) -> None:
        """Read it no more."""
        self.shut(reader)
        if self.by_key.get(reader.key) is reader:
            self._forget_stem(reader)
        for readers in (self.by_key, self._live):
            if readers.get(reader.key) is reader:
                del readers[reader.key]
        self._take_out(reader)

    def moved(self, reader: FileReader, place: str, path: str | None = None) -> None:
        """It was found under another name.

        :param path: the new name of its lines; None to keep the one that they have.
        """
        self._forget_stem(reader)
        reader.place, reader.path = place, path or reader.path
        self._note_stem(reader)

    def named_alike(self, directory: str, base: str) -> Iterator[FileReader]:
        """Those in a directory whose rotated files could have this name."""
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
        """Those that were written lately, and some of the others in turn.

        :param elapsed: seconds since the last call.
        """
        self._wake_told()
        watched = max(_WATCHED_LOOKS, len(self._watched) / _WATCHED_ROUND)
        return [
            *self._live.values(),
            *_next(self._quiet, 1 + int(elapsed * _QUIET_LOOKS)),
            *_next(self._watched, 1 + int(elapsed * watched)),
        ]

    def is_live(self, reader: FileReader) -> bool:
        """Whether it is looked at each time."""
        return reader.key in self._live

    def wake(self, reader: FileReader) -> None:
        """It may be written."""
        if self.by_key.get(reader.key) is reader and reader.key not in self._live:
            self._live[reader.key] = reader
            self._take_out(reader)

    def written(self, reader: FileReader) -> None:
        """It was seen to be written. If it is watched, its watch should have told."""
        if reader.key in self._watches:
            self._wake_told()
            if reader.key in self._watches:
                self._watches.missed(reader.key)
                self._forget_blind(reader.key[0])
        self.wake(reader)

    def watch(self, reader: FileReader) -> bool:
        """It rests: do not look at it until it is written; False where that cannot be known.

        :raises OSError: it cannot be opened.
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
        """It was not written for long."""
        self.shut(reader)
        if self._live.pop(reader.key, None) is not None:
            self._quiet.append(reader)

    def _wake_told(self) -> None:
        for key in self._watches.told():
            if key in self.by_key:
                self.wake(self.by_key[key])

    def _forget_blind(self, device: int) -> None:
        """Take turns with the files of a device whose watches tell nothing."""
        if not self._watches.believes(device):
            blind = [reader for reader in self._watched if reader.key[0] == device]
            for reader in blind:
                self._take_out(reader)
            self._quiet.extend(blind)

    def _take_out(self, reader: FileReader) -> None:
        """Out of those that rest."""
        self._watches.drop(reader.key)
        for resting in (self._quiet, self._watched):
            if reader in resting:
                resting.remove(reader)

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
        self._watches.close()
        for reader in list(self.by_key.values()):
            self.shut(reader)


def _next(resting: deque[FileReader], most: int) -> list[FileReader]:
    """Whose turn it is."""
    found = [resting.popleft() for _ in range(min(len(resting), most))]
    resting.extend(found)
    return found

"""ReadOnlyDisk: a read-only disk for inspections, which reads around bad sectors."""

from __future__ import annotations

import contextlib
import errno
from typing import Any

from .disk import Disk
from .format import SECTOR


class ReadOnlyDisk:
    """A disk that only reads: also files without write permission, and around unreadable sectors.

    :ivar unread: the unreadable stretches of each path; they read as bytes of ones.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._paths: dict[int, str] = {}
        self._sizes: dict[str, int] = {}
        self.unread: dict[str, list[tuple[int, int]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def open(self, path: str) -> int:
        """Open a file, for reading only."""
        file = self._disk.open_to_read(path)
        self._paths[file] = path
        return file

    def end(self, path: str, size: int) -> None:
        """Make the file appear to end here."""
        self._sizes[path] = size

    def end_of(self, path: str) -> int:
        """Return the apparent end of the file."""
        return self._sizes.get(path, 1 << 63)

    def size(self, file: int) -> int:
        """Return the apparent size of the file."""
        return min(self._disk.size(file), self.end_of(self._paths[file]))

    def read(self, file: int, size: int, offset: int) -> bytes:
        """Read bytes; bad sectors do not fail."""
        size = max(0, min(size, self.end_of(self._paths[file]) - offset))
        try:
            return self._disk.read(file, size, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        return self._read_around(file, size, offset)

    def _read_around(self, file: int, size: int, offset: int) -> bytes:
        end = min(offset + size, self.size(file))
        if end - offset <= SECTOR:
            with contextlib.suppress(OSError):
                return self._disk.read(file, end - offset, offset)
            self._note_unread(self._paths[file], offset, end)
            return b"\xff" * (end - offset)
        middle = (offset + (end - offset) // 2) // SECTOR * SECTOR
        middle = middle if middle > offset else (offset // SECTOR + 1) * SECTOR
        return self.read(file, middle - offset, offset) + self.read(file, end - middle, middle)

    def _note_unread(self, path: str, start: int, end: int) -> None:
        known = self.unread.setdefault(path, [])
        if known and known[-1][1] == start:
            known[-1] = known[-1][0], end
        elif all(start >= other or end <= before for before, other in known):
            known.append((start, end))

"""Detection of new files that are copies in progress, made by ``copytruncate`` before it truncates the original.

A copy begins with the same bytes as its original, and its name begins alike. It is detected before any byte of it is
put. Then it waits. When the original is truncated, reading continues in the copy, at the original's position. When the
copy has rested long enough, it is read as a file of its own.
"""

from __future__ import annotations

import os

from ..reading.identity import Heads
from ..reading.reader import FileReader, begins_alike
from .file_registry import stem_of
from .readers import Readers

#: First bytes by which possible copies are grouped; a shorter file is compared whole.
_FIRST = 64


class Copies:
    """Index of the files found in this scan, to find the original of a copy and the copies of an original."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        # Files found in this scan and not read yet, by directory and first bytes.
        self._fresh: dict[tuple[str, bytes], list[FileReader]] = {}
        self._first_of: dict[FileReader, bytes] = {}

    def begin_look(self) -> None:
        """Forget the files of the scan before: they have been read."""
        self._fresh.clear()
        self._first_of.clear()

    def add(self, reader: FileReader, descriptor: int) -> None:
        """Register a new file that is read from this scan on.

        :raises OSError: the file cannot be read.
        """
        first = self._first_of[reader] = os.pread(descriptor, _FIRST, 0)
        self._fresh.setdefault((reader.directory, first), []).append(reader)

    def original_of(self, path: str, descriptor: int, *, fresh: bool) -> FileReader | None:
        """Return the reader of the file of which a new one may be a copy.

        :param fresh: True to compare only with files of this scan.
        :raises OSError: the file cannot be read.
        """
        directory, base = _split(path)
        for reader in self._alike(path, descriptor, copies=False):
            if base.startswith(stem_of(reader.path)):
                return reader
        alike = [] if fresh else [*self._readers.named_alike(directory, base)]
        heads, first = Heads(descriptor), os.pread(descriptor, _FIRST, 0)
        for reader in alike:
            if self._begins_otherwise(reader, first):
                continue
            may_be = reader.name is None or heads.are_of(reader.name, if_shorter=True)
            if may_be and self.is_like(reader, descriptor):
                return reader
        return None

    def copies_of(self, path: str, descriptor: int) -> list[FileReader]:
        """Return the readers of this scan whose files may be copies of a file.

        :raises OSError: the file cannot be read.
        """
        stem = stem_of(path)
        found = self._alike(path, descriptor, copies=True)
        return [reader for reader in found if reader.file_name.startswith(stem)]

    def _begins_otherwise(self, reader: FileReader, first: bytes) -> bool:
        """Return True if a reader's file is known to begin otherwise, without opening it.

        Without this check very many new files would all be compared with each other.
        """
        known = self._first_of.get(reader, b"")
        return len(known) == _FIRST and not known.startswith(first)

    def is_like(self, reader: FileReader, descriptor: int) -> bool:
        """Return True if a file equals the beginning of a reader's file, or that was truncated just now."""
        try:
            return reader.begins_like(descriptor, os.fstat(descriptor).st_size)
        except OSError:
            return False  # the reader's own turn reports the error
        finally:
            self._readers.limit_open(reader)

    def _alike(self, path: str, descriptor: int, *, copies: bool) -> list[FileReader]:
        """Return readers of this scan, where one of the two files begins with all of the other.

        The shorter file is the copy. If both have the same size, the copy is the file with the longer name.

        :param copies: True for copies of the file, False for its originals.
        """
        first, own = os.pread(descriptor, _FIRST, 0), (os.fstat(descriptor).st_size, -len(path), path)
        found = []
        for reader in self._fresh.get((_split(path)[0], first), ()) if first else ():
            if self._readers.by_key.get(reader.key) is reader and reader.name is None:
                size = self._common_size(reader, descriptor, own[0])
                if size and copies == ((size, -len(reader.place), reader.place) < own):
                    found.append(reader)
        return found

    def _common_size(self, reader: FileReader, descriptor: int, size: int) -> int:
        """Return the size of a reader's file if one of the two files begins with the other; else 0."""
        try:
            other = os.fstat(reader.open()).st_size
            return other if begins_alike(descriptor, reader.open(), min(size, other)) else 0
        except OSError:
            return 0  # the reader's own turn reports the error
        finally:
            self._readers.limit_open(reader)


def _split(path: str) -> tuple[str, str]:
    directory, _, base = path.rpartition("/")
    return directory or "/", base

"""Copies: which files that are new may be copies in the making: somebody copies a file, to cut it next.

A copy holds, byte for byte, what its original begins with, and its name begins like that of the original. It is known
by that before anything of it is put; then it waits until its original is cut, and goes on where that was left, or until
it has rested so long that it is a file of its own.
"""

from __future__ import annotations

import os

from ..reading.identity import Heads
from ..reading.reader import FileReader, begins_alike
from .file_registry import stem_of
from .readers import Readers

#: Files that are alike have these first bytes in common, or are shorter.
_FIRST = 64


class Copies:
    """See the module."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        # By directory and first bytes: files that were found in this look, of which nothing was read.
        self._fresh: dict[tuple[str, bytes], list[FileReader]] = {}
        self._first_of: dict[FileReader, bytes] = {}

    def begin_look(self) -> None:
        """Files that were found before have been read."""
        self._fresh.clear()
        self._first_of.clear()

    def add(self, reader: FileReader, descriptor: int) -> None:
        """A file is new, and read from now on.

        :raises OSError: it cannot be read.
        """
        first = self._first_of[reader] = os.pread(descriptor, _FIRST, 0)
        self._fresh.setdefault((reader.directory, first), []).append(reader)

    def original_of(self, path: str, descriptor: int, *, fresh: bool) -> FileReader | None:
        """The reader of a file of which a new one may be a copy.

        :param fresh: only of one that is as new.
        :raises OSError: it cannot be read.
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
        """Those of the readers that are as new as a file, and may be copies of it.

        :raises OSError: it cannot be read.
        """
        stem = stem_of(path)
        found = self._alike(path, descriptor, copies=True)
        return [reader for reader in found if reader.file_name.startswith(stem)]

    def _begins_otherwise(self, reader: FileReader, first: bytes) -> bool:
        """Whether a reader's file is known to begin otherwise, without opening it: of very many new ones else each
        would be compared with each.
        """
        known = self._first_of.get(reader, b"")
        return len(known) == _FIRST and not known.startswith(first)

    def is_like(self, reader: FileReader, descriptor: int) -> bool:
        """Whether a file is what a reader's begins with; also if that was cut just now."""
        try:
            return reader.begins_like(descriptor, os.fstat(descriptor).st_size)
        except OSError:
            return False  # its own look tells what is wrong with it
        finally:
            self._readers.limit_open(reader)

    def _alike(self, path: str, descriptor: int, *, copies: bool) -> list[FileReader]:
        """Readers as new, of which one file begins with all that the other one has.

        :param copies: those that come behind the file: whichever has less, or a longer name, is the copy.
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
        """The size of a reader's file, if it begins with what another has, or the other way round; else 0."""
        try:
            other = os.fstat(reader.open()).st_size
            return other if begins_alike(descriptor, reader.open(), min(size, other)) else 0
        except OSError:
            return 0  # its own look tells what is wrong with it
        finally:
            self._readers.limit_open(reader)


def _split(path: str) -> tuple[str, str]:
    directory, _, base = path.rpartition("/")
    return directory or "/", base

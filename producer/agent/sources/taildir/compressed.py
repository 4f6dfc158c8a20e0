"""Recovery of unread bytes of a file that was rotated and compressed.

A gzip file beside the old path is recognized by its unpacked content: it begins as the file did, and has the last bytes
that were read at the same place. The unread part is unpacked into a nameless temporary file, which the kernel deletes
after a crash. The next run unpacks it again, from the stored position. Only gzip is supported.
"""

from __future__ import annotations

import gzip
import os
import tempfile
import weakref
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ....runtime.clock import Stop
from ....runtime.file_identity import TAIL_BYTES, Key
from ....runtime.link_targets import LinkTargets
from ....runtime.loggers import get_logger
from ..reading.cutting import Rules
from ..reading.identity import FileName, Note, holds, is_compressed, open_quickly
from ..reading.reader import FileReader
from .file_registry import key_of, paths_beside

_log = get_logger("loghub.agent.taildir")

#: Bytes unpacked before the unread part, to compare with what was read.
_BEFORE = 4096
_PIECE_BYTES = 1 << 20
#: The last bytes of a gzip file: the unpacked size modulo ``_MODULUS``.
_TRAILER_BYTES, _MODULUS = 4, 1 << 32


class Packed(NamedTuple):
    """The unread part of a file, unpacked.

    :ivar path: the compressed file.
    :ivar descriptor: descriptor of the unpacked file, which has a hole in place of the bytes that were read.
    """

    path: str
    descriptor: int


class UnpackedReader(FileReader):
    """Reader of an unpacked file.

    The file has no path, so it stays open as long as the reader exists.

    :param note: the note of the file that was compressed; its inode is not that of the unpacked file.
    """

    def __init__(self, packed: Packed, group: str, note: Note, rules: Rules, now: float) -> None:
        status = os.fstat(packed.descriptor)
        super().__init__(packed.path, group, (status.st_dev, status.st_ino), rules, now)
        self._descriptor = packed.descriptor
        weakref.finalize(self, os.close, packed.descriptor)
        self._device, self._inode = note.device, note.inode
        self.located = False

    def close(self) -> None:
        """Do nothing: the file could not be opened again."""

    def note(self) -> Note:
        return replace(super().note(), device=self._device, inode=self._inode)


def find_packed(
    name: FileName,
    note: Note,
    ends: Sequence[int],
    taken: Mapping[Key, FileReader],
    directory: Path,
    stop: Stop,
    links_to: LinkTargets,
) -> Packed | None:
    """Unpack the unread part of a file; None if there is none, or it is not found.

    :param ends: each channel's position in the file, sorted.
    :param taken: files with a reader: these are not compressed.
    :param directory: the directory for the unpacked file.
    :param stop: the event that ends the search.
    :param links_to: the rule for links that are followed.
    """
    for path in _candidates(note, taken, links_to):
        try:
            descriptor = open_quickly(path)
        except OSError:
            continue  # no permission, or deleted
        try:
            if not is_compressed(descriptor) or _size_of(descriptor) == ends[0] % _MODULUS:
                continue
            with os.fdopen(os.dup(descriptor), "rb") as raw, gzip.GzipFile(fileobj=raw) as unpacking:
                if _begins_as(unpacking, name):
                    found = _unpack(unpacking, name, note, ends, directory, stop)
                    if found is not None:
                        return Packed(path, found)
        except (OSError, EOFError, zlib.error) as error:
            _log.error("%s may hold unread bytes of %s, and cannot be unpacked: %s", path, note.path, error)
        finally:
            os.close(descriptor)
    return None


def _candidates(note: Note, taken: Mapping[Key, FileReader], links_to: LinkTargets) -> list[str]:
    try:
        return [path for path in paths_beside(note, links_to) if key_of(path) not in taken]
    except OSError:
        return []  # find_copy() has logged it


def _size_of(descriptor: int) -> int:
    size = os.fstat(descriptor).st_size
    return int.from_bytes(os.pread(descriptor, _TRAILER_BYTES, max(0, size - _TRAILER_BYTES)), "little")


def _begins_as(unpacking: gzip.GzipFile, name: FileName) -> bool:
    try:
        return zlib.crc32(unpacking.read(name.head_size)) == name.head
    except (OSError, EOFError, zlib.error):
        return False  # not gzip, or damaged at its head


def _unpack(
    unpacking: gzip.GzipFile, name: FileName, note: Note, ends: Sequence[int], directory: Path, stop: Stop
) -> int | None:
    """Return the unpacked file if it is the one that was read, and has more; else None.

    :raises OSError: the file cannot be unpacked or written; also ``EOFError`` and ``zlib.error``.
    """
    wanted = max(0, min(ends[0], note.end) - _BEFORE)
    descriptor = _nameless(directory)
    try:
        unpacking.seek(0)
        at = 0
        while not stop.is_set() and (data := unpacking.read(_PIECE_BYTES)):
            end = at + len(data)
            if at == 0 or end > wanted or any(at < mark.end and mark.end - TAIL_BYTES < end for mark in note.marks):
                _write(descriptor, data, at)
            at = end
        if not stop.is_set() and at > ends[0] and holds(descriptor, name, note, ends[-1]):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _write(descriptor: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written


def _nameless(directory: Path) -> int:
    directory.mkdir(parents=True, exist_ok=True)
    descriptor, path = tempfile.mkstemp(dir=directory)
    os.unlink(path)
    return descriptor

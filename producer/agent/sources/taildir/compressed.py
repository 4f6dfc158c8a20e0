"""What was not read of a file before it was rotated and compressed: it is only in the compressed one beside it.

That is known by what it unpacks to: it begins as the file did, and has the last bytes that were read where they were.
What is missing of it is unpacked into a file without a name, which nobody has to delete: whoever is killed unpacks it
again, from where it was read up to. Files of gzip, as ``logrotate`` makes them.
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
from ....runtime.loggers import get_logger
from ..reading.identity import FileName, Note, holds, is_compressed, open_quickly
from ..reading.reader import FileReader, Rules
from .file_registry import key_of, paths_beside

_log = get_logger("loghub.agent.taildir")

#: Bytes before what is missing that are unpacked, too: they show that it is the same file.
_BEFORE = 4096
_PIECE_BYTES = 1 << 20
#: At the end of a file of gzip: how many bytes it unpacks to, modulo so many.
_TRAILER_BYTES, _MODULUS = 4, 1 << 32


class Packed(NamedTuple):
    """What is missing of a file.

    :ivar path: the compressed one.
    :ivar descriptor: of a file with what that unpacks to, but for a hole where it was read already.
    """

    path: str
    descriptor: int


class UnpackedReader(FileReader):
    """Reads it. Its file cannot be opened again, and so is open until nobody has the reader.

    :param note: of the file that was compressed, which is not to be looked for under the inode of this one.
    """

    def __init__(self, packed: Packed, group: str, note: Note, rules: Rules, now: float) -> None:
        status = os.fstat(packed.descriptor)
        super().__init__(packed.path, group, (status.st_dev, status.st_ino), rules, now)
        self._descriptor = packed.descriptor
        weakref.finalize(self, os.close, packed.descriptor)
        self._device, self._inode = note.device, note.inode
        self.located = False

    def close(self) -> None:
        """See the class."""

    def note(self) -> Note:
        """See :meth:`FileReader.note`."""
        return replace(super().note(), device=self._device, inode=self._inode)


def find_packed(
    name: FileName, note: Note, ends: Sequence[int], taken: Mapping[Key, FileReader], directory: Path, stop: Stop
) -> Packed | None:
    """What is missing of a file, unpacked; None if nothing is, or it is nowhere.

    :param ends: up to where the channels have it, sorted.
    :param taken: files that are read already, and so are not compressed.
    :param directory: in which it is unpacked.
    :param stop: ends it.
    """
    for path in _candidates(note, taken):
        try:
            descriptor = open_quickly(path)
        except OSError:
            continue  # nobody may read it, or it has gone: then it is no help
        try:
            if not is_compressed(descriptor) or _size_of(descriptor) == ends[0] % _MODULUS:
                continue
            with os.fdopen(os.dup(descriptor), "rb") as raw, gzip.GzipFile(fileobj=raw) as unpacking:
                if _begins_as(unpacking, name):
                    found = _unpack(unpacking, name, note, ends, directory, stop)
                    if found is not None:
                        return Packed(path, found)
        except (OSError, EOFError, zlib.error) as error:
            _log.error("%s may hold what was not read of %s, and cannot be unpacked: %s", path, note.path, error)
        finally:
            os.close(descriptor)
    return None


def _candidates(note: Note, taken: Mapping[Key, FileReader]) -> list[str]:
    try:
        return [path for path in paths_beside(note) if key_of(path) not in taken]
    except OSError:
        return []  # whoever looked for a plain copy has said so


def _size_of(descriptor: int) -> int:
    size = os.fstat(descriptor).st_size
    return int.from_bytes(os.pread(descriptor, _TRAILER_BYTES, max(0, size - _TRAILER_BYTES)), "little")


def _begins_as(unpacking: gzip.GzipFile, name: FileName) -> bool:
    try:
        return zlib.crc32(unpacking.read(name.head_size)) == name.head
    except (OSError, EOFError, zlib.error):
        return False  # no gzip, or nobody knows whose


def _unpack(
    unpacking: gzip.GzipFile, name: FileName, note: Note, ends: Sequence[int], directory: Path, stop: Stop
) -> int | None:
    """The file, if it is the one that was read and has more; None if it is not.

    :raises OSError: it cannot be unpacked, or written; as ``EOFError`` and ``zlib.error``.
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

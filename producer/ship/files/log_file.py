"""The identity of a file to ship, by which it is opened again even if it was renamed."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .remote.seen import Seen


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file to ship, as it was when it was found.

    :ivar path: its absolute path, valid on the driver and on every worker; for a remote file the address without
        secrets.
    :ivar size: its size then, bytes; bytes appended later are not part of this job.
    :ivar compression: the format by its first bytes (:func:`~producer.wire.compressed_heads.compression_of`); None for
        plain text.
    :ivar device: the device number on the host that found it.
    :ivar inode: its inode number, which a rename keeps.
    :ivar address: the address to read a remote file by; empty for a local file.
    :ivar version: the version of a remote file, such as an ETag, which changes with its content.
    :ivar ranged: True if it can be read from any offset.
    :ivar encoding: the encoding of its text, to be converted to UTF-8; empty for UTF-8.
    """

    path: str
    size: int
    compression: str | None
    device: int = 0
    inode: int = 0
    address: str = ""
    version: str = ""
    ranged: bool = True
    encoding: str = ""

    @property
    def whole(self) -> bool:
        """True if it can only be read from its beginning."""
        return self.compression is not None or not self.ranged or bool(self.encoding)

    @property
    def seen(self) -> Seen:
        """The metadata of the remote file."""
        return Seen(self.address, self.size, self.version, self.ranged)


def open_file(file: LogFile) -> io.BufferedReader:
    """Open the same file that was found, even if rotation has renamed it.

    :raises FileNotFoundError: the file is neither under its name nor under another name in its folder. For a link, this
        is the folder of the target.
    """
    for path in itertools.chain([file.path], _renamed(file)):
        with contextlib.suppress(FileNotFoundError):
            opened = open(path, "rb", opener=_without_waiting)  # noqa: SIM115  (the caller closes it)
            if _is_same(os.fstat(opened.fileno()), file):
                return opened
            opened.close()
    raise FileNotFoundError(errno.ENOENT, "it was deleted or replaced by another file", file.path)


def _without_waiting(path: str, flags: int) -> int:
    """Open a path without blocking: it may have become a named pipe, which waits for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _is_same(status: os.stat_result, file: LogFile) -> bool:
    # Another device means another host, which may hold a copy of the file under the same name.
    return status.st_dev != file.device or status.st_ino == file.inode


def _renamed(file: LogFile) -> Iterator[str]:
    """Yield other names of the file in its folder; the folder is scanned only if needed."""
    folder = Path(os.path.realpath(file.path)).parent
    if folder.is_dir() and folder.stat().st_dev == file.device:
        with os.scandir(folder) as entries:
            names = [entry.path for entry in entries if entry.inode() == file.inode]
        yield from names

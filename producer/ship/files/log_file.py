"""A file to ship, as it was when it was found; it is opened again by what it was, also when it was renamed since."""

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

    :ivar path: its absolute path, as the driver and every worker sees it.
    :ivar size: its size then, bytes; what is appended later is not part of this job.
    :ivar compression: by its first bytes (:func:`~producer.wire.compressed_heads.compression_of`), None for plain text.
    :ivar device: the number of the file system on the host that found it.
    :ivar inode: its number there, which a rename keeps.
    :ivar address: of a remote file: by which it is read. Its path is that without secrets.
    :ivar version: of a remote file: what changes with it.
    :ivar ranged: whether it can be read from anywhere.
    :ivar encoding: of its text, if that is to be converted to UTF-8; else empty.
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
        """Whether it can only be read from its beginning."""
        return self.compression is not None or not self.ranged or bool(self.encoding)

    @property
    def seen(self) -> Seen:
        """It, as those see it who read remote files."""
        return Seen(self.address, self.size, self.version, self.ranged)


def open_file(file: LogFile) -> io.BufferedReader:
    """Open the very file that was found, also when it was renamed since, as rotation does.

    :raises FileNotFoundError: it is neither under its name nor under another one in its folder, or, for a link, in that
        of the file.
    """
    for path in itertools.chain([file.path], _renamed(file)):
        with contextlib.suppress(FileNotFoundError):
            opened = open(path, "rb", opener=_without_waiting)  # noqa: SIM115  (the caller closes it)
            if _is_same(os.fstat(opened.fileno()), file):
                return opened
            opened.close()
    raise FileNotFoundError(errno.ENOENT, "it was deleted or replaced by another file", file.path)


def _without_waiting(path: str, flags: int) -> int:
    """Open a path that may be a named pipe by now: that would wait for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _is_same(status: os.stat_result, file: LogFile) -> bool:
    # Another device means another host, which may hold a copy of the file under the same name.
    return status.st_dev != file.device or status.st_ino == file.inode


def _renamed(file: LogFile) -> Iterator[str]:
    """Other names of the file in its folder, looked up only when asked for."""
    folder = Path(os.path.realpath(file.path)).parent
    if folder.is_dir() and folder.stat().st_dev == file.device:
        with os.scandir(folder) as entries:
            names = [entry.path for entry in entries if entry.inode() == file.inode]
        yield from names

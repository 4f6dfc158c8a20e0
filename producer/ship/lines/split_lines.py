"""Reads a range of a file, and detects changes of the file after the job was planned."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator

from ...spark.errors import SparkJobError
from ...text.plural import counted
from ...wire.decompressing import DAMAGE, decompressing
from ...wire.encodings import MARK
from ...wire.log_start import StartPattern
from ..errors import FileChangedError, FileUnreadableError, InputError
from ..files.decoded import Decoded
from ..files.log_file import LogFile, open_file
from ..files.plan import Split
from ..files.remote.reader import RemoteFile
from .line import Block, Line, blocks_of, without_mark

_HEAD_BYTES = 64 << 10


def read_split(split: Split, max_line_bytes: int, log_start: StartPattern | None = None) -> Iterator[Block | Line]:
    """Yield the lines that begin in a range of a file: in blocks, and long ones in pieces.

    :param log_start: the pattern of the first line of multi-line logs; None if each line is a log.
    :raises FileChangedError: the file is shorter than planned, gone, replaced, or damaged.
    :raises FileUnreadableError: the file cannot be read.
    :raises RemoteError: a remote file cannot be read.
    """
    try:
        with _opened(split) as file:
            compression = split.file.compression
            if compression is None:
                planned = _AsPlanned(file, split) if isinstance(file, io.BufferedReader) else file
                yield from without_mark(_blocks(planned, split, max_line_bytes, log_start))
            else:
                yield from without_mark(_decompressed_blocks(file, split, max_line_bytes, log_start))
            if isinstance(file, RemoteFile):
                file.check_unchanged()
    except OSError as error:
        kind = FileChangedError if isinstance(error, FileNotFoundError) else FileUnreadableError
        raise kind(f"{split.file.path}: cannot be read: {error.strerror or error}") from error


def _opened(split: Split) -> io.BufferedIOBase:
    """Open a local or remote file, and check that it is the planned one."""
    if split.file.address:
        return RemoteFile(split.file.seen, split.start, split.end)
    opened = open_file(split.file)
    try:
        _check_length(opened.fileno(), split)
    except BaseException:
        opened.close()
        raise
    return opened


def first_line(file: LogFile, most: int) -> bytes | None:
    """Return the first line of a file, without its end; None if it is longer than ``most`` bytes, or unreadable."""
    try:
        with _opened(Split(file, 0, 0)) as opened:
            plain = opened if file.compression is None else _decompressing(opened, file.compression)
            if file.encoding:
                plain = Decoded(plain, file.encoding, None)
            head = b""
            while b"\n" not in head and len(head) <= most and (more := plain.read1(_HEAD_BYTES)):
                head += more
    except (*DAMAGE, SparkJobError):
        return None  # The error is reported when the file is read.
    line = head.partition(b"\n")[0].removesuffix(b"\r").removeprefix(MARK)
    return line if len(line) <= most else None


def _blocks(file: io.BufferedIOBase, split: Split, most: int, log_start: StartPattern | None) -> Iterator[Block | Line]:
    """Yield the plain lines of the range; a compressed or converted file is read as a whole."""
    packed = split.file.compression is not None
    if split.file.encoding:
        file, packed = Decoded(file, split.file.encoding, None if packed else split.file.size), True
    start, end, limit = (0, None, None) if packed else (split.start, split.end, split.file.size)
    begins = split.begins_line
    if log_start is None:
        return blocks_of(file, start, end, limit=limit, max_line_bytes=most, begins_line=begins)
    from .logs import logs_of  # It needs NumPy, which takes long to import.

    return logs_of(file, start, end, limit=limit, max_log_bytes=most, pattern=log_start, begins_log=begins)


class _AsPlanned(io.BufferedIOBase):
    """A plain file that raises :class:`FileChangedError` if it was truncated below its planned size."""

    def __init__(self, file: io.BufferedReader, split: Split) -> None:
        self._file = file
        self._split = split

    def seek(self, position: int, whence: int = io.SEEK_SET, /) -> int:
        return self._file.seek(position, whence)

    def read1(self, size: int = -1, /) -> bytes:
        """Return the next bytes, at least one.

        :raises FileChangedError: there are none.
        """
        data = self._file.read1(size)
        if not data:
            raise _truncated(self._split, min(self._file.tell(), os.fstat(self._file.fileno()).st_size))
        return data


def _check_length(descriptor: int, split: Split) -> None:
    size = os.fstat(descriptor).st_size
    if size < split.file.size:
        raise _truncated(split, size)


def _truncated(split: Split, size: int) -> FileChangedError:
    return FileChangedError(
        f"{split.file.path}: has {counted(size, 'byte')}, but had {split.file.size} when the job began: it "
        "was truncated, and lines were lost before they were read. Rotate by renaming, or ship only complete "
        "files"
    )


class _UpTo(io.BufferedIOBase):
    """A file that ends at the planned byte; later bytes belong to another job."""

    def __init__(self, file: io.BufferedIOBase, end: int) -> None:
        self._file = file
        self._left = end - file.tell()

    def read1(self, size: int = -1, /) -> bytes:
        """Return the next bytes; nothing at the end.

        :raises EOFError: the file ends too early.
        """
        wanted = min(size, self._left) if size >= 0 else self._left
        data = self._file.read1(wanted)
        if wanted and not data:
            raise EOFError("it was truncated")
        self._left -= len(data)
        return data


def _decompressed_blocks(
    file: io.BufferedIOBase, split: Split, most: int, log_start: StartPattern | None
) -> Iterator[Block | Line]:
    """Yield the lines of a compressed file; the error for damage names the last readable line."""
    compression = str(split.file.compression)
    last = None
    try:
        # The members before the range are already shipped; only their size is needed, for the offsets.
        before = _plain_size(_decompressing(_UpTo(file, split.start), compression)) if split.start else 0
        if split.start:
            file.seek(split.start)
        plain = _decompressing(file if split.file.address else _UpTo(file, split.end), compression)
        for block in _blocks(plain, split, most, log_start):
            last = _shifted(block, before)
            yield last
    except DAMAGE as error:
        read = "nothing could be read" if last is None else f"the last readable line begins at byte {_last_line(last)}"
        raise FileChangedError(
            f"{split.file.path}: damaged or incomplete {split.file.compression} data ({error}); {read}. "
            "Repair it, or leave it out with --exclude"
        ) from error


def _decompressing(file: io.BufferedIOBase, compression: str) -> io.BufferedIOBase:
    try:
        return decompressing(file, compression)
    except ImportError as error:
        raise InputError(f"reading {compression}: {error}") from error


def _plain_size(plain: io.BufferedIOBase) -> int:
    size = 0
    with contextlib.suppress(*DAMAGE):  # Damage was reported when these members were shipped.
        while data := plain.read1(_HEAD_BYTES):
            size += len(data)
    return size


def _shifted(lines: Block | Line, by: int) -> Block | Line:
    if not by:
        return lines
    if isinstance(lines, Block):
        return Block(lines.offset + by, lines.data)
    return lines._replace(offset=lines.offset + by)


def _last_line(read: Block | Line) -> int:
    """Return the offset of the last line of a block or piece."""
    return read.offset + (read.data.rfind(b"\n", 0, -1) + 1 if isinstance(read, Block) else 0)

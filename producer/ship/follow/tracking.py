"""How far each file of a followed directory was shipped: the offset that Spark keeps in its checkpoint.

An offset maps a file's inode to its path, the byte up to which it was taken, and a checksum of its first bytes::

    {"1234": {"path": "/var/log/app.log", "end": 5120, "head": 3735928559, "generation": 0}}

* A file that grows is taken from where the last batch ended, so that lines appended to it are shipped.
* A file that was renamed (rotation) has the same inode: it goes on under its new name.
* A file that is shorter than what was taken (copytruncate), or begins otherwise (a new file that was given the inode
  of a deleted one), begins anew at byte 0.
* A file is taken up to its last line end. What follows is a line that somebody may still be writing; it is taken as it
  is once the file has rested for ``settle`` seconds.
* With logs of several lines it is taken up to its last start line: the log that this begins may go on. Where a log is
  longer than the limit, up to the last line end.
* A compressed file is taken whole, once it has rested.

Everything here is a function of the file system and its arguments, so a batch that is planned again after a restart
comes out the same.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypedDict

from ...wire.compressed_heads import compression_of
from ...wire.log_start import Logs, last_start
from ..errors import InputError
from ..files.find import Found, LogFile, find_files, is_excluded, open_file

# The first bytes tell whether two looks at an inode saw the same file; a log's first line nearly always has a time.
_HEAD_BYTES = 256
_BLOCK_BYTES = 64 << 10


class Taken(TypedDict):
    """How far one file was taken.

    :ivar path: where it was found last.
    :ivar end: the byte after the last one taken.
    :ivar head: CRC-32 of its first bytes, of at most 256 and at most ``end``.
    :ivar generation: grows each time that the inode turned out to hold another file than before.
    """

    path: str
    end: int
    head: int
    generation: int


#: By inode: how far each file was taken.
Offset = dict[str, Taken]


@dataclass(frozen=True, slots=True)
class Range:
    """What a batch takes of a file.

    :ivar file: the file, its size being the end of the range.
    :ivar start: the first byte.
    :ivar lost: the file is gone or shorter: these bytes cannot be read any more.
    """

    file: LogFile
    start: int
    lost: bool = False


def scan(
    paths: Iterable[str],
    exclude: Iterable[str],
    known: Offset,
    *,
    settle: float,
    now: float,
    checkpoint: str | None = None,
    look: Callable[[Found], object] = lambda _found: None,
    logs: Logs | None = None,
) -> Offset:
    """The offset after everything that can be taken now. Files that are gone drop out of it; those that are only not
    found, since a directory cannot be listed or a file not be opened at this moment, stay as they were.

    :param paths: directories, files or globs to follow; one that does not exist yet is looked for again next time.
    :param exclude: glob patterns to leave out.
    :param known: the offset so far.
    :param settle: a file not written to for this long is complete, seconds.
    :param now: the time, seconds since the epoch.
    :param checkpoint: a directory that is never followed: each batch writes there, and so would make another.
    :param logs: how logs of several lines begin; None if each line is one.
    :param look: is shown what each path came to, with what was left out.
    """
    latest: Offset = {}
    for file in _present_files(paths, exclude, checkpoint, look):
        key = str(file.inode)
        if key in latest:  # a hard link, or the same number on another file system
            key = f"{file.inode}@{file.path}"
        with contextlib.suppress(OSError):  # deleted, or made unreadable, between the listing and the look
            latest[key] = _taken(file, known.get(key), settle=settle, now=now, logs=logs)
    return latest | {key: taken for key, taken in known.items() if key not in latest and not _is_gone(key, taken)}


def _is_gone(key: str, taken: Taken) -> bool:
    """Whether a file that was taken and not found is there no more, rather than hidden from us for a while: one that is
    forgotten comes again from its beginning.
    """
    try:
        return os.stat(taken["path"]).st_ino != _inode(key)  # noqa: PTH116  (Path refuses no error)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def advance(start: Offset, target: Offset, max_bytes: int) -> Offset:
    """Go from ``start`` towards ``target``, by about ``max_bytes`` bytes: what one batch takes.

    :param start: the offset so far.
    :param target: what :func:`scan` returned.
    :param max_bytes: about how much to take, bytes; at least one file advances.
    """
    reached: Offset = {}
    left = max_bytes
    for key in sorted(target, key=lambda each: (target[each]["path"], each)):
        begin = _begin(start.get(key), target[key])
        if begin == target[key]["end"]:
            reached[key] = target[key]
        elif left > 0:
            reached[key] = target[key]
            left -= target[key]["end"] - begin
        elif key in start:
            reached[key] = start[key]
    return reached


def ranges(start: Offset, end: Offset, exclude: Iterable[str] = ()) -> list[Range]:
    """What lies between two offsets, by path.

    :param exclude: glob patterns to leave out: they may be newer than the offsets, and have to help against a file
        that fails its batch each time.
    :raises InputError: a file is there, or may be, and cannot be read.
    """
    patterns = tuple(exclude)
    found = [
        _range(key, _begin(start.get(key), taken), taken)
        for key, taken in end.items()
        if _begin(start.get(key), taken) < taken["end"] and not is_excluded(taken["path"], patterns)
    ]
    return sorted(found, key=lambda each: each.file.path)


def _present_files(
    paths: Iterable[str], exclude: Iterable[str], checkpoint: str | None, look: Callable[[Found], object]
) -> Iterator[LogFile]:
    patterns = tuple(exclude)
    for path in paths:
        try:
            found = find_files([path], exclude=patterns, exclude_directory=checkpoint)
        except InputError:
            continue  # not there yet, or not any more
        look(found)
        yield from found.files


def _taken(file: LogFile, known: Taken | None, *, settle: float, now: float, logs: Logs | None) -> Taken:
    with open_file(file) as opened:
        generation = 0 if known is None else known["generation"]
        begin = 0 if known is None else known["end"]
        if known is not None and not _continues(opened.fileno(), file, known):
            begin, generation = 0, generation + 1
        if now - os.fstat(opened.fileno()).st_mtime >= settle:
            end = file.size
        elif file.compression is not None:
            end = begin
        else:
            end = _last_end(opened.fileno(), begin, file.size, logs)
        return Taken(path=file.path, end=end, head=_head(opened.fileno(), end), generation=generation)


def _continues(descriptor: int, file: LogFile, known: Taken) -> bool:
    return file.size >= known["end"] and _head(descriptor, known["end"]) == known["head"]


def _head(descriptor: int, end: int) -> int:
    return zlib.crc32(os.pread(descriptor, min(end, _HEAD_BYTES), 0))


def _last_end(descriptor: int, begin: int, size: int, logs: Logs | None) -> int:
    """The byte after what is complete between two bytes."""
    if logs is not None:
        window = max(begin, size - logs.max_bytes)
        start = last_start(os.pread(descriptor, size - window, window), logs.start, at_line=window == begin)
        if start:
            return window + start
        if window == begin:
            return begin
    return _last_line_end(descriptor, begin, size)


def _last_line_end(descriptor: int, begin: int, size: int) -> int:
    """The byte after the last line end between two bytes; ``begin`` if there is none."""
    position = size
    while position > begin:
        block = max(begin, position - _BLOCK_BYTES)
        found = os.pread(descriptor, position - block, block).rfind(b"\n")
        if found >= 0:
            return block + found + 1
        position = block
    return begin


def _begin(before: Taken | None, after: Taken) -> int:
    """Where the range that ends at ``after`` begins."""
    return before["end"] if before is not None and before["generation"] == after["generation"] else 0


def _range(key: str, begin: int, taken: Taken) -> Range:
    """
    :raises InputError: nobody can say whether it is there.
    """
    path = taken["path"]
    try:
        device = os.stat(os.path.dirname(path)).st_dev  # noqa: PTH116, PTH120
        file = LogFile(path, taken["end"], None, device, _inode(key))
        with open_file(file) as opened:
            if os.fstat(opened.fileno()).st_size < file.size or _head(opened.fileno(), file.size) != taken["head"]:
                return Range(file, begin, lost=True)
            return Range(replace(file, compression=compression_of(opened.read(_HEAD_BYTES))), begin)
    except (FileNotFoundError, NotADirectoryError):
        return Range(LogFile(path, taken["end"], None, 0, _inode(key)), begin, lost=True)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}. Mend that, or leave the file out with --exclude"
        ) from error


def _inode(key: str) -> int:
    return int(key.partition("@")[0])

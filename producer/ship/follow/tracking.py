"""Tracks the offset of each file of a followed directory; Spark keeps these offsets in its checkpoint.

An offset maps the name of each file to its identity (:mod:`producer.runtime.file_identity`) and the byte up to which it
was shipped. The name consists of the device and the inode at the first scan, and never changes::

    {"2049.1234": {"path": "/var/log/app.log", "device": 2049, "inode": 1234, "end": 5120, "generation": 0,
                   "head": 3735928559, "tail": 2596069104}}

* A file is recognised by its inode, and by its device or its path: devices may get other numbers at a reboot. Checksums
  of its first bytes and of some bytes before the offset must match, too.
* A file that grows is continued from its offset, so that appended lines are shipped.
* A renamed file (rotation) keeps its inode, and is continued under its new name. If the paths do not include that name
  (one file was named, or ``*.log``), its directory is searched for the inode.
* A file with several names (hard links), as a rotation by ``ln`` briefly makes, is one file.
* A file starts again at byte 0 if it is shorter than its offset (copytruncate), or has other content. Such a file was
  rewritten, or is new and got the inode of a deleted file.
* A file is read up to its last line end, as a program may still be writing the line after it. This line is shipped when
  the file has not been written for ``settle`` seconds.
* With multi-line logs, a file is read up to its last start line, as the log that begins there may continue. If that log
  is longer than the limit, the file is read up to its last line end.
* A compressed file is shipped as a whole, when it has not been written for ``settle`` seconds. Members that are added
  later are shipped in the same way.

All functions depend only on the file system and their arguments, so a batch that is planned again after a restart is
the same.
"""

from __future__ import annotations

import contextlib
import io
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypedDict

from ...runtime.file_identity import head_of, marks_at
from ...wire.compressed_heads import compression_of
from ...wire.encodings import HOLE
from ...wire.log_start import Logs, last_start
from ..errors import InputError
from ..files.find import Found, is_excluded
from ..files.log_file import LogFile, open_file

# The first bytes identify the content of an inode: the first line of a log nearly always has a time.
_HEAD_BYTES = 256
_BLOCK_BYTES = 64 << 10


class Taken(TypedDict):
    """The offset of one file, with its identity.

    :ivar path: the path at the last scan.
    :ivar device: the device number at the last scan.
    :ivar inode: the inode number.
    :ivar end: the byte after the last one that was read.
    :ivar head: CRC-32 of its first bytes, of at most 256 and at most ``end``.
    :ivar tail: a checksum of some windows before ``end``.
    :ivar generation: the number of times that the content of the inode was replaced.
    """

    path: str
    device: int
    inode: int
    end: int
    head: int
    tail: int
    generation: int


#: The offset of each file, by name.
Offset = dict[str, Taken]


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a file that a batch ships.

    :ivar file: the file; its size is the end of the range.
    :ivar start: the first byte.
    :ivar lost: True if the file is gone or shorter, so these bytes cannot be read any more.
    """

    file: LogFile
    start: int
    lost: bool = False


def scan(
    found: Found, exclude: Iterable[str], known: Offset, *, settle: float, now: float, logs: Logs | None = None
) -> Offset:
    """Return the offset after all lines that are complete.

    Deleted files are removed from it. Files that cannot be listed or opened temporarily stay unchanged. Files that were
    renamed to names outside the paths are continued.

    :param found: the files of the followed paths.
    :param exclude: glob patterns to leave out.
    :param known: the current offset.
    :param settle: time without writes after which a file is complete, seconds.
    :param now: the current time, seconds since the epoch.
    :param logs: the start pattern of multi-line logs; None if each line is a log.
    """
    latest: Offset = {}
    names = _Names(known)
    patterns = tuple(exclude)
    paths_so_far = {taken["path"] for taken in known.values()}
    linked: set[tuple[int, int]] = set()
    for file in sorted(found.files, key=lambda each: each.path not in paths_so_far):
        # The file may be deleted or unreadable after it was listed.
        with contextlib.suppress(OSError), open_file(file) as opened:
            descriptor = opened.fileno()
            if os.fstat(descriptor).st_nlink > 1:
                if (file.device, file.inode) in linked:
                    continue
                linked.add((file.device, file.inode))
            name, before = names.of(file, descriptor, latest)
            latest[name] = _taken(file, descriptor, before, settle=settle, now=now, logs=logs)
    left_out = {path for path, _ in (*found.skipped, *found.unread)} | {file.path for file in found.files}
    used = {(taken["device"], taken["inode"]) for taken in latest.values()}
    for name, before in known.items():
        renamed = None if name in latest else _open_renamed(before)
        if renamed is None:
            continue
        file, opened = renamed
        with opened:
            if not (file.path in left_out or is_excluded(file.path, patterns) or (file.device, file.inode) in used):
                used.add((file.device, file.inode))
                latest[name] = _taken(file, opened.fileno(), before, settle=settle, now=now, logs=logs)
    return latest | {name: taken for name, taken in known.items() if name not in latest and not _is_gone(taken)}


def _open_renamed(taken: Taken) -> tuple[LogFile, io.BufferedReader] | None:
    """Open a file that the paths no longer include, but that is still in its directory; None if it is not."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        opened = stack.enter_context(open_file(_as_it_was(taken)))
        status, path = os.fstat(opened.fileno()), str(opened.name)
        compression = compression_of(os.pread(opened.fileno(), _HEAD_BYTES, 0))
        file = LogFile(path, status.st_size, compression, status.st_dev, status.st_ino)
        if _may_be_renamed_to(path, taken) and _continues(opened.fileno(), file, taken):
            stack.pop_all()
            return file, opened
    return None


def _may_be_renamed_to(path: str, taken: Taken) -> bool:
    """Return True if a file with this inode may be the tracked one.

    If no byte of it was read, its name decides, because a new file may get the inode of a deleted one.
    """
    return taken["end"] > 0 or os.path.basename(path).startswith(os.path.basename(taken["path"]))


def _as_it_was(taken: Taken) -> LogFile:
    """Return the file to open, with the current device number of its directory, which a reboot may change.

    :raises OSError: the directory does not exist.
    """
    device = os.stat(os.path.dirname(os.path.realpath(taken["path"]))).st_dev
    return LogFile(taken["path"], taken["end"], None, device, taken["inode"])


class _Names:
    """The names of an offset, searched by file."""

    def __init__(self, known: Offset) -> None:
        self._known = known
        self._by_inode: dict[int, list[str]] = {}
        for name, taken in known.items():
            self._by_inode.setdefault(taken["inode"], []).append(name)

    def of(self, file: LogFile, descriptor: int, used: Offset) -> tuple[str, Taken | None]:
        """Return the name of a file, and its offset; None if it is new or rewritten.

        :param used: names of files that were already found.
        :raises OSError: the file cannot be read.
        """
        inode = (name for name in self._by_inode.get(file.inode, ()) if name not in used)
        alike = [name for name in inode if _may_be(file, self._known[name])]
        alike.sort(key=lambda name: self._known[name]["path"] != file.path)
        for name in alike:
            if _continues(descriptor, file, self._known[name]):
                return name, self._known[name]
        anew = next((name for name in alike if self._known[name]["device"] == file.device), None)
        if anew is not None:
            before = self._known[anew]
            return anew, Taken({**before, "end": 0, "head": 0, "tail": 0, "generation": before["generation"] + 1})
        name = f"{file.device}.{file.inode}"
        # Another file may have had this device number.
        return (f"{name}@{file.path}" if name in used or name in self._known else name), None


def _may_be(file: LogFile, taken: Taken) -> bool:
    """Return True if a file with the same inode may be the tracked one."""
    return taken["device"] == file.device or taken["path"] == file.path


def _is_gone(taken: Taken) -> bool:
    """Return True if a tracked file was deleted. One that is only inaccessible must be kept, or it would be shipped
    again from its beginning.
    """
    try:
        return os.stat(taken["path"]).st_ino != taken["inode"]  # Path.exists would hide errors.
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def advance(start: Offset, target: Offset, max_bytes: int) -> Offset:
    """Move from ``start`` towards ``target``, by the size of one batch.

    :param start: the current offset.
    :param target: the offset from :func:`scan`.
    :param max_bytes: approximate size, bytes; at least one file advances.
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
    """Return the ranges between two offsets, sorted by path.

    :param exclude: glob patterns to leave out. They may be newer than the offsets, so that the user can exclude a file
        that fails its batch each time.
    :raises InputError: a file may exist, but cannot be read.
    """
    patterns = tuple(exclude)
    found = [
        _range(_begin(start.get(key), taken), taken)
        for key, taken in end.items()
        if _begin(start.get(key), taken) < taken["end"] and not is_excluded(taken["path"], patterns)
    ]
    return sorted(found, key=lambda each: each.file.path)


def _taken(
    file: LogFile, descriptor: int, known: Taken | None, *, settle: float, now: float, logs: Logs | None
) -> Taken:
    begin, generation = (0, 0) if known is None else (known["end"], known["generation"])
    if file.compression is not None and begin not in {0, file.size} and not _begins_member(descriptor, begin):
        begin, generation = 0, generation + 1  # The offset is within a member, so the whole file is read again.
    if now - os.fstat(descriptor).st_mtime >= settle and not _ends_in_hole(descriptor, file):
        end = file.size
    elif file.compression is not None:
        end = begin
    else:
        end = _last_end(descriptor, begin, file.size, logs)
    head, tail = _fingerprint(descriptor, end)
    return Taken(
        path=file.path,
        device=file.device,
        inode=file.inode,
        end=end,
        head=head,
        tail=tail,
        generation=generation,
    )


def _ends_in_hole(descriptor: int, file: LogFile) -> bool:
    """Return True if a plain file ends with NULs, in place of bytes that may still be written."""
    return file.compression is None and os.pread(descriptor, len(HOLE), max(0, file.size - len(HOLE))) == HOLE


def _begins_member(descriptor: int, at: int) -> bool:
    return compression_of(os.pread(descriptor, _HEAD_BYTES, at)) is not None


def _continues(descriptor: int, file: LogFile, known: Taken) -> bool:
    return file.size >= known["end"] and _holds(descriptor, known)


def _holds(descriptor: int, known: Taken) -> bool:
    head, tail = _fingerprint(descriptor, known["end"])
    return (head, tail) == (known["head"], known["tail"])


def _fingerprint(descriptor: int, end: int) -> tuple[int, int]:
    """Return checksums of the first bytes, and of windows before the end."""
    marks = b"".join(mark.tail.to_bytes(4, "big") for mark in marks_at(descriptor, end))
    return head_of(descriptor, min(end, _HEAD_BYTES)), zlib.crc32(marks)


def _last_end(descriptor: int, begin: int, size: int, logs: Logs | None) -> int:
    """Return the offset after the last complete log between two offsets."""
    if logs is not None:
        window = max(begin, size - logs.max_bytes)
        start = last_start(os.pread(descriptor, size - window, window), logs.start, at_line=window == begin)
        if start:
            return window + start
        if window == begin:
            return begin
    return _last_line_end(descriptor, begin, size)


def _last_line_end(descriptor: int, begin: int, size: int) -> int:
    """Return the offset after the last line end between two offsets; ``begin`` if there is none."""
    position = size
    while position > begin:
        block = max(begin, position - _BLOCK_BYTES)
        found = os.pread(descriptor, position - block, block).rfind(b"\n")
        if found >= 0:
            return block + found + 1
        position = block
    return begin


def _begin(before: Taken | None, after: Taken) -> int:
    """Return the start of the range that ends at ``after``."""
    return before["end"] if before is not None and before["generation"] == after["generation"] else 0


def _range(begin: int, taken: Taken) -> Range:
    """Return the range of a file, marked as lost if the file is gone.

    :raises InputError: the file may exist, but cannot be read.
    """
    try:
        file = _as_it_was(taken)
        with open_file(file) as opened:
            if os.fstat(opened.fileno()).st_size < file.size or not _holds(opened.fileno(), taken):
                return Range(file, begin, lost=True)
            return Range(replace(file, compression=compression_of(opened.read(_HEAD_BYTES))), begin)
    except (FileNotFoundError, NotADirectoryError):
        return Range(LogFile(taken["path"], taken["end"], None, 0, taken["inode"]), begin, lost=True)
    except OSError as error:
        raise InputError(
            f"{taken['path']}: cannot be read: {error.strerror}. Fix that, or leave the file out with --exclude"
        ) from error

"""How far each file of a followed directory was shipped: the offset that Spark keeps in its checkpoint.

An offset maps a name to the file that it is of (:mod:`producer.runtime.file_identity`), and to the byte up to which
that was
taken. A name is made of the device and the inode when the file is found first, and never changes::

    {"2049.1234": {"path": "/var/log/app.log", "device": 2049, "inode": 1234, "end": 5120, "generation": 0,
                   "head": 3735928559, "tail": 2596069104}}

* A file is known again by its inode, and by its device or its path: devices may get other numbers when the machine is
  started again. And it has the bytes that were taken, as far as checksums of the first ones, and of some before the
  end, say. Offsets of earlier versions have neither a device nor a tail, and the inode as their name.
* A file that grows is taken from where the last batch ended, so that lines appended to it are shipped.
* A file that was renamed (rotation) has the same inode: it continues under its new name. If the paths do not lead to
  that name (one file was named, or ``*.log``), the directory is searched for the inode.
* A file of several names (hard links), as a rotation by ``ln`` makes for a while, is one file.
* A file that is shorter than what was taken (copytruncate), or holds other bytes (it was written anew, or is a new file
  that was given the inode of a deleted one), begins anew at byte 0.
* A file is taken up to its last line end. What follows is a line that somebody may still be writing; it is taken as it
  is once the file has rested for ``settle`` seconds.
* With logs of several lines it is taken up to its last start line: the log that this begins may go on. Where a log is
  longer than the limit, up to the last line end.
* A compressed file is taken whole, once it has rested. If members are added to it, they are taken once they have.

Everything here is a function of the file system and its arguments, so a batch that is planned again after a restart
comes out the same.
"""

from __future__ import annotations

import contextlib
import io
import os
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NotRequired, TypedDict

from ...runtime.file_identity import head_of, marks_at
from ...wire.compressed_heads import compression_of
from ...wire.encodings import HOLE
from ...wire.log_start import Logs, last_start
from ..errors import InputError
from ..files.find import Found, find_files, is_excluded
from ..files.log_file import LogFile, open_file

# The first bytes tell whether two looks at an inode saw the same file; a log's first line nearly always has a time.
_HEAD_BYTES = 256
_BLOCK_BYTES = 64 << 10


class Taken(TypedDict):
    """How far one file was taken.

    :ivar path: where it was found last.
    :ivar device: the number of its file system when it was found last.
    :ivar inode: its number there.
    :ivar end: the byte after the last one taken.
    :ivar head: CRC-32 of its first bytes, of at most 256 and at most ``end``.
    :ivar tail: a checksum of some windows before ``end``.
    :ivar generation: grows each time that the inode turned out to hold another file than before.
    """

    path: str
    end: int
    head: int
    generation: int
    device: NotRequired[int]
    inode: NotRequired[int]
    tail: NotRequired[int]


#: By name: how far each file was taken.
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
    allow_links_to: Iterable[str] = (),
) -> Offset:
    """The offset after everything that can be taken now. Files that are gone drop out of it; those that are only not
    found, since a directory cannot be listed or a file not be opened at this moment, stay as they were. Files that
    were renamed to names that the paths do not lead to are taken further.

    :param paths: directories, files or globs to follow; one that does not exist yet is looked for again next time.
    :param exclude: glob patterns to leave out.
    :param known: the offset so far.
    :param settle: a file not written to for this long is complete, seconds.
    :param now: the time, seconds since the epoch.
    :param checkpoint: a directory that is never followed: each batch writes there, and so would make another.
    :param logs: how logs of several lines begin; None if each line is one.
    :param look: is shown what the paths came to, with what was left out.
    :param allow_links_to: directories below which links may lead, besides those that are named.
    """
    latest: Offset = {}
    names = _Names(known)
    patterns = tuple(exclude)
    found = find_files(
        paths, exclude=patterns, exclude_directory=checkpoint, allow_links_to=allow_links_to, lenient=True
    )
    look(found)
    paths_so_far = {taken["path"] for taken in known.values()}
    linked: set[tuple[int, int]] = set()
    for file in sorted(found.files, key=lambda each: each.path not in paths_so_far):
        with contextlib.suppress(OSError), open_file(file) as opened:  # deleted, or unreadable, since it was listed
            descriptor = opened.fileno()
            if os.fstat(descriptor).st_nlink > 1:
                if (file.device, file.inode) in linked:
                    continue
                linked.add((file.device, file.inode))
            name, before = names.of(file, descriptor, latest)
            latest[name] = _taken(file, descriptor, before, settle=settle, now=now, logs=logs)
    left_out = {path for path, _ in (*found.skipped, *found.unread)} | {file.path for file in found.files}
    used = {(taken.get("device"), taken.get("inode")) for taken in latest.values()}
    for name, before in known.items():
        renamed = None if name in latest else _open_renamed(name, before)
        if renamed is None:
            continue
        file, opened = renamed
        with opened:
            if not (file.path in left_out or is_excluded(file.path, patterns) or (file.device, file.inode) in used):
                used.add((file.device, file.inode))
                latest[name] = _taken(file, opened.fileno(), before, settle=settle, now=now, logs=logs)
    return latest | {name: taken for name, taken in known.items() if name not in latest and not _is_gone(name, taken)}


def _open_renamed(name: str, taken: Taken) -> tuple[LogFile, io.BufferedReader] | None:
    """Open a file to which the paths do not lead any more, but which is still in its directory; None if it is not, or
    is another file.
    """
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        opened = stack.enter_context(open_file(_as_it_was(name, taken)))
        status, path = os.fstat(opened.fileno()), str(opened.name)
        compression = compression_of(os.pread(opened.fileno(), _HEAD_BYTES, 0))
        file = LogFile(path, status.st_size, compression, status.st_dev, status.st_ino)
        if _is_known_under(path, taken) and _continues(opened.fileno(), file, taken):
            stack.pop_all()
            return file, opened
    return None


def _is_known_under(path: str, taken: Taken) -> bool:
    """Return True if a file with the inode may be the one that was taken. If no byte of it was taken, the name decides:
    the inode of a deleted file is given to the next one.
    """
    return taken["end"] > 0 or os.path.basename(path).startswith(os.path.basename(taken["path"]))


def _as_it_was(name: str, taken: Taken) -> LogFile:
    """Make the file as which it is opened: its directory tells the device, which may have another number now.

    :raises OSError: the directory is not there.
    """
    device = os.stat(os.path.dirname(os.path.realpath(taken["path"]))).st_dev
    return LogFile(taken["path"], taken["end"], None, device, _inode(name, taken))


class _Names:
    """Finds the names of files among those of an offset."""

    def __init__(self, known: Offset) -> None:
        self._known = known
        self._by_inode: dict[int, list[str]] = {}
        for name, taken in known.items():
            self._by_inode.setdefault(_inode(name, taken), []).append(name)

    def of(self, file: LogFile, descriptor: int, used: Offset) -> tuple[str, Taken | None]:
        """Return the name of a file, and how far it was taken; None if it is new, or written anew.

        :param used: names of files that were found already.
        :raises OSError: the file cannot be read.
        """
        inode = (name for name in self._by_inode.get(file.inode, ()) if name not in used)
        alike = [name for name in inode if _may_be(file, self._known[name])]
        alike.sort(key=lambda name: self._known[name]["path"] != file.path)
        for name in alike:
            if _continues(descriptor, file, self._known[name]):
                return name, self._known[name]
        anew = next((name for name in alike if self._known[name].get("device", file.device) == file.device), None)
        if anew is not None:
            return anew, Taken(path=file.path, end=0, head=0, tail=0, generation=self._known[anew]["generation"] + 1)
        name = f"{file.device}.{file.inode}"
        # The number that the device of another file had, or a hard link that an earlier version took for a file.
        return (f"{name}@{file.path}" if name in used or name in self._known else name), None


def _may_be(file: LogFile, taken: Taken) -> bool:
    """Return True if a file with the inode of one that was taken may be that one."""
    return taken.get("device", file.device) == file.device or taken["path"] == file.path


def _is_gone(name: str, taken: Taken) -> bool:
    """Whether a file that was taken and not found is there no more, rather than hidden from us for a while: one that is
    forgotten comes again from its beginning.
    """
    try:
        return os.stat(taken["path"]).st_ino != _inode(name, taken)  # Path refuses no error
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


def _taken(
    file: LogFile, descriptor: int, known: Taken | None, *, settle: float, now: float, logs: Logs | None
) -> Taken:
    begin, generation = (0, 0) if known is None else (known["end"], known["generation"])
    if file.compression is not None and begin not in {0, file.size} and not _begins_member(descriptor, begin):
        begin, generation = 0, generation + 1  # what was taken ended within a member, and all of it is read again
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
    """Whether NULs are at the end of a plain file, in place of what may still be written."""
    return file.compression is None and os.pread(descriptor, len(HOLE), max(0, file.size - len(HOLE))) == HOLE


def _begins_member(descriptor: int, at: int) -> bool:
    return compression_of(os.pread(descriptor, _HEAD_BYTES, at)) is not None


def _continues(descriptor: int, file: LogFile, known: Taken) -> bool:
    return file.size >= known["end"] and _holds(descriptor, known)


def _holds(descriptor: int, known: Taken) -> bool:
    head, tail = _fingerprint(descriptor, known["end"])
    return (head, tail) == (known["head"], known.get("tail", tail))


def _fingerprint(descriptor: int, end: int) -> tuple[int, int]:
    """Checksums of the first bytes, and of windows before the end."""
    marks = b"".join(mark.tail.to_bytes(4, "big") for mark in marks_at(descriptor, end))
    return head_of(descriptor, min(end, _HEAD_BYTES)), zlib.crc32(marks)


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


def _range(name: str, begin: int, taken: Taken) -> Range:
    """
    :raises InputError: nobody can say whether it is there.
    """
    path, inode = taken["path"], _inode(name, taken)
    try:
        file = _as_it_was(name, taken)
        with open_file(file) as opened:
            if os.fstat(opened.fileno()).st_size < file.size or not _holds(opened.fileno(), taken):
                return Range(file, begin, lost=True)
            return Range(replace(file, compression=compression_of(opened.read(_HEAD_BYTES))), begin)
    except (FileNotFoundError, NotADirectoryError):
        return Range(LogFile(path, taken["end"], None, 0, inode), begin, lost=True)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}. Fix that, or leave the file out with --exclude"
        ) from error


def _inode(name: str, taken: Taken) -> int:
    return taken.get("inode") or int(name.partition("@")[0])

"""Quarantine: what is kept aside for people, in ``quarantine/`` beside the file that it came from.

=============================  ====================================================================================
name                           what it is
=============================  ====================================================================================
``log-0000000007.copy``        a copy of a segment with damaged records; the segment itself is still in use
``log-0000000007.link``        such a segment itself, under a second name, since no copy could be written
``log-0000000007.from-722``    a copy of a segment's end from this offset on, where it was cut off as torn
``log-0000000007.unreadable``  a segment without a readable header, moved here
``log-0000000007.unknown``     a segment that was missing when it was given up, and has come back; moved here
``checkpoint.copy``            a checkpoint as it was before the segments that it needs were given up
``notes.db.…``                 notes that could not be read, moved here
=============================  ====================================================================================

A second file of the same name ends in ``.2``, and so on. Nothing here is ever read as a part of the channel, changed or
removed. The names alone are looked at: a segment that was moved here is not missing, but one of which only a copy lies
here is; and the number of a segment in here is given to no other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator, Sequence

from ..store.disk import Disk

QUARANTINE = "quarantine"
_BLOCK = 1 << 20
_NAME = re.compile(r"log-(\d{10,})\.(copy|link|from-\d+|unreadable|unknown)(\.\d+)?")


def copy(disk: Disk, path: str, offset: int | None = None) -> str:
    """Keep a copy of a file, or of its end; where it lies, which is on the disk and was compared.

    :param offset: where the end begins; None for the whole file.
    :raises OSError: it could not be written, or is not what it should be; nothing is left of it.
    """
    target = _free_name(disk, path, "copy" if offset is None else f"from-{offset}")
    _copy(disk, path, target, offset or 0)
    return target


def keep(disk: Disk, path: str) -> bool:
    """Keep a copy of a file, unless one that is equal is kept already; whether one was made.

    If no copy can be written, as on a full disk, or if the file cannot be read as a whole, it gets a second name
    instead, under which it outlives its deletion.

    :raises OSError: neither could be done.
    """
    if any(_is_kept_as(disk, path, other) for other in _copies(disk, path)):
        return False
    try:
        copy(disk, path)
    except OSError as error:
        target = _free_name(disk, path, "link")
        try:
            disk.link(path, target)
            disk.sync_directory(os.path.dirname(target))
        except OSError:
            raise error from None  # why there is no copy tells more
    return True


def _is_kept_as(disk: Disk, path: str, other: str) -> bool:
    try:
        return _are_equal(disk, path, 0, other)
    except OSError:  # of what cannot be read a second name is the most that there can be
        return ".link" in os.path.basename(other)


class Uncopied:
    """Damaged files of which nothing could be kept aside as yet: they must not be deleted.

    :param paths: what is known of them already.
    """

    def __init__(self, disk: Disk, paths: Iterable[str]) -> None:
        self._disk = disk
        self._paths = set(paths)

    def keep(self, path: str) -> bool:
        """As :func:`keep`, and remember the file if it fails."""
        self._paths.add(path)
        made = keep(self._disk, path)
        self._paths.discard(path)
        return made

    def keep_all(self) -> None:
        """Try once more what has failed.

        :raises OSError: it fails again.
        """
        for path in sorted(self._paths):
            self.keep(path)


def move(disk: Disk, path: str, suffix: str) -> str:
    """Move a file here; where it lies now.

    :param suffix: why: the end of the name, as in the table above.
    :raises OSError: it could not be moved, and is where it was.
    """
    target = _free_name(disk, path, suffix)
    try:
        disk.rename(path, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(disk, path, target, 0)  # the quarantine is a link to another disk
        disk.unlink(path)
    for directory in (os.path.dirname(target), os.path.dirname(path)):
        disk.sync_directory(directory)
    return target


def files(disk: Disk, directories: Sequence[str]) -> list[str]:
    """The paths of all that is kept aside from these directories."""
    return list(_files(disk, directories))


def numbers(disk: Disk, directories: Sequence[str], *suffixes: str) -> set[int]:
    """The numbers of the segments of which something is kept aside.

    :param suffixes: only for these reasons; none is for any.
    """
    found = [_NAME.fullmatch(os.path.basename(path)) for path in _files(disk, directories)]
    return {int(match[1]) for match in found if match and (not suffixes or match[2] in suffixes)}


def _files(disk: Disk, directories: Sequence[str]) -> Iterator[str]:
    for directory in directories:
        place = f"{directory}/{QUARANTINE}"
        if disk.exists(place):
            yield from (f"{place}/{name}" for name in disk.names(place))


def _copies(disk: Disk, path: str) -> list[str]:
    directory, name = os.path.split(path)
    starts = tuple(f"{directory}/{QUARANTINE}/{name}.{suffix}" for suffix in ("copy", "link"))
    return [other for other in _files(disk, [directory]) if other.startswith(starts)]


def _free_name(disk: Disk, path: str, suffix: str) -> str:
    """A name in the quarantine that nothing has."""
    directory, name = os.path.split(path)
    disk.make_directory(f"{directory}/{QUARANTINE}")
    target = first = f"{directory}/{QUARANTINE}/{name}.{suffix}"
    number = 1
    while disk.exists(target):
        number += 1
        target = f"{first}.{number}"
    return target


def _copy(disk: Disk, path: str, target: str, offset: int) -> None:
    try:
        _write(disk, target, _blocks(disk, path, offset))
        if not _are_equal(disk, path, offset, target):
            raise OSError(errno.EIO, "the copy differs from the file", target)
        disk.sync_directory(os.path.dirname(target))
    except BaseException:
        with contextlib.suppress(OSError):
            disk.unlink(target)
        raise


def _write(disk: Disk, target: str, blocks: Iterator[bytes]) -> None:
    file = disk.create(target)
    try:
        for data in blocks:
            left = memoryview(data)
            while left:
                left = left[disk.append(file, bytes(left)) :]
        disk.sync(file)
    finally:
        disk.close(file)


def _are_equal(disk: Disk, path: str, offset: int, other: str) -> bool:
    """Whether ``other`` holds exactly what ``path`` does from ``offset`` on."""
    if disk.size_of(path) - offset != disk.size_of(other):
        return False
    return all(one == two for one, two in zip(_blocks(disk, path, offset), _blocks(disk, other, 0), strict=True))


def _blocks(disk: Disk, path: str, offset: int) -> Iterator[bytes]:
    file = disk.open(path)
    try:
        while data := disk.read(file, _BLOCK, offset):
            yield data
            offset += len(data)
    finally:
        disk.close(file)

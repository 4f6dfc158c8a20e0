"""Quarantine: damaged files kept for inspection, in ``quarantine/`` beside their origin.

=============================  ====================================================================================
name                           content
=============================  ====================================================================================
``log-0000000007.copy``        a copy of a segment with damaged records; the segment stays in use
``log-0000000007.link``        a second name of such a segment, since no copy could be written
``log-0000000007.from-722``    a copy of a segment's torn end from this offset on, which was cut off
``log-0000000007.unreadable``  a segment without a readable header, moved here
``log-0000000007.unknown``     a segment that came back after a checkpoint without it; moved here
``checkpoint.copy``            a checkpoint from before its missing segments were abandoned
``notes.db.…``                 notes that could not be read, moved here
=============================  ====================================================================================

A second file of the same name ends in ``.2``, and so on. Nothing here is ever read as a part of the channel,
changed or removed. Only the names matter: a segment that was moved here does not count as missing, one with only a copy
here does. The numbers of segments in here are not reused.
"""  # prose: a table

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Iterator, Sequence

from ..store.disk import Disk, opened_file

QUARANTINE = "quarantine"
_BLOCK = 1 << 20
_NAME = re.compile(r"log-(\d{10,})\.(copy|link|from-\d+|unreadable|unknown)(\.\d+)?")


def copy(disk: Disk, path: str, offset: int | None = None) -> str:
    """Copy a file, or its end, to quarantine; return the path of the copy, which was synced and compared.

    :param offset: the start of the end; None for the whole file.
    :raises OSError: the copy could not be written, or differs; nothing remains of it.
    """
    target = _free_name(disk, path, "copy" if offset is None else f"from-{offset}")
    _copy(disk, path, target, offset or 0)
    return target


def keep(disk: Disk, path: str) -> bool:
    """Copy a file to quarantine, unless an equal copy exists; True if one was made.

    If the copy fails, as on a full disk or with an unreadable file, the file gets a second name instead, which outlives
    its deletion.

    :raises OSError: neither was possible.
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
            raise error from None  # the error of the copy is more specific
    return True


def _is_kept_as(disk: Disk, path: str, other: str) -> bool:
    try:
        return _are_equal(disk, path, 0, other)
    except OSError:  # unreadable: only a second name is possible
        return ".link" in os.path.basename(other)


class Uncopied:
    """Damaged files without a copy in quarantine, which must not be deleted.

    :param paths: the files known so far.
    """

    def __init__(self, disk: Disk, paths: Iterable[str]) -> None:
        self._disk = disk
        self._paths = set(paths)

    def keep(self, path: str) -> bool:
        """Copy the file with :func:`keep`, and remember it if that fails."""
        self._paths.add(path)
        made = keep(self._disk, path)
        self._paths.discard(path)
        return made

    def keep_all(self) -> None:
        """Try the failed copies again.

        :raises OSError: one fails again.
        """
        for path in sorted(self._paths):
            self.keep(path)


def move(disk: Disk, path: str, suffix: str) -> str:
    """Move a file to quarantine; return its new path.

    :param suffix: the reason: the end of the name, as in the table above.
    :raises OSError: it could not be moved, and is unchanged.
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
    """Return the paths of all files in the quarantines of these directories."""
    return list(_files(disk, directories))


def numbers(disk: Disk, directories: Sequence[str], *suffixes: str) -> set[int]:
    """Return the numbers of the segments with files in quarantine.

    :param suffixes: the reasons to include; none for all.
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
    """Return an unused path in the quarantine."""
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
    """True if ``other`` holds exactly the bytes of ``path`` from ``offset`` on."""
    if disk.size_of(path) - offset != disk.size_of(other):
        return False
    return all(one == two for one, two in zip(_blocks(disk, path, offset), _blocks(disk, other, 0), strict=True))


def _blocks(disk: Disk, path: str, offset: int) -> Iterator[bytes]:
    with opened_file(disk, path) as file:
        while data := disk.read(file, _BLOCK, offset):
            yield data
            offset += len(data)

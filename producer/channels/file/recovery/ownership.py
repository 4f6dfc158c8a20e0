"""Ownership: one channel per directory, by ``flock`` on the directory and on a lock file that names the owner.

Only the lock file is locked where the file system cannot lock directories, and by older packages. Deleting it does not
admit another owner, unless it is the only lock. So the owner checks that it still exists.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ....model.errors import ChannelFormatError, ChannelIOError, ChannelLockedError
from ....runtime.clock import Clock
from ..store.directories import Directories
from ..store.disk import Disk
from ..store.notes import COMPANIONS, NOTES_NAME
from ..store.segment import BEGUN
from ..store.space import RESERVE_NAME
from .checkpoint import BACKUP_NAME, NAME
from .quarantine import QUARANTINE
from .replay import SEGMENT_NAME

LOCK_NAME = "LOCK"
CHECKPOINT_NAMES = (NAME, BACKUP_NAME, f"{NAME}.new", f"{BACKUP_NAME}.new")
#: Other files of a channel beside its segments.
OTHER_NAMES = (RESERVE_NAME, *(f"{NOTES_NAME}{suffix}" for suffix in ("", *COMPANIONS)))
#: ``lost+found`` exists at the root of a separate file system.
_OURS = {LOCK_NAME, QUARANTINE, *CHECKPOINT_NAMES, *OTHER_NAMES, "lost+found"}
_MOST = 1 << 16
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(slots=True)
class Ownership:
    """Locks of one channel's directories; closing the files releases them.

    :ivar files: each locked file with its path: the directory itself, if it can be locked, and its lock file.
    """

    disk: Disk
    files: list[tuple[int, str]]

    def lost(self) -> str | None:
        """Return the path of a lock that was removed or replaced, so that another process may own the directory; else
        None.
        """
        return next((path for file, path in self.files if not self.disk.has_name(file, path)), None)

    def release(self) -> None:
        """Release the directories for another channel."""
        self._close_files(self.disk.unlock)

    def release_in_child(self) -> None:
        """Close the files in a forked child, without unlocking: the locks are the parent's."""
        self._close_files(self.disk.close)

    def _close_files(self, how: Callable[[int], None]) -> None:
        files, self.files = self.files, []
        for file, _ in files:
            with contextlib.suppress(OSError):
                how(file)


def own(place: Directories, clock: Clock, *, make: bool = True, give_up_missing: bool = False) -> Ownership:
    """Lock all directories of a channel, or none.

    :param make: True to create missing directories.
    :param give_up_missing: True to treat a data directory that was emptied as a new one.
    :raises ChannelFormatError: a path is a file, or holds other files, or is missing and ``make`` is False.
    :raises ChannelLockedError: another channel owns a directory.
    :raises ChannelIOError: a directory cannot be created or written, or the channel's files in it are gone.
    """
    ownership = Ownership(place.disk, [])
    try:
        main, *others = place.all
        _lock(place, main, ownership, make=make)
        if not give_up_missing:
            _check_mounted(place, others)
        for directory in others:
            _lock(place, directory, ownership, make=make)
        text = json.dumps(_owner(place, clock)).encode()
        for file, path in ownership.files:
            if path.endswith(f"/{LOCK_NAME}"):
                _write_owner(place, path.removesuffix(f"/{LOCK_NAME}"), file, text)
    except BaseException:
        ownership.release()
        raise
    return ownership


def _lock(place: Directories, directory: str, ownership: Ownership, *, make: bool) -> None:
    disk, name, path = place.disk, place.name, f"{directory}/{LOCK_NAME}"
    try:
        if disk.exists(directory) and not disk.is_directory(directory):
            raise ChannelFormatError(name, f"{directory} is a file: give the path of a directory")
        if make:
            disk.make_directory(directory)
        elif not disk.exists(directory):
            raise ChannelFormatError(name, f"{directory} is not a directory")
        check_contents(name, directory, disk.names(directory))
        locked = disk.lock_directory(directory)
        if locked is not None:
            ownership.files.append((locked, directory))
        new = not disk.exists(path)
        ownership.files.append((disk.lock(path), path))
        if new:
            disk.sync_directory(directory)  # before any other file refers to it
    except BlockingIOError:
        raise ChannelLockedError(name, _in_use_message(directory, read_owner(disk, directory))) from None
    except NotADirectoryError as error:
        raise ChannelFormatError(name, f"{directory}: a part of the path is a file: give another directory") from error
    except OSError as error:
        raise _unusable(name, directory, error) from error


def _write_owner(place: Directories, directory: str, file: int, text: bytes) -> None:
    try:
        place.disk.rewrite(file, text)
    except OSError as error:
        if error.errno not in _FULL:  # the text is informative only, and events can still be read
            raise _unusable(place.name, directory, error) from error


def _unusable(name: str, directory: str, error: OSError) -> ChannelIOError:
    advice = (
        "free some space" if error.errno in _FULL else "give a directory that this user may write, or change its owner"
    )
    return ChannelIOError(name, f"{directory} cannot be used: {error}: {advice}", error.errno or 0)


def _check_mounted(place: Directories, others: Sequence[str]) -> None:
    """Refuse a data directory that the channel has used and that has no lock file: it is not mounted."""
    used = read_owner(place.disk, place.main).get("directories")
    for directory in others:
        if isinstance(used, list) and directory in used and not place.disk.exists(f"{directory}/{LOCK_NAME}"):
            message = (
                f"{directory} is one of the channel's directories, but the channel's files are gone: is its disk "
                "mounted? If they are lost, producer channel repair --give-up-missing continues without them"
            )
            raise ChannelIOError(place.name, message, errno.ENOENT)


def is_segment(name: str) -> bool:
    """True if a file of this name is a segment."""
    return SEGMENT_NAME.fullmatch(name) is not None


def check_contents(name: str, directory: str, names: Sequence[str]) -> None:
    """Check that a directory is a channel's, or empty.

    :raises ChannelFormatError: it holds other files.
    """
    if LOCK_NAME in names:
        return
    strange = [other for other in names if other not in _OURS and not is_segment(other.removesuffix(BEGUN))]
    if strange:
        message = (
            f"{directory} holds files that are not a channel's ({', '.join(strange[:3])}"
            f"{', …' if len(strange) > 3 else ''}): give an empty directory, or the path of a new one"
        )
        raise ChannelFormatError(name, message)


def _owner(place: Directories, clock: Clock) -> dict[str, Any]:
    owner = {"channel": place.name, "host": socket.gethostname(), "pid": os.getpid(), "since": int(clock.time())}
    return owner | ({"directories": place.all} if len(place.all) > 1 else {})


def read_owner(disk: Disk, directory: str) -> dict[str, Any]:
    """Return the content of the lock file, written by the last owner; empty if it is unreadable."""
    try:
        owner = json.loads(disk.load(f"{directory}/{LOCK_NAME}", _MOST))
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _in_use_message(directory: str, owner: dict[str, Any]) -> str:
    owned_by = "another process"
    if owner:
        here = " (this process)" if (owner.get("host"), owner.get("pid")) == (socket.gethostname(), os.getpid()) else ""
        owned_by = f"the channel {owner.get('channel')!r} of process {owner.get('pid')}{here} on {owner.get('host')}"
    return (
        f"{directory} is in use by {owned_by}: close that one, or give each process a directory of its own "
        "(ProcessFileChannel)"
    )

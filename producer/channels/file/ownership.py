"""Ownership: one channel a directory, told by ``flock`` on a file whose text says who it is."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...clock import Clock
from ...errors import ChannelFormatError, ChannelIOError, ChannelLockedError
from .checkpoint import BACKUP_NAME, NAME
from .disk import Disk
from .notes import COMPANIONS, NOTES_NAME
from .replay import SEGMENT_NAME
from .space import RESERVE_NAME

LOCK_NAME = "LOCK"
QUARANTINE = "quarantine"
_OURS = {
    LOCK_NAME,
    QUARANTINE,
    RESERVE_NAME,
    NAME,
    BACKUP_NAME,
    f"{NAME}.new",
    f"{BACKUP_NAME}.new",
    *(f"{NOTES_NAME}{suffix}" for suffix in ("", *COMPANIONS)),
    "lost+found",  # what a file system of its own brings along
}
_MOST = 4096


@dataclass(slots=True)
class Ownership:
    """The locks of one channel's directories; closing the files gives them up.

    :ivar files: the open lock files.
    """

    disk: Disk
    files: list[int]

    def release(self) -> None:
        """Let another channel have the directories."""
        self._give_up(self.disk.unlock)

    def release_in_child(self) -> None:
        """Close this process's copies, in a forked child: the locks are the parent's."""
        self._give_up(self.disk.close)

    def _give_up(self, how: Callable[[int], None]) -> None:
        files, self.files = self.files, []
        for file in files:
            with contextlib.suppress(OSError):
                how(file)


def own(disk: Disk, name: str, directories: Iterable[str], clock: Clock) -> Ownership:
    """Make the directories, and lock all of them or none.

    :raises ChannelFormatError: one is a file, or holds files of something else.
    :raises ChannelLockedError: one belongs to somebody.
    :raises ChannelIOError: one cannot be made or written.
    """
    ownership = Ownership(disk, [])
    try:
        for directory in dict.fromkeys(directories):
            _own_one(disk, name, directory, clock, ownership)
    except BaseException:
        ownership.release()
        raise
    return ownership


def _own_one(disk: Disk, name: str, directory: str, clock: Clock, ownership: Ownership) -> None:
    try:
        if disk.exists(directory) and not disk.is_directory(directory):
            raise ChannelFormatError(name, f"{directory} is a file: give the path of a directory")
        disk.make_directory(directory)
        check_contents(name, directory, disk.names(directory))
        ownership.files.append(disk.lock(f"{directory}/{LOCK_NAME}"))
        disk.rewrite(ownership.files[-1], json.dumps(_owner(name, clock)).encode())
    except BlockingIOError:
        raise ChannelLockedError(name, _told(directory, read_owner(disk, directory))) from None
    except NotADirectoryError as error:
        raise ChannelFormatError(name, f"{directory}: a part of the path is a file: give another") from error
    except (ChannelFormatError, ChannelIOError):
        raise
    except OSError as error:
        advice = "give a directory that this user may write, or change its owner"
        number = error.errno or 0
        raise ChannelIOError(name, f"{directory} cannot be used: {error}: {advice}", number) from error


def check_contents(name: str, directory: str, names: Sequence[str]) -> None:
    """Whether a directory is a channel's, or empty.

    :raises ChannelFormatError: it holds files of something else.
    """
    if LOCK_NAME in names:
        return
    strange = [other for other in names if other not in _OURS and not SEGMENT_NAME.fullmatch(other)]
    if strange:
        message = (
            f"{directory} holds files that are not a channel's ({', '.join(strange[:3])}"
            f"{', …' if len(strange) > 3 else ''}): give an empty directory, or the path of a new one"
        )
        raise ChannelFormatError(name, message)


def _owner(name: str, clock: Clock) -> dict[str, Any]:
    return {"channel": name, "host": socket.gethostname(), "pid": os.getpid(), "since": int(clock.time())}


def read_owner(disk: Disk, directory: str) -> dict[str, Any]:
    """Who wrote the lock file last; empty if it does not tell."""
    try:
        owner = json.loads(disk.load(f"{directory}/{LOCK_NAME}", _MOST))
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _told(directory: str, owner: dict[str, Any]) -> str:
    who = "another process"
    if owner:
        here = " (this process)" if (owner.get("host"), owner.get("pid")) == (socket.gethostname(), os.getpid()) else ""
        who = f"the channel {owner.get('channel')!r} of process {owner.get('pid')}{here} on {owner.get('host')}"
    return (
        f"{directory} belongs to {who}: close that one, or give each process a directory of its own "
        "(FileChannel.for_process)"
    )

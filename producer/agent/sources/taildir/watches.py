"""Watches: notification by the kernel when a resting file is written, instead of polling. Linux, inotify(7).

Each watch is on an inode, not on a path, and ends with its first notification. A file that is written all the time is
polled, and causes no notifications. Without inotify, or when its limit is reached, files are only polled. Some file
systems do not notify, such as one that another machine writes to. A device is not trusted any more after several
changes without a notification.

The C library is called by ctypes, as inotify_simple does. That package would save the 25 lines of these calls, and an
agent without extras would only poll.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections import Counter

from ....runtime.file_identity import Key

_MODIFY, _ATTRIBUTES, _MOVED, _DELETED, _ONCE = 0x2, 0x4, 0x800, 0x400, 0x80000000
_OVERFLOW = 0x4000
#: Fields of struct inotify_event: watch, mask, cookie, length of the name.
_EVENT = struct.Struct("iIII")
_READ_BYTES = 1 << 16
#: Changes in a row without a notification after which a device is not trusted; one notification may just be late.
_MOST_MISSED = 3


class Watches:
    """Set of watched files; all methods are called on one thread."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._library: ctypes.CDLL | None = None
        self._of: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}
        self._missed: Counter[int] = Counter()

    def __contains__(self, key: Key) -> bool:
        return key in self._of

    def add(self, key: Key, descriptor: int) -> bool:
        """Watch a file; return False if that is impossible. Any write after the return is notified.

        :param descriptor: a descriptor of the file.
        """
        if key in self._of:
            return True
        if not self.trusts(key[0]) or not self._opened() or self._library is None:
            return False
        wanted = _MODIFY | _ATTRIBUTES | _MOVED | _DELETED | _ONCE
        watch = self._library.inotify_add_watch(self._descriptor, b"/proc/self/fd/%d" % descriptor, wanted)
        if watch < 0:
            self._missed[key[0]] = _MOST_MISSED  # no watches are left: stop trying
            return False
        self._of[key] = watch
        self._keys[watch] = key
        return True

    def notified(self) -> list[Key]:
        """Return the files written, renamed or deleted since the last call; their watches have ended."""
        found: list[Key] = []
        while self._of and (events := self._read()):
            at = 0
            while at < len(events):
                watch, what, _, size = _EVENT.unpack_from(events, at)
                at += _EVENT.size + size
                if what & _OVERFLOW:
                    found += self._of
                    self.close()  # other notifications are of no use
                    return found
                key = self._keys.pop(watch, None)
                if key is not None:
                    del self._of[key]
                    self._missed.pop(key[0], None)
                    found.append(key)
        return found

    def missed(self, key: Key) -> None:
        """Count a change of a file that was not notified."""
        self.drop(key)
        self._missed[key[0]] += 1

    def trusts(self, device: int) -> bool:
        """Return True if the device's file system notifies, as far as known."""
        return self._missed[device] < _MOST_MISSED

    def drop(self, key: Key) -> None:
        """Remove the watch of a file."""
        watch = self._of.pop(key, None)
        if watch is not None and self._library is not None:
            del self._keys[watch]
            self._library.inotify_rm_watch(self._descriptor, watch)

    def close(self) -> None:
        """Remove all watches; others can be added later."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
        self._of.clear()
        self._keys.clear()

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return b""

    def _opened(self) -> bool:
        if self._descriptor >= 0:
            return True
        if self._library is None:
            self._library = _library()
        if self._library is None:
            return False
        self._descriptor = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        return self._descriptor >= 0


def _library() -> ctypes.CDLL | None:
    """Return the C library; None if it has no inotify."""
    try:
        library = ctypes.CDLL(None)
        library.inotify_init1, library.inotify_add_watch, library.inotify_rm_watch  # noqa: B018  # fails if missing
    except (OSError, AttributeError, TypeError):
        return None
    return library

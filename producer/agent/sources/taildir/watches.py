"""Watches: the kernel tells when a file that rests is written, so that nobody has to look. Source: Linux, inotify(7).

Each watch is on the inode, not on a path, and ends when it has told once: what is written all the time is looked at all
the time, and makes no events. Where there is no inotify, or none is left, there are no watches, and files are looked at
as before. The same holds for a file system that does not tell, such as one that is written on another machine: it
is not believed any more once files had changed of which nothing was told.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections import Counter

from ....runtime.file_identity import Key

_MODIFY, _ATTRIBUTES, _MOVED, _DELETED, _ONCE = 0x2, 0x4, 0x800, 0x400, 0x80000000
_OVERFLOW = 0x4000
#: Watch, what happened, which belong together, and how many bytes of a name follow.
_EVENT = struct.Struct("iIII")
_READ_BYTES = 1 << 16
#: A device is not believed any more after so many changes in a row of which it told nothing: one may be told too late.
_MOST_MISSED = 3


class Watches:
    """See the module; every method belongs to one thread."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._library: ctypes.CDLL | None = None
        self._of: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}
        self._missed: Counter[int] = Counter()

    def __contains__(self, key: Key) -> bool:
        return key in self._of

    def add(self, key: Key, descriptor: int) -> bool:
        """Watch a file; False where that cannot be. What is written after it returns is told.

        :param descriptor: of the file, opened.
        """
        if key in self._of:
            return True
        if not self.believes(key[0]) or not self._opened() or self._library is None:
            return False
        wanted = _MODIFY | _ATTRIBUTES | _MOVED | _DELETED | _ONCE
        watch = self._library.inotify_add_watch(self._descriptor, b"/proc/self/fd/%d" % descriptor, wanted)
        if watch < 0:
            self._missed[key[0]] = _MOST_MISSED  # there are no more, and nobody tries each time
            return False
        self._of[key] = watch
        self._keys[watch] = key
        return True

    def told(self) -> list[Key]:
        """The files that were written, renamed or deleted since it was asked last; they are watched no more."""
        found: list[Key] = []
        while self._of and (events := self._read()):
            at = 0
            while at < len(events):
                watch, what, _, size = _EVENT.unpack_from(events, at)
                at += _EVENT.size + size
                if what & _OVERFLOW:
                    found += self._of
                    self.close()  # whatever else it would tell is of no use now
                    return found
                key = self._keys.pop(watch, None)
                if key is not None:
                    del self._of[key]
                    self._missed.pop(key[0], None)
                    found.append(key)
        return found

    def missed(self, key: Key) -> None:
        """A file had changed of which nothing was told."""
        self.drop(key)
        self._missed[key[0]] += 1

    def believes(self, device: int) -> bool:
        """Whether files of a device can be watched, as far as is known."""
        return self._missed[device] < _MOST_MISSED

    def drop(self, key: Key) -> None:
        """Watch it no more."""
        watch = self._of.pop(key, None)
        if watch is not None and self._library is not None:
            del self._keys[watch]
            self._library.inotify_rm_watch(self._descriptor, watch)

    def close(self) -> None:
        """Watch nothing more; it can be used again."""
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
    """The C library, if it has inotify."""
    try:
        library = ctypes.CDLL(None)
        library.inotify_init1, library.inotify_add_watch, library.inotify_rm_watch  # noqa: B018  # are they there?
    except (OSError, AttributeError, TypeError):
        return None
    return library

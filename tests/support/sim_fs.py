"""A simulated file system: a :class:`~producer.channels.file.store.disk.Disk` in memory that can lose its power.

It keeps apart what a process sees, what was synced of each file's bytes, and what was synced of each directory's
entries. :meth:`SimFS.crash` tells how the disk may be found after the power failed, :meth:`SimFS.kill` after only the
process died. Both return a new disk, the next life of this one, which is then dead: calls of a thread that is still
running fail and change nothing; only operations that never fail return, and files can be closed.
"""

from __future__ import annotations

import errno
import posixpath
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import NamedTuple, Self

from tests.support.sim_fault import Fault
from tests.support.sim_file import SimFile
from tests.support.sim_tree import SimDirectory, SimTree, error, parts

#: Read-only operations: they do not count towards :meth:`SimFS.die_after`.
LOOKS = frozenset({"open", "read", "names", "free", "load"})
#: Operations that have no effect when the disk dies in them; the others have been carried out.
SYNCS = frozenset({"sync", "sync_directory"})
#: Operations that report no failure, neither on a real disk nor on a dead one.
SAFE = frozenset({"close", "exists", "is_directory", "size", "size_of"})
#: Free bytes of a disk without a limit.
PLENTY = 1 << 40
#: File numbers are unique over all disks: those of one life are unknown in the next.
_NUMBERS = count(1000)


class Call(NamedTuple):
    """One entry of :attr:`SimFS.calls`.

    :ivar operation: the method.
    :ivar path: the path of the call; for an open file, the path that the file has then.
    :ivar size: bytes to append, or the size to truncate to; 0 for the rest.
    :ivar failed: whether it raised, or wrote less than it was given.
    """

    operation: str
    path: str
    size: int = 0
    failed: bool = False


@dataclass(slots=True)
class _Handle:
    file: SimFile
    path: str
    locked: bool = False


@dataclass(slots=True)
class _Medium:
    """The state that outlives a process; guarded by the lock of the live disk."""

    tree: SimTree = field(default_factory=SimTree)
    capacity: int | None = None


class _Calling:
    """One call of the disk, under its lock; a class and not a generator, since there are millions of calls."""

    __slots__ = ("_dies", "_disk", "_fault", "_name", "_path", "_size")

    def __init__(self, disk: SimFS, name: str, path: str, size: int) -> None:
        self._disk, self._name, self._path, self._size = disk, name, path, size
        self._dies = False
        self._fault: Fault | None = None

    def __enter__(self) -> Fault | None:
        disk = self._disk
        if disk.hook is not None:
            disk.hook(self._name, self._path)
        disk._lock.acquire()
        try:
            self._dies = disk._dies(self._name, self._path)
            self._fault = disk._fault(self._name, self._path)
        except OSError:
            self._end(failed=True)
            raise
        return self._fault

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(failed=kind is not None or self._dies or self._fault is not None)
        if kind is None and self._dies:
            raise error(errno.EIO, self._path)

    def _end(self, *, failed: bool) -> None:
        self._disk.calls.append(Call(self._name, self._path, self._size, failed))
        self._disk._lock.release()


class SimFS:
    """A simulated disk; methods without a docstring are those of ``Disk``.

    :param capacity: bytes that all files together may have; None for no limit. May be changed at any time.
    :ivar calls: every call, in order.
    :ivar hook: called before each operation with its name and path, without the lock: it may wait, or raise. A sync
        calls it once more, as ``"sync ends"``: what is written between the two may, or may not, be on the disk then.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._lock = threading.Lock()  # guards all attributes below, and the medium; never held while the hook runs
        self._medium = _Medium(capacity=capacity)
        self._handles: dict[int, _Handle] = {}
        self._faults: list[Fault] = []
        self._operations_left: int | None = None
        self._dead = False
        self.calls: list[Call] = []
        self.hook: Callable[[str, str], None] | None = None

    # The interface for tests.

    @property
    def capacity(self) -> int | None:
        """Bytes that all files together may have; None for no limit."""
        return self._medium.capacity

    @capacity.setter
    def capacity(self, value: int | None) -> None:
        self._medium.capacity = value

    @property
    def used(self) -> int:
        """Bytes of all files, including open ones that have no name any more."""
        with self._lock:
            return self._used()

    @property
    def dead(self) -> bool:
        """True if the power is off or the process is dead."""
        return self._dead

    @property
    def open_files(self) -> list[str]:
        with self._lock:
            return sorted(handle.path for handle in self._handles.values())

    def count(self, operation: str, part: str = "") -> int:
        """Return how often an operation was called for a path that contains ``part``."""
        with self._lock:
            return sum(call.operation == operation and part in call.path for call in self.calls)

    def content(self, path: str) -> bytes:
        """Return a file's bytes as a process sees them; not counted as a call."""
        with self._lock:
            return bytes(self._medium.tree.file(path).content)

    def put(self, path: str, content: bytes) -> None:
        """Make or replace a file, synced to the disk; not counted as a call."""
        with self._lock:
            self._medium.tree.put(path, SimFile.on_disk(content))

    def fail(
        self,
        operation: str,
        nth: int = 1,
        number: int | None = errno.EIO,
        times: int | None = 1,
        *,
        written: int = 0,
    ) -> Fault:
        """Let the ``nth`` call of an operation, counted from here, fail, and the calls after it.

        A failed sync leaves the bytes clean: they are not on the disk, and no later sync puts them there. A failed
        sync of a directory leaves its changes to the next.

        :param operation: a method's name; ``"*"`` counts the calls of all.
        :param number: the ``errno`` of the ``OSError``; None for an append that writes ``written`` bytes and says so.
        :param times: number of calls that fail; None for all.
        :param written: how many bytes an append writes before it fails; never all of them.
        """
        fault = Fault(operation, nth - 1, times, number, written)
        with self._lock:
            self._faults.append(fault)
        return fault

    def heal(self) -> None:
        with self._lock:
            self._faults.clear()

    def die_after(self, operations: int | None) -> None:
        """Let the power fail in an operation, after so many that are not read-only; None to cancel."""
        with self._lock:
            self._operations_left = operations

    def crash(self, seed: int) -> Self:
        """Cut the power; ``seed`` decides which unsynced bytes have reached the disk."""
        with self._lock:
            self._dead = True
        return self.after_crash(seed)

    def after_crash(self, seed: int) -> Self:
        """Return the disk that :meth:`crash` would leave at this moment; this disk stays in use."""
        random = Random(seed)
        kept = random.choice((0.0, 0.3, 0.5, 0.7, 0.95, 1.0))
        with self._lock:
            after = type(self)(self._medium.capacity)
            after._medium.tree = self._medium.tree.after_crash(random, kept)
            return after

    def kill(self) -> Self:
        """Kill the process; the machine keeps all that was written."""
        with self._lock:
            self._dead = True
            after = type(self)()
            after._medium = self._medium
            return after

    def copy(self) -> Self:
        """Return a copy of this disk as a process sees it, all of it synced."""
        with self._lock:
            other = type(self)(self._medium.capacity)
            other._medium.tree = self._medium.tree.copy()
            return other

    # The interface for a channel.

    def create(self, path: str) -> int:
        with self._call("create", path):
            file = SimFile()
            self._medium.tree.make(path, file)
            return self._open(file, path)

    def open(self, path: str) -> int:
        with self._call("open", path):
            return self._open(self._medium.tree.file(path), path)

    def open_to_read(self, path: str) -> int:
        return self.open(path)

    def append(self, file: int, data: bytes, end: int | None = None) -> int:
        with self._call("append", self._path(file), len(data)) as fault:
            handle = self._opened(file)
            end = len(handle.file.content) if end is None else end
            room = self._room(end, len(data), handle, fault)
            handle.file.write(end, bytes(data[:room]))
            if fault is not None and fault.number is not None:
                raise error(fault.number, handle.path)
            if data and not room and fault is None:
                raise error(errno.ENOSPC, handle.path)
            return room

    def preallocate(self, file: int, start: int, end: int) -> None:
        with self._call("preallocate", self._path(file), end - start) as fault:
            handle = self._opened(file)
            room = self._room(start, end - start, handle, fault)
            handle.file.write(start, bytes(room))
            if start + room < end:
                raise error(errno.ENOSPC if fault is None else fault.number or errno.EIO, handle.path)

    def read(self, file: int, size: int, offset: int) -> bytes:
        with self._call("read", self._path(file)):
            return bytes(self._opened(file).file.content[offset : offset + size])

    def size(self, file: int) -> int:
        with self._call("size", self._path(file)):
            return len(self._opened(file).file.content)

    def size_of(self, path: str) -> int:
        with self._call("size_of", path):
            return len(self._medium.tree.file(path).content)

    def truncate(self, file: int, size: int) -> None:
        with self._call("truncate", self._path(file), size):
            handle = self._opened(file)
            self._must_fit(size - len(handle.file.content), handle.path)
            handle.file.truncate(size)

    def sync(self, file: int) -> None:
        with self._call("sync", self._path(file)) as fault:
            handle = self._opened(file)
            if fault is not None:
                handle.file.fail_sync()
                raise error(fault.number or errno.EIO, handle.path)
            begun = handle.file.begin_sync()
        if self.hook is not None:
            self.hook("sync ends", handle.path)
        with self._lock:
            if self._dead:
                raise error(errno.EIO, handle.path)
            handle.file.end_sync(begun)

    def close(self, file: int) -> None:
        with self._call("close", self._path(file)):
            self._opened(file)
            del self._handles[file]

    def unlock(self, file: int) -> None:
        self.close(file)

    def sync_directory(self, path: str) -> None:
        with self._call("sync_directory", path):
            self._medium.tree.sync(path)

    def rename(self, old: str, new: str) -> None:
        with self._call("rename", old):
            file = self._medium.tree.file(old)
            self._medium.tree.rename(old, new)
            for handle in self._handles.values():
                if handle.file is file:
                    handle.path = new

    def link(self, path: str, other: str) -> None:
        with self._call("link", path):
            self._medium.tree.make(other, self._medium.tree.file(path))

    def unlink(self, path: str) -> None:
        with self._call("unlink", path):
            self._medium.tree.unlink(path)

    def names(self, path: str) -> list[str]:
        with self._call("names", path):
            return sorted(self._medium.tree.directory(path).entries)

    def make_directory(self, path: str) -> None:
        names = parts(path)
        for depth in range(1, len(names) + 1):
            here = "/" + "/".join(names[:depth])
            if not self.is_directory(here):
                self._make_directory(here)
                self.sync_directory(posixpath.dirname(here))

    def _make_directory(self, path: str) -> None:
        with self._call("make_directory", path):
            self._medium.tree.make(path, SimDirectory())

    def is_directory(self, path: str) -> bool:
        with self._call("is_directory", path):
            return isinstance(self._medium.tree.find(path), SimDirectory)

    def exists(self, path: str) -> bool:
        with self._call("exists", path):
            return self._medium.tree.find(path) is not None

    def free(self, path: str) -> int:
        with self._call("free", path):
            self._medium.tree.directory(path)
            return PLENTY if self.capacity is None else max(0, self.capacity - self._used())

    def allocate(self, file: int, size: int) -> None:
        with self._call("allocate", self._path(file), size):
            handle = self._opened(file)
            if size > len(handle.file.content):
                self._must_fit(size - len(handle.file.content), handle.path)
                handle.file.truncate(size)

    def lock(self, path: str) -> int:
        with self._call("lock", path):
            if self._medium.tree.find(path) is None:
                self._medium.tree.make(path, SimFile())
            file = self._medium.tree.file(path)
            if any(handle.locked and handle.file is file for handle in self._handles.values()):
                raise error(errno.EAGAIN, path)
            return self._open(file, path, locked=True)

    def lock_directory(self, path: str) -> int | None:  # as on NFS
        return None

    def has_name(self, file: int, path: str) -> bool:
        with self._lock:
            return self._dead or self._medium.tree.find(path) is self._opened(file).file

    def is_locked(self, path: str) -> bool:
        with self._lock:
            return any(handle.locked and handle.path == path for handle in self._handles.values())

    def rewrite(self, file: int, data: bytes) -> None:
        with self._call("rewrite", self._path(file), len(data)):
            handle = self._opened(file)
            self._must_fit(len(data) - len(handle.file.content), handle.path)
            handle.file.truncate(0)
            handle.file.write(0, data)

    def overwrite(self, file: int, data: bytes, offset: int) -> None:
        with self._call("overwrite", self._path(file), len(data)):
            handle = self._opened(file)
            self._must_fit(offset + len(data) - len(handle.file.content), handle.path)
            handle.file.write(offset, data)

    def load(self, path: str, limit: int) -> bytes:
        with self._call("load", path):
            return bytes(self._medium.tree.file(path).content[:limit])

    # Internal methods.

    def _call(self, name: str, path: str, size: int = 0) -> _Calling:
        """Log a call and apply its fault; return the fault to operations that have an effect despite it."""
        return _Calling(self, name, path, size)

    def _dies(self, name: str, path: str) -> bool:
        if name in SAFE:
            return False
        if self._dead:
            raise error(errno.EIO, path)
        if self._operations_left is None or name in LOOKS:
            return False
        self._operations_left -= 1
        self._dead = self._operations_left < 0
        if self._dead and name in SYNCS:
            raise error(errno.EIO, path)
        return self._dead

    def _fault(self, name: str, path: str) -> Fault | None:
        if not self._faults or name in SAFE:
            return None
        struck = [fault for fault in self._faults if fault.strikes(name)]
        if struck and name not in ("append", "preallocate", "sync"):
            raise error(struck[0].number or errno.EIO, path)
        return struck[0] if struck else None

    def _room(self, end: int, wanted: int, handle: _Handle, fault: Fault | None) -> int:
        """Return the number of bytes that an append writes."""
        room = wanted if fault is None else min(max(0, wanted - 1), fault.written)
        there = max(0, len(handle.file.content) - end)  # preallocated
        return room if self.capacity is None else min(room, there + max(0, self.capacity - self._used()))

    def _must_fit(self, more: int, path: str) -> None:
        if self.capacity is not None and more > max(0, self.capacity - self._used()):
            raise error(errno.ENOSPC, path)

    def _used(self) -> int:
        files = {*self._medium.tree.root.files(), *(handle.file for handle in self._handles.values())}
        return sum(len(file.content) for file in files)

    def _open(self, file: SimFile, path: str, *, locked: bool = False) -> int:
        number = next(_NUMBERS)
        self._handles[number] = _Handle(file, path, locked)
        return number

    def _opened(self, file: int) -> _Handle:
        if file not in self._handles:
            raise error(errno.EBADF, str(file))
        return self._handles[file]

    def _path(self, file: int) -> str:
        handle = self._handles.get(file)
        return str(file) if handle is None else handle.path

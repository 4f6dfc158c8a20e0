"""Simulate the directories of a disk, as a process sees them and as they are synced."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from tests.support.sim_file import SimFile


class SimDirectory:
    def __init__(self) -> None:
        self.entries: dict[str, SimNode] = {}
        self.durable: dict[str, SimNode] = {}

    def files(self) -> Iterator[SimFile]:
        for node in self.entries.values():
            if isinstance(node, SimFile):
                yield node
            else:
                yield from node.files()

    def after_crash(self, random: Random, kept: float) -> SimDirectory:
        """Return a directory as a crash may leave it, once each change was applied or dropped."""
        after = SimDirectory()
        for name, node in sorted(self.durable.items()):
            found: SimNode
            if isinstance(node, SimDirectory):
                found = node.after_crash(random, kept)
            else:
                found = SimFile.on_disk(node.after_crash(random, kept))
            after.entries[name] = after.durable[name] = found
        return after

    def copy(self) -> SimDirectory:
        """Return a copy as a process sees it, all of it synced."""
        other = SimDirectory()
        for name, node in self.entries.items():
            copied = node.copy() if isinstance(node, SimDirectory) else SimFile.on_disk(bytes(node.content))
            other.entries[name] = other.durable[name] = copied
        return other


SimNode = SimFile | SimDirectory


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of directory entries, which reaches the disk as a whole or not at all.

    :ivar directory: the directory whose entry was added or removed.
    :ivar name: that name.
    :ivar node: the node with that name; None if the name was removed.
    :ivar source: the previous directory and name of the node; None if it is new.
    """

    directory: SimDirectory
    name: str
    node: SimNode | None
    source: tuple[SimDirectory, str] | None = None

    def concerns(self, directory: SimDirectory) -> bool:
        """Return True if a sync of this directory saves the change."""
        return self.directory is directory or (self.source is not None and self.source[0] is directory)

    def apply(self, *, certain: bool) -> None:
        """Apply the change to the disk; ``certain`` also applies it if the node's old name is not on the disk."""
        if self.node is None:
            self.directory.durable.pop(self.name, None)
            return
        if self.source is not None:
            source, before = self.source
            if source.durable.get(before) is self.node:
                del source.durable[before]
            elif not certain:
                return
        self.directory.durable[self.name] = self.node


class SimTree:
    """All directories, and their changes since the last sync; guarded by the disk's lock."""

    def __init__(self, root: SimDirectory | None = None) -> None:
        self.root = root or SimDirectory()
        self._unsynced: list[_Change] = []

    def find(self, path: str) -> SimNode | None:
        node: SimNode = self.root
        for part in parts(path):
            if not isinstance(node, SimDirectory) or part not in node.entries:
                return None
            node = node.entries[part]
        return node

    def directory(self, path: str) -> SimDirectory:
        node = self.find(path)
        if not isinstance(node, SimDirectory):
            raise error(errno.ENOENT if node is None else errno.ENOTDIR, path)
        return node

    def file(self, path: str) -> SimFile:
        node = self.find(path)
        if not isinstance(node, SimFile):
            raise error(errno.ENOENT if node is None else errno.EISDIR, path)
        return node

    def make(self, path: str, node: SimNode) -> None:
        directory, name = self._place(path)
        if name in directory.entries:
            raise error(errno.EEXIST, path)
        directory.entries[name] = node
        self._unsynced.append(_Change(directory, name, node))

    def put(self, path: str, file: SimFile) -> None:
        """Add a file at a path, synced to the disk."""
        directory, name = self._place(path)
        directory.entries[name] = directory.durable[name] = file

    def rename(self, old: str, new: str) -> None:
        """Rename a file within a directory or to another one."""
        directory, name = self._place(old)
        to, new_name = self._place(new)
        file = self.file(old)
        del directory.entries[name]
        to.entries[new_name] = file
        self._unsynced.append(_Change(to, new_name, file, (directory, name)))

    def unlink(self, path: str) -> None:
        self.file(path)
        directory, name = self._place(path)
        del directory.entries[name]
        self._unsynced.append(_Change(directory, name, None))

    def sync(self, path: str) -> None:
        """Sync a directory's entries."""
        directory = self.directory(path)
        saved = [change for change in self._unsynced if change.concerns(directory)]
        for change in saved:
            change.apply(certain=True)
        moved = {id(change.node) for change in saved if change.source is not None}
        self._unsynced = [
            change for change in self._unsynced if not change.concerns(directory) and id(change.node) not in moved
        ]

    def after_crash(self, random: Random, kept: float) -> SimTree:
        """Return a tree as a crash may leave it; this tree is unusable afterwards."""
        for change in self._unsynced:
            if random.random() < kept:
                change.apply(certain=False)
        return SimTree(self.root.after_crash(random, kept))

    def copy(self) -> SimTree:
        return SimTree(self.root.copy())

    def _place(self, path: str) -> tuple[SimDirectory, str]:
        names = parts(path)
        return self.directory("/" + "/".join(names[:-1])), names[-1]


@lru_cache(maxsize=10_000)
def parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in posixpath.normpath(path).split("/") if part not in ("", "."))


def error(number: int, path: str) -> OSError:
    """Return the error that the operating system would raise."""
    return OSError(number, os.strerror(number), path)

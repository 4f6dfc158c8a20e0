"""Simulate one file: its visible bytes, and the bytes found after a power failure.

Bytes reach the disk in sectors. A sector written since the last sync may be found as it was then, or as any of the
writes since left it. Sectors are independent of each other. A sync that fails leaves its sectors *clean*: reads see
their bytes, no later sync writes them, and they may or may not have reached the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

#: Bytes of a sector, which reach the disk together.
SECTOR = 512


@dataclass(frozen=True, slots=True)
class _Written:
    """The bytes of a sector after one write; shorter than a sector at the end of the file."""

    sector: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Cut:
    size: int


@dataclass(frozen=True, slots=True)
class Syncing:
    """A sync in progress: the size, the dirty sectors and the changes at its start."""

    size: int
    sectors: Mapping[int, bytes]
    changes: tuple[_Written | _Cut, ...]


class SimFile:
    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = b""
        self._unsynced: list[_Written | _Cut] = []
        self._dirty: set[int] = set()

    @classmethod
    def on_disk(cls, content: bytes) -> SimFile:
        """Return a file whose bytes are all on the disk."""
        file = cls()
        file.content += content
        file.durable = content
        return file

    @property
    def unsynced(self) -> bool:
        """True if a power failure could change the file."""
        return bool(self._unsynced)

    def write(self, offset: int, data: bytes) -> None:
        """Change bytes in place, or at the end."""
        if not data:
            return
        self.content[offset : offset + len(data)] = data
        for sector in range(offset // SECTOR, (offset + len(data) - 1) // SECTOR + 1):
            self._touch(sector)

    def truncate(self, size: int) -> None:
        if size > len(self.content):
            self.write(len(self.content), bytes(size - len(self.content)))
        elif size < len(self.content):
            del self.content[size:]
            self._unsynced.append(_Cut(size))
            self._dirty = {sector for sector in self._dirty if sector * SECTOR < size}
            if size % SECTOR:
                self._touch(size // SECTOR)

    def _touch(self, sector: int) -> None:
        self._dirty.add(sector)
        self._unsynced.append(_Written(sector, self._sector(sector)))

    def _sector(self, sector: int) -> bytes:
        return bytes(self.content[sector * SECTOR : (sector + 1) * SECTOR])

    def sync(self) -> None:
        """Put all dirty sectors and the size on the disk."""
        self.end_sync(self.begin_sync())

    def begin_sync(self) -> Syncing:
        """Start a sync of the dirty sectors; later writes are not part of it."""
        begun = Syncing(
            len(self.content), {sector: self._sector(sector) for sector in self._dirty}, tuple(self._unsynced)
        )
        self._dirty = set()
        return begun

    def end_sync(self, begun: Syncing) -> None:
        """Put the sectors that were dirty at the start of the sync, and the size of that time, on the disk."""
        disk = bytearray(self.durable)
        for change in begun.changes:
            if isinstance(change, _Cut):
                del disk[change.size :]
        _resize(disk, begun.size)
        for sector, data in begun.sectors.items():
            disk[sector * SECTOR : (sector + 1) * SECTOR] = data
        self.durable = bytes(disk)
        covered = set(map(id, begun.changes))
        self._unsynced = [
            change
            for change in self._unsynced
            if id(change) not in covered
            # Clean since a failed sync: no later sync writes it, though it may have reached the disk.
            or (
                isinstance(change, _Written)
                and change.sector not in begun.sectors
                and change.sector * SECTOR < len(disk)
            )
        ]

    def fail_sync(self) -> None:
        """Mark the sectors clean, whether or not they reached the disk."""
        self._dirty.clear()

    def after_crash(self, random: Random, kept: float) -> bytes:
        """Return one of the possible contents; ``kept`` is the share of unsynced sectors on the disk."""
        disk = bytearray(self.durable)
        found = self._choose(random, kept)
        for position, change in enumerate(self._unsynced):
            if isinstance(change, _Written):
                if found[change.sector] == position:
                    _put(disk, change)
            elif random.random() < kept:
                del disk[change.size :]
        if len(disk) < len(self.content) and random.random() < kept / 4:
            _resize(disk, len(self.content))  # some file systems save the size before the bytes
        return bytes(disk)

    def _choose(self, random: Random, kept: float) -> dict[int, int]:
        """Choose for each sector the last write that reached the disk; -1 for none."""
        writes: dict[int, list[int]] = {}
        for position, change in enumerate(self._unsynced):
            if isinstance(change, _Written):
                writes.setdefault(change.sector, []).append(position)
        chosen = {}
        for sector, positions in writes.items():
            newest = positions[-1] if random.random() < 0.7 else random.choice(positions)
            chosen[sector] = newest if random.random() < kept else -1
        return chosen


def _resize(disk: bytearray, size: int) -> None:
    del disk[size:]
    disk.extend(bytes(size - len(disk)))


def _put(disk: bytearray, written: _Written) -> None:
    start = written.sector * SECTOR
    if len(disk) < start:
        _resize(disk, start)
    there = min(len(disk) - start, SECTOR)
    disk[start : start + there] = written.data.ljust(there, b"\0")

"""KnownFiles: the names of all files that were read, with their notes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ....channels.file.store.notes import FileNotes
from ....runtime.clock import Clock
from ....runtime.file_identity import Key
from ....runtime.link_targets import LinkTargets
from ....runtime.loggers import get_logger
from ...events.interfaces import Outlet
from ..reading.identity import (
    FileName,
    Note,
    held_part,
    holds,
    is_compressed,
    open_quickly,
    parse_name,
    parse_note,
)
from ..reading.reader import FileReader

_log = get_logger("loghub.agent.taildir")

_PREFIX, _STARTED = "file:", "started"
#: Seconds between two writes of notes.
_NOTE_INTERVAL = 1.0


class KnownFiles:
    """Registry of the names of all files that were read, with their notes.

    :param state: the directory of the notes.
    :ivar first_start: True if the source was never started before.
    """

    def __init__(self, outlet: Outlet, state: Path, name: str, clock: Clock) -> None:
        state.mkdir(parents=True, exist_ok=True)
        self._outlet, self._clock = outlet, clock
        self._notes = FileNotes(str(state), name)
        self._next_write = clock.monotonic()
        self._changed: dict[FileName, FileReader] = {}
        try:
            self._read()
        except BaseException:  # the disk may be full; the next run opens the notes again
            self._notes.close()
            raise

    def _read(self) -> None:
        outlet = self._outlet
        kept = {name.removeprefix(_PREFIX): raw for name, raw in self._notes.items(_PREFIX).items()}
        texts = outlet.names()
        self.first_start = not texts and self._notes.read(_STARTED) is None
        self._of: dict[FileName, Note | None] = {}
        for text in texts:
            file = parse_name(text)
            if file is not None:
                self._of[file] = parse_note(kept.pop(text, None))
        for stray in kept:
            self._notes.remove(_PREFIX + stray)
        self._held_by: dict[Key, FileName] = {}
        self._in_place: dict[tuple[int, str], FileName] = {}
        self._generations: dict[int, int] = {}
        for file in sorted(self._of, key=lambda each: each.generation):
            self._add(file, self._of[file])
        #: Names without a reader.
        self.orphans: set[FileName] = set(self._of)
        self._notes.write(_STARTED, b"", -1)

    def _add(self, name: FileName, note: Note | None) -> None:
        key = (name.device, name.inode) if note is None else (note.device, note.inode)
        self._held_by[key] = name
        if note is not None:
            self._in_place[note.inode, note.place] = name
        self._generations[name.inode] = max(name.generation, self._generations.get(name.inode, -1))

    def held_by(self, key: Key, path: str) -> FileName | None:
        """Return the name without a reader whose bytes an inode had when it was last seen.

        Devices may be renumbered when the machine restarts; then the path has to be the same.
        """
        for name in (self._held_by.get(key), self._in_place.get((key[1], path))):
            if name in self.orphans:
                return name
        return None

    def note_of(self, name: FileName) -> Note | None:
        """Return the note of a name; None if it has none."""
        return self._of.get(name)

    def next_generation(self, inode: int) -> int:
        """Return the generation of a new name for an inode."""
        return self._generations.get(inode, -1) + 1

    def begin(self, readers: Iterable[FileReader]) -> None:
        """Note readers that got names and are about to put their first blocks.

        The notes are written before the put. Otherwise a process killed in between could not recognize a copy.
        """
        rows = [(reader.name, reader.note()) for reader in readers if reader.name is not None]
        for name, note in rows:
            self._of[name] = note
            self._add(name, note)
        self._write(rows)

    def adopt(self, reader: FileReader) -> None:
        """Register that a reader continues its name."""
        assert reader.name is not None  # noqa: S101  # its callers give it one
        note = reader.note()
        self._of[reader.name] = note
        self._add(reader.name, note)
        self.orphans.discard(reader.name)
        self.touch(reader)

    def touch(self, reader: FileReader) -> None:
        """Mark the note of a reader's file as changed."""
        if reader.name is not None:
            self._changed[reader.name] = reader

    def leave(self, reader: FileReader) -> None:
        """Register that a reader's file is gone; its name has no reader."""
        if reader.name is None:
            return
        note = reader.note()
        note.gone = self._clock.time()
        self._of[reader.name] = note
        self.orphans.add(reader.name)
        self._changed.pop(reader.name, None)
        self._write([(reader.name, note)])

    def lost(self, names: Iterable[FileName]) -> list[FileName]:
        """Note names whose files cannot be found, in one write; return those newly lost."""
        rows = [(name, note) for name in names if (note := self._newly_lost(name)) is not None]
        self._write(rows)
        return [name for name, _ in rows]

    def _newly_lost(self, name: FileName) -> Note | None:
        note = self._of.get(name)
        if note is None:
            note = self._of[name] = Note("", "", "", name.device, name.inode, 0, 0, 0, 0)
        if note.gone is not None and note.gone <= self._clock.time():
            return None
        note.gone = self._clock.time()
        return note

    def in_directory(self, directory: str) -> Iterator[tuple[FileName, Note]]:
        """Yield the names without a reader whose files were in a directory, with their notes."""
        for name in sorted(self.orphans, key=lambda each: -each.generation):
            note = self._of.get(name)
            if note is not None and note.path and note.place.rpartition("/")[0] == directory.rstrip("/"):
                yield name, note

    def forget(self, after: float) -> None:
        """Forget names whose files have been gone for a long time.

        :param after: the minimum time since then, seconds.
        """
        now = self._clock.time()
        for name in list(self.orphans):
            note = self._of.get(name)
            if note is not None and note.gone is not None and now - note.gone >= after:
                self._outlet.forget(str(name))
                self._notes.remove(_PREFIX + str(name))
                self.orphans.discard(name)
                del self._of[name]

    def write(self, *, now: float | None = None) -> None:
        """Write the changed notes.

        :param now: monotonic seconds, to write only when the interval has passed; None to write at once.
        """
        if now is not None and now < self._next_write:
            return
        changed, self._changed = self._changed, {}
        rows = [(name, reader.note()) for name, reader in changed.items()]
        self._of.update(rows)
        self._write(rows)
        self._next_write = self._clock.monotonic() + _NOTE_INTERVAL

    def close(self) -> None:
        """Write the changed notes, and close the file of notes."""
        try:
            self.write()
        finally:
            self._notes.close()

    def _write(self, rows: Iterable[tuple[FileName, Note]]) -> None:
        self._notes.write_many([(f"{_PREFIX}{name}", note.dump(), -1) for name, note in rows])


class Copy(NamedTuple):
    """A file that holds the bytes read under a name.

    :ivar whole: True if it holds all of them; False for a copy made before the last bytes were written.
    """

    path: str
    key: Key
    whole: bool
    size: int


def find_copy(
    name: FileName, note: Note, end: int, taken: Mapping[Key, FileReader], links_to: LinkTargets
) -> Copy | None:
    """Return the file beside the old one that holds most of the bytes read under a name.

    :param end: a channel's position in the file.
    :param taken: files with a reader.
    :param links_to: the rule for links that are followed.
    """
    try:
        beside = [path for path in paths_beside(note, links_to) if path != note.place]
    except FileNotFoundError:
        return None  # the directory is gone, too
    except OSError as error:
        _log.warning("%s: no copy was searched: %s", note.place.rpartition("/")[0], error.strerror)
        return None
    best: Copy | None = None
    for path in beside:
        copy = None if key_of(path) in taken else copy_at(path, name, note, end)  # key_of() opens no file
        if copy is None or copy.key in taken:
            continue
        if copy.whole:
            return copy
        best = copy if best is None or copy.size > best.size else best
    return best


def paths_beside(note: Note, links_to: LinkTargets) -> list[str]:
    """Return the files in the same directory whose names begin like that of a file; for a link, also beside its target.

    :raises OSError: the directory cannot be read.
    """
    found = _paths_like(note.place, stem_of(note.path))
    if os.path.islink(note.place) and links_to.allow(target := os.path.realpath(note.place)):
        found += _paths_like(target, stem_of(target))
    return found


def _paths_like(path: str, stem: str) -> list[str]:
    directory = path.rpartition("/")[0]
    return sorted(f"{directory}/{each}" for each in os.listdir(directory or "/") if each.startswith(stem))


def key_of(path: str) -> Key | None:
    """Return the device and inode of a path; None if there is no such file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def copy_at(path: str, name: FileName, note: Note, end: int) -> Copy | None:
    """Return a file if it holds the bytes read under a name."""
    try:
        descriptor = open_quickly(path)
    except OSError:
        return None  # no permission, or deleted
    try:
        status = os.fstat(descriptor)
        whole = holds(descriptor, name, note, end)
        if not note.end or not (whole or held_part(descriptor, name, note)) or is_compressed(descriptor):
            return None
        return Copy(path, (status.st_dev, status.st_ino), whole, status.st_size)
    except OSError:
        return None  # such as a directory
    finally:
        os.close(descriptor)


def stem_of(path: str) -> str:
    """Return the beginning of a file's name that its rotated files share."""
    return path.rpartition("/")[2].partition(".")[0]

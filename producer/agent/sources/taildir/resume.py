"""Beginnings: the position at which a file is read first: the stored one, one in a copy, or byte 0."""

from __future__ import annotations

import os

from ....runtime.clock import Stop
from ....runtime.file_identity import Key
from ....runtime.link_targets import LinkTargets
from ....runtime.loggers import get_logger
from ....text.plural import counted
from ....wire.encodings import last_line_end
from ...events.batch import Position
from ...events.interfaces import Context, Outlet
from ..reading.cutting import BLOCK_BYTES, Rules
from ..reading.identity import HEAD_BYTES, FileName, Heads, Note, holds
from ..reading.pods import pod_headers
from ..reading.reader import FileReader
from .compressed import UnpackedReader, find_packed
from .file_registry import Copy, KnownFiles, copy_at, find_copy, stem_of
from .flume_positions import read_flume_positions
from .groups import Group
from .options import TaildirOptions
from .readers import Readers

_log = get_logger("loghub.agent.taildir")

#: Bytes of existing files above which the very first start logs a warning.
_MUCH_BYTES = 1 << 30
#: A multiple of the size of a character in encodings whose line end is longer than a byte.
_ALIGNED = 4


class Beginnings:
    """Starter of readers at the right position.

    :param links_to: the rule for links that are followed.
    :ivar first: True during the first scan, whose files existed when the source was started.
    """

    def __init__(
        self,
        options: TaildirOptions,
        context: Context,
        outlet: Outlet,
        known: KnownFiles,
        readers: Readers,
        stop: Stop,
        links_to: LinkTargets,
    ) -> None:
        self._stop, self._links_to = stop, links_to
        self._options, self._outlet, self._known, self._readers = options, outlet, known, readers
        self._clock, self._state = context.clock, context.state
        self._groups = {group.name: group for group in options.groups()}
        self._rules = Rules(
            None if options.containers() else options.logs(),
            options.max_line_bytes,
            options.settle,
            options.multiline_timeout,
            options.containers(),
            options.encoding,
            options.delimiter,
        )
        self._flumes = read_flume_positions(options.position_file) if known.first_start else {}
        self._name = context.name
        #: Number and bytes of the files that the very first start reads from their beginning.
        self._whole_files, self._whole_bytes = 0, 0
        self.first = True

    def open(self, path: str, group: Group | None, key: Key) -> bool:
        """Start to read a file: under its known name, as the copy of another, or under a new name.

        :param group: the file's group; None to read it only if it is known.
        :returns: True if it is read.
        :raises OSError: the file cannot be read.
        """
        reader = self._reader(path, "" if group is None else group.name, key)
        try:
            size = os.fstat(reader.open()).st_size
            if not self._recognize(reader):
                if group is None:
                    reader.close()
                    return False
                if self.first:
                    self._skip(reader, size, at_end=self.skips(group))
                    self._whole_files += reader.position == 0
                    self._whole_bytes += size if reader.position == 0 else 0
        except OSError:
            reader.close()
            raise
        self._begin(reader)
        return True

    def skips(self, group: Group) -> bool:
        """Return True if files of a group are read from their end: in the first scan of the very first start."""
        return self.first and self._known.first_start and group.at_end

    def begin_anew(self, reader: FileReader) -> None:
        """Read a file from byte 0 under a new name: its old bytes are gone, or a new file has its inode."""
        fresh = self._reader(reader.place, reader.group, reader.key)
        self._begin(fresh)

    def is_known(self, path: str, descriptor: int, key: Key) -> bool:
        """Return True if a file holds the bytes that were read of it; an inode may have been reused.

        :raises OSError: the file cannot be read.
        """
        name = self._known.held_by(key, path)
        return name is not None and holds(descriptor, name, self._known.note_of(name), self._outlet.ends(str(name))[-1])

    def give_name(self, reader: FileReader, first: bytes) -> FileName:
        """Name a reader by its first bytes, which are about to be put or skipped."""
        return reader.name_by(first, self._known.next_generation(reader.key[1]))

    def resume_in_copy(self, reader: FileReader) -> bool:
        """Continue a reader's name in a copy; return True if there is one.

        Also return True if the source stops during the search: the next run searches again.
        """
        if reader.name is None:
            return False
        name, note = reader.name, reader.note()
        found = find_copy(name, note, reader.position, self._readers.by_key, self._links_to)
        is_read = (found is not None and self._read_copy(name, found)) or self._read_packed(name, note)
        return is_read or self._stop.is_set()

    def end_first(self) -> None:
        """End the first scan: search copies of known files that no directory has, and report those that are lost."""
        lost: list[FileName] = []
        for name in list(self._known.orphans):
            if self._stop.is_set():
                return
            note, ends = self._known.note_of(name), self._outlet.ends(str(name))
            if note is not None and note.path:
                found = find_copy(name, note, ends[-1], self._readers.by_key, self._links_to)
                if (found is not None and self._read_copy(name, found)) or self._read_packed(name, note):
                    continue
                if self._stop.is_set():  # the search may be incomplete
                    return
            lost.append(name)
        for name in self._known.lost(lost):
            note, begin = self._known.note_of(name), self._outlet.ends(str(name))[0]
            if note is not None and note.size > begin:
                _log.error("%s: %d unread bytes were deleted", note.place, note.size - begin)
        self.first, self._flumes = False, {}
        if self._known.first_start and self._whole_bytes > _MUCH_BYTES:
            _log.warning(
                "source %s: the first start reads %s with %.1f GiB from their beginning. To read only new lines, set"
                ' start_at = "end"; to leave out old files, set ignore_older. Both are for sources without positions:'
                " remove this one's, or rename it",
                *(self._name, counted(self._whole_files, "file"), self._whole_bytes / (1 << 30)),
            )

    def _reader(self, path: str, group: str, key: Key) -> FileReader:
        return FileReader(path, group, key, self._rules, self._clock.monotonic())

    def _begin(self, reader: FileReader) -> None:
        self.give_headers(reader, self._groups.get(reader.group))
        self._readers.add(reader)

    def give_headers(self, reader: FileReader, group: Group | None) -> None:
        """Set a reader's group, and the headers of all its events."""
        if group is not None:
            reader.group = group.name
        reader.headers = dict(group.headers) if group is not None else {}
        if self._options.pod_headers:
            reader.headers |= pod_headers(reader.path)
        if self._options.file_header:
            shown = os.fsencode(reader.path).decode(errors="backslashreplace")
            reader.headers[self._options.file_header_key] = shown

    def _recognize(self, reader: FileReader) -> bool:
        """Continue a known name if the file holds its bytes; return False if none matches."""
        name = self._known.held_by(reader.key, reader.place)
        if name is not None:
            if self._resume(reader, name):
                return True
            _log.warning("%s no longer has the bytes that were read: it was truncated or replaced", reader.place)
        heads = Heads(reader.open())
        for other, note in self._known.in_directory(reader.directory):
            if other == name or not heads.are_of(other) or not reader.file_name.startswith(stem_of(note.path)):
                continue
            end = self._outlet.ends(str(other))[-1]
            found = copy_at(reader.place, other, note, end)
            if found is not None and not found.whole:
                # Another copy may hold more.
                found = find_copy(other, note, end, self._readers.by_key, self._links_to)
            if found is not None and found.key == reader.key and self._resume(reader, other):
                return True
        return False

    def _resume(self, reader: FileReader, name: FileName) -> bool:
        """Continue a name in a reader's file; return False if the file does not hold its bytes.

        :raises OSError: the file cannot be read.
        """
        note, ends = self._known.note_of(name), self._outlet.ends(str(name))
        if not reader.resume(name, note, ends):
            return False
        if note is not None and note.path:
            reader.path, reader.group = note.path, note.group or reader.group
        self._known.adopt(reader)
        return True

    def _read_copy(self, name: FileName, copy: Copy) -> bool:
        reader = self._reader(copy.path, "", copy.key)
        try:
            if not self._resume(reader, name):
                return False
        except OSError as error:
            _log.error("%s, a copy of a followed file, cannot be read: %s", copy.path, error.strerror)
            return False
        _log.info("%s: reading its unread bytes from %s", reader.path, copy.path)
        reader.located = reader.directory == os.path.dirname(reader.path)  # else no scan sees when it is deleted
        self._begin(reader)
        return True

    def _read_packed(self, name: FileName, note: Note) -> bool:
        """Continue a name in a compressed file; return True if there is one."""
        ends = self._outlet.ends(str(name))
        packed = find_packed(name, note, ends, self._readers.by_key, self._state, self._stop, self._links_to)
        if packed is None:
            return False
        reader = UnpackedReader(packed, note.group, note, self._rules, self._clock.monotonic())
        if not self._resume(reader, name):
            return False
        _log.info("%s: reading its unread bytes from %s", reader.path, packed.path)
        self._begin(reader)
        return True

    def _skip(self, reader: FileReader, size: int, *, at_end: bool) -> None:
        """Skip a new file's beginning, as ``start_at`` or Flume's positions say."""
        start = self._start(reader, size, at_end=at_end)
        if start:
            name = self.give_name(reader, os.pread(reader.open(), min(HEAD_BYTES, start), 0))
            if reader.resume(name, None, [start]):
                self._outlet.pass_over(Position(str(name), start))
                self._known.adopt(reader)
            else:
                reader.name = None  # truncated just now: read it from byte 0

    def _start(self, reader: FileReader, size: int, *, at_end: bool) -> int:
        flumes = self._flumes.get(reader.key[1])
        if flumes is not None and flumes <= size:
            return flumes
        if not at_end:
            return 0
        begin = max(0, size - BLOCK_BYTES) // _ALIGNED * _ALIGNED
        tail = os.pread(reader.open(), size - begin, begin)
        return begin + last_line_end(tail, 0, reader.line_end)

"""Beginnings: where the reading of a file begins: where it ended before, in a copy, or at its first byte."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from ...batch import Position
from ...interfaces import Context, Outlet
from ..reading.identity import FileName, Key
from ..reading.reader import BLOCK_BYTES, FileReader, Rules
from .flume_positions import read_flume_positions
from .groups import Group
from .known import KnownFiles, find_copy, key_if_copy, stem_of
from .options import TaildirOptions
from .readers import Readers

_log = logging.getLogger("producer.agent.taildir")


class Beginnings:
    """See the module.

    :ivar first: whether files that are found now were there when the source was started.
    """

    def __init__(
        self, options: TaildirOptions, context: Context, outlet: Outlet, known: KnownFiles, readers: Readers
    ) -> None:
        self._options, self._outlet, self._known, self._readers = options, outlet, known, readers
        self._clock = context.clock
        self._groups = {group.name: group for group in options.groups()}
        self._rules = Rules(options.logs(), options.max_line_bytes, options.settle, options.multiline_timeout)
        self._flumes = read_flume_positions(options.position_file) if known.first_start else {}
        self._skipping = known.first_start and options.skip_to_end
        self.first = True

    def open(self, path: str, group: Group | None, key: Key) -> bool:
        """Read a file from now on: under the name that it had, as the copy of another, or as a new one.

        :param group: to which it belongs; None to read it only if it is known.
        :returns: whether it is read.
        :raises OSError: it cannot be.
        """
        reader = self._reader(path, "" if group is None else group.name, key)
        try:
            size = os.fstat(reader.open()).st_size
            if not self._recognize(reader):
                if group is None:
                    reader.close()
                    return False
                if self.first:
                    self._skip(reader, size)
        except OSError:
            reader.close()
            raise
        self._begin(reader)
        return True

    def begin_anew(self, reader: FileReader) -> None:
        """What is in a reader's file now is not what it read: begin at the first byte."""
        fresh = self._reader(reader.place, reader.group, reader.key)
        fresh.path = reader.path
        self._begin(fresh)

    def give_name(self, reader: FileReader, end: int) -> None:
        """Its first bytes, up to ``end``, are about to be put, or passed over."""
        reader.name = reader.name_for(end, self._known.next_generation(reader.key[1]))

    def go_on_in_copy(self, reader: FileReader) -> bool:
        """Whether there is a copy of what a reader had; it is read from now on."""
        if reader.name is None:
            return False
        found = find_copy(reader.name, reader.note(), reader.position, self._readers.by_key)
        return found is not None and self._read_copy(reader.name, *found)

    def end_first(self) -> None:
        """All directories were looked into. What was read before, and has no file in them, may be in a copy, or is
        gone.
        """
        for name in list(self._known.orphans):
            note, ends = self._known.note_of(name), self._outlet.ends(str(name))
            if note is not None and note.path:
                found = find_copy(name, note, ends[-1], self._readers.by_key)
                if found is not None and self._read_copy(name, *found):
                    continue
            if self._known.lost(name) and note is not None and note.size > ends[0]:
                _log.error("%s: %d bytes were gone before they were read", note.place, note.size - ends[0])
        self.first, self._skipping, self._flumes = False, False, {}

    def _reader(self, path: str, group: str, key: Key) -> FileReader:
        return FileReader(path, group, key, self._rules, self._clock.monotonic())

    def _begin(self, reader: FileReader) -> None:
        group = self._groups.get(reader.group)
        reader.headers = dict(group.headers) if group is not None else {}
        if self._options.file_header:
            shown = os.fsencode(reader.path).decode(errors="backslashreplace")
            reader.headers[self._options.file_header_key] = shown
        self._readers.add(reader)

    def _recognize(self, reader: FileReader) -> bool:
        """Whether it holds what was read under a name: its own, or that of a file of which it is a copy."""
        name = self._known.held_by(reader.key, reader.place)
        if name is not None:
            ends = self._outlet.ends(str(name))
            if reader.holds(name, self._known.note_of(name), ends[-1]):
                self._go_on(reader, name, ends)
                return True
            _log.warning("%s does not hold what was read of it any more: it was cut or replaced", reader.place)
        for other, note in self._known.in_directory(reader.directory):
            ends = self._outlet.ends(str(other))
            alike = other != name and reader.file_name.startswith(stem_of(note.path))
            if alike and key_if_copy(reader.place, other, note, ends[-1]) == reader.key:
                self._go_on(reader, other, ends)
                return True
        return False

    def _go_on(self, reader: FileReader, name: FileName, ends: Sequence[int]) -> None:
        reader.go_on(name, ends)
        note = self._known.note_of(name)
        if note is not None and note.path:
            reader.path, reader.group = note.path, note.group or reader.group
        self._known.adopt(reader)

    def _read_copy(self, name: FileName, path: str, key: Key) -> bool:
        reader = self._reader(path, "", key)
        try:
            self._go_on(reader, name, self._outlet.ends(str(name)))
        except OSError as error:
            _log.error("%s, a copy of what was being read, cannot be read: %s", path, error.strerror)
            return False
        _log.info("%s: what was not read of it is read in %s", reader.path, path)
        self._begin(reader)
        return True

    def _skip(self, reader: FileReader, size: int) -> None:
        """Where a file begins that was there when the source was started for the first time."""
        start = self._start(reader, size)
        if start:
            self.give_name(reader, start)
            self._outlet.pass_over(Position(str(reader.name), start))
            assert reader.name is not None  # noqa: S101  # it was just given
            self._go_on(reader, reader.name, [start])

    def _start(self, reader: FileReader, size: int) -> int:
        flumes = self._flumes.get(reader.key[1])
        if flumes is not None and flumes <= size:
            return flumes
        if not self._skipping:
            return 0
        tail = os.pread(reader.open(), BLOCK_BYTES, max(0, size - BLOCK_BYTES))
        return size - len(tail) + tail.rfind(b"\n") + 1

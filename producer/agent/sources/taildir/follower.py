"""Follower: which files there are, what becomes of each when it is written, rotated, cut or deleted, and whose turn
it is.

This file is longer than others since it is one list of rules: each method is what happens in one case of rotation.
"""

from __future__ import annotations

import logging
import os
import stat
from collections import deque
from collections.abc import Mapping, Sequence

from ...batch import Position
from ...interfaces import Context, Outlet, Stop
from .batches import BatchMaker
from .flume_positions import read_flume_positions
from .groups import Directories, Entry, Group, Scan
from .identity import FileName, Key, is_compressed, open_quickly
from .known import KnownFiles, find_copy, key_if_copy
from .options import TaildirOptions
from .reader import BLOCK_BYTES, ContentChangedError, FileReader, Rules

_log = logging.getLogger("producer.agent.taildir")

#: Blocks of one file before others have their turn.
_BLOCKS_A_TURN = 8
#: Files that have not been written for long are looked at, so many a second.
_QUIET_LOOKS = 800
#: A scan may take a 50th of the time.
_SCAN_SHARE = 50
#: Seconds between two tries to open what could not be.
_RETRY = 1.0
#: A file that begins like one that is being read may be a copy in the making until it has rested so long, seconds.
_COPY_SETTLE = 3.0
#: Seconds between two looks for positions to forget.
_FORGET_INTERVAL = 600.0


class _Waiting:
    """A file that is not read yet: it cannot be, or may be a copy.

    :ivar trouble: why it cannot be.
    """

    def __init__(self, group: Group | None, now: float, trouble: str | None) -> None:
        self.group, self.since, self.trouble, self.size = group, now, trouble, -1
        self.next_try = now if trouble is None else now + _RETRY


class Follower:
    """See the module.

    :param stop: ends a put that waits.
    """

    def __init__(self, options: TaildirOptions, context: Context, outlet: Outlet, stop: Stop) -> None:
        self._options, self._outlet, self._stop, self._clock = options, outlet, stop, context.clock
        self._groups = {group.name: group for group in options.groups()}
        self._directories = Directories(options.groups())
        self._rules = Rules(options.logs(), options.max_line_bytes, options.settle, options.multiline_timeout)
        self._maker = BatchMaker(self._rules.logs, options.byte_offset_header)
        self._known = KnownFiles(outlet, context.state, context.name, context.clock)
        self._counters = context.counters
        now = self._clock.monotonic()
        self._readers: dict[Key, FileReader] = {}
        self._live: dict[Key, FileReader] = {}
        self._quiet: deque[FileReader] = deque()
        self._met: dict[str, tuple[int, Key | None]] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._told: set[str] = set()
        self._opened: dict[FileReader, None] = {}
        self._links: dict[str, Key] = {}
        self._unreadable: set[str] = set()
        self._next_scan = self._looked = now
        self._next_forget = now + _FORGET_INTERVAL
        self._flumes = read_flume_positions(options.position_file) if self._known.first_start else {}
        self._skipping = self._known.first_start and options.skip_to_end
        self._first = True

    def look(self) -> bool:
        """Look at the files once, and put what is new; whether there was anything."""
        now = self._clock.monotonic()
        if now >= self._next_scan:
            self._follow_links()
            self._scan_all(now)
        self._try_waiting(now)
        moved = False
        for reader in self._due(now):
            if self._stop.is_set():
                break
            moved = self._advance(reader, now) or moved
        self._looked = now
        self._known.write(now=now)
        if now >= self._next_forget and not self._directories.unreadable:
            self._known.forget(self._options.forget_after)
            self._next_forget = now + _FORGET_INTERVAL
        return moved

    def close(self) -> None:
        """Close all files, and keep the notes."""
        for reader in self._readers.values():
            reader.close()
        self._known.close()

    # -- which files there are

    def _scan_all(self, now: float) -> None:
        for scan in self._directories.scans(now):
            self._take_in(scan, now)
        self._tell_unreadable()
        if self._first:
            self._find_orphans(now)
            self._first, self._skipping, self._flumes = False, False, {}
        self._next_scan = now + _SCAN_SHARE * (self._clock.monotonic() - now)

    def _tell_unreadable(self) -> None:
        unreadable = self._directories.unreadable
        for path in unreadable.keys() - self._unreadable:
            _log.warning("%s cannot be read: %s; it is tried again", path, unreadable[path].strerror)
        for path in self._unreadable - unreadable.keys():
            _log.warning("%s can be read again", path)
        self._unreadable = set(unreadable)

    def _take_in(self, scan: Scan, now: float) -> None:
        """Find new files, and where the known ones are now."""
        places: dict[Key, list[str]] = {}
        prefix = scan.path.rstrip("/") + "/"
        entries = scan.entries
        if self._first:  # those that are known, before others are taken for copies of them
            entries = sorted(entries, key=lambda each: self._held(scan, prefix, each) is None)
        for name, inode, is_link in entries:
            path = prefix + name
            met = self._met.get(path)
            if met is not None and met[0] == inode and not is_link and (met[1] is None or met[1] in self._readers):
                key = met[1]
            else:
                key = self._meet(path, (scan.device, inode), scan.group_of(name), now, is_link=is_link)
            if key is not None:
                places.setdefault(key, []).append(path)
                if is_link:
                    self._links[path] = key
        self._settle_places(scan, places, now)
        self._forget_names(scan, prefix)

    def _settle_places(self, scan: Scan, places: Mapping[Key, Sequence[str]], now: float) -> None:
        """Where each reader's file is now, if it is in this directory, or was."""
        for reader in list(self._readers.values()):
            found = places.get(reader.key)
            if found is not None:
                self._locate(reader, found, now)
            elif reader.located and reader.directory == scan.path:
                reader.located, reader.changed = False, now
                self._wake(reader)

    def _forget_names(self, scan: Scan, prefix: str) -> None:
        names = {prefix + entry.name for entry in scan.entries}
        for path in [path for path in self._met if path.startswith(prefix) and path not in names]:
            if _directory_of(path) == scan.path:
                del self._met[path]
                self._links.pop(path, None)

    def _held(self, scan: Scan, prefix: str, entry: Entry) -> FileName | None:
        return self._known.held_by((scan.device, entry.inode), prefix + entry.name)

    def _follow_links(self) -> None:
        """Where a link leads may change without a change of its directory."""
        for path, key in self._links.items():
            try:
                status = os.stat(path)  # noqa: PTH116
                changed = (status.st_dev, status.st_ino) != key
            except OSError:
                changed = True
            if changed:
                self._directories.look_again(_directory_of(path))

    def _locate(self, reader: FileReader, places: Sequence[str], now: float) -> None:
        reader.located = True
        if reader.place not in places:
            _log.info("%s is now %s", reader.place, places[0])
            reader.place, reader.changed = places[0], now
            self._known.touch(reader)
            self._wake(reader)

    def _meet(self, path: str, guess: Key, group: Group | None, now: float, *, is_link: bool) -> Key | None:
        """A name that was not there, or belonged to another file; which reader has it, None if none has."""
        if not is_link and guess in self._readers:
            key: Key | None = guess
        elif (group is None and (is_link or self._known.held_by(guess, path) is None)) or path in self._waiting:
            return None
        else:
            key = self._begin(path, group, now)
        if path not in self._waiting:
            self._met[path] = guess[1], key
        return key

    def _begin(self, path: str, group: Group | None, now: float) -> Key | None:
        """Open a file for the first time; its key if it is read from now on."""
        try:
            descriptor = open_quickly(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._wait_for(path, group, now, error.strerror or str(error))
            return None
        try:
            status = os.fstat(descriptor)
            key = status.st_dev, status.st_ino
            if not stat.S_ISREG(status.st_mode) or not self._is_mine(path, descriptor):
                return None
            if key in self._readers:
                return key
            if self._known.held_by(key, path) is None and self._may_be_copy(path, descriptor, status.st_size, key):
                self._wait_for(path, group, now, None)
                return None
        finally:
            os.close(descriptor)
        return self._open(path, group, key, now)

    def _is_mine(self, path: str, descriptor: int) -> bool:
        """Whether a file holds lines, as they are."""
        compressed = is_compressed(descriptor)
        if compressed:
            self._tell_once(path, "it is compressed, and not read: the file that it was made of was")
        return not compressed

    def _wait_for(self, path: str, group: Group | None, now: float, trouble: str | None) -> None:
        self._waiting[path] = _Waiting(group, now, trouble)
        if trouble is not None:
            self._tell_once(path, f"cannot be read: {trouble}; it is tried again")

    def _try_waiting(self, now: float) -> None:
        for path, waiting in list(self._waiting.items()):
            if now < waiting.next_try:
                continue
            del self._waiting[path]
            if waiting.trouble is None and self._has_rested(path, waiting, now):
                key = self._open_as_own(path, waiting.group, now)
            else:
                key = self._begin(path, waiting.group, now)
            again = self._waiting.get(path)
            if again is not None:
                again.since, again.size = waiting.since, waiting.size
            elif waiting.trouble is not None and key is not None:
                self._told.discard(path)
                _log.warning("%s can be read again", path)

    def _has_rested(self, path: str, waiting: _Waiting, now: float) -> bool:
        try:
            size = os.stat(path).st_size  # noqa: PTH116
        except OSError:
            return True  # it is gone, or will say itself what is wrong with it
        if size != waiting.size:
            waiting.size, waiting.since = size, now
        return now - waiting.since >= _COPY_SETTLE

    def _open_as_own(self, path: str, group: Group | None, now: float) -> Key | None:
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError:
            return None
        key = status.st_dev, status.st_ino
        return key if key in self._readers else self._open(path, group, key, now)

    # -- how a file begins

    def _open(self, path: str, group: Group | None, key: Key, now: float) -> Key | None:
        """Read a file from now on: under the name that it had, as the copy of another, or as a new one."""
        reader = FileReader(path, "" if group is None else group.name, {}, key, self._rules, now)
        try:
            size = os.fstat(reader.open()).st_size
            if not self._recognize(reader) and group is None:
                reader.close()
                return None
            if reader.name is None and self._first:
                self._skip(reader, size)
        except OSError as error:
            reader.close()
            self._wait_for(path, group, now, error.strerror or str(error))
            return None
        self._give_headers(reader)
        self._readers[key] = self._live[key] = reader
        self._keep_open(reader)
        return key

    def _recognize(self, reader: FileReader) -> bool:
        """Whether it holds what was read under a name: its own, or that of a file of which it is a copy."""
        name = self._known.held_by(reader.key, reader.place)
        if name is not None:
            ends = self._outlet.ends(str(name))
            if self._still_holds(reader, name, ends):
                self._go_on(reader, name, ends)
                return True
        for other, note in self._known.in_directory(reader.directory):
            ends = self._outlet.ends(str(other))
            if (
                other != name
                and reader.place.rpartition("/")[2].startswith(_stem_of(note.path))
                and key_if_copy(reader.place, other, note, ends[-1]) == reader.key
            ):
                self._go_on(reader, other, ends)
                return True
        return False

    def _still_holds(self, reader: FileReader, name: FileName, ends: Sequence[int]) -> bool:
        note = self._known.note_of(name)
        if reader.holds(name, note, ends[-1]):
            return True
        _log.warning("%s does not hold what was read of it any more: it was cut or replaced", reader.place)
        return False

    def _go_on(self, reader: FileReader, name: FileName, ends: Sequence[int]) -> None:
        reader.go_on(name, ends)
        note = self._known.note_of(name)
        if note is not None and note.path:
            reader.path, reader.group = note.path, note.group or reader.group
        self._known.adopt(reader)

    def _skip(self, reader: FileReader, size: int) -> None:
        """Where a file begins that was there when the source was started for the first time."""
        flumes = self._flumes.get(reader.key[1])
        if flumes is not None and flumes <= size:
            start = flumes
        elif self._skipping:
            tail = os.pread(reader.open(), BLOCK_BYTES, max(0, size - BLOCK_BYTES))
            start = size - len(tail) + tail.rfind(b"\n") + 1
        else:
            return
        if start:
            self._name(reader, start)
            assert reader.name is not None  # noqa: S101  # it was just given
            self._outlet.pass_over(Position(str(reader.name), start))
            reader.go_on(reader.name, [start])
            self._known.adopt(reader)

    def _name(self, reader: FileReader, end: int) -> None:
        reader.name = reader.name_for(end, self._known.next_generation(reader.key[1]))

    def _give_headers(self, reader: FileReader) -> None:
        group = self._groups.get(reader.group)
        headers = dict(group.headers) if group is not None else {}
        if self._options.file_header:
            headers[self._options.file_header_key] = os.fsencode(reader.path).decode(errors="backslashreplace")
        reader.headers = headers

    def _may_be_copy(self, path: str, descriptor: int, size: int, key: Key) -> bool:
        """Whether a new file is, up to its end, what is in a file that is being read: somebody may be copying it, to
        cut the other one next.
        """
        if self._first or not size:
            return False
        directory, _, base = path.rpartition("/")
        for reader in list(self._readers.values()):
            if reader.directory != directory or reader.name is None or reader.key == key:
                continue
            try:
                if base.startswith(_stem_of(reader.path)) and reader.begins_like(descriptor, size):
                    return True
            except OSError:
                continue  # its own look tells what is wrong with it
        return False

    def _find_orphans(self, now: float) -> None:
        """What was read before, and is under no name of a directory now: it may be in a copy, or it is gone."""
        for name in list(self._known.orphans):
            self._find_copy_or_tell(name, now)

    def _find_copy_or_tell(self, name: FileName, now: float) -> None:
        note, ends = self._known.note_of(name), self._outlet.ends(str(name))
        if note is not None and note.path:
            found = find_copy(name, note, ends[-1], self._readers)
            if found is not None:
                self._read_copy(name, *found, now)
                return
        if self._known.lost(name) and note is not None and note.size > ends[0]:
            _log.error("%s: %d bytes were gone before they were read", note.place, note.size - ends[0])

    def _read_copy(self, name: FileName, path: str, key: Key, now: float) -> None:
        reader = FileReader(path, "", {}, key, self._rules, now)
        try:
            self._go_on(reader, name, self._outlet.ends(str(name)))
        except OSError as error:
            _log.error("%s, a copy of what was being read, cannot be read: %s", path, error.strerror)
            return
        reader.path = path if not reader.path else reader.path
        self._give_headers(reader)
        _log.info("%s: what was not read of it is read in %s", reader.path, path)
        self._waiting.pop(path, None)
        self._readers[key] = self._live[key] = reader
        self._keep_open(reader)

    # -- how a file goes on

    def _due(self, now: float) -> list[FileReader]:
        """Those that were written lately, and some of the others in turn."""
        count = min(len(self._quiet), 1 + int((now - self._looked) * _QUIET_LOOKS))
        quiet = [self._quiet.popleft() for _ in range(count)]
        self._quiet.extend(quiet)
        return [*self._live.values(), *(each for each in quiet if self._readers.get(each.key) is each)]

    def _advance(self, reader: FileReader, now: float) -> bool:
        """Put what is new in a file; whether there was anything."""
        try:
            before, changed = reader.position, reader.changed
            if reader.look(now):
                self._put_blocks(reader, now)
            elif now - reader.changed >= self._options.idle_timeout:
                self._rest(reader)
            elif reader.changed != changed:
                self._wake(reader)
            if reader.trouble is not None:
                _log.warning("%s can be read again", reader.place)
                reader.trouble = None
        except ContentChangedError:
            self._replaced(reader, now)
            return True
        except OSError as error:
            self._failed(reader, error, now)
            return False
        return reader.position > before

    def _put_blocks(self, reader: FileReader, now: float) -> None:
        self._wake(reader)
        for _ in range(_BLOCKS_A_TURN):
            block = reader.read(now)
            if block is None:
                break
            if reader.name is None:
                self._name(reader, block.end)
                self._known.adopt(reader)
            batch = self._maker.batch(block, reader.headers, str(reader.name))
            if not self._outlet.put_until(batch, self._stop):
                return
            reader.take(block)
            self._known.touch(reader)
        self._keep_open(reader)

    def _replaced(self, reader: FileReader, now: float) -> None:
        """It was cut, or holds other bytes: begin it anew, and look for a copy of what it held."""
        key, place = reader.key, reader.place
        self._drop(reader)
        fresh = FileReader(place, reader.group, {}, key, self._rules, now)
        fresh.path = reader.path
        self._give_headers(fresh)
        self._readers[key] = self._live[key] = fresh
        _log.info("%s was cut or written anew, and is read from its first byte", place)
        if not self._go_on_in_copy(reader, now) and reader.cut_off:
            _log.error("%s: %d bytes were cut off before they were read, and no copy has them", place, reader.cut_off)

    def _go_on_in_copy(self, reader: FileReader, now: float) -> bool:
        """Whether there is a copy of what a reader had."""
        if reader.name is None:
            return False
        found = find_copy(reader.name, reader.note(), reader.position, self._readers)
        if found is not None:
            self._read_copy(reader.name, *found, now)
        return found is not None

    def _failed(self, reader: FileReader, error: OSError, now: float) -> None:
        """It cannot be read now: it was deleted, or nobody may."""
        self._shut(reader)
        if isinstance(error, FileNotFoundError):
            if not reader.located:
                self._gone(reader, now)
            return  # it was renamed, and the next scan says where to
        if reader.trouble is None:
            reader.trouble = error.strerror or str(error)
            self._counters.add(EventReadFail=1)
            self._counters.last_error = f"{reader.place}: {reader.trouble}"
            _log.warning("%s cannot be read: %s; it is tried again", reader.place, reader.trouble)
        self._rest(reader)

    def _gone(self, reader: FileReader, now: float) -> None:
        """No directory has it any more, and all that could be read of it was."""
        self._drop(reader)
        if not self._go_on_in_copy(reader, now) and reader.unread:
            _log.error("%s: %d bytes were gone before they were read", reader.place, reader.unread)

    def _drop(self, reader: FileReader) -> None:
        self._shut(reader)
        for readers in (self._readers, self._live):
            if readers.get(reader.key) is reader:
                del readers[reader.key]
        if reader in self._quiet:
            self._quiet.remove(reader)
        self._known.leave(reader)

    # -- who is looked at often, and who is open

    def _wake(self, reader: FileReader) -> None:
        if self._readers.get(reader.key) is reader and reader.key not in self._live:
            self._live[reader.key] = reader
            if reader in self._quiet:
                self._quiet.remove(reader)

    def _rest(self, reader: FileReader) -> None:
        """It has not been written for long."""
        self._shut(reader)
        if not reader.located:
            self._gone(reader, self._clock.monotonic())
        elif self._live.pop(reader.key, None) is not None:
            self._quiet.append(reader)

    def _keep_open(self, reader: FileReader) -> None:
        """Keep no more files open than allowed; those that were not read for the longest time are closed."""
        self._opened.pop(reader, None)
        self._opened[reader] = None
        while len(self._opened) > self._options.max_open_files:
            self._shut(next(iter(self._opened)))

    def _shut(self, reader: FileReader) -> None:
        self._opened.pop(reader, None)
        reader.close()

    def _tell_once(self, path: str, what: str) -> None:
        if path not in self._told:
            self._told.add(path)
            _log.warning("%s: %s", path, what)


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _stem_of(path: str) -> str:
    """What the names of its rotated files begin with, too."""
    return path.rpartition("/")[2].partition(".")[0]

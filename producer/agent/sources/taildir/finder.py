"""Finder: which files exist, and under which names."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterable, Mapping, Sequence

from ....runtime.clock import Clock, Stop
from ....runtime.file_identity import Key
from ....runtime.link_targets import LinkTargets, not_followed, opened_path
from ....runtime.loggers import get_logger
from ....text.plural import counted
from ...recoveries import recoveries
from ..reading.identity import is_compressed, open_quickly
from ..reading.reader import FileReader
from .copies import Copies
from .file_registry import KnownFiles, key_of
from .groups import Directories, Entry, Group, Scan
from .readers import Readers
from .resume import Beginnings

_log = get_logger("loghub.agent.taildir")

#: Scans take at most a 50th of the time, but never start later than 5 s after the last: rotated files are deleted soon.
_SCAN_SHARE, _LONGEST_WAIT = 50, 5.0
#: Files that are not opened because of ignore_older, and that are checked in a scan.
_OLD_POLLS = 200
#: Seconds between two attempts to open a file.
_RETRY = 1.0
#: Seconds without a change after which a file that may be a copy in progress is read as a file of its own.
_COPY_SETTLE = 3.0


class _Waiting:
    """A file that is not read yet.

    :ivar trouble: the reason why it cannot be read; None for a possible copy in progress.
    :ivar like: the reader of the file of which it may be a copy.
    :ivar since: the time of its last change of size.
    """

    def __init__(self, group: Group | None, now: float, trouble: str | None) -> None:
        self.group, self.since, self.trouble, self.size = group, now, trouble, -1
        self.like: FileReader | None = None
        self.next_try = now if trouble is None else now + _RETRY


class Finder:
    """Scanner of the directories that assigns each file to a reader.

    :param stop: the event that ends a scan of very many new files early; no scan follows it.
    :param links_to: the rule for links that are followed.
    :ivar _met: the inode and the reader's key of each path; the key is None for a file that is not read.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        readers: Readers,
        known: KnownFiles,
        beginnings: Beginnings,
        clock: Clock,
        stop: Stop,
        links_to: LinkTargets,
    ) -> None:
        self._links_to = links_to
        self._directories, self._stop = Directories(groups), stop
        self._readers, self._known, self._beginnings, self._clock = readers, known, beginnings, clock
        self._copies = Copies(readers)
        self._met: dict[str, tuple[int, Key | None]] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._links: dict[str, Key] = {}
        # Files that are not opened because of ignore_older.
        self._old: dict[str, Group] = {}
        self._warned: set[str] = set()
        self._unreadable: set[str] = set()
        self._next_scan = clock.monotonic()
        # Seconds that opening new files took in this scan.
        self._beginning = 0.0

    @property
    def sees_all(self) -> bool:
        """True if every directory could be read."""
        return not self._unreadable

    @property
    def unreadable(self) -> int:
        """Number of files and directories that exist and cannot be read."""
        return len(self._unreadable) + sum(each.trouble is not None for each in self._waiting.values())

    def find(self, now: float) -> None:
        """Scan the directories, if it is time."""
        self._copies.begin_look()
        if now >= self._next_scan:
            self._beginning = 0.0
            self._follow_links()
            self._try_old()
            for scan in self._directories.scans(now):
                self._take_in(scan, now)
                if self._stop.is_set():
                    return
            self._log_unreadable()
            if self._beginnings.first:
                self._beginnings.end_first()
                if self._old:
                    _log.info("%s not opened, because of ignore_older", counted(len(self._old), "file"))
            self._wait(now)
        self._try_waiting(now)

    def _wait(self, began: float) -> None:
        """Set the time of the next scan.

        The time of opening new files does not count, since each is opened once. Otherwise many new files would delay
        the next scan, and even more of them would arrive in the meantime.
        """
        ended = self._clock.monotonic()
        self._next_scan = ended + min(_SCAN_SHARE * (ended - began - self._beginning), _LONGEST_WAIT)

    def _log_unreadable(self) -> None:
        unreadable = self._directories.unreadable
        for path in unreadable.keys() - self._unreadable:
            _log.warning("%s cannot be read: %s; retrying", path, unreadable[path].strerror)
        for path in self._unreadable - unreadable.keys():
            recoveries.info("%s can be read again", path)
        self._unreadable = set(unreadable)

    def _follow_links(self) -> None:
        """Rescan directories with links that lead elsewhere: this does not change the directory."""
        for path, key in self._links.items():
            try:
                status = os.stat(path)
                changed = (status.st_dev, status.st_ino) != key
            except OSError:
                changed = True
            if changed:
                self._directories.look_again(_directory_of(path))

    # -- entries of a directory

    def _take_in(self, scan: Scan, now: float) -> None:
        prefix = scan.path.rstrip("/") + "/"
        places: dict[Key, list[str]] = {}
        for entry in self._in_order(scan, prefix):
            if self._stop.is_set():
                return
            path = prefix + entry.name
            key = self._key_of(path, entry, scan, now)
            if key is not None:
                places.setdefault(key, []).append(path)
                if entry.is_link:
                    self._links[path] = key
        self._settle_places(scan, places, now)
        self._forget_names(scan, prefix)

    def _in_order(self, scan: Scan, prefix: str) -> Iterable[Entry]:
        """Return entries in the order of opening: known files before their copies, and older files first."""
        if not self._beginnings.first:
            return scan.entries
        held = self._known.held_by

        def rank(entry: Entry) -> tuple[bool, float, str]:
            path = prefix + entry.name
            return held((scan.device, entry.inode), path) is None, _time_of(path), entry.name

        return sorted(scan.entries, key=rank)

    def _key_of(self, path: str, entry: Entry, scan: Scan, now: float) -> Key | None:
        """Return the key of the reader that has the file of a path; None if no reader has it."""
        met, readers = self._met.get(path), self._readers.by_key
        if met is not None and met[0] == entry.inode and not entry.is_link and (met[1] is None or met[1] in readers):
            return met[1]
        guess = scan.device, entry.inode
        group = scan.group_of(entry.name)
        if not entry.is_link and guess in readers:
            key: Key | None = guess
        elif group is None and (entry.is_link or self._known.held_by(guess, path) is None):
            return None
        else:
            key = None if path in self._waiting else self._begin(path, group, now)
        if path not in self._waiting:
            self._met[path] = entry.inode, key
        return key

    def _settle_places(self, scan: Scan, places: Mapping[Key, Sequence[str]], now: float) -> None:
        """Update the path of each reader whose file is in this directory, or was."""
        for reader in self._readers.by_key.values():
            found = places.get(reader.key)
            if found is not None:
                self._locate(reader, found, scan, now)
            elif reader.located and reader.directory == scan.path:
                reader.located, reader.changed = False, now
                self._readers.wake(reader)

    def _locate(self, reader: FileReader, places: Sequence[str], scan: Scan, now: float) -> None:
        reader.located = True
        # With a link in another directory it has two paths.
        if reader.place not in places and key_of(reader.place) != reader.key:
            _log.info("%s was renamed to %s", reader.place, places[0])
            group = None if reader.name is not None or reader.size else scan.group_of(places[0].rpartition("/")[2])
            self._readers.moved(reader, places[0], None if group is None else places[0])
            if group is not None:  # the file was empty under its first name
                self._beginnings.give_headers(reader, group)
            reader.changed = now
            self._known.touch(reader)
            self._readers.wake(reader)

    def _forget_names(self, scan: Scan, prefix: str) -> None:
        names = {prefix + entry.name for entry in scan.entries}
        for path in [path for path in self._met if path.startswith(prefix) and path not in names]:
            if _directory_of(path) == scan.path:
                del self._met[path]
                self._links.pop(path, None)
                self._old.pop(path, None)

    # -- new files

    def _begin(self, path: str, group: Group | None, now: float) -> Key | None:
        """Open a file for the first time; return its key if it is read."""
        began = self._clock.monotonic()
        if group is not None and self._is_old(path, group):
            self._waiting.pop(path, None)
            self._old[path] = group
            return None
        try:
            descriptor = open_quickly(path)
            try:
                target = opened_path(descriptor, path)
                if not self._links_to.allow(target):
                    self._waiting.pop(path, None)
                    self._warn_once(path, not_followed(target, "allow_links_to"))
                    return None
                return self._sort_in(path, descriptor, group, now)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            self._waiting.pop(path, None)
            return None
        except OSError as error:
            trouble = error.strerror or str(error)
            self._waiting[path] = _Waiting(group, now, trouble)
            self._warn_once(path, f"cannot be read: {trouble}; retrying")
            return None
        finally:
            self._beginning += self._clock.monotonic() - began

    def _is_old(self, path: str, group: Group) -> bool:
        """Return True if an unknown file was not written for so long that it is not opened."""
        if group.ignore_older is None or self._beginnings.skips(group):
            return False
        try:
            status = os.stat(path)
        except OSError:
            return False
        key = status.st_dev, status.st_ino
        known = key in self._readers.by_key or self._known.held_by(key, path) is not None
        return not known and self._clock.time() - status.st_mtime > group.ignore_older

    def _try_old(self) -> None:
        """Check some files that were not opened, in turn; the next scan opens those that were written."""
        for path in list(itertools.islice(self._old, _OLD_POLLS)):
            group = self._old.pop(path)
            if self._is_old(path, group):
                self._old[path] = group
            else:
                self._met.pop(path, None)
                self._directories.look_again(_directory_of(path))

    def _sort_in(self, path: str, descriptor: int, group: Group | None, now: float) -> Key | None:
        status = os.fstat(descriptor)
        key = status.st_dev, status.st_ino
        if not stat.S_ISREG(status.st_mode):
            self._waiting.pop(path, None)
            return None
        if key not in self._readers.by_key and self._is_copy_in_the_making(path, descriptor, status.st_size, key, now):
            self._waiting.setdefault(path, _Waiting(group, now, None))
            return None
        self._waiting.pop(path, None)
        if key in self._readers.by_key:
            return key
        if is_compressed(descriptor):
            reason = "it is compressed and not read, except for unread lines of a file that was followed"
            self._warn_once(path, reason)
            return None
        if not self._beginnings.open(path, group, key):
            return None
        reader = self._readers.by_key[key]
        if reader.name is None:
            for copy in self._copies.copies_of(path, descriptor):
                self._put_off(copy, group, now)
            self._copies.add(reader, descriptor)
        return key

    def _put_off(self, copy: FileReader, group: Group | None, now: float) -> None:
        """Make a copy wait if it was found before its original."""
        self._readers.drop(copy)
        self._met.pop(copy.place, None)
        self._waiting[copy.place] = _Waiting(group, now, None)

    def _is_copy_in_the_making(self, path: str, descriptor: int, size: int, key: Key, now: float) -> bool:
        """Return True if a new file may be a copy in progress of a file that is being read.

        All bytes of such a file are those of the original, which is truncated next. A file that does not change for a
        while is a file of its own.
        """
        waiting = self._waiting.get(path)
        if waiting is None and self._beginnings.is_known(path, descriptor, key):
            return False
        begins = self._beginnings.first and self._known.first_start  # no file was read that could be copied
        original = self._original_of(path, descriptor, waiting, fresh=begins)
        if waiting is None:
            # A new empty file may be the beginning of a copy.
            return original is not None or not (size or begins)
        if size != waiting.size:
            waiting.size, waiting.since = size, now
        if now - waiting.since < _COPY_SETTLE:
            return original is not None or not size
        return original is not None and self._has_vanished(original)

    def _original_of(self, path: str, descriptor: int, waiting: _Waiting | None, *, fresh: bool) -> FileReader | None:
        """Return the reader of a file's possible original; a waiting file most likely keeps the same one."""
        if waiting is None:
            return self._copies.original_of(path, descriptor, fresh=fresh)
        like = waiting.like
        if like is None or self._readers.by_key.get(like.key) is not like or not self._copies.is_like(like, descriptor):
            waiting.like = self._copies.original_of(path, descriptor, fresh=fresh)
        return waiting.like

    def _has_vanished(self, reader: FileReader) -> bool:
        """Return True if a file was truncated or deleted; its reader then looks for the copy."""
        try:
            no_more = not reader.located or not reader.is_same()
        except OSError:
            return False
        if no_more:
            self._readers.wake(reader)
        return no_more

    def _try_waiting(self, now: float) -> None:
        for path, waiting in list(self._waiting.items()):
            if self._stop.is_set():
                return
            if now < waiting.next_try:
                continue
            if waiting.trouble is not None:
                del self._waiting[path]
            key = self._begin(path, waiting.group, now)
            if key is not None and waiting.trouble is not None:
                self._warned.discard(path)
                recoveries.info("%s can be read again", path)

    def _warn_once(self, path: str, what: str) -> None:
        if path not in self._warned:
            self._warned.add(path)
            _log.warning("%s: %s", path, what)


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _time_of(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0  # opening the file reports the error

"""File groups, and the scan of their directories."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ....model.errors import ConfigError
from ....runtime.link_targets import named_directory
from ....wire.patterns import Pattern

#: Seconds after which a directory is read again, even if its modification time is the same.
_FORCED = 30.0
_NOT_FOLLOWED = "the file is not followed"


@dataclass(frozen=True)
class Group:
    """Files of one configured kind.

    :ivar name: the group's name in the configuration; ``paths`` for globs.
    :ivar directory: the files' directory; a glob if ``wild``.
    :ivar names: the pattern of a whole file name.
    :ivar headers: the headers of their events.
    :ivar at_end: True to begin at the end of files that exist at the very first start.
    :ivar ignore_older: seconds without a write after which a file is not opened; None to open all.
    """

    name: str
    directory: str
    wild: bool
    names: Pattern[str]
    headers: Mapping[str, str]
    at_end: bool = False
    ignore_older: float | None = None

    @property
    def named_directory(self) -> str:
        """The directory that contains all files of the group, except targets of links."""
        return named_directory(self.directory) if self.wild else self.directory

    def directories(self) -> list[str]:
        """Return the group's directories that exist at this moment."""
        return _directories(self.directory) if self.wild else [self.directory]


def file_group(name: str, text: str, headers: Mapping[str, str]) -> Group:
    """Return a group written as in Flume: a directory, and a regular expression for file names.

    :raises ConfigError: the text has another form.
    """
    directory, slash, expression = text.rpartition("/")
    if not slash or not expression:
        raise ConfigError(f"file_groups.{name}", "must be a directory, a slash, and an expression for file names", text)
    try:
        names = Pattern(expression, option=f"file_groups.{name}", outcome=_NOT_FOLLOWED)
    except ValueError as error:
        hint = f"; a glob such as {expression} is {_as_expression(expression)} here" if "*" in expression else ""
        rule = f"{expression!r} is not a regular expression: {error.__cause__}{hint}"
        raise ConfigError(f"file_groups.{name}", rule, None) from error
    return Group(name, os.path.abspath(directory or "/"), False, names, headers)


def _as_expression(pattern: str) -> str:
    """Return a file name's glob as a readable regular expression."""
    return re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")


def glob_group(text: str, headers: Mapping[str, str]) -> Group:
    """Return a group of one glob.

    :raises ConfigError: the glob names no files.
    """
    directory, _, pattern = os.path.abspath(os.path.expanduser(text)).rpartition("/")
    if not pattern or text.endswith("/"):
        raise ConfigError("paths", "must be globs of files, not of directories", text)
    names = Pattern(fnmatch.translate(pattern), option="paths", outcome=_NOT_FOLLOWED)
    return Group("paths", directory or "/", glob.has_magic(directory), names, headers)


class Entry(NamedTuple):
    """An entry of a directory."""

    name: str
    inode: int
    is_link: bool


@dataclass(frozen=True, slots=True)
class Scan:
    """The content of a directory.

    :ivar device: the device number.
    """

    path: str
    device: int
    entries: Sequence[Entry]
    groups: Sequence[Group]

    def group_of(self, name: str) -> Group | None:
        """Return the first group that a file name belongs to; None if there is none."""
        return next((group for group in self.groups if group.names.fullmatch(name)), None)


class _Directory:
    """The state of one directory: when it was read, and its modification time then."""

    def __init__(self, groups: list[Group]) -> None:
        self.groups = groups
        self.changed: int | None = None
        self.again = True
        self.read = float("-inf")


class Directories:
    """Reader of directories that have changed.

    :ivar unreadable: the error of each directory that cannot be read, by path.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups = groups
        self._known: dict[str, _Directory] = {}
        self._wanted: Collection[str] = ()
        self._found = float("-inf")
        self.unreadable: dict[str, OSError] = {}

    def scans(self, now: float) -> Iterator[Scan]:
        """Yield the content of each changed directory; each is read once for all groups.

        :param now: monotonic seconds.
        """
        self._find(now)
        for path, directory in list(self._known.items()):
            try:
                scan = self._scan(path, directory, now)
            except FileNotFoundError:
                scan = self._vanished(path, directory)
            except OSError as error:
                self.unreadable[path] = error
                directory.again = True
                continue
            self.unreadable.pop(path, None)
            if scan is not None:
                yield scan

    def _vanished(self, path: str, directory: _Directory) -> Scan | None:
        """Handle a missing directory; return an empty scan once if it existed before."""
        was_there, directory.changed, directory.again = directory.changed is not None, None, True
        if path not in self._wanted:
            del self._known[path]
        return Scan(path, 0, (), directory.groups) if was_there else None

    def look_again(self, path: str) -> None:
        """Read a directory at the next call, even if its modification time is the same."""
        if path in self._known:
            self._known[path].again = True

    def _find(self, now: float) -> None:
        """Update the directories: some that match a glob are new or gone."""
        if now - self._found < _FORCED / 3:
            return
        self._found = now
        found: dict[str, list[Group]] = {}
        for group in self._groups:
            for path in group.directories():
                found.setdefault(path, []).append(group)
        for path, groups in found.items():
            self._known.setdefault(path, _Directory(groups))
        self._wanted = found.keys()

    def _scan(self, path: str, directory: _Directory, now: float) -> Scan | None:
        status = os.stat(path)
        same = status.st_mtime_ns == directory.changed
        if same and not directory.again and now - directory.read < _FORCED:
            return None
        # A second change within one tick of the file system's clock has the same modification time: read twice.
        directory.again, directory.changed, directory.read = not same, status.st_mtime_ns, now
        with os.scandir(path) as entries:
            found = [Entry(entry.name, entry.inode(), entry.is_symlink()) for entry in entries]
        return Scan(path, status.st_dev, found, directory.groups)


def _directories(pattern: str) -> list[str]:
    """Return the directories that match a glob.

    ``glob.glob`` also returns files, and follows a cycle of links without end.
    """
    found = ["/"]
    for part in filter(None, pattern.split("/")):
        if part == "**":
            found = _all_below(found)
        elif glob.has_magic(part):
            matches, hidden = re.compile(fnmatch.translate(part)).match, part.startswith(".")
            children = (child for path in found for child in _children(path, hidden=hidden))
            found = [path for path in children if matches(path.rpartition("/")[2])]
        else:
            joined = (f"{path.rstrip('/')}/{part}" for path in found)
            found = [path for path in joined if os.path.isdir(path)]
    return found


def _all_below(roots: Iterable[str]) -> list[str]:
    """Return the directories and all below them, each once, even if several links lead to it."""
    found: dict[tuple[int, int], str] = {}
    waiting = deque(roots)
    while waiting:
        path = waiting.popleft()
        try:
            status = os.stat(path)
        except OSError:
            continue  # deleted just now
        if found.setdefault((status.st_dev, status.st_ino), path) is path:
            waiting.extend(_children(path, hidden=False))
    return list(found.values())


def _children(path: str, *, hidden: bool) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(each.path for each in entries if hidden == each.name.startswith(".") and _is_directory(each))
    except OSError:
        return []  # the scan of this directory reports the error


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link to itself

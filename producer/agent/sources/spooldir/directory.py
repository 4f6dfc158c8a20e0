"""SpoolDirectory: the files that wait in a directory, and how they are completed."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ....model.errors import ProducerError
from ....runtime.link_targets import LinkTargets, not_followed
from ....runtime.loggers import get_logger
from ....runtime.whole_file import sync_directory, write_whole
from .options import SpoolDirectoryOptions

_log = get_logger("loghub.agent.spooldir")

#: What is put aside ends with it, and is not looked at again.
FAILED_SUFFIX = ".FAILED"


class SpoolDirectoryError(ProducerError):
    """The directory cannot be used."""


class Waiting(NamedTuple):
    """A file that is to be read.

    :ivar status: as it was when it was found.
    """

    path: str
    status: os.stat_result


class SpoolDirectory:
    """See the module.

    :ivar unreadable: what could not be looked at last time, by path.
    :raises SpoolDirectoryError: it is not there, or belongs to another source.
    """

    def __init__(self, options: SpoolDirectoryOptions) -> None:
        self._options = options
        self._root = str(options.spool_directory)
        self._links_to = LinkTargets([self._root, *options.allow_links_to])
        self._include, self._ignore = options.names()
        self.unreadable: dict[str, OSError] = {}
        self._marked: dict[str, dict[str, int]] = {}
        self._lock = self._locked()

    def close(self) -> None:
        """Let others have it."""
        os.close(self._lock)

    def waiting(self) -> list[Waiting]:
        """The files that are to be read, in the order in which they are.

        :raises OSError: the directory cannot be read.
        """
        self.unreadable = {}
        found = list(self._files(self._root))
        order = self._options.consume_order
        if order == "random":
            random.shuffle(found)
        else:
            found.sort(key=lambda each: (each.status.st_mtime_ns, each.path), reverse=order == "youngest")
        return found

    def complete(self, path: str) -> None:
        """All of a file is where it belongs.

        :raises OSError: it cannot be renamed, deleted or marked.
        """
        if self._options.delete_policy == "immediate":
            os.unlink(path)
        elif self._options.tracking_policy == "rename":
            self._rename(path, self._options.file_suffix)
        else:
            self._mark(path)

    def put_aside(self, path: str) -> str:
        """A file that cannot be read; it is not looked at again. Where it is now."""
        return self._rename(path, FAILED_SUFFIX)

    def _locked(self) -> int:
        try:
            descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise SpoolDirectoryError(f"{self._root} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise SpoolDirectoryError(
                f"{self._root} is read by another source: a spool directory belongs to one"
            ) from error
        except OSError as error:
            _log.warning(
                "%s cannot be locked (%s): make sure that no other source reads it", self._root, error.strerror
            )
        return descriptor

    def _files(self, directory: str) -> Iterator[Waiting]:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                try:
                    yield from self._at(entry)
                except FileNotFoundError:
                    continue  # it was taken away just now
                except OSError as error:
                    self.unreadable[entry.path] = error

    def _at(self, entry: os.DirEntry[str]) -> Iterator[Waiting]:
        if entry.is_dir(follow_symlinks=False):
            if self._options.recursive_directory_search and Path(entry.path) != self._options.marks:
                yield from self._files(entry.path)
        elif self._is_wanted(entry) and not self._is_marked(entry):
            yield Waiting(entry.path, self._status(entry))

    def _status(self, entry: os.DirEntry[str]) -> os.stat_result:
        """The status of the file that is to be read.

        :raises OSError: it cannot be looked at, or is a link that must not be followed.
        """
        if not entry.is_symlink():
            return entry.stat()
        target = os.path.realpath(entry.path)
        if not self._links_to.allow(target):
            raise OSError(errno.EPERM, not_followed(target, "allow_links_to"))
        return os.stat(target, follow_symlinks=False)  # the link may lead elsewhere by now

    def _is_wanted(self, entry: os.DirEntry[str]) -> bool:
        name = entry.name
        done = name.endswith((self._options.file_suffix, FAILED_SUFFIX))
        ignored = done or not self._include.search(name) or self._ignore.search(name, at_limit=True)
        return not ignored and entry.is_file()

    def _rename(self, path: str, suffix: str) -> str:
        target = path + suffix
        for number in range(1, 1 << 30):
            if not os.path.lexists(target):
                break
            target = f"{path}.{number}{suffix}"
        if target != path + suffix:
            _log.warning("%s: its name was used before: it becomes %s", path, target)
        os.rename(path, target)
        sync_directory(Path(path).parent)
        return target

    # -- marks in a directory beside

    def _mark_of(self, path: str) -> Path:
        relative = os.path.relpath(path, self._root)
        return self._options.marks / (relative + self._options.file_suffix)

    def _mark(self, path: str) -> None:
        mark, status = self._mark_of(path), os.stat(path)
        mark.parent.mkdir(parents=True, exist_ok=True)
        said = {"inode": status.st_ino, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
        write_whole(mark, json.dumps(said).encode(), mark.with_name(f".{mark.name}"))
        self._marked[path] = said

    def _is_marked(self, entry: os.DirEntry[str]) -> bool:
        """Whether the file was completed; Flume's marks, which are empty, hold for whatever has the name."""
        if self._options.tracking_policy != "tracker_dir":
            return False
        said = self._marked.get(entry.path)
        if said is None:
            try:
                said = self._marked[entry.path] = _read_mark(self._mark_of(entry.path))
            except FileNotFoundError:
                return False
        status = entry.stat()
        now = {"inode": status.st_ino, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
        if not said or said == now:
            return True
        _log.warning("%s: another file had its name, and was completed: this one is read, too", entry.path)
        self._mark_of(entry.path).unlink(missing_ok=True)
        del self._marked[entry.path]
        return False


def _read_mark(mark: Path) -> dict[str, int]:
    """What a mark says; nothing of one that is Flume's, or of which nothing can be made: it is a mark all the same.

    :raises OSError: it cannot be read, or there is none.
    """
    try:
        said = json.loads(mark.read_text() or "{}")
    except ValueError:
        said = None
    if isinstance(said, dict):
        return said
    _log.warning("%s has content of no known form: the file of its name is treated as completed", mark)
    return {}

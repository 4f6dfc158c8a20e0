"""SpoolDirectory: the files that wait in a directory, and their completion."""

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

#: Suffix of a file that cannot be read; it is not read again.
FAILED_SUFFIX = ".FAILED"


class SpoolDirectoryError(ProducerError):
    """Raised when the directory cannot be used."""


class Waiting(NamedTuple):
    """A file to read.

    :ivar status: its status when it was found.
    """

    path: str
    status: os.stat_result


class SpoolDirectory:
    """The directory of one source, locked.

    :ivar unreadable: the error of each path whose last check failed.
    :raises SpoolDirectoryError: the directory is missing, or another source reads it.
    """

    def __init__(self, options: SpoolDirectoryOptions) -> None:
        self._options = options
        self._root = str(options.spool_directory)
        self._links_to = LinkTargets([self._root, *options.allow_links_to])
        self._names = options.names()
        self.unreadable: dict[str, OSError] = {}
        self._marked: dict[str, dict[str, int]] = {}
        self._lock = self._locked()

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)

    def waiting(self) -> list[Waiting]:
        """Return the files to read, in order.

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
        """Rename, delete or mark a file that was read.

        :raises OSError: that failed.
        """
        if self._options.delete_policy == "immediate":
            os.unlink(path)
        elif self._options.tracking_policy == "rename":
            self._rename(path, self._options.file_suffix)
        else:
            self._mark(path)

    def put_aside(self, path: str) -> str:
        """Rename a file that cannot be read; return its new path."""
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
                f"{self._root} is already read by another source; give each source its own spool directory"
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
                    continue  # deleted or moved just now
                except OSError as error:
                    self.unreadable[entry.path] = error

    def _at(self, entry: os.DirEntry[str]) -> Iterator[Waiting]:
        if entry.is_dir(follow_symlinks=False):
            if self._options.recursive_directory_search and Path(entry.path) != self._options.marks:
                yield from self._files(entry.path)
        elif self._is_wanted(entry) and not self._is_marked(entry):
            yield Waiting(entry.path, self._status(entry))

    def _status(self, entry: os.DirEntry[str]) -> os.stat_result:
        """Return the status of a file, or of the target of a link.

        :raises OSError: there is no status, or the link must not be followed.
        """
        if not entry.is_symlink():
            return entry.stat()
        target = os.path.realpath(entry.path)
        if not self._links_to.allow(target):
            raise OSError(errno.EPERM, not_followed(target, "allow_links_to"))
        return os.stat(target, follow_symlinks=False)  # the target may have become a link

    def _is_wanted(self, entry: os.DirEntry[str]) -> bool:
        name = entry.name
        done = name.endswith((self._options.file_suffix, FAILED_SUFFIX))
        return not done and self._names.accepts(name) and entry.is_file()

    def _rename(self, path: str, suffix: str) -> str:
        target = path + suffix
        for number in range(1, 1 << 30):
            if not os.path.lexists(target):
                break
            target = f"{path}.{number}{suffix}"
        if target != path + suffix:
            _log.warning("%s: a completed file with this name exists; renaming to %s", path, target)
        os.rename(path, target)
        sync_directory(Path(path).parent)
        return target

    # -- marks in a tracker directory

    def _mark_of(self, path: str) -> Path:
        relative = os.path.relpath(path, self._root)
        return self._options.marks / (relative + self._options.file_suffix)

    def _mark(self, path: str) -> None:
        mark, status = self._mark_of(path), os.stat(path)
        mark.parent.mkdir(parents=True, exist_ok=True)
        content = {"inode": status.st_ino, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
        write_whole(mark, json.dumps(content).encode(), mark.with_name(f".{mark.name}"))
        self._marked[path] = content

    def _is_marked(self, entry: os.DirEntry[str]) -> bool:
        """Return True if the file is marked as completed; Flume's empty marks match any file of the name."""
        if self._options.tracking_policy != "tracker_dir":
            return False
        content = self._marked.get(entry.path)
        if content is None:
            try:
                content = self._marked[entry.path] = _read_mark(self._mark_of(entry.path))
            except FileNotFoundError:
                return False
        status = entry.stat()
        now = {"inode": status.st_ino, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
        if not content or content == now:
            return True
        _log.warning("%s: the mark of this name belongs to another file; this file is read", entry.path)
        self._mark_of(entry.path).unlink(missing_ok=True)
        del self._marked[entry.path]
        return False


def _read_mark(mark: Path) -> dict[str, int]:
    """Return the content of a mark; empty for Flume's marks, and for an invalid one, which still counts.

    :raises OSError: the mark cannot be read, or is missing.
    """
    try:
        content = json.loads(mark.read_text() or "{}")
    except ValueError:
        content = None
    if isinstance(content, dict):
        return content
    _log.warning("%s is not a valid mark; the file of its name is treated as completed", mark)
    return {}

"""Resolves the paths that the user names to the files to ship.

==========================  ===============================================================================
a file                      shipped, whatever its content
a directory                 every file below it, except binary, hidden and unreadable ones
a glob (``*``, ``?``, ``[``)  each match by the two rules above; ``**`` crosses directories
``file:///path``            the same as ``/path``
``s3://…``, ``https://…``    remote (:mod:`.remote`): a file, a directory that can be listed, or a glob
==========================  ===============================================================================

Files are sorted by path and returned once each, even if two arguments name the same file. Links that a walk or a glob
finds follow the rules of :mod:`producer.runtime.link_targets`. Each file that a directory walk leaves out is reported
with its reason. Files that are not logs and files that cannot be read are reported separately.

The file has more than 400 lines to keep the rules for all kinds of paths together.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import itertools
import math
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...runtime.link_targets import LinkTargets, named_directory, not_followed
from ...wire.compressed_heads import compression_of
from ...wire.encodings import HOLE, hole_end, looks_like
from ..errors import InputError
from .log_file import LogFile
from .remote.address import SCHEMES, scheme_of, shown
from .remote.look import look_at, remote_addresses
from .remote.seen import RemoteError

#: The reason for a path that matches a pattern of ``exclude``.
EXCLUDED = "excluded"
#: The reason for a walked file whose name begins with a dot.
HIDDEN = "hidden"
#: The start of the reason for a walked file of another encoding.
LOOKS_LIKE = "binary, but looks like"
#: The reason for a link to a directory, which a walk does not enter because it may lead in a circle.
LINK_TO_DIRECTORY = "a link to a directory, which is not entered: name it as well to ship what it holds"

# A NUL within this many bytes means that the file is not text: the rule of grep and git.
_SNIFF_BYTES = 8192
# The number of walked files after which the limits of a search are checked.
_FILES_PER_CHECK = 64


#: (path, reason) of paths that are left out.
Skipped = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search for files.

    :ivar files: the files to ship, sorted by path.
    :ivar skipped: (path, reason) of other files in directories, which are not logs.
    :ivar unread: (path, reason) of named or found paths that cannot be read.
    :ivar absent: (path, reason) of named paths that do not exist.
    """

    files: tuple[LogFile, ...]
    skipped: Skipped
    unread: Skipped = ()
    absent: Skipped = ()

    @property
    def size(self) -> int:
        """Total size of the files, bytes on disk."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class _Exclusion:
    patterns: tuple[str, ...]
    directory: str | None
    #: True to keep binary files: text of another encoding looks binary.
    binary_too: bool = False

    def matches_name(self, path: str) -> bool:
        return is_excluded(path, self.patterns)

    def matches(self, path: str) -> bool:
        if self.matches_name(path):
            return True
        return self.directory is not None and lies_in(path, self.directory)


class _Left:
    """The paths that a search leaves out, with their reasons, as in :class:`Found`."""

    def __init__(self) -> None:
        self.skipped: dict[str, str] = {}
        self.unread: dict[str, str] = {}
        self.absent: dict[str, str] = {}


def is_excluded(path: str, patterns: Iterable[str]) -> bool:
    """Return True if a path, or its last part, matches one of the glob patterns."""
    name = Path(path).name
    return any(fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(path, pattern) for pattern in patterns)


def lies_in(path: str, directory: str) -> bool:
    """Return True if a path is a directory or lies below it, after links are resolved."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


class Search:
    """A search that runs in steps, so that the first files are shipped before the last is found.

    Named paths are checked when the search begins, so errors are raised before anything is shipped. Directories are
    walked step by step.

    :ivar ended: True if all files are found.
    :ivar found_bytes: total size of all files found so far, including taken ones, bytes on disk.
    :param paths: files, directories, globs, ``file:`` URIs, or addresses of remote files.
    :param exclude: glob patterns of file names or whole paths to leave out.
    :param exclude_directory: a directory to leave out, such as the checkpoint.
    :param allow_links_to: directories below which links may lead, in addition to the named ones.
    :param lenient: True to report unshippable paths in ``unread`` or ``absent`` even if no path can be shipped.
    :param encoding: the encoding of the files; empty for UTF-8.
    :raises InputError: no path can be shipped: it does not exist, a glob matches nothing, a named file cannot be read,
        or a scheme is unknown.
    """

    def __init__(
        self,
        paths: Iterable[str],
        *,
        exclude: Iterable[str] = (),
        exclude_directory: str | None = None,
        allow_links_to: Iterable[str] = (),
        lenient: bool = False,
        encoding: str = "",
    ) -> None:
        self.ended = False
        self._encoding = encoding
        self._faults: list[InputError] = []
        self._exclusion = _Exclusion(tuple(exclude), exclude_directory, bool(encoding))
        self._files: dict[str, LogFile] = {}  # not taken yet
        self._left = _Left()
        matches: list[tuple[str, bool]] = []
        roots = [*allow_links_to]
        for path in paths:
            if scheme_of(path) is not None:
                with self._leniency(path):
                    _collect_remote(path, self._exclusion, self._files, self._left)
                continue
            local = local_path(path)
            with self._leniency(local):
                found = _matches(local)
                globbed = found != [local]
                matches += [(str(Path(match).absolute()), globbed) for match in found]
                roots.append(named_directory(local) if globbed else local)
        self._links_to = LinkTargets(roots)
        walked: list[str] = []
        for match, globbed in matches:
            with self._leniency(match):
                self._take_match(match, walked, globbed=globbed)
        if self._faults and not (lenient or walked or self._files):
            raise self._faults[0]
        # Walked files are not remembered, as there may be millions. Disjoint walks yield each file once.
        self._directories = _apart(walked)
        self._walk = itertools.chain.from_iterable(
            _walk(directory, self._exclusion, self._left, self._links_to) for directory in self._directories
        )
        # Only at the end is it known if a link leads to a file that is found anyway.
        self._links: dict[str, LogFile] = {}
        self._hold_links(list(self._files))
        self._named = frozenset(self._files)
        self.found_bytes = sum(file.size for file in self._files.values())

    def _take_match(self, path: str, walked: list[str], *, globbed: bool) -> None:
        """Add the file or directory of a path.

        :param walked: the list that a directory is appended to.
        :param globbed: False if the user named this path, so that it may be any link.
        """
        if globbed and _leads_out(path, self._links_to, self._left):
            return
        if os.path.isdir(path):
            _check_listed(path)
            walked.append(path)
        elif self._exclusion.matches(path):
            self._left.skipped[path] = EXCLUDED
        else:
            self._files[path] = _named(path)

    @contextlib.contextmanager
    def _leniency(self, path: str) -> Iterator[None]:
        """Record an error of a named path instead of raising it."""
        try:
            yield
        except InputError as error:
            self._faults.append(error)
            left = self._left.unread if os.path.lexists(path) else self._left.absent
            left[path] = str(error).removeprefix(f"{path}: ")

    def advance(self, files: float = math.inf, seconds: float = math.inf) -> None:
        """Search until ``files`` files wait to be taken, ``seconds`` have passed, or the end is reached."""
        until = time.monotonic() + seconds
        while not self.ended and len(self._files) < files and time.monotonic() < until:
            some = list(itertools.islice(self._walk, _FILES_PER_CHECK))
            for path in some:
                if path not in self._named:
                    _collect_walked(path, self._exclusion, self._files, self._left, self._links_to)
            self._hold_links(some)
            self.found_bytes += sum(self._files[path].size for path in some if path in self._files)
            if not some:
                self._end()

    @property
    def waiting(self) -> int:
        """The number of files that wait to be taken."""
        return len(self._files)

    @property
    def skipped(self) -> Skipped:
        """(path, reason) of the paths left out so far that are not logs, sorted."""
        return tuple(sorted((path, why) for path, why in self._left.skipped.items() if path not in self._named))

    @property
    def unread(self) -> Skipped:
        """(path, reason) of the paths found so far that cannot be read, sorted."""
        return tuple(sorted((path, why) for path, why in self._left.unread.items() if path not in self._named))

    @property
    def absent(self) -> Skipped:
        """(path, reason) of named paths that do not exist, sorted."""
        return tuple(sorted(self._left.absent.items()))

    def all(self) -> Found:
        """Search until the end, and return all files and the paths left out."""
        self.advance()
        return self.take()

    def take(self) -> Found:
        """Return the files found since the last call, sorted; at the end also the paths left out."""
        files, self._files = self._files, {}
        found = tuple(replace(files[path], encoding=self._encoding) for path in sorted(files))
        return Found(found, self.skipped, self.unread, self.absent) if self.ended else Found(found, ())

    def _hold_links(self, paths: Iterable[str]) -> None:
        for path in paths:
            file = self._files.get(path)
            if file is not None and not file.address and os.path.islink(path):
                self._links[path] = self._files.pop(path)

    def _end(self) -> None:
        """End the search: ship the links whose target was not found otherwise."""
        self.ended = True
        for path, file in self._links.items():
            target = os.path.realpath(path)
            if self._is_found(target):
                self._left.skipped[path] = f"link to {target}"
            else:
                self._files[path] = file
                self.found_bytes += file.size
                self._left.skipped.pop(path, None)

    def _is_found(self, path: str) -> bool:
        """Return True if a file is among the found ones."""
        if path in self._named or path in self._files:
            return True
        below: list[str] = []
        while path not in self._directories and path != os.path.dirname(path):
            below.append(path)
            path = os.path.dirname(path)
        left = self._left.skipped.keys() | self._left.unread.keys() if below else ()
        return path in self._directories and not any(part in left for part in below)


def _apart(directories: Iterable[str]) -> dict[str, None]:
    """Return the directories without those that the walk of another one enters."""
    named = dict.fromkeys(directories)
    return {directory: None for directory in named if not _is_entered(directory, named)}


def _is_entered(directory: str, others: Collection[str]) -> bool:
    """Return True if the walk of another directory enters this one."""
    while not (os.path.basename(directory).startswith(".") or os.path.islink(directory)):
        parent = os.path.dirname(directory)
        if parent == directory or not os.access(parent, os.R_OK | os.X_OK):
            return False
        if parent in others:
            return True
        directory = parent
    return False


def local_path(path: str) -> str:
    """Return the local path that the user means: a ``file:`` URI without its scheme, anything else unchanged.

    :raises InputError: the scheme is unknown, or the path is empty. An unset shell variable would otherwise mean the
        current directory.
    """
    if not path:
        raise InputError("a PATH is empty: name a file, a directory or a glob; . is this directory")
    parts = urlsplit(path)
    if "://" not in path and parts.scheme != "file":
        return path
    if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
        return unquote(parts.path)
    known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
    raise InputError(f"{path}: the scheme {parts.scheme}:// is unknown; use a path, file:// or one of {known}")


def _matches(path: str) -> list[str]:
    if os.path.exists(path) or not glob.has_magic(path):
        return [path]
    matches = sorted(glob.glob(path, recursive=True))  # Path.glob takes no absolute pattern
    if not matches:
        raise InputError(f"{path}: no file matches this pattern")
    return matches


def _check_listed(directory: str) -> None:
    """Check that a named directory can be listed.

    :raises InputError: the directory cannot be listed.
    """
    try:
        os.scandir(directory).close()
    except OSError as error:
        raise InputError(f"{directory}: cannot be listed: {error.strerror}") from error


def _walk(directory: str, exclude: _Exclusion, left: _Left, links_to: LinkTargets) -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        left.unread[str(error.filename)] = f"cannot be listed: {error.strerror}"

    for folder, folders, names in os.walk(directory, onerror=unreadable):
        for name in sorted(folders):
            path = os.path.join(folder, name)
            if name.startswith("."):
                left.skipped[path] = HIDDEN
            elif os.path.islink(path):
                _leave_link(path, exclude, left, links_to)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            yield os.path.join(folder, name)


def _leave_link(path: str, exclude: _Exclusion, left: _Left, links_to: LinkTargets) -> None:
    """Leave out a link to a directory, whose files may be found anyway."""
    if exclude.matches(path):
        left.skipped[path] = EXCLUDED
    else:
        inside = links_to.allow(os.path.realpath(path))
        (left.skipped if inside else left.unread)[path] = LINK_TO_DIRECTORY


def _collect_walked(
    path: str, exclude: _Exclusion, files: dict[str, LogFile], left: _Left, links_to: LinkTargets
) -> None:
    if exclude.matches(path):
        left.skipped[path] = EXCLUDED
        return
    if Path(path).name.startswith("."):
        left.skipped[path] = HIDDEN
        return
    if os.path.islink(path) and _leads_out(path, links_to, left):
        return
    try:
        file, head = _open(path)
    except InputError:
        left.skipped[path] = "not a regular file"
    except FileNotFoundError as error:  # The file was deleted after it was listed, or the link is broken.
        left.skipped[path] = str(error.strerror)
    except OSError as error:
        left.unread[path] = f"cannot be read: {error.strerror}"
    else:
        if file.compression is None and b"\0" in head and not exclude.binary_too and _is_binary(head, path):
            left.skipped[path] = _binary(head)
        else:
            files[path] = file


def _binary(head: bytes) -> str:
    """Return the reason to leave out a file with NULs, with the encoding it may have."""
    encoding = looks_like(head)
    return "binary" if encoding is None else f"{LOOKS_LIKE} {encoding}: ship it with --encoding {encoding}"


def _is_binary(head: bytes, path: str) -> bool:
    """Return True if the first bytes are not text. A hole at the start and NULs after the last line are allowed."""
    if head.startswith(HOLE):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            begin = hole_end(file.fileno(), 0)
            head = head if begin is None else os.pread(file.fileno(), _SNIFF_BYTES, begin)
    text = head.rstrip(b"\0")
    return b"\0" in text or not (text == head or text.endswith(b"\n"))


def _leads_out(path: str, links_to: LinkTargets, left: _Left) -> bool:
    """Return True if a path leads by links outside the allowed directories, and record it."""
    target = os.path.realpath(path)
    out = os.path.exists(target) and not links_to.allow(target)
    if out:
        left.unread[path] = not_followed(target, "--allow-links-to")
    return out


def _collect_remote(path: str, exclude: _Exclusion, files: dict[str, LogFile], left: _Left) -> None:
    """Find remote files; many are queried concurrently."""
    found = remote_addresses(path)
    reasons = {address: _why_not(address, path, exclude, walked=walked) for address, walked in found.items()}
    left.skipped |= {shown(address): reason for address, reason in reasons.items() if reason}
    for address, seen in look_at([address for address, reason in reasons.items() if not reason], _SNIFF_BYTES):
        name = shown(address)
        if isinstance(seen, RemoteError):
            if not found[address]:
                raise InputError(str(seen)) from seen
            left.unread[name] = str(seen).removeprefix(f"{name}: ")
            continue
        compression = compression_of(seen.head)
        if found[address] and compression is None and b"\0" in seen.head and not exclude.binary_too:
            left.skipped[name] = _binary(seen.head)
        else:
            files[name] = LogFile(name, seen.size, compression, 0, 0, address, seen.version, seen.ranged)


def _why_not(address: str, path: str, exclude: _Exclusion, *, walked: bool) -> str | None:
    """Return the reason to leave out a remote file that was found; None to ship it."""
    if exclude.matches_name(shown(address)):
        return EXCLUDED
    below = shown(address).removeprefix(shown(path))
    return HIDDEN if walked and any(part.startswith(".") for part in below.split("/")) else None


def _named(path: str) -> LogFile:
    try:
        return _open(path)[0]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _open(path: str) -> tuple[LogFile, bytes]:
    # Check before opening: opening a named pipe would wait for its writer.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise InputError(f"{path}: not a regular file")
    with open(path, "rb") as file:
        head = file.read(_SNIFF_BYTES)
        status = os.fstat(file.fileno())
    return LogFile(path, status.st_size, compression_of(head), status.st_dev, status.st_ino), head

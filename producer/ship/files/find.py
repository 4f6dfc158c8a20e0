"""From the paths that a person names to the files that will be shipped.

==========================  ===============================================================================
a file                      shipped, whatever is in it
a directory                 every file below it, without those that are binary, hidden or unreadable
a glob (``*``, ``?``, ``[``)  each match by the two rules above; ``**`` crosses directories
``file:///path``            the same as ``/path``
``s3://…``, ``https://…``    elsewhere (:mod:`.remote`): a file, a directory that can be listed, or a glob of one
==========================  ===============================================================================

Files come sorted by path and once each, also when two arguments name the same one. What a directory walk leaves out is
returned with its reason, never dropped without a word.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import glob
import io
import itertools
import math
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...wire.compressed_heads import compression_of
from ...wire.encodings import HOLE, hole_end
from ..errors import InputError
from .remote.address import SCHEMES, scheme_of, shown
from .remote.look import look_at, remote_addresses
from .remote.seen import RemoteError, Seen

#: Why a file is not among those found: a pattern of those to leave out.
EXCLUDED = "excluded"
#: Why a directory walk left out a link to a directory: it may lead in a circle, or to what is found anyway.
LINK_TO_DIRECTORY = "a link to a directory, which is not entered: name it as well to ship what it holds"

# A NUL byte this early means that the file is not text: the rule of grep and git.
_SNIFF_BYTES = 8192
# Files of a walk that are looked at before it is asked whether that is enough.
_LOOK = 64


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file to ship, as it was when it was found.

    :ivar path: its absolute path, as the driver and every worker sees it.
    :ivar size: its size then, bytes; what is appended later is not part of this job.
    :ivar compression: by its first bytes (:func:`~producer.wire.compressed_heads.compression_of`), None for plain text.
    :ivar device: the number of the file system on the host that found it.
    :ivar inode: its number there, which a rename keeps.
    :ivar address: of a remote file: by which it is read. Its path is that without secrets.
    :ivar version: of a remote file: what changes with it.
    :ivar ranged: whether it can be read from anywhere.
    """

    path: str
    size: int
    compression: str | None
    device: int = 0
    inode: int = 0
    address: str = ""
    version: str = ""
    ranged: bool = True

    @property
    def whole(self) -> bool:
        """Whether it can only be read from its beginning."""
        return self.compression is not None or not self.ranged

    @property
    def seen(self) -> Seen:
        """It, as those see it who read remote files."""
        return Seen(self.address, self.size, self.version, self.ranged)


@dataclass(frozen=True, slots=True)
class Found:
    """What a search for files came to.

    :ivar files: the files to ship, sorted by path.
    :ivar skipped: (path, reason) of what directories held besides.
    """

    files: tuple[LogFile, ...]
    skipped: tuple[tuple[str, str], ...]

    @property
    def size(self) -> int:
        """The bytes of all files together, as they lie on disk."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class _Exclusion:
    patterns: tuple[str, ...]
    directory: str | None

    def matches_name(self, path: str) -> bool:
        return is_excluded(path, self.patterns)

    def matches(self, path: str) -> bool:
        if self.matches_name(path):
            return True
        return self.directory is not None and lies_in(path, self.directory)


def is_excluded(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path, or its last part, matches one of the glob patterns to leave out."""
    name = Path(path).name
    return any(fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(path, pattern) for pattern in patterns)


def lies_in(path: str, directory: str) -> bool:
    """Whether a path is a directory or lies below it, by whatever links it is named."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def find_files(paths: Iterable[str], *, exclude: Iterable[str] = (), exclude_directory: str | None = None) -> Found:
    """Resolve ``paths`` to the files to ship.

    :param paths: files, directories, globs or ``file:`` URIs; addresses of remote ones.
    :param exclude: glob patterns of file names or whole paths to leave out.
    :param exclude_directory: a directory of which nothing is taken: a checkpoint.
    :raises InputError: a path does not exist, a glob matches nothing, a named file cannot be read, or nobody knows the
        scheme.
    """
    search = Search(paths, exclude=exclude, exclude_directory=exclude_directory)
    search.go_on()
    return search.take()


class Search:
    """A search that can be gone on with, so that the first files are shipped before the last is found.

    What is named is looked at when it begins, so that an error is known before anything is shipped. What lies below
    directories comes as it is gone on.

    :param paths: and the other parameters, and errors: as of :func:`find_files`.
    :ivar ended: whether all is found.
    """

    def __init__(
        self, paths: Iterable[str], *, exclude: Iterable[str] = (), exclude_directory: str | None = None
    ) -> None:
        self.ended = False
        self._exclusion = _Exclusion(tuple(exclude), exclude_directory)
        self._files: dict[str, LogFile] = {}  # not taken yet
        self._skipped: dict[str, str] = {}
        directories: list[str] = []
        for path in paths:
            if scheme_of(path) is not None:
                _collect_remote(path, self._exclusion, self._files, self._skipped)
                continue
            for match in _matches(local_path(path)):
                if os.path.isdir(match):  # noqa: PTH112  (Path raises where it may not look; likewise the next ones)
                    _check_listed(match)
                    directories.append(str(Path(match).absolute()))
                else:
                    _collect(match, self._exclusion, self._files, self._skipped)
        # Of a million files that are walked by none is remembered: they come once each, and where they lie is known.
        self._directories = _apart(directories)
        self._walk = itertools.chain.from_iterable(
            _walk(directory, self._exclusion, self._skipped) for directory in self._directories
        )
        # Whether a link leads to a file that is found anyway is known when all are.
        self._links: dict[str, LogFile] = {}
        self._hold_links(list(self._files))
        self._named = frozenset(self._files)
        self._found_bytes = sum(file.size for file in self._files.values())

    @property
    def found_bytes(self) -> int:
        """The bytes of all files that were found so far, as they lie on disk, also of those that are taken."""
        return self._found_bytes

    def go_on(self, files: float = math.inf, seconds: float = math.inf) -> None:
        """Look for more, until so many files wait to be taken, or for so long, or to the end."""
        until = time.monotonic() + seconds
        while not self.ended and len(self._files) < files and time.monotonic() < until:
            some = list(itertools.islice(self._walk, _LOOK))
            for path in some:
                if path not in self._named:
                    _collect_walked(path, self._exclusion, self._files, self._skipped)
            self._hold_links(some)
            self._found_bytes += sum(self._files[path].size for path in some if path in self._files)
            if not some:
                self._end()

    @property
    def waiting(self) -> int:
        """How many files wait to be taken."""
        return len(self._files)

    @property
    def skipped(self) -> tuple[tuple[str, str], ...]:
        """(path, reason) of what was left out so far, sorted."""
        return tuple(sorted((path, why) for path, why in self._skipped.items() if path not in self._named))

    def take(self) -> Found:
        """The files that were found since the last time, sorted; what was left out is told at the end."""
        files, self._files = self._files, {}
        return Found(tuple(files[path] for path in sorted(files)), self.skipped if self.ended else ())

    def _hold_links(self, paths: Iterable[str]) -> None:
        for path in paths:
            file = self._files.get(path)
            if file is not None and not file.address and os.path.islink(path):  # noqa: PTH114
                self._links[path] = self._files.pop(path)

    def _end(self) -> None:
        """All is found: links that lead to none of it are files like others."""
        self.ended = True
        for path, file in self._links.items():
            target = os.path.realpath(path)
            if self._is_found(target):
                self._skipped[path] = f"link to {target}"
            else:
                self._files[path] = file
                self._found_bytes += file.size
                self._skipped.pop(path, None)

    def _is_found(self, path: str) -> bool:
        """Whether a file is among those that were found."""
        if path in self._named or path in self._files:
            return True
        below: list[str] = []
        while path not in self._directories and path != os.path.dirname(path):  # noqa: PTH120
            below.append(path)
            path = os.path.dirname(path)  # noqa: PTH120
        return path in self._directories and not any(part in self._skipped for part in below)


def _apart(directories: Iterable[str]) -> dict[str, None]:
    """Directories of which no walk enters another: a file of all their walks comes once."""
    named = dict.fromkeys(directories)
    return {directory: None for directory in named if not _is_entered(directory, named)}


def _is_entered(directory: str, others: Collection[str]) -> bool:
    """Whether the walk of another one comes to a directory."""
    while not (os.path.basename(directory).startswith(".") or os.path.islink(directory)):  # noqa: PTH119, PTH114
        parent = os.path.dirname(directory)  # noqa: PTH120
        if parent == directory or not os.access(parent, os.R_OK | os.X_OK):
            return False
        if parent in others:
            return True
        directory = parent
    return False


def local_path(path: str) -> str:
    """The path that a person means: a ``file:`` URI without its scheme, anything else as it is.

    :raises InputError: another scheme.
    """
    parts = urlsplit(path)
    if "://" not in path and parts.scheme != "file":
        return path
    if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
        return unquote(parts.path)
    known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
    raise InputError(f"{path}: {parts.scheme}:// is not known here; known are {known}, file:// and paths")


def _matches(path: str) -> list[str]:
    if os.path.exists(path) or not glob.has_magic(path):  # noqa: PTH110
        return [path]
    matches = sorted(glob.glob(path, recursive=True))  # noqa: PTH207  (Path.glob takes no absolute pattern)
    if not matches:
        raise InputError(f"{path}: no file matches this pattern")
    return matches


def _check_listed(directory: str) -> None:
    """A directory that is named is not left out in silence.

    :raises InputError: it cannot be listed.
    """
    try:
        os.scandir(directory).close()
    except OSError as error:
        raise InputError(f"{directory}: cannot be listed: {error.strerror}") from error


def _collect(path: str, exclude: _Exclusion, files: dict[str, LogFile], skipped: dict[str, str]) -> None:
    absolute = str(Path(path).absolute())
    if exclude.matches(absolute):
        skipped[absolute] = EXCLUDED
    else:
        files[absolute] = _named(absolute)


def _walk(directory: str, exclude: _Exclusion, skipped: dict[str, str]) -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        skipped[str(error.filename)] = f"cannot be listed: {error.strerror}"

    for folder, folders, names in os.walk(directory, onerror=unreadable):
        for name in sorted(folders):
            path = os.path.join(folder, name)  # noqa: PTH118  (os.walk deals in strings)
            if name.startswith("."):
                skipped[path] = "hidden"
            elif os.path.islink(path):  # noqa: PTH114
                skipped[path] = EXCLUDED if exclude.matches(path) else LINK_TO_DIRECTORY
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            yield os.path.join(folder, name)  # noqa: PTH118


def _collect_walked(path: str, exclude: _Exclusion, files: dict[str, LogFile], skipped: dict[str, str]) -> None:
    if exclude.matches(path):
        skipped[path] = EXCLUDED
        return
    if Path(path).name.startswith("."):
        skipped[path] = "hidden"
        return
    try:
        file, head = _open(path)
    except (OSError, InputError) as error:
        skipped[path] = str(getattr(error, "strerror", None) or error)
        return
    if file.compression is None and b"\0" in head and _is_binary(head, path):
        skipped[path] = "binary"
    else:
        files[path] = file


def _is_binary(head: bytes, path: str) -> bool:
    """Whether the first bytes are no text, but for a hole before it, or NULs behind its last line."""
    if head.startswith(HOLE):
        with contextlib.suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
            begin = hole_end(file.fileno(), 0)
            head = head if begin is None else os.pread(file.fileno(), _SNIFF_BYTES, begin)
    text = head.rstrip(b"\0")
    return b"\0" in text or not (text == head or text.endswith(b"\n"))


def _collect_remote(path: str, exclude: _Exclusion, files: dict[str, LogFile], skipped: dict[str, str]) -> None:
    """Find remote files; many are looked at at a time."""
    found = remote_addresses(path)
    reasons = {address: _why_not(address, path, exclude, walked=walked) for address, walked in found.items()}
    skipped |= {shown(address): reason for address, reason in reasons.items() if reason}
    for address, seen in look_at([address for address, reason in reasons.items() if not reason], _SNIFF_BYTES):
        name = shown(address)
        if isinstance(seen, RemoteError):
            if not found[address]:
                raise InputError(str(seen)) from seen
            skipped[name] = str(seen).removeprefix(f"{name}: ")
            continue
        compression = compression_of(seen.head)
        if found[address] and compression is None and b"\0" in seen.head:
            skipped[name] = "binary"
        else:
            files[name] = LogFile(name, seen.size, compression, 0, 0, address, seen.version, seen.ranged)


def _why_not(address: str, path: str, exclude: _Exclusion, *, walked: bool) -> str | None:
    """Why a remote file that was found is left out; None if it is not."""
    if exclude.matches_name(shown(address)):
        return EXCLUDED
    below = shown(address).removeprefix(shown(path))
    return "hidden" if walked and any(part.startswith(".") for part in below.split("/")) else None


def _named(path: str) -> LogFile:
    try:
        return _open(path)[0]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _open(path: str) -> tuple[LogFile, bytes]:
    """Look at a file: what it is, and its first bytes."""
    # Looked at before it is opened: opening a named pipe would wait for its writer.
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116
        raise InputError(f"{path}: not a regular file")
    with open(path, "rb") as file:  # noqa: PTH123
        head = file.read(_SNIFF_BYTES)
        status = os.fstat(file.fileno())
    return LogFile(path, status.st_size, compression_of(head), status.st_dev, status.st_ino), head


def open_file(file: LogFile) -> io.BufferedReader:
    """Open the very file that was found, also when it was renamed since, as rotation does.

    :raises FileNotFoundError: it is neither under its name nor under another one in its folder.
    """
    for path in itertools.chain([file.path], _renamed(file)):
        with contextlib.suppress(FileNotFoundError):
            opened = open(path, "rb")  # noqa: PTH123, SIM115  (the caller closes it)
            if _is_same(os.fstat(opened.fileno()), file):
                return opened
            opened.close()
    raise FileNotFoundError(errno.ENOENT, "it was deleted or replaced by another file", file.path)


def _is_same(status: os.stat_result, file: LogFile) -> bool:
    # Another device means another host, which may hold a copy of the file under the same name.
    return status.st_dev != file.device or status.st_ino == file.inode


def _renamed(file: LogFile) -> Iterator[str]:
    """Other names of the file in its folder, looked up only when asked for."""
    folder = Path(file.path).parent
    if folder.is_dir() and folder.stat().st_dev == file.device:
        with os.scandir(folder) as entries:
            names = [entry.path for entry in entries if entry.inode() == file.inode]
        yield from names

"""From the paths that a person names to the files that will be shipped.

==========================  ===============================================================================
a file                      shipped, whatever is in it
a directory                 every file below it, without those that are binary, hidden or unreadable
a glob (``*``, ``?``, ``[``)  each match by the two rules above; ``**`` crosses directories
``file:///path``            the same as ``/path``
``s3://…``, ``https://…``    elsewhere (:mod:`.remote`): a file, a directory that can be listed, or a glob of one
==========================  ===============================================================================

Files come sorted by path and once each, also when two arguments name the same one. A link that a walk or a glob finds
is followed by the rules of :mod:`producer.runtime.link_targets`. What a directory walk leaves out is returned with
its reason,
never dropped without a word: what is no log by the rules above, and, apart from that, what cannot be read.

The file has more than 400 lines, so that the rules for all kinds of paths stand together.
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

#: Why a file is not among those found: a pattern of those to leave out.
EXCLUDED = "excluded"
#: Why a directory walk left out a file whose name begins with a dot.
HIDDEN = "hidden"
#: The beginning of why a directory walk left out a file of another encoding.
LOOKS_LIKE = "binary, but looks like"
#: Why a directory walk left out a link to a directory: it may lead in a circle.
LINK_TO_DIRECTORY = "a link to a directory, which is not entered: name it as well to ship what it holds"

# A NUL byte this early means that the file is not text: the rule of grep and git.
_SNIFF_BYTES = 8192
# Files of a walk that are looked at before it is asked whether that is enough.
_LOOK = 64


#: Paths, and why they are left out.
Skipped = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What a search for files came to.

    :ivar files: the files to ship, sorted by path.
    :ivar skipped: (path, reason) of what directories held besides, and is no log.
    :ivar unread: (path, reason) of what was named or found and cannot be read.
    :ivar absent: (path, reason) of what was named and is not there.
    """

    files: tuple[LogFile, ...]
    skipped: Skipped
    unread: Skipped = ()
    absent: Skipped = ()

    @property
    def size(self) -> int:
        """The bytes of all files together, as they lie on disk."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class _Exclusion:
    patterns: tuple[str, ...]
    directory: str | None
    #: Files of another encoding look like binary ones.
    binary_too: bool = False

    def matches_name(self, path: str) -> bool:
        return is_excluded(path, self.patterns)

    def matches(self, path: str) -> bool:
        if self.matches_name(path):
            return True
        return self.directory is not None and lies_in(path, self.directory)


class _Left:
    """What a search leaves out: reasons by path, as in :class:`Found`."""

    def __init__(self) -> None:
        self.skipped: dict[str, str] = {}
        self.unread: dict[str, str] = {}
        self.absent: dict[str, str] = {}


def is_excluded(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path, or its last part, matches one of the glob patterns to leave out."""
    name = Path(path).name
    return any(fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(path, pattern) for pattern in patterns)


def lies_in(path: str, directory: str) -> bool:
    """Whether a path is a directory or lies below it, by whatever links it is named."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def find_files(
    paths: Iterable[str],
    *,
    exclude: Iterable[str] = (),
    exclude_directory: str | None = None,
    allow_links_to: Iterable[str] = (),
    lenient: bool = False,
    encoding: str = "",
) -> Found:
    """Resolve ``paths`` to the files to ship.

    :param paths: files, directories, globs or ``file:`` URIs; addresses of remote ones.
    :param exclude: glob patterns of file names or whole paths to leave out.
    :param exclude_directory: a directory of which nothing is taken: a checkpoint.
    :param allow_links_to: directories below which links may lead, besides those that are named.
    :param lenient: True if it is no error that none of the paths can be shipped: they are in ``unread`` or ``absent``,
        as is one that cannot be shipped beside others.
    :param encoding: of the files, if it is another than UTF-8.
    :raises InputError: no path can be shipped: it does not exist, a glob matches nothing, a named file cannot be read;
        or nobody knows the scheme of one.
    """
    search = Search(
        paths,
        exclude=exclude,
        exclude_directory=exclude_directory,
        allow_links_to=allow_links_to,
        lenient=lenient,
        encoding=encoding,
    )
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
        # Of a million files that are walked by none is remembered: they come once each, and where they lie is known.
        self._directories = _apart(walked)
        self._walk = itertools.chain.from_iterable(
            _walk(directory, self._exclusion, self._left, self._links_to) for directory in self._directories
        )
        # Whether a link leads to a file that is found anyway is known when all are.
        self._links: dict[str, LogFile] = {}
        self._hold_links(list(self._files))
        self._named = frozenset(self._files)
        self._found_bytes = sum(file.size for file in self._files.values())

    def _take_match(self, path: str, walked: list[str], *, globbed: bool) -> None:
        """Find what a path leads to.

        :param walked: gets it, if it is a directory.
        :param globbed: False if the path was named as it is, so that a link is meant.
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
        """Note that a path that was named cannot be shipped."""
        try:
            yield
        except InputError as error:
            self._faults.append(error)
            left = self._left.unread if os.path.lexists(path) else self._left.absent
            left[path] = str(error).removeprefix(f"{path}: ")

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
                    _collect_walked(path, self._exclusion, self._files, self._left, self._links_to)
            self._hold_links(some)
            self._found_bytes += sum(self._files[path].size for path in some if path in self._files)
            if not some:
                self._end()

    @property
    def waiting(self) -> int:
        """How many files wait to be taken."""
        return len(self._files)

    @property
    def skipped(self) -> Skipped:
        """(path, reason) of what was left out so far and is no log, sorted."""
        return tuple(sorted((path, why) for path, why in self._left.skipped.items() if path not in self._named))

    @property
    def unread(self) -> Skipped:
        """(path, reason) of what cannot be read, as far as is known, sorted."""
        return tuple(sorted((path, why) for path, why in self._left.unread.items() if path not in self._named))

    @property
    def absent(self) -> Skipped:
        """(path, reason) of what was named and is not there, sorted."""
        return tuple(sorted(self._left.absent.items()))

    def take(self) -> Found:
        """The files that were found since the last time, sorted; what was left out is told at the end."""
        files, self._files = self._files, {}
        found = tuple(replace(files[path], encoding=self._encoding) for path in sorted(files))
        return Found(found, self.skipped, self.unread, self.absent) if self.ended else Found(found, ())

    def _hold_links(self, paths: Iterable[str]) -> None:
        for path in paths:
            file = self._files.get(path)
            if file is not None and not file.address and os.path.islink(path):
                self._links[path] = self._files.pop(path)

    def _end(self) -> None:
        """All is found: links that lead to none of it are files like others."""
        self.ended = True
        for path, file in self._links.items():
            target = os.path.realpath(path)
            if self._is_found(target):
                self._left.skipped[path] = f"link to {target}"
            else:
                self._files[path] = file
                self._found_bytes += file.size
                self._left.skipped.pop(path, None)

    def _is_found(self, path: str) -> bool:
        """Whether a file is among those that were found."""
        if path in self._named or path in self._files:
            return True
        below: list[str] = []
        while path not in self._directories and path != os.path.dirname(path):
            below.append(path)
            path = os.path.dirname(path)
        left = self._left.skipped.keys() | self._left.unread.keys() if below else ()
        return path in self._directories and not any(part in left for part in below)


def _apart(directories: Iterable[str]) -> dict[str, None]:
    """Directories of which no walk enters another: a file of all their walks comes once."""
    named = dict.fromkeys(directories)
    return {directory: None for directory in named if not _is_entered(directory, named)}


def _is_entered(directory: str, others: Collection[str]) -> bool:
    """Whether the walk of another one comes to a directory."""
    while not (os.path.basename(directory).startswith(".") or os.path.islink(directory)):
        parent = os.path.dirname(directory)
        if parent == directory or not os.access(parent, os.R_OK | os.X_OK):
            return False
        if parent in others:
            return True
        directory = parent
    return False


def local_path(path: str) -> str:
    """The path that a person means: a ``file:`` URI without its scheme, anything else as it is.

    :raises InputError: another scheme, or nothing: a shell's variable that is not set would mean this directory.
    """
    if not path:
        raise InputError("a PATH is empty: name a file, a directory or a glob; . is this directory")
    parts = urlsplit(path)
    if "://" not in path and parts.scheme != "file":
        return path
    if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
        return unquote(parts.path)
    known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
    raise InputError(f"{path}: {parts.scheme}:// is not known here; known are {known}, file:// and paths")


def _matches(path: str) -> list[str]:
    if os.path.exists(path) or not glob.has_magic(path):
        return [path]
    matches = sorted(glob.glob(path, recursive=True))  # Path.glob takes no absolute pattern
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
    """Leave out a link to a directory: what it holds may be found anyway."""
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
    except FileNotFoundError as error:  # gone since it was listed, or a link to nothing
        left.skipped[path] = str(error.strerror)
    except OSError as error:
        left.unread[path] = f"cannot be read: {error.strerror}"
    else:
        if file.compression is None and b"\0" in head and not exclude.binary_too and _is_binary(head, path):
            left.skipped[path] = _binary(head)
        else:
            files[path] = file


def _binary(head: bytes) -> str:
    """Say that a file is left out for a NUL, and which encoding would have some."""
    encoding = looks_like(head)
    return "binary" if encoding is None else f"{LOOKS_LIKE} {encoding}: ship it with --encoding {encoding}"


def _is_binary(head: bytes, path: str) -> bool:
    """Whether the first bytes are no text, but for a hole before it, or NULs behind its last line."""
    if head.startswith(HOLE):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            begin = hole_end(file.fileno(), 0)
            head = head if begin is None else os.pread(file.fileno(), _SNIFF_BYTES, begin)
    text = head.rstrip(b"\0")
    return b"\0" in text or not (text == head or text.endswith(b"\n"))


def _leads_out(path: str, links_to: LinkTargets, left: _Left) -> bool:
    """Return True if a path leads by links to what must not be read, and note it."""
    target = os.path.realpath(path)
    out = os.path.exists(target) and not links_to.allow(target)
    if out:
        left.unread[path] = not_followed(target, "--allow-links-to")
    return out


def _collect_remote(path: str, exclude: _Exclusion, files: dict[str, LogFile], left: _Left) -> None:
    """Find remote files; many are looked at at a time."""
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
    """Why a remote file that was found is left out; None if it is not."""
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
    """Look at a file: what it is, and its first bytes."""
    # Looked at before it is opened: opening a named pipe would wait for its writer.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise InputError(f"{path}: not a regular file")
    with open(path, "rb") as file:
        head = file.read(_SNIFF_BYTES)
        status = os.fstat(file.fileno())
    return LogFile(path, status.st_size, compression_of(head), status.st_dev, status.st_ino), head

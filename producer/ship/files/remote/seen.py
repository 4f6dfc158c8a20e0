"""What is seen of a remote file, and what those who look must be able to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ....spark.errors import SparkJobError

# What changes with a file, under the names that file systems and web servers give it.
_VERSIONS = (
    "etag",
    "md5hash",
    "content-md5",
    "generation",
    "versionid",
    "lastmodified",
    "last_modified",
    "last-modified",
    "modificationtime",
    "modification_time",
    "mtime",
    "updated",
)


class RemoteError(SparkJobError):
    """A file system elsewhere did not do what it was asked for; says why, and no secret."""


class AccessRefusedError(RemoteError):
    """It wants other credentials."""


class NotThereError(RemoteError):
    """It has no such file."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A remote file, as it was when somebody looked.

    :ivar address: by which it is read.
    :ivar size: bytes.
    :ivar version: what changes with it, ``name=value`` a line; empty if nothing is told.
    :ivar ranged: whether it can be read from anywhere, not only from its beginning.
    :ivar head: its first bytes.
    """

    address: str
    size: int
    version: str
    ranged: bool = True
    head: bytes = b""


class Source(Protocol):
    """An open remote file, read one way."""

    def seek(self, position: int, /) -> object:
        """Go on from another byte."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, some at least; none at the end.

        :raises RemoteError: they cannot be read.
        """

    def close(self) -> None:
        """Give back what it holds."""


class RemoteFiles(Protocol):
    """A file system elsewhere; each method raises :class:`RemoteError`."""

    def look(self, address: str, head: int) -> Seen:
        """Look at a file.

        :param head: how many of its first bytes are wanted.
        """

    def below(self, address: str) -> list[str] | None:
        """The addresses of all files below a directory; None if it is none."""

    def matches(self, pattern: str) -> list[str]:
        """The addresses that match a glob; those of directories end with ``/``."""

    def open(self, seen: Seen, start: int, end: int) -> Source:
        """Open a file that was seen.

        :param start: the byte that is read first.
        :param end: up to which byte most likely all is read.
        """


def version_of(told: Mapping[str, object]) -> str:
    """What changes with a file, of all that is told about it."""
    known = ((name, told[name]) for name in told if name.lower() in _VERSIONS and told[name])
    return "\n".join(sorted(f"{name.lower()}={' '.join(str(value).split())}" for name, value in known))


def is_same(version: str, other: str) -> bool:
    """Whether two looks may have seen the same file: nothing that both were told differs."""
    first, second = (dict(line.split("=", 1) for line in each.splitlines()) for each in (version, other))
    return all(second.get(name, value) == value for name, value in first.items())
